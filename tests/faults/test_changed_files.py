"""Files that change while a bench has them open: no number is recorded, or found again, under what it is not."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from tests.conftest import Invoke
from tests.dataset_fixtures import make_voc
from tta_bench.errors import BadData
from tta_bench.features.options import EncodingOptions
from tta_bench.plugins import Registry
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.runs.grid import Cell
from tta_bench.runs.ledger import Ledger, State
from tta_bench.runs.replay import limited_threads
from tta_bench.system import stamps
from tta_bench.system.progress import Silent
from tta_bench.system.stamps import CLOCK_TICK, Read

SETTLING = 2 * CLOCK_TICK / 1e9  # what was changed only now is not noted


def pictures(folder: Path, seed: int) -> None:
    """Eight pictures of noise in two classes."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for number in range(8):
        Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(folder / f"{number}.png")


def labels(folder: Path, text: str) -> None:
    rows = [f"{number}.png,{first},{1 - int(first)}" for number, first in enumerate(text)]
    (folder / "labels.csv").write_text("\n".join(["image,dog,cat", *rows]) + "\n")
    time.sleep(SETTLING)


@pytest.fixture
def folder(home: Path) -> Path:
    birds = home / "data" / "birds"
    pictures(birds, 0)
    labels(birds, "11110000")
    return birds


def fresh(home: Path) -> Bench:
    return Bench(home, home / "data", registry=Registry(), progress=Silent())


def value(bench: Bench, method: str, force: bool = False, **asked: object) -> float | None:
    spec = RunSpec(method, **{"dataset": "folder:birds", "backbone": "tiny", **asked})  # type: ignore[arg-type]
    return bench.run(spec, force).record.metrics["mAP"]


def test_a_published_photo_that_becomes_another_of_the_same_length_is_encoded_again(home: Path) -> None:
    """As when a damaged copy is got again: it was known by its size alone."""
    images = {f"00000{k}": [("dog" if k % 2 else "cat", False)] for k in range(1, 7)}
    place = make_voc(home / "data" / "VOCdevkit" / "VOC2007", images=images)
    photos = sorted((place / "JPEGImages").iterdir())
    rng = np.random.default_rng(0)
    for number, photo in enumerate(photos):
        Image.fromarray(rng.integers(0, 255, (24, 40, 3), dtype=np.uint8)).save(photo, "JPEG", quality=10 + number)
    contents = [photo.read_bytes() for photo in photos]
    longest = max(map(len, contents))
    found = []
    for turn in (contents, contents[::-1]):
        for photo, content in zip(photos, turn, strict=True):
            photo.write_bytes(content.ljust(longest, b"x"))  # what is behind the end of a JPEG is not read
        spec = RunSpec("clip", "voc2007", "tiny", order="sequential")
        found.append(fresh(home).run(spec).record.scores())
    assert np.allclose(found[0], found[1][::-1], atol=1e-3)
    assert not np.allclose(found[0], found[1], atol=1e-3)


def test_labels_that_change_between_two_runs_of_one_bench(home: Path, folder: Path) -> None:
    bench = fresh(home)
    before = value(bench, "clip")
    labels(folder, "00001111")
    after = value(bench, "clip")
    assert after != before
    assert value(fresh(home), "clip") == after
    assert value(fresh(home), "clip", force=True) == after


def test_pictures_that_change_between_two_runs_of_one_bench(home: Path, folder: Path) -> None:
    bench, originals = fresh(home), shutil.copytree(folder, home / "originals")
    before = value(bench, "clip")
    pictures(folder, 1)
    time.sleep(SETTLING)
    assert value(bench, "clip") != before
    for file in originals.glob("*.png"):
        shutil.copy(file, folder)
    time.sleep(SETTLING)
    assert value(fresh(home), "clip", force=True) == before  # from stored features: they are those pictures' own


def test_a_picture_that_changed_after_the_dataset_was_opened_is_refused(home: Path, folder: Path) -> None:
    dataset = fresh(home).dataset("folder:birds")
    time.sleep(SETTLING)
    (folder / "3.png").write_bytes((folder / "4.png").read_bytes())
    with pytest.raises(BadData, match=r"3\.png has changed since the dataset was opened"):
        dataset[3].load()
    dataset[4].load()


