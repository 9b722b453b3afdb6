"""`ttabench new`: the files of a plugin that works, for its author to change. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tta_bench.cli.options import registry
from tta_bench.errors import UnknownName, UsageError


def new(
    kind: Annotated[str, typer.Argument(help="method, dataset or backbone.", metavar="KIND")],
    name: Annotated[str, typer.Argument(help="As typed behind --method, --dataset or --backbone.", metavar="NAME")],
    file: Annotated[bool, typer.Option("--file", help="Only ./NAME.py, for --plugin NAME.py.")] = False,
) -> None:
    """Begin a plugin: a package in ./NAME that installs, passes its tests and can be run as it is."""
    from tta_bench import scaffold
    from tta_bench.plugins import KINDS

    kinds = {plural.removesuffix("s"): plural for plural in KINDS}
    if kind not in kinds:
        raise UnknownName("kind of plugin", kind, kinds, f"Choose one of {', '.join(kinds)}.")
    scaffold.check_spelling(name)
    target = Path(f"{name.replace('-', '_')}.py" if file else name)
    if target.exists() or target.is_symlink():
        raise UsageError(f"./{target} is there already: nothing is overwritten")
    plugin = scaffold.Scaffold.of(kinds[kind], name, registry(None, None))
    if file:
        scaffold.write({target: plugin.loose_file()})
        written, steps = str(target), [plugin.check_command(target), plugin.run_command(target)]
    else:
        files = plugin.package()
        scaffold.write({target / path: content for path, content in files.items()})
        install = f'cd {name} && pip install -e ".[test]" && pytest'
        written, steps = f"{name}/: {', '.join(files)}", [install, plugin.check_command(), plugin.run_command()]
    print(f"wrote {written}")
    print("It works as it is. Change it, and go on with:")
    for step in [*steps, "ttabench leaderboard"]:
        print(f"  {step}")
