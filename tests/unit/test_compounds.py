"""Compound texts: all pairs of classes, and which classes the texts of a file name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tta_bench.errors import BadData
from tta_bench.prompts.compounds import all_pairs, named_classes, read


def test_all_pairs() -> None:
    found = all_pairs(["cat", "dog", "bus"])
    assert found.texts == ("cat and dog", "cat and bus", "dog and bus")
    assert found.mentions == ((0, 1), (0, 2), (1, 2))
    assert all_pairs(["cat"]) == ((), ((),))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A dog, beside two CATS.", {"dog", "cat"}),
        ("a hot dog", {"hot dog"}),
        ("hot dogs and dogs", {"hot dog", "dog"}),
        ("people with knives", {"person", "knife"}),
        ("two buses", {"bus"}),
        ("a doghouse", set()),
        ("a ski", {"skis"}),
        ("a tv-monitor", {"tvmonitor"}),
        ("potted plants", {"potted plant"}),
        ("a motorcycle or a motor bike", {"motor bike"}),
        ("a spotted plant", {"plant"}),
        ("the letter s", {"s"}),
    ],
)
def test_names_are_found_as_whole_words(text: str, names: set[str]) -> None:
    classes = ["dog", "hot dog", "cat", "person", "knife", "bus", "skis", "tvmonitor", "potted plant", "motor bike"]
    classes += ["plant", "s"]
    assert {classes[c] for c in named_classes(text, classes)} == names


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("cat and dog\n\nan empty street\ndogs, and a bus\n")
    found = read(file, ["cat", "dog", "bus"])
    assert found.texts == ("cat and dog", "dogs, and a bus")
    assert found.mentions == ((0,), (0, 1), (1,))


def test_what_can_not_be_used_is_said(tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("an empty street")
    with pytest.raises(BadData, match="no text names a class"):
        read(file, ["cat"])
    with pytest.raises(BadData, match="'12'"):
        named_classes("a cat", ["cat", "12"])
