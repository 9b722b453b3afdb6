"""Options and small parsers that several commands share. Imports nothing heavy."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from tta_bench.errors import Interrupted, UnknownName, UsageError
from tta_bench.system.text import is_text, visible

if TYPE_CHECKING:
    from tta_bench.plugins import Registry
    from tta_bench.runs.fence import Fence

SEEDS_AT_MOST = 1000
MEANT = {"run": "--method"}  # what a word without an option probably is
LONGEST_SEEDS = 60  # characters of a range
RENAMED = {"--checkpoint": "--weights"}  # old names, which still work
PATHS = ("FILE", "DIR")  # how the names of values that are paths begin


class Command(typer.core.TyperCommand):
    """A command that refuses an option given twice, unless it is a list, as the first value would be lost in silence;
    and a path that is empty, as a shell's variable that was never set, which would mean the working folder."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = [_renamed(argument) for argument in args]
        values, stray, given = self.make_parser(ctx).parse_args(args=list(args))
        if stray and self.name in MEANT:
            meant = f"ttabench {self.name} {MEANT[self.name]} {','.join(stray)}"
            raise UsageError(f"{self.name} {' '.join(stray)}: did you mean `{meant}`?")
        for option in given:
            if given.count(option) > 1 and not getattr(option, "multiple", False):
                name = max(getattr(option, "opts", [option.name]), key=len)
                raise UsageError(f"{name} is given twice, and only one value can count")
        written = {**(ctx.default_map or {}), **{name: value for name, value in values.items() if value is not None}}
        for parameter in self.params:
            value = written.get(parameter.name)
            if str(parameter.metavar).startswith(PATHS) and "" in (value if isinstance(value, list) else [value]):
                raise UsageError(f"{max(parameter.opts, key=len)} is empty, where a path is wanted")
        return super().parse_args(ctx, args)


def _renamed(argument: str) -> str:
    name, equals, value = argument.partition("=")
    return f"{RENAMED.get(name, name)}{equals}{value}"


PluginFiles = Annotated[
    list[Path] | None, typer.Option("--plugin", help="Load a loose plugin file.", metavar="FILE.py")
]
WithoutPlugins = Annotated[list[str] | None, typer.Option("--no-plugin", help="Leave a plugin out.", metavar="NAME")]
Results = Annotated[Path | None, typer.Option("--results", help="Where run records are kept.", metavar="DIR")]
DataRoot = Annotated[
    Path | None, typer.Option("--data-root", help="Where datasets are (TTABENCH_DATA).", metavar="DIR")
]
DataPaths = Annotated[list[str] | None, typer.Option("--data", help="An own root for one dataset.", metavar="NAME=DIR")]
DatasetName = Annotated[str, typer.Option("--dataset", "-d", help="NAME or NAME:VARIANT.", metavar="DATASET")]
BackboneName = Annotated[str, typer.Option("--backbone", "-b", help="The backbone's name.", metavar="BACKBONE")]
Weights = Annotated[Path | None, typer.Option("--weights", help="Weights file for the backbone.", metavar="FILE")]
Precision = Annotated[str, typer.Option(help="Of the encoders: fp32, fp16 or bf16.")]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def complain(message: str, several_lines: bool = False) -> None:
    """To stderr. A plugin's exception may hold line breaks, which would hide that it is one message."""
    lines = message.strip().splitlines() if several_lines else [" ".join(message.split())]
    print("\n".join(["ttabench: " + visible(lines[0]), *map(visible, lines[1:])]), file=sys.stderr)


def registry(files: list[Path] | None, without: list[str] | None, fence: Fence | None = None) -> Registry:
    """The plugins that a command sees; what is odd about them is said at once. With a fence, loose files are not run
    in this process."""
    from tta_bench.plugins import Registry, only_from_environment

    named = [Path(part) for file in files or [] for part in ([str(file)] if file.is_file() else str(file).split(","))]
    left_out = names(without, "--no-plugin") if without else []
    found = Registry(named, left_out, only_from_environment(), None if fence is None else fence.offers)
    for warning in found.warnings:
        complain(f"warning: {warning}")
    return found


def names(values: str | Sequence[str], option: str) -> list[str]:
    """What a list option holds: it may be repeated, and each value may hold several names with commas between them."""
    texts = [values] if isinstance(values, str) else values
    found = list(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))
    if not found:
        raise UsageError(f"{option} is empty")
    return found