@pytest.mark.parametrize("how", ["overwritten in place", "replaced"])
def test_a_pack_that_changes_between_two_runs_of_one_bench(home: Path, toy_pack: Path, how: str) -> None:
    bench = fresh(home)
    before = value(bench, "clip", pack=toy_pack)
    content = _with_other_labels(toy_pack)
    if how == "replaced":
        (home / "other").write_bytes(content)
        (home / "other").replace(toy_pack)
    else:
        with toy_pack.open("r+b") as file:
            file.write(content)
            file.truncate()
    time.sleep(SETTLING)
    after = value(bench, "clip", pack=toy_pack)
    assert after != before
    assert value(fresh(home), "clip", pack=toy_pack) == after
    assert value(fresh(home), "clip", force=True, pack=toy_pack) == after


def _with_other_labels(pack: Path) -> bytes:
    from safetensors import safe_open
    from safetensors.torch import load_file, save

    tensors = load_file(pack)
    with safe_open(pack, "pt") as opened:
        metadata = opened.metadata()
    tensors["labels"] = tensors["labels"].flip(0).contiguous()
    return save(tensors, metadata)


def test_a_pack_that_changes_while_a_run_reads_it_is_not_recorded(
    home: Path, toy_pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tta_bench.methods.clip import CLIP

    step = CLIP.step

    content = bytearray(toy_pack.read_bytes())
    content[-3] ^= 1

    def changing(self: CLIP, x: object) -> object:
        toy_pack.write_bytes(content)
        return step(self, x)  # type: ignore[arg-type]

    monkeypatch.setattr(CLIP, "step", changing)
    with pytest.raises(BadData, match="was changed while the run read it: nothing is recorded"):
        value(fresh(home), "clip", pack=toy_pack)
    assert not list((home / "runs").glob("*/run.json"))
    assert not list((home / "runs").glob("*/checkpoint.pt"))


def test_a_pack_that_only_looks_as_if_it_had_changed_is_recorded(
    home: Path, toy_pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup has linked it, or somebody has touched it: hours of work were thrown away."""
    from tta_bench.methods.clip import CLIP

    step = CLIP.step

    def touching(self: CLIP, x: object) -> object:
        os.utime(toy_pack)
        return step(self, x)  # type: ignore[arg-type]

    monkeypatch.setattr(CLIP, "step", touching)
    assert value(fresh(home), "clip", pack=toy_pack) is not None


def test_a_tilde_in_a_request_is_the_present_home(home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for user, text in (("a", "11110000"), ("b", "00001111")):
        shutil.copytree(folder, home / user / "birds")
        labels(home / user / "birds", text)
        monkeypatch.setenv("HOME", str(home / user))
        found.append(value(fresh(home), "clip", dataset="folder:~/birds"))
    assert found[0] != found[1]


def test_a_suite_knows_that_its_data_lie_elsewhere_now(home: Path, folder: Path, tmp_path: Path) -> None:
    spec = RunSpec("clip", "folder:birds", "tiny")
    bench = fresh(home)
    from tta_bench.runs import ledger

    list(ledger.execute(bench, [spec]))
    assert Ledger(fresh(home)).standing(spec).state is State.DONE
    elsewhere = Bench(home, shutil.copytree(home / "data", tmp_path / "other"), progress=Silent())
    assert Ledger(elsewhere).standing(spec).state is State.WAITING
    labels(folder, "00001111")
    assert Ledger(fresh(home)).standing(spec).state is State.WAITING


@pytest.mark.slow
def test_a_suite_averages_no_other_images_orders_or_packs(invoke: Invoke, toy_pack: Path, tmp_path: Path) -> None:
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        shutil.copy(toy_pack, tmp_path / place / "toy.safetensors")
    (tmp_path / "b" / "toy.safetensors").write_bytes(_with_other_labels(toy_pack))
    file = tmp_path / "suite.yaml"
    file.write_text(
        "methods: [clip]\npacks: [a/toy.safetensors, b/toy.safetensors]\nlimit: 4\nseeds: 0-2\n"
        "orders: [shuffled, sequential]\n"
    )
    table = invoke("suite", str(file)).out
    assert "a/toy.safetensors/shuffled" in table
    assert "b/toy.safetensors/sequential" in table
    assert ", other images (3/3)" in table


def test_a_pack_that_becomes_shorter_under_its_reader_is_one_line(
    home: Path, toy_pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a memory map it would be SIGBUS, and the end of the process."""
    from tta_bench.methods.clip import CLIP

    step = CLIP.step

    def cutting(self: CLIP, x: object) -> object:
        os.truncate(toy_pack, 200)
        return step(self, x)  # type: ignore[arg-type]

    monkeypatch.setattr(CLIP, "step", cutting)
    with pytest.raises(BadData, match="is shorter than it was when it was opened"):
        value(fresh(home), "clip", pack=toy_pack)


def test_a_picture_behind_a_link_that_changes_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.png").write_bytes(b"1")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").symlink_to(tmp_path / "elsewhere.png")
    time.sleep(SETTLING)
    began = time.time_ns()
    assert Read.since(began + CLOCK_TICK, [tmp_path / "pictures"]).settled
    (tmp_path / "elsewhere.png").write_bytes(b"2")
    assert not Read.since(began, [tmp_path / "pictures"]).settled


def test_a_cell_of_a_suite_is_of_its_files_and_feature_type(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One text in two folders names two packs, and another pack under the same name is another one."""
    spec = RunSpec("clip", "pack", "pack", pack=Path("a.safetensors"))
    for name in ("one", "other"):
        (home / name).mkdir(parents=True)
        (home / name / "a.safetensors").write_text(name)
    monkeypatch.chdir(home / "one")
    Ledger(fresh(home)).note(Cell(spec, failure="broken", exit_code=2))
    assert Ledger(fresh(home)).standing(spec).state is State.FAILED
    in_full = Bench(home, home / "data", registry=Registry(), encoding=EncodingOptions(dtype="float32"))
    assert Ledger(in_full).standing(spec).state is State.WAITING
    (home / "one" / "a.safetensors").write_text("mended")
    assert Ledger(fresh(home)).standing(spec).state is State.WAITING
    monkeypatch.chdir(home / "other")
    assert Ledger(fresh(home)).standing(spec).state is State.WAITING


def test_a_checkpoint_is_of_as_many_threads(home: Path) -> None:
    """Sums of another number of threads have other last bits: such a run would be neither's."""
    run = fresh(home).prepare(RunSpec("tpt", limit=2))
    with limited_threads(1):
        one = run._writer()
    with limited_threads(2):
        assert torch.get_num_threads() == 2
        assert run._writer() != one


def test_a_relative_home_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook may change its folder between two cells."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TTABENCH_HOME", "kept")
    benches = [Bench("home", "data", results="runs", data={"folder": Path("own")}), Bench()]
    monkeypatch.chdir("/")
    assert [bench.home for bench in benches] == [tmp_path / "home", tmp_path / "kept"]
    assert (benches[0].runs, benches[0].root_of("folder:x")) == (tmp_path / "runs", tmp_path / "own")
    assert (benches[0].data_root, benches[1].runs) == (tmp_path / "data", tmp_path / "kept/runs")


@pytest.mark.parametrize("what", ["a file", "a folder"])
def test_an_image_of_a_disk_that_was_made_again_is_another(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a container's image all files have one time, however often it is made: 53.40 was found again for 63.94."""
    image, photo = tmp_path / "data.sif", tmp_path / "photos" / "a.png"
    photo.parent.mkdir()
    for file in (image, photo):
        file.write_text("as it was")
    device = photo.stat().st_dev
    backing = tmp_path / "sys" / f"{os.major(device)}:{os.minor(device)}" / "loop" / "backing_file"
    backing.parent.mkdir(parents=True)
    backing.write_text(f"{image}\n")
    looked_at = photo if what == "a file" else photo.parent
    plain = stamps.stamp(looked_at)
    monkeypatch.setattr(stamps, "DEVICES", tmp_path / "sys")
    clock = iter(range(10**9, 10**9 + 10))
    monkeypatch.setattr(stamps, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    before = stamps.stamp(looked_at)
    assert before == stamps.stamp(looked_at) != plain
    image.write_text("made again")
    assert stamps.stamp(looked_at) != before
