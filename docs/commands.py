"""Writes docs/commands.md: every command of the command line with its arguments and options.

python -m docs.commands            write the page (`make readme`)
python -m docs.commands --check    fail when it is not what the commands are (`make lint`)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from docs.generated import table, write_or_check
from tta_bench.cli.app import app

ABOVE = """# Commands

Every command with its arguments and options, as `ttabench COMMAND --help` has them; `make readme` writes this page.
List options can be repeated or take commas, any other option given twice is refused. Defaults of your own can stand
in a `ttabench.toml` ([configuration](config.md)). An exit code of 0 is success, 1 a check, a cell or a plugin that
failed, 2 something that you asked for and that is not there, and 130 Ctrl-C.

`ttabench --version` shows the version, `ttabench --debug COMMAND …` the whole traceback of an error, `ttabench
--install-completion` teaches the shell to complete commands and options, and `--show-completion` prints what that
would add.
"""


def commands(node: Any, names: tuple[str, ...] = ("ttabench",)) -> Iterator[tuple[str, Any]]:
    """What can be typed, and the command behind it; groups stand for their members."""
    members = getattr(node, "commands", None)
    if members is None:
        yield " ".join(names), node
        return
    for name, member in members.items():
        if not member.hidden:
            yield from commands(member, (*names, name))


def parameters(command: Any) -> Iterator[tuple[str, Any]]:
    """How a parameter is typed, and the parameter."""
    for parameter in command.params:
        if parameter.hidden:
            continue
        if parameter.param_type_name == "argument":
            yield parameter.metavar or parameter.name.upper(), parameter
            continue
        names = [*sorted(parameter.opts, key=len, reverse=True), *parameter.secondary_opts]
        value = "" if parameter.is_flag else f" {parameter.metavar or 'VALUE'}"
        yield f"{', '.join(names)}{value}", parameter


def default(parameter: Any) -> str:
    value = parameter.default
    return "" if value is None or value is False or value == () else f"`{value}`"


def page() -> str:
    parts = [ABOVE]
    for name, command in commands(get_command(app)):
        rows = [[f"`{typed}`", default(found), found.help or ""] for typed, found in parameters(command)]
        paragraphs = [" ".join(text.split()) for text in (command.help or "").split("\n\n")]
        parts.append("\n".join([f"## `{name}`\n", *(f"{text}\n" for text in paragraphs if text), ""]).rstrip() + "\n")
        if rows:
            parts.append(table(["argument or option", "default", "what it does"], rows))
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(write_or_check(__doc__, lambda: {"commands.md": page()}))
