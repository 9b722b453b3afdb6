"""`ttabench data`: which datasets are here, and how to get the others."""

from __future__ import annotations

from typing import Annotated

import typer

from tta_bench.cli.options import AsJson, Command, DataRoot
from tta_bench.errors import Interrupted

app = typer.Typer(help="Which datasets are here, and how to get the others.", no_args_is_help=True)


@app.command("status", cls=Command)
def status(data_root: DataRoot = None, json: AsJson = False) -> None:
    """Show which datasets are found, how complete they are, and how to get the rest."""
    from tta_bench.datasets import _download
    from tta_bench.system import paths

    _download.show_status(data_root or paths.data(), json)


@app.command("get", cls=Command)
def get(
    name: Annotated[str, typer.Argument(help="voc2007, voc2012, coco2014 or coco2017.", metavar="NAME")],
    data_root: DataRoot = None,
) -> None:
    """Download a dataset from its official address; the same command resumes."""
    from tta_bench.datasets import _download
    from tta_bench.system import paths
    from tta_bench.system.progress import Terminal

    try:
        _download.get(name, data_root or paths.data(), Terminal())
    except KeyboardInterrupt:
        raise Interrupted from None
