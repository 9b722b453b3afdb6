"""Files that a command would write over: what it reads itself, or somebody's file of another kind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import TOY, Invoke
from tests.e2e.test_errors import complaint
from tests.page_fixtures import save_run
from tests.record_fixtures import record, write
from tta_bench.errors import StoreError
from tta_bench.features.pack import Pack
from tta_bench.system.files import write_atomically

TOYS = ("--plugin", str(TOY), "--dataset", "toy", "--backbone", "toyclip")
EXPORT = (*TOYS, "--recipe", "plain3", "--prompt", "photo")


def test_captions_are_not_written_over_their_own_source(invoke: Invoke, tmp_path: Path) -> None:
    source = tmp_path / "captions.txt"
    source.write_text("a boat\tboat\n")
    said = complaint(invoke("captions", "build", "--source", str(source), "-o", str(source)), 2)
    assert "captions.txt is there and is no caption corpus" in said
    assert source.read_text() == "a boat\tboat\n"


def test_captions_take_the_place_of_captions_and_of_nothing_else(
    invoke: Invoke, tmp_path: Path, toy_pack: Path
) -> None:
    pack = toy_pack.read_bytes()
    for file, content in (("labels.csv", b"file,dog\na.png,1\n"), ("toy.safetensors", pack)):
        (tmp_path / file).write_bytes(content)
        complaint(invoke("captions", "build", "-o", str(tmp_path / file)), 2)
        assert (tmp_path / file).read_bytes() == content
    corpus = tmp_path / "corpus.safetensors"
    corpus.touch()  # as mktemp leaves it
    (tmp_path / "captions.txt").write_text("a red ball\tred\n")
    for _ in range(2):
        done = invoke("captions", "build", "--source", str(tmp_path / "captions.txt"), "-o", str(corpus), *TOYS)
        assert done.code == 0, done.err


def test_a_pack_takes_the_place_of_a_pack_and_of_nothing_else(invoke: Invoke, tmp_path: Path, toy_pack: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("mine")
    assert "notes.md is there and is no feature pack" in complaint(invoke("pack", "export", str(notes), *EXPORT), 2)
    assert notes.read_text() == "mine"
    toy_pack.write_bytes(toy_pack.read_bytes()[:-1])  # cut short: a pack all the same
    assert invoke("pack", "export", str(toy_pack), *EXPORT).code == 0
    assert len(Pack(toy_pack)) > 0


def test_a_leaderboard_is_not_written_over_a_record_that_it_shows(invoke: Invoke, home: Path) -> None:
    write(home / "runs", record("clip"), record("tda"))
    for file in (home / "runs").glob("*/run.json"):
        said = complaint(invoke("leaderboard", "--fast", "--format", "json", "-o", str(file)), 2)
        assert "is read here" in said
        assert json.loads(file.read_text())["run_id"] == file.parent.name
    page = home / "runs" / "LEADERBOARD.md"  # beside them
    assert invoke("leaderboard", "--fast", "--format", "md", "-o", str(page)).code == 0


def test_a_figure_is_drawn_over_a_figure_and_over_no_photo(invoke: Invoke, tmp_path: Path, toy_pack: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'ttabench[plots]'")
    photo, figure = tmp_path / "photo.png", tmp_path / "figure.png"
    Image.new("RGB", (8, 8), (200, 0, 0)).save(photo)
    before = photo.read_bytes()
    said = complaint(invoke("plot", "regions", "--photo", str(photo), "-o", str(photo)), 2)
    assert "photo.png is there and is no figure" in said
    assert photo.read_bytes() == before
    assert invoke("run", "--method", "clip", "--pack", str(toy_pack)).code == 0
    for _ in range(2):
        done = invoke("plot", "stream", "-o", str(figure))
        assert done.code == 0, done.err


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, kind in (("", "a folder: name a file in it"), ("pipe", "a pipe or a device")):
        with pytest.raises(StoreError, match=f"can't write .*: it is {kind}"):
            write_atomically(tmp_path / name, b"")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("format_", ["console", "md", "csv", "latex", "json", "html"])
def test_a_leaderboard_replaces_none_but_its_own_kind(format_: str, tmp_path: Path, invoke: Invoke) -> None:
    save_run(tmp_path / "runs", "clip")
    save_run(tmp_path / "runs", "tda")
    asked = ("leaderboard", "--format", format_, "--results", str(tmp_path / "runs"), "-o")
    paper, table = tmp_path / "paper.tex", tmp_path / "table"
    paper.write_text("all that there is of it")
    refused = invoke(*asked, str(paper))
    assert (refused.code, paper.read_text()) == (2, "all that there is of it")
    assert "is there and is no leaderboard" in refused.err
    assert [invoke(*asked, str(table)).code for _ in range(2)] == [0, 0]
