"""How `ttabench list KIND NAME`, `check` and `doctor` look on a terminal of any width, and in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from tta_bench.checks.description import Description, Field
    from tta_bench.checks.doctor import Finding
    from tta_bench.checks.verdicts import Examination, Verdict

INDENT = 2


def print_description(found: Description) -> None:
    console = Console(highlight=False)
    console.print(Text(f"{found.kind}.{found.name}", style="bold"), Text(f"from {found.origin} ({found.module})"))
    for text in filter(None, (found.summary, found.about)):
        console.print(Text(text))
    _section(console, "what it is", _standing(found))
    _section(console, "hyper-parameters (--set NAME=VALUE)", map(_field_row, found.fields))
    _section(console, "views (--recipe ROLE=RECIPE)", found.recipes.items())
    presets = [(name, _preset(found, name)) for name in dict.fromkeys([*found.presets, *found.preset_recipes])]
    _section(console, "presets (--preset NAME)", presets)
    variants = [(", ".join(found.variants),)] if found.variants else []
    _section(console, f"variants (--dataset {found.name}:VARIANT; the first is the default)", variants)
    _section(console, "has", [(text,) for text in found.offers])
    _section(console, "needs", [(text,) for text in found.needs])


def _standing(found: Description) -> list[tuple[str, str]]:
    paper = ", ".join(filter(None, found.paper.values())) if found.paper else ""
    return [(name, said) for name in ("setting", "status") if (said := getattr(found, name))] + (
        [("paper", paper)] if paper else []
    )


def _section(console: Console, title: str, rows: Iterable[Sequence[str]]) -> None:
    """Rows below a title, the last column wrapped within itself; nothing at all where there are no rows."""
    rows = list(rows)
    if not rows:
        return
    grid = Table.grid(padding=(0, 2, 0, 0))
    for i in range(len(rows[0])):
        grid.add_column(overflow="fold", no_wrap=i == 0 and len(rows[0]) > 1)
    for row in rows:
        grid.add_row(*map(Text, row))
    console.print(Text(f"\n{title}", style="bold"))
    _print_trimmed(console, Padding(grid, (0, 0, 0, INDENT)))


def _print_trimmed(console: Console, content: Padding | Table) -> None:
    """Without the blanks that rich puts behind every line of a table: who copies or compares lines would stumble."""
    with console.capture() as capture:
        console.print(content)
    for line in capture.get().splitlines():
        print(line.rstrip())


def _field_row(field: Field) -> tuple[str, str, str]:
    default = "(required)" if field.required else _value(field.default)
    choices = f"[{' | '.join(field.choices)}]" if field.choices else ""
    return field.name, default, " ".join(filter(None, (field.doc, choices)))


def _preset(found: Description, name: str) -> str:
    return ", ".join((_pairs(found.presets.get(name, {})), _pairs(found.preset_recipes.get(name, {})))).strip(", ")


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={_value(value)}" for key, value in values.items())


def _value(value: Any) -> str:
    """As it would be typed behind --set."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value, value))}]"
    return '""' if value == "" else str(value)


# ---------------------------------------------------------------------------------------------------------- check


def print_examination(found: Examination) -> None:
    console = Console(highlight=False)
    console.print(Text(found.name, style="bold").append(f" ({found.remark})" if found.remark else "", style="none"))
    table = Table()
    table.add_column("check", overflow="fold", min_width=20)
    table.add_column("verdict", no_wrap=True)
    explained = any(verdict.reason for verdict in found.verdicts)
    if explained:
        table.add_column("why", overflow="fold")
    for verdict in found.verdicts:
        table.add_row(Text(verdict.check), _word(verdict), *([_why(verdict)] if explained else []))
    console.print(table)
    for note in found.notes:
        console.print(Text(f"note: {note}"))


def _why(verdict: Verdict) -> Text:
    if not verdict.remedy:
        return Text(verdict.reason)
    return Text(f"{verdict.reason}. To mend it: ").append(verdict.remedy, style="bold")


def _word(verdict: Verdict) -> Text:
    if verdict.skipped:
        return Text("can't tell", style="yellow")
    return Text("passed", style="green") if verdict.passed else Text("FAILED", style="red")


# --------------------------------------------------------------------------------------------------------- doctor


def print_findings(findings: Sequence[Finding], verbose: bool) -> None:
    """What is wrong in full; what is right in a line for all versions and one for all plugins, unless `verbose`."""
    console = Console(highlight=False)
    for group in ("versions", "plugins", "machine"):
        shown = [finding for finding in findings if finding.group == group]
        if group != "machine" and not verbose:
            line = Table.grid(padding=(0, 1, 0, 0))
            line.add_row(_mark(ok=True), Text(_sum_up(group, shown)))
            _print_trimmed(console, line)
            shown = [finding for finding in shown if not finding.ok]
        width = max((len(finding.topic) for finding in shown), default=0)
        for finding in shown:  # never wrapped: most hold a path, which is to be copied
            line_of_text = _mark(finding.ok).append(f" {finding.topic:<{width}}  {finding.value}", style="none")
            console.print(line_of_text, soft_wrap=True)


def _sum_up(group: str, findings: Sequence[Finding]) -> str:
    fine = [finding for finding in findings if finding.ok]
    if group == "plugins":
        return f"{len(fine)} plugin{' loads' if len(fine) == 1 else 's load'}"
    return ", ".join(f"{finding.topic} {finding.value}" for finding in fine)


def _mark(ok: bool) -> Text:
    return Text("").append("ok ", style="green") if ok else Text("").append("BAD", style="red")
