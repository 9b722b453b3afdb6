"""Names and texts from packs, tables, prompt files and the command line: none crashes, and none obeys a terminal."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from tests.conftest import Invoke
from tests.record_fixtures import record
from tta_bench.datasets.coco import read_instances
from tta_bench.errors import BadData, UsageError
from tta_bench.features.pack import Pack
from tta_bench.interfaces import Task
from tta_bench.prompts import captions
from tta_bench.prompts.files import read_cupl

HALF = "\ud800"  # JSON spells it, and no encoding has it
DEEP = "[" * 100_000
SPECIMEN = Path(__file__).parent.parent / "golden" / "record_v1"


def make_pack(file: Path, **changed: Any) -> Path:
    """A small sound pack, but for what is changed in its metadata."""
    told = {"ids": ["a", "b"], "class_names": ["dog", "cat"]} | changed
    n, c = len(told["ids"]), len(told["class_names"])
    unit = np.full((max(n, c), 1, 4), 0.5, np.float32)
    labels = np.zeros((n, c), np.int8)
    labels[0] = 1
    plain = {"ttabench_pack": "1", "dataset": "toys", "backbone": "some", "logit_scale": "100"}
    metadata = plain | {key: value if isinstance(value, str) else json.dumps(value) for key, value in told.items()}
    tensors: dict[str, Any] = {"labels": labels, "image": unit[:n, 0].copy(), "text/photo": unit[:c].copy()}
    save_file(tensors, file, metadata)
    return file


def one_line(text: str) -> str:
    assert text.startswith("ttabench: ")
    assert text.count("\n") == 1
    assert "unexpected" not in text
    assert "Error" not in text  # the name of an exception says nothing to a user
    return text


# ---- half characters


@pytest.mark.parametrize(
    "changed",
    [
        {"class_names": ["dog", HALF]},
        {"ids": ["a", f"b{HALF}"]},
        {"prompt_texts": {"photo": [["a dog"], [HALF]]}},
    ],
    ids=lambda changed: str(*changed),
)
def test_half_a_character_in_a_pack(changed: dict[str, Any], tmp_path: Path, invoke: Invoke) -> None:
    file = make_pack(tmp_path / "half.safetensors", **changed)
    for command in (("run", "-m", "clip", "--pack", str(file)), ("pack", "info", str(file))):
        result = invoke(*command)
        assert result.code == 2
        assert "half a character" in one_line(result.err)


def test_half_a_character_in_a_packs_history_is_shown(tmp_path: Path, invoke: Invoke) -> None:
    file = make_pack(tmp_path / "half.safetensors", provenance={"by": HALF})
    assert r"\ud800" in invoke("pack", "info", str(file)).out
    assert invoke("run", "-m", "clip", "--pack", str(file)).code == 0


def test_half_a_character_in_labels(tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "labels.csv").write_bytes(b"image,d\xed\xa0\x80g\na.png,1\n")
    result = invoke("run", "-m", "clip", "-d", "folder", "--data-root", str(tmp_path))
    assert "line 1: not UTF-8" in one_line(result.err)


@pytest.mark.parametrize("shape", ["md", "csv", "latex", "json", "console"])
def test_half_a_character_in_a_record(shape: str, tmp_path: Path, invoke: Invoke) -> None:
    name = (SPECIMEN / "name.txt").read_text().strip()
    shutil.copytree(SPECIMEN, tmp_path / "runs" / name)
    file = tmp_path / "runs" / name / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"method": f"x{HALF}", "notes": [HALF]}))
    result = invoke("leaderboard", "--results", str(tmp_path / "runs"), "--format", shape)
    assert "unexpected" not in result.err
    result.out.encode()


def test_half_a_character_in_prompts_and_captions(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps({"dog": ["a dog", f"a {HALF}"]}))
    with pytest.raises(BadData, match="half a character"):
        read_cupl(file, ["dog"])
    file.write_text(json.dumps({"annotations": [{"caption": "a dog"}, {"caption": f"a dog {HALF}"}]}))
    with pytest.raises(BadData, match="caption 2 holds half a character"):
        captions.read_coco(file, ["dog"])
    broken = {"id": 1, "name": HALF}
    file.write_text(json.dumps({"categories": [broken], "images": [], "annotations": []}))
    with pytest.raises(BadData, match="no text"):
        read_instances(file)


ODD = "caf\udce9"  # how Python names a file whose name is Latin-1


def test_paths_that_are_not_utf8_work_where_no_record_names_them(tmp_path: Path, invoke: Invoke) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    (folder / "labels.csv").write_text("image,dog\na.png,1\n")
    Image.new("RGB", (64, 64)).save(folder / "a.png")
    assert invoke("run", "-m", "clip", "-d", "folder", "--data-root", str(folder), "--workers", "0").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("-d", f"folder:{ODD}"),
        ("--prompt", f"cupl:{ODD}.json"),
        ("--set", f"shots={ODD}"),
        ("--weights", f"{ODD}.pt"),
        ("--pack", f"{ODD}.safetensors"),
        ("-m", ODD),
        ("-b", ODD),
    ],
    ids=lambda arguments: arguments[0],
)
def test_names_that_are_not_utf8_are_refused(arguments: tuple[str, str], tmp_path: Path, invoke: Invoke) -> None:
    result = invoke("run", "-m", "tda", "--data-root", str(tmp_path), *arguments)
    assert result.code == 2
    assert r"\udce9" in one_line(result.err)


# ---- depth


def test_deep_json_and_toml(tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "deep.json"
    for content in (DEEP, '{"annotations": ' + DEEP, '{"a":' * 100_000):
        file.write_text(content)
        with pytest.raises(BadData, match="nested too deep"):
            read_cupl(file, ["dog"])
        with pytest.raises(BadData, match="captions file"):
            captions.read_coco(file, ["dog"])
        with pytest.raises(BadData, match="nested too deep"):
            read_instances(file)
    (tmp_path / "ttabench.toml").write_text(f"a = {DEEP}")
    monkeypatch.chdir(tmp_path)
    assert "nested too deep" in one_line(invoke("list", "methods").err)


@pytest.mark.parametrize("about", [DEEP, "[]", "{}", '{"classes": 1}', "5", '{"classes": "", "backbone": []}'])
def test_a_caption_corpus_with_a_strange_note(about: str, tmp_path: Path) -> None:
    file = tmp_path / "corpus.safetensors"
    save_file({"embeddings": np.ones((1, 4), np.float32), "sizes": np.ones(1, np.int64)}, file, {"about": about})
    task: Any = Task.__new__(Task)
    with pytest.raises(BadData, match="not a caption corpus"):
        captions.load(file, task)


# ---- numbers and NULs


@pytest.mark.parametrize("seed", ["²", "0-²", "٣", "1-", "-1", "9" * 5000, "0x1", "1_0", "①"])
def test_a_seed_is_made_of_plain_digits(seed: str, invoke: Invoke) -> None:
    result = invoke("run", "-m", "clip", f"--seed={seed}")
    assert result.code == 2
    assert len(one_line(result.err)) < 300


@pytest.mark.parametrize(("content", "line"), [(b"image,d\0og\na.png,1\n", 1), (b"image,dog\na\0.png,1\n", 2)])
def test_a_nul_in_labels(content: bytes, line: int, tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "labels.csv").write_bytes(content)
    result = invoke("run", "-m", "clip", "-d", "folder", "--data-root", str(tmp_path))
    assert f"line {line}: a NUL character" in one_line(result.err)


# ---- many classes


def test_many_classes_take_time_in_proportion(tmp_path: Path) -> None:
    """The worst case: the last two of them are the same."""

    def seconds(count: int) -> float:
        names = [f"class {i}" for i in range(count - 1)]
        file = make_pack(tmp_path / f"{count}.safetensors", class_names=[*names, names[-1]])
        taken = []
        for _ in range(3):
            began = time.perf_counter()
            with pytest.raises(BadData, match="twice"):
                Pack(file)
            taken.append(time.perf_counter() - began)
        return min(taken)

    assert seconds(32_000) < 10 * seconds(8_000) + 0.05  # four times as many; squared, sixteen times as long


# ---- the terminal


def test_names_from_a_pack_obey_no_terminal(tmp_path: Path, invoke: Invoke) -> None:
    red, turned = "\x1b[31mred", "\u202eturned\r\n\x9b2J"
    file = make_pack(
        tmp_path / "ansi.safetensors",
        class_names=[red, turned],
        ids=[turned, red],
        dataset=f"toys{red}",
        backbone=turned,
        provenance={red: turned},
    )
    twice = make_pack(tmp_path / "twice.safetensors", class_names=[red, red])
    outcomes = [
        invoke("pack", "info", str(file)),
        invoke("pack", "verify", str(file)),
        invoke("run", "-m", "clip", "--pack", str(file)),
        invoke("run", "-m", "tda", "--pack", str(file)),
        invoke("run", "-m", "clip", "--pack", str(file), "--prompt", "ensemble"),
        invoke("pack", "info", str(twice)),
        invoke("leaderboard"),
    ]
    for outcome in outcomes:
        printed = (outcome.out + outcome.err).replace("\n", "")
        assert printed.isprintable(), printed
    assert r"toys\x1b[31mred" in outcomes[2].out


def test_a_folder_that_is_no_text_is_refused_in_python_too(tmp_path: Path) -> None:
    from tta_bench.datasets.folder import Folder

    with pytest.raises(UsageError, match="not UTF-8"):
        Folder.open(tmp_path, ODD)


def test_a_name_longer_than_a_file_system_takes() -> None:
    made = record(dataset="é" * 5000)
    assert len(made.run_id.encode()) < 200
    assert made.run_id != record(dataset="é" * 5000, method="clip").run_id
