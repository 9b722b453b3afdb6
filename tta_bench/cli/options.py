"""Options and small parsers that several commands share. Imports nothing heavy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from tta_bench.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from tta_bench.plugins import Registry

SEEDS_AT_MOST = 1000
RENAMED = {"--checkpoint": "--weights"}  # old names, which still work


class Command(typer.core.TyperCommand):
    """A command that refuses an option given twice, unless it is a list: the first value would be lost in silence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = [_renamed(argument) for argument in args]
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option in given:
            if given.count(option) > 1 and not getattr(option, "multiple", False):
                name = max(getattr(option, "opts", [option.name]), key=len)
                raise UsageError(f"{name} is given twice, and only one value can count")
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
DataPaths = Annotated[
    list[str] | None, typer.Option("--data", help="An own data root for one dataset.", metavar="NAME=DIR")
]
DatasetName = Annotated[str, typer.Option("--dataset", "-d", help="NAME or NAME:VARIANT.", metavar="DATASET")]
BackboneName = Annotated[str, typer.Option("--backbone", "-b", help="The backbone's name.", metavar="BACKBONE")]
Weights = Annotated[Path | None, typer.Option("--weights", help="Weights file for the backbone.", metavar="FILE")]
Precision = Annotated[str, typer.Option(help="Of the encoders: fp32, fp16 or bf16.")]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def complain(message: str, several_lines: bool = False) -> None:
    """To stderr. A plugin's exception may hold line breaks, which would hide that it is one message."""
    print(f"ttabench: {message.strip() if several_lines else ' '.join(message.split())}", file=sys.stderr)


def registry(files: list[Path] | None, without: list[str] | None) -> Registry:
    """The plugins that a command sees; what is odd about them is said at once."""
    from tta_bench.plugins import Registry, only_from_environment

    found = Registry(files or [], without or [], only_from_environment())
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
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(f"--seed {part}: write a number, several with commas, or a range such as 0-4")
        low, high = int(first), int(last or first)
        if not low <= high < low + SEEDS_AT_MOST:
            raise UsageError(f"--seed {part}: a range goes upwards and has at most {SEEDS_AT_MOST} seeds")
        found += range(low, high + 1)
    return list(dict.fromkeys(found))


def data_paths(values: Sequence[str]) -> dict[str, Path]:
    """`--data NAME=DIR`: the data roots of datasets that are not under the general one."""
    found: dict[str, Path] = {}
    for value in values:
        name, _, path = (part.strip() for part in value.partition("="))
        if not name or not path:
            raise UsageError(f"--data {value}: write NAME=DIR, for example coco2017=/mnt/coco")
        if found.setdefault(name, Path(path).expanduser()) != Path(path).expanduser():
            raise UsageError(f"--data {name} is given twice, and only one folder can count")
    return found


def choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise UnknownName(f"value of {option}", value, choices, f"Choose one of {', '.join(choices)}.")
    return value
