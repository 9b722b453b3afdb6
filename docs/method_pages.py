"""Writes a page for each method, docs/methods/NAME.md, from its class, the committed runs and docs/method_pages.toml.

    python -m docs.method_pages            write the pages (`make readme`)
    python -m docs.method_pages --check    fail when one is not what the code says (`make lint`)

The distance to the official code is taken from docs/closeness.md, which is computed: refresh that one first.
"""

from __future__ import annotations

import re
import statistics
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.generated import DOCS, ROOT, table, write_or_check
from tta_bench import records
from tta_bench.checks.description import Description, Field, describe
from tta_bench.plugins import Registry
from tta_bench.records import RunRecord

NAME_ALONE = 50  # characters of a docstring that says no more than the title
MORE = {"purf": "[Every equation with its function, its test and our reading](../purf.md) is a page of its own."}


def pages() -> Mapping[str, str]:
    registry = Registry()
    texts = tomllib.loads(DOCS.joinpath("method_pages.toml").read_text(encoding="utf-8"))
    runs, problems = records.load_all(ROOT / "results" / "runs")
    if problems:
        raise SystemExit("\n".join(problems))
    if untold := set(registry.names("methods")) - set(texts):
        raise SystemExit(f"docs/method_pages.toml does not say what these do: {', '.join(sorted(untold))}")
    close = DOCS.joinpath("closeness.md").read_text(encoding="utf-8")
    found = {}
    for plugin in registry.plugins("methods"):
        described = describe(registry, plugin, Path())
        mine = [run for run in runs if run.method == plugin.name]
        found[f"methods/{plugin.name}.md"] = page(described, registry, texts[plugin.name], mine, close)
    return found


def page(found: Description, registry: Registry, text: str, runs: Sequence[RunRecord], close: str) -> str:
    title = registry.method(found.name).title or found.name
    parts = [
        f"# {title}",
        f"`--method {found.name}`, {found.setting}, {found.status}. {source(found)}",
        text.strip(),
        *([MORE[found.name]] if found.name in MORE else []),
        f"In one line: {found.about}" if len(found.about) > NAME_ALONE else "",
        "## Fields",
        table(["`--set`", "default", "what it is"], [row(field) for field in found.fields]).rstrip()
        if found.fields
        else "None.",
        "## Views and needs",
        "\n".join(views_and_needs(found)),
        *presets(found),
        "## Cost",
        cost(runs),
        "## How close",
        closeness(found.name, close),
        f"All methods are in [one table](../methods.md), with what to know before quoting a number. The code is "
        f"[methods/{found.module.rpartition('.')[2]}.py](../../methods/{found.module.rpartition('.')[2]}.py).",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def source(found: Description) -> str:
    if not found.paper:
        return "Not published elsewhere."
    title, venue, url = (found.paper[part] for part in ("title", "venue", "url"))
    return f"{f'[{title}]({url})' if url else title}, {venue}."


def row(field: Field) -> list[str]:
    choices = f"; one of {', '.join(f'`{choice}`' for choice in field.choices)}" if field.choices else ""
    return [f"`{field.name}`", f"`{typed(field.default)}`", f"{field.doc.rstrip('.')}{choices}"]


def typed(value: Any) -> str:
    """As it would be typed behind --set."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(typed, value))}]"
    return '""' if value == "" else str(value)


def views_and_needs(found: Description) -> list[str]:
    views = [f"- role `{role}`: `{recipe}` (`--recipe {role}=RECIPE`)" for role, recipe in found.recipes.items()]
    needs = [re.sub(r"docs/(\w+)\.md", r"[\1](../\1.md)", need) for need in found.needs]
    return [
        *(views or ["- the image alone"]),
        *(f"- needs {need.removeprefix(f'{found.name} needs ')}" for need in needs),
    ]


def presets(found: Description) -> list[str]:
    names = list(dict.fromkeys([*found.presets, *found.preset_recipes]))
    if not names:
        return []
    rows = []
    for name in names:
        values = {**found.presets.get(name, {}), **found.preset_recipes.get(name, {})}
        rows.append([f"`{name}`", ", ".join(f"`{key}={typed(value)}`" for key, value in values.items())])
    return ["## Presets", "Published values, taken by `--preset NAME`.", table(["preset", "values"], rows).rstrip()]


def cost(runs: Sequence[RunRecord]) -> str:
    """Medians over the seeds of the committed runs."""
    if not runs:
        return "Not among the [committed runs](../../results/LEADERBOARD.md): it needs more than the package."
    machines = {", ".join(hardware(run)) for run in runs}
    counts = {name: statistics.median(run.counts.get(name, 0) for run in runs) for name in runs[0].counts}
    speed = statistics.median(run.speed["images_per_s"] for run in runs)
    rows = [
        ["images per second", f"{speed:,.0f} in `step` alone ({'; '.join(sorted(machines))})"],
        ["views through the image encoder, per image", f"{counts['forwards_per_image']:,.0f}"],
        ["floating-point operations of the last step", f"{counts['step_flops']:,.0f}"],
        ["backward passes, per image", f"{counts['backward_passes'] / runs[0].n:,.3g}"],
        ["state at the end", f"{counts['state_bytes']:,.0f} bytes"],
    ]
    head = f"`scenes` with `tiny` ({len(runs[0].per_class_ap)} classes), median of {len(runs)} "
    return (
        f"{head}[committed runs](../../results/LEADERBOARD.md); [what is counted](../protocol.md#cost).\n\n"
        + table(["what", "how much"], rows).rstrip()
    )


def hardware(run: RunRecord) -> list[str]:
    threads = run.hardware["adapting_threads"]
    return [str(run.hardware["processor"]), f"{threads} thread{'s' if threads != 1 else ''}"]


def closeness(name: str, close: str) -> str:
    """The method's rows of docs/closeness.md."""
    lines = close.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("| method |"))
    rows = [line for line in lines[head + 2 :] if line.startswith(f"| [`{name}`]")]
    if not rows:
        return "A formula of ours: there is no other code to compare with, and a test computes it by hand."
    cut = [line.split(" | ", 1)[1] for line in (lines[head], lines[head + 1], *rows)]
    return "\n".join(f"| {line}" for line in cut) + "\n\n[What these numbers are](../closeness.md)."


if __name__ == "__main__":
    sys.exit(write_or_check(__doc__, pages))
