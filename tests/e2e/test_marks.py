"""What a table must say of its numbers: untrained backbones, parts of a dataset, averages, names that are no text."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from tests.conftest import Invoke
from tests.record_fixtures import on, record, write

TABLES = ("console", "md", "latex")
FORMATS = (*TABLES, "csv", "json")


def rows(text: str, *methods: str) -> list[str]:
    """The lines of a table that belong to these methods."""
    begins = re.compile(rf"[│|\s{{}}]*({'|'.join(methods)})\b[^│|&]*[│|&]", re.IGNORECASE)  # in LaTeX: CLIP, TDA
    return [line for line in text.splitlines() if begins.match(line)]


# ------------------------------------------------------------------------------------------------------ untrained


@pytest.mark.parametrize("format_", TABLES)
def test_every_table_marks_an_untrained_backbone_in_its_title_and_rows(
    invoke: Invoke, home: Path, format_: str
) -> None:
    write(home / "runs", record("clip", backbone="vit-b16", random_weights=True), record("clip"))
    text = invoke("leaderboard", "--random-weights", "--format", format_).out
    assert "vit-b16 (untrained: the numbers mean nothing)" in text
    marked = ["untrained" in row for row in rows(text, "clip")]
    assert marked == [False, True]  # tiny's table stands first


def test_latex_prints_the_mark_and_not_only_a_comment(invoke: Invoke, home: Path) -> None:
    write(home / "runs", record("clip", backbone="vit-b16", random_weights=True))
    printed = [
        line
        for line in invoke("leaderboard", "--random-weights", "--format", "latex").out.splitlines()
        if not line.startswith("%")
    ]
    assert any("untrained: the numbers mean nothing" in line for line in printed)


def test_data_formats_have_a_column_for_it(invoke: Invoke, home: Path) -> None:
    write(home / "runs", record("clip", backbone="vit-b16", random_weights=True), record("clip", dataset_size=None))
    text = invoke("leaderboard", "--random-weights", "--format", "csv").out
    assert ",run,dataset_size,untrained,ttabench,torch,code,setting,status," in text.splitlines()[0]
    table = {row["backbone"]: row for row in csv.DictReader(io.StringIO(text))}
    assert (table["vit-b16"]["untrained"], table["tiny"]["untrained"]) == ("True", "False")
    assert (table["vit-b16"]["dataset_size"], table["tiny"]["dataset_size"]) == ("10", "")
    content = {
        row["backbone"]: row for row in json.loads(invoke("leaderboard", "--random-weights", "--format", "json").out)
    }
    assert (content["vit-b16"]["untrained"], content["tiny"]["untrained"]) == (True, False)
    assert (content["vit-b16"]["dataset_size"], content["tiny"]["dataset_size"]) == (10, None)


@pytest.mark.parametrize("format_", TABLES)
def test_trained_and_untrained_runs_of_one_backbone_have_tables_of_their_own(
    invoke: Invoke, home: Path, format_: str
) -> None:
    write(home / "runs", on("toy", 50.0), on("toy", 90.0, "clip", seed=1, random_weights=True))
    text = invoke("leaderboard", "--random-weights", "--format", format_).out
    (trained,) = rows(text, "tda")
    (untrained,) = rows(text, "clip")
    assert "untrained" not in trained
    assert "untrained" in untrained


def test_nothing_of_an_untrained_table_is_best(invoke: Invoke, home: Path) -> None:
    write(home / "runs", *(record(name, random_weights=True) for name in ("clip", "tda")))
    assert "**" not in invoke("leaderboard", "--random-weights", "--format", "md").out


def test_what_is_left_out_is_counted_in_good_english(invoke: Invoke, home: Path) -> None:
    write(home / "runs", record(), record("clip", random_weights=True))
    assert "1 run of an untrained backbone left out" in invoke("leaderboard").err
    write(home / "runs", record("regions", random_weights=True))
    assert "2 runs of untrained backbones left out" in invoke("leaderboard").err


# -------------------------------------------------------------------------------------------------------- partial


@pytest.mark.parametrize("format_", TABLES)
def test_a_part_of_a_dataset_is_headed_as_one(invoke: Invoke, home: Path, format_: str) -> None:
    write(home / "runs", on("coco2017", n=10, dataset_size=5000), on("voc2007", n=4952, dataset_size=4952))
    text = " ".join(invoke("leaderboard", "--format", format_).out.split())
    assert "coco2017 (10 of 5,000)" in text
    assert "voc2007 (" not in text  # complete: nothing to say
    assert "voc2007" in text


@pytest.mark.parametrize("format_", TABLES)
def test_old_records_show_their_n(invoke: Invoke, home: Path, format_: str) -> None:
    write(home / "runs", record(n=300, dataset_size=None))
    assert "toy (n=300)" in " ".join(invoke("leaderboard", "--format", format_).out.split())


@pytest.mark.parametrize("format_", TABLES)
def test_one_record_that_knows_the_size_tells_it_for_its_column(invoke: Invoke, home: Path, format_: str) -> None:
    """The same protocol is the same dataset, whichever version wrote the record."""
    write(home / "runs", record(dataset_size=None), record("clip"))
    text = invoke("leaderboard", "--format", format_).out
    assert "n=10" not in text
    assert len(rows(text, "tda", "clip")) == 2


# -------------------------------------------------------------------------------------------------------- average


@pytest.mark.parametrize("format_", TABLES)
def test_an_average_never_takes_a_part_for_the_whole(invoke: Invoke, home: Path, format_: str) -> None:
    write(home / "runs", on("a", n=600, dataset_size=600), on("b", n=100, dataset_size=600))
    text = " ".join(invoke("leaderboard", "--format", format_).out.split())
    assert "average mAP" not in text
    assert "No average: it takes two complete datasets" in text


def test_the_complete_columns_are_averaged_and_named(invoke: Invoke, home: Path) -> None:
    write(home / "runs", on("a", 50.0), on("b", 60.0), on("c", 95.0, n=5, dataset_size=600))
    text = invoke("leaderboard", "--format", "md").out
    assert "average of 2 mAP" in text
    assert "55.00" in text
    assert "The average is over the complete columns: a, b." in text


# ------------------------------------------------------------------------------------- names that are no plain text

NASTY = "evil\x1b[31m\x9b2J\r\n\\input{x}|<script>alert(1)</script>\u202e"


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("field", ["method", "dataset", "backbone", "prompt", "changes", "tag", "order"])
def test_names_cannot_steer_a_terminal_or_start_a_line(invoke: Invoke, home: Path, format_: str, field: str) -> None:
    value = {"x": NASTY} if field == "changes" else NASTY
    write(home / "runs", record(**{field: value}), on("other"))  # type: ignore[arg-type]
    result = invoke("leaderboard", "--format", format_)
    assert result.code == 0, result.err
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", result.out)
    assert not re.search(r"^\s*\\+input", result.out, re.MULTILINE)
    if format_ == "md":
        assert "<script" not in result.out
        assert "evil|" not in result.out.replace(r"\|", "")
    if format_ == "latex":
        assert r"\input" not in re.sub(r"^%.*$", "", result.out, flags=re.MULTILINE)


def test_half_a_character_costs_no_table(invoke: Invoke, home: Path) -> None:
    """JSON can hold what is no text: in a name it is written out, in an identity the record is unreadable."""
    broken = record("clip", prompt="x\ud800")
    write(home / "runs", record("tda"), broken)
    content = json.dumps({**broken.to_json(), "run_id": ""}).replace('"toy"', '"\\ud800"')
    (home / "runs" / "broken").mkdir()
    (home / "runs" / "broken" / "run.json").write_text(content)
    for format_ in FORMATS:
        result = invoke("leaderboard", "--format", format_)
        assert (result.code, "tda" in result.out.lower(), "ud800" in result.out) == (0, True, True)
        assert "broken" in result.err


def test_show_and_errors_cannot_steer_a_terminal_either(invoke: Invoke, home: Path) -> None:
    write(home / "runs", record("clip", dataset=NASTY, per_class_ap={NASTY: 1.0}, hyper_parameters={NASTY: NASTY}))
    (home / "runs" / "bad\x1b[31m").mkdir()
    (home / "runs" / "bad\x1b[31m" / "run.json").write_text("{}")
    for arguments in (
        ("show", "clip"),
        ("show", "clip", "--json"),
        ("leaderboard", "--dataset", "evol"),
        ("show", "bad"),
        ("show", "bax"),
    ):
        result = invoke(*arguments)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", result.out + result.err), arguments


# ----------------------------------------------------------------------------------------------------------- show


def test_show_begins_with_the_numbers(invoke: Invoke, home: Path) -> None:
    write(home / "runs", record("clip", 54.321, n=10, dataset_size=5000, random_weights=True))
    lines = invoke("show", "clip").out.splitlines()
    top = "\n".join(lines[:12])
    for words in (
        "clip",
        "toy",
        "tiny",
        "54.32",
        "55.32",
        "56.32",
        "10 of 5,000",
        "untrained: the numbers mean nothing",
    ):
        assert words in top
    text = "\n".join(lines)
    assert text.index("54.32") < text.index("hyper_parameters") < text.index("provenance") < text.index("protocol")


def test_show_says_why_there_is_no_number(invoke: Invoke, home: Path) -> None:
    write(home / "runs", record("clip", None))
    shown = invoke("show", "clip").out
    assert "undefined: no image of the stream has a label" in shown
    assert "()" not in shown.splitlines()[0]