def seeds(values: str | Sequence[str]) -> list[int]:
    found: list[int] = []
    for part in names(values, "--seed"):
        first, dash, last = part.partition("-")
        whole = all(number.isascii() and number.isdecimal() for number in (first, last or "0"))
        if not whole or (dash and not last) or len(part) > LONGEST_SEEDS:
            part = part if len(part) <= LONGEST_SEEDS else f"{part[:LONGEST_SEEDS]}…"
            raise UsageError(f"--seed {part}: write a number, several with commas, or a range such as 0-4")
        low, high = int(first), int(last or first)
        if not low <= high < low + SEEDS_AT_MOST:
            raise UsageError(f"--seed {part}: a range goes upwards and has at most {SEEDS_AT_MOST} seeds")
        found += range(low, high + 1)
    return list(dict.fromkeys(found))


def pairs(values: Sequence[str], option: str, example: str) -> dict[str, str]:
    """["shots=5", "tda.alpha=1"] -> {"shots": "5", "tda.alpha": "1"}; a key given twice is refused."""
    found: dict[str, str] = {}
    for text in values:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise UsageError(f"{option} {text}: write {example}")
        if option != "--data" and not is_text(text):  # which stands in records; a folder's name is its owner's
            raise UsageError(f"{option} {text}: not UTF-8")
        if key in found:
            raise UsageError(f"{option} {key} is given twice ({found[key]} and {value}), and only one value can count")
        found[key] = value
    return found


def data_paths(values: Sequence[str] | None) -> dict[str, Path]:
    """["coco2017=/mnt/coco"] -> {"coco2017": Path("/mnt/coco")}, over what ttabench.toml says."""
    from tta_bench.system import config
    from tta_bench.system.files import expanded

    example = "NAME=DIR, for example --data coco2017=/mnt/coco"
    given = pairs(values or [], "--data", example)
    if "" in given.values():
        raise UsageError(f"--data: write {example}")
    return {**config.load().data, **{name: expanded(path) for name, path in given.items()}}


def located(pack: str) -> Path:
    """The file of a pack that is named by a path or an address; fetched if it is not here yet."""
    from tta_bench.features.pack_addresses import locate
    from tta_bench.system import paths
    from tta_bench.system.progress import Terminal

    try:
        return locate(pack, paths.home(), Terminal())
    except KeyboardInterrupt:
        raise Interrupted from None


def configured(root: Any) -> dict[str, Any]:
    """The defaults that ttabench.toml gives to options, as click wants them: by command and parameter."""
    from tta_bench.system import config

    found = config.load()
    defaults: dict[str, Any] = {}
    for name, options in found.options.items():
        command = root.commands.get(name)
        if command is None:
            raise UnknownName(f"command in {found.file}", name, root.commands, "A table's name is a command's.")
        groups = getattr(command, "commands", None)
        if groups is None:
            defaults[name] = _parameters(command, options, f"{found.file} [{name}]")
            continue
        defaults[name] = {}
        for sub, own in options.items():
            if sub not in groups or not isinstance(own, dict):
                raise UnknownName(f"command in {found.file} [{name}]", sub, groups, f"Write [{name}.COMMAND].")
            defaults[name][sub] = _parameters(groups[sub], own, f"{found.file} [{name}.{sub}]")
    return defaults


def _parameters(command: Any, options: Mapping[str, Any], where: str) -> dict[str, Any]:
    from tta_bench.system.files import expanded

    known = {opt.removeprefix("--"): p for p in command.params for opt in getattr(p, "opts", ()) if opt[:2] == "--"}
    found: dict[str, Any] = {}
    for key, value in options.items():
        parameter = known.get(key) or known.get(key.replace("_", "-"))
        if parameter is None:
            raise UnknownName(f"option in {where}", key, known, "Write an option's long name without the dashes.")
        if isinstance(value, bool) and not getattr(parameter, "is_flag", False):
            raise UsageError(f"{where}: {key} = {str(value).lower()}: it is no switch, and takes a value")
        values = value if isinstance(value, list) else [value]
        if str(getattr(parameter, "metavar", "")).startswith(PATHS):  # as a shell expands what is typed
            values = [str(expanded(one)) if isinstance(one, str) and one.startswith("~") else one for one in values]
        several = isinstance(value, list) or (getattr(parameter, "multiple", False) and isinstance(value, str))
        found[parameter.name] = values if several else values[0]
    return found


def choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise UnknownName(f"value of {option}", value, choices, f"Choose one of {', '.join(choices)}.")
    return value
