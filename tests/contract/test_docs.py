"""Every command, option, field, config key and page has its place in docs/, and every console block is run or says why
not. What is missing is listed; `make readme` writes the pages that follow from the code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

import tta_bench
from docs import api, commands
from tta_bench import hookspecs
from tta_bench.checks.description import fields_of
from tta_bench.cli.app import app
from tta_bench.plugins import Registry
from tta_bench.runs import presets
from tta_bench.system.config import Config

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {file.relative_to(ROOT): file.read_text(encoding="utf-8") for file in sorted(DOCS.rglob("*.md"))}
OTHERS = {Path(name): (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md")}
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*) -->\n)?```console\n(?P<body>.*?)```", re.DOTALL)
ROOT_COMMAND: Any = get_command(app)
COMMANDS = dict(commands.commands(ROOT_COMMAND))


def section(name: str) -> str:
    """What docs/commands.md has of a command."""
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    return page.partition(f"## `{name}`\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command(name: str) -> None:
    rows = re.findall(r"^\| `([^`]*)` \|[^|]*\| (.*) \|$", section(name).replace("\\|", "/"), re.MULTILINE)
    documented = {typed for typed, words in rows if words.strip()}
    wanted = {typed.replace("|", "/") for typed, _ in commands.parameters(COMMANDS[name])}
    assert wanted - documented == set(), "`make readme` writes docs/commands.md; an option needs a help text"
    assert {typed for typed, _ in rows} == wanted


@pytest.mark.parametrize("name", Registry().names("methods"))
def test_every_field_of_every_method(name: str) -> None:
    page = (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `(\w+)` \| `[^`]*` \| \S", page.partition("## Fields")[2].partition("\n## ")[0], re.MULTILINE
    )
    found = fields_of(Registry().method(name))
    assert rows == [field.name for field in found], "`make readme` writes the pages of methods"
    assert [field.name for field in found if not field.doc] == [], "the comment behind a field says what it is"
    about = page.split("\n\n")[2]
    assert len(re.findall(r"[.!?](?=\s|$)", about)) == 5, "a method is told in five sentences"


def test_every_hook() -> None:
    hooks = [name for name in dir(hookspecs) if name.startswith("ttabench_")]
    assert [hook for hook in hooks if f"`{hook}`" not in PAGES[Path("docs/plugins.md")]] == []


def test_every_key_of_the_config_file() -> None:
    page = PAGES[Path("docs/config.md")]
    keys = {field.name for field in fields(Config)} - {"file", "options"}
    assert {key for key in keys if not re.search(rf"^(?:\[{key}\]|{key} =)", page, re.MULTILINE)} == set()


def test_every_variable_of_the_environment() -> None:
    sources = [file.read_text(encoding="utf-8") for file in (ROOT / "tta_bench").rglob("*.py")]
    named = {name for source in sources for name in re.findall(r'"(TTABENCH_[A-Z_]+)"', source)}
    assert {name for name in named if not any(name in page for page in PAGES.values())} == set()


def test_every_protocol_preset() -> None:
    page = PAGES[Path("docs/protocol.md")]
    assert [name for name in presets.names() if f"`{name}`" not in page] == []


def test_every_name_that_a_script_imports() -> None:
    """`hookimpl` is on the plugins' page, and a version is a version."""
    named = {name for _, _, names in api.SECTIONS for name in names}
    assert set(tta_bench.__all__) - named == {"hookimpl", "__version__"}
    page = PAGES[Path("docs/python.md")]
    assert [name for name in named if f"### `{name}`" not in page] == []


@pytest.mark.parametrize("write", [commands.page, api.page])
def test_pages_follow_from_the_code(write: Any) -> None:
    assert write() in PAGES.values(), "`make readme` writes it anew"


def blocks(pages: dict[Path, str]) -> Iterator[tuple[str, re.Match[str]]]:
    for page, text in pages.items():
        for found in BLOCK.finditer(text):
            yield f"{page}:{text[: found.start()].count(chr(10)) + 1}", found


def test_every_console_block_is_run_or_says_why_not() -> None:
    unmarked = [
        place for place, block in blocks(PAGES) if not re.match(r"refresh\b|not run: \w.{9,}", block["mark"] or "")
    ]
    assert unmarked == [], "docs/refresh.py has the marks"


def test_every_command_that_is_shown_can_be_typed() -> None:
    """Words in capitals stand for something; options and subcommands must be there."""
    wrong = []
    for place, block in blocks(PAGES | OTHERS):
        for line in re.findall(r"^\$ ttabench (.*)$", block["body"], re.MULTILINE):
            typed = shlex.split(line.partition("  #")[0], comments=False)
            if why := refused(typed):
                wrong.append(f"{place}: {line}: {why}")
    assert wrong == []


def refused(typed: list[str]) -> str:
    """Why the parser would not take what was typed; nothing is run."""
    node = ROOT_COMMAND
    while members := getattr(node, "commands", None):
        if not typed or typed[0] not in members:
            return "no such command"
        node, typed = members[typed[0]], typed[1:]
    context = node.make_context(node.name, [], resilient_parsing=True)  # what is required need not be there yet
    context.resilient_parsing = False
    typed = typed[: next((i for i, word in enumerate(typed) if word in ("|", ">", "&&")), len(typed))]
    try:
        node.make_parser(context).parse_args(args=list(typed))
    except Exception as error:
        return str(error)
    return ""


def test_every_page_has_a_place_in_the_site() -> None:
    """Folders fill their section by themselves (docs/site_hooks.py); pages that are named may still be to come."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    named = {f"docs/{page}" for part in nav for pages in part.values() for page in pages}
    assert {str(page) for page in PAGES if page.parent == Path("docs")} - named == set()


def test_links_lead_somewhere() -> None:
    """As on a forge, without the site: files, and headings of pages."""
    broken = []
    for page, text in PAGES.items():
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)(#[^)\s]*)?\)", prose):
            file = (ROOT / page.parent / target).resolve() if target else ROOT / page
            if not file.exists():
                broken.append(f"{page}: {target}")
            elif anchor and file.suffix == ".md" and anchor[1:] not in anchors(file.read_text(encoding="utf-8")):
                broken.append(f"{page}: {target}{anchor}")
    assert broken == []


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
