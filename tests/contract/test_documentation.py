"""docs/plugins.md names every member that the core reads of a plugin; docs/methods.md has a row for every method."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from tta_bench.interfaces import BackboneExtras, DatasetExtras, Downloadable, Method, PromptTunable
from tta_bench.plugins import Registry

METHODS = Path(__file__).parents[2].joinpath("docs", "methods.md").read_text(encoding="utf-8")
DOCS = Path(__file__).parents[2].joinpath("docs", "plugins.md").read_text(encoding="utf-8")
PARTS = dict(zip(*[iter(re.split(r"^## (.*)\n", DOCS, flags=re.MULTILINE)[1:])] * 2, strict=True))


def public(cls: type) -> list[str]:
    """What a class declares, with or without a value."""
    return sorted(name for name in {**vars(cls), **cls.__annotations__} if not name.startswith("_"))


def names_in(part: str) -> set[str]:
    return set(re.findall(r"`(\w+)(?:\([^`]*\))?`", PARTS[part]))


@pytest.mark.parametrize("member", public(Method))
def test_every_member_of_a_method(member: str) -> None:
    assert member in names_in("A method in one file")


@pytest.mark.parametrize("member", [f.name for f in dataclasses.fields(DatasetExtras)] + ["download", "status"])
def test_every_optional_member_of_a_dataset(member: str) -> None:
    assert member in names_in("A dataset")


@pytest.mark.parametrize(
    "member", [f.name for f in dataclasses.fields(BackboneExtras)] + ["init_context", "encode_context"]
)
def test_every_optional_member_of_a_backbone(member: str) -> None:
    assert member in names_in("A backbone")


@pytest.mark.parametrize("name", Registry().names("methods"))
def test_every_method_has_a_row_as_it_declares_itself(name: str) -> None:
    method = Registry().method(name)()
    (row,) = re.findall(rf"^\| \[`{name}`\]\(methods/{name}\.md\) \|.*$", METHODS, flags=re.MULTILINE)
    _, _, views, setting, status, _, source, _ = map(str.strip, row.split("|"))
    assert views == (", ".join(recipe.name for recipe in method.recipes.values()) or "image")
    assert (setting, status) == (method.setting, method.status)
    assert all(part in source for part in method.paper or ())


def test_the_lists_above_are_those_of_the_interfaces() -> None:
    assert {"download", "status"} == {name for name in vars(Downloadable) if not name.startswith("_")}
    assert {"init_context", "encode_context"} == {name for name in vars(PromptTunable) if not name.startswith("_")}
    assert "validate" in public(Method)
    assert "tunes_prompts" in public(Method)
