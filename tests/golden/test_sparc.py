"""SPARC against the official implementation, its running variant against a reference, and its formulas by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.golden.streams import Golden, close, make_task, read_golden, unit
from tta_bench.errors import UsageError
from tta_bench.interfaces import Observation, Task
from tta_bench.methods.sparc import SPARC, fold, principal_direction, welford

NAMES = ["alder", "birch", "cedar", "dogwood", "elm", "fir", "gum", "hazel", "ivy", "jasmine", "kapok", "larch"]


@pytest.fixture(scope="module")
def golden() -> Golden:
    return read_golden("golden_sparc.npz")


@pytest.fixture
def file(golden: Golden, tmp_path: Path) -> Path:
    return write_compound(golden, tmp_path / "compound.txt")


def write_compound(golden: Golden, path: Path) -> Path:
    """Texts that name the classes of the golden file's `mentions`."""
    lines = []
    for number, named in enumerate(golden["mentions"].T):
        words = " and ".join(NAMES[c] for c in np.flatnonzero(named))
        lines.append(f"{words}, {'q' * (1 + number)}")
    path.write_text("\n".join(lines))
    return path


def task_of(golden: Golden, file: Path) -> Task:
    known = dict(zip(NAMES, torch.from_numpy(golden["text_simple"]), strict=True))
    known |= dict(zip(file.read_text().splitlines(), torch.from_numpy(golden["text_compound"]), strict=True))

    def encode_texts(texts: Sequence[str]) -> Tensor:
        return torch.stack([known[text] for text in texts])

    text = torch.from_numpy(golden["text"])
    return Task(NAMES, text, text[:, None], 100.0, encode_texts=encode_texts)


def whole(method: SPARC, task: Task, images: Tensor) -> Tensor:
    """Scores [N, C] after `finish`."""
    method.start(task)
    outputs = [method.step(Observation(i, image)) for i, image in enumerate(images)]
    return method.finish(torch.stack([out if out.dim() == 2 else out[None] for out in outputs]))


@pytest.mark.parametrize(
    ("mode", "expected"), [("transductive", "scores"), ("normalize", "normalize_only"), ("running", "running")]
)
def test_official_scores(
    golden: Golden, file: Path, mode: Literal["transductive", "normalize", "running"], expected: str
) -> None:
    method = SPARC(mode=mode, compound=str(file))
    close(whole(method, task_of(golden, file), torch.from_numpy(golden["image"])), golden[expected], 1e-6)


def test_official_directions(golden: Golden, file: Path) -> None:
    method = SPARC(compound=str(file))
    method.start(task_of(golden, file))
    rows = [torch.cat(method.rows(image)) for image in torch.from_numpy(golden["image"]).double()]
    columns = torch.stack(rows)
    columns = (columns - columns.mean(0)) / columns.std(0)
    found = []
    for c, texts in enumerate(np.flatnonzero(row) for row in golden["mentions"]):
        ranked = torch.cat((columns[:, 12 + texts].sort(1)[0], columns[:, c : c + 1]), 1)
        centred = ranked - ranked.mean(0)
        found += principal_direction(centred.T @ centred).tolist()
    close(found, golden["directions_flat"], 1e-6)


def test_without_compound_texts_it_only_normalises(golden: Golden, file: Path) -> None:
    images, task = torch.from_numpy(golden["image"]), task_of(golden, file)
    close(whole(SPARC(compound="none"), task, images), golden["normalize_only"], 1e-6)
    task.encode_texts = None
    with pytest.warns(UserWarning, match="only normalising"):
        scores = whole(SPARC(), task, images)
    close(scores, golden["normalize_only"], 1e-6)


def test_rows_by_hand() -> None:
    """Cosines 0.6, 0.8, 0 with the classes; the pairs are measured by the bare names' mean 0.3 and sd 0.1·√7."""
    features = {"a": [0.4, 0.0], "b": [0.0, 0.5], "c": [0.1, 0.0], "a and b": [0.5, 0.5]}
    features |= {"a and c": [0.0, 0.0], "b and c": [0.0, 1.0]}

    def encode_texts(texts: Sequence[str]) -> Tensor:
        return torch.tensor([features[text] for text in texts])

    text = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    method = SPARC()
    method.start(Task(["a", "b", "c"], text, text[:, None], 100.0, encode_texts=encode_texts))
    single, compound = method.rows(torch.tensor([0.6, 0.8], dtype=torch.float64))
    cosines = np.array([0.6, 0.8, 0.0])
    close(single, (cosines - cosines.mean()) / cosines.std(ddof=1), 1e-6)
    simple = np.array([0.24, 0.4, 0.06])
    close(compound, (np.array([0.7, 0.0, 0.8]) - simple.mean()) / simple.std(ddof=1), 1e-6)
    folded = method.step(Observation(0, torch.tensor([0.6, 0.8])))
    assert folded.shape == (2, 3)
    close(folded[1], compound.numpy(), 1e-6)


def test_fold_fills_up_with_zeros() -> None:
    assert fold(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0, 5.0])).tolist() == [[1, 2], [3, 4], [5, 0]]
    assert fold(torch.tensor([1.0, 2.0]), torch.empty(0)).tolist() == [[1, 2]]


def test_principal_direction_by_hand() -> None:
    """The eigenvector of the largest eigenvalue is (3, 4)/5: (3, 4)/7 once its parts sum to 1, whichever its sign."""
    scatter = torch.tensor([[9.0, 12.0], [12.0, 16.0]], dtype=torch.float64)
    close(principal_direction(scatter), np.array([3, 4]) / 7, 1e-12)
    apart = torch.tensor([[9.0, -12.0], [-12.0, 16.0]], dtype=torch.float64)
    close(principal_direction(apart), np.array([-3, 4]) / 7, 1e-12)  # mean(d) ≥ 0


def test_fuse_orders_the_compound_scores() -> None:
    method = SPARC()
    single = torch.tensor([0.0, 1.0, 2.0, 4.0], dtype=torch.float64)
    one_way = method.fuse(single, torch.tensor([[1.0, 5], [2, 3], [3, 1], [0, 2]], dtype=torch.float64))
    other_way = method.fuse(single, torch.tensor([[5.0, 1], [2, 3], [1, 3], [2, 0]], dtype=torch.float64))
    assert torch.equal(one_way, other_way)


def test_too_few_images_for_a_direction_weigh_all_ranks_alike() -> None:
    ranks = torch.tensor([[1.0, 5.0], [2.0, 3.0]], dtype=torch.float64)
    assert SPARC().fuse(torch.tensor([3.0, 1.0], dtype=torch.float64), ranks).tolist() == [3.0, 2.0]


def test_welford_is_mean_and_scatter() -> None:
    vectors = unit(7, 3, seed=0).double()
    mean, squares, scatter = torch.zeros(3).double(), torch.zeros(3).double(), torch.zeros(3, 3).double()
    for n, x in enumerate(vectors, start=1):
        _, squares = welford(n, mean, squares, x)
        mean, scatter = welford(n, mean, scatter, x)
    torch.testing.assert_close(mean, vectors.mean(0))
    torch.testing.assert_close(squares, 6 * vectors.var(0))
    torch.testing.assert_close(scatter, 6 * torch.cov(vectors.T))


def test_the_order_of_the_stream_matters_to_the_running_variant_alone(golden: Golden, file: Path) -> None:
    images, task = torch.from_numpy(golden["image"]), task_of(golden, file)
    for mode, same in (("transductive", True), ("normalize", True), ("running", False)):
        method = SPARC(mode=mode, compound=str(file))  # type: ignore[arg-type]  # the loop has these words
        forth, back = whole(method, task, images), whole(method, task, images.flip(0)).flip(0)
        assert torch.allclose(forth, back, atol=1e-5) == same


def test_setting_and_status_follow_the_mode() -> None:
    assert (SPARC().setting, SPARC().status) == ("transductive", "official code matched")
    assert (SPARC(mode="running").setting, SPARC(mode="running").status) == ("online", "ours")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        SPARC(compound=str(tmp_path / "nothing.txt")).validate()
    SPARC(mode="normalize", compound=str(tmp_path / "nothing.txt")).validate()

    def refuse(texts: Sequence[str]) -> Tensor:
        raise UsageError("this pack holds no text encoder")

    task = make_task(unit(3, 8, seed=0))
    task.encode_texts = refuse
    with pytest.raises(UsageError, match=r"mode=normalize.*this pack holds no text encoder"):
        SPARC().start(task)


def test_a_files_digest_is_part_of_the_config(tmp_path: Path) -> None:
    file = tmp_path / "compound.txt"
    file.write_text("a and b")
    first = SPARC(compound=str(file)).digests()
    file.write_text("b and a")
    assert set(first) == {"compound"}
    assert SPARC(compound=str(file)).digests() != first
    assert SPARC().digests() == {}


def test_sd_zero_scores_zero() -> None:
    image = unit(8, seed=3)
    scores = whole(SPARC(mode="normalize"), make_task(unit(3, 8, seed=0)), image.expand(4, -1))
    assert scores.abs().max() < 1e-6
    assert math.isfinite(float(scores.sum()))


@pytest.mark.parametrize("rounding", [0.0, 1e-16, -1e-16, 3e-15, -3e-15])
def test_a_direction_of_mean_nothing_is_no_coin(rounding: float) -> None:
    """Every order of the stream had another mAP, 17.2 to 19.1: (1, -1) has a mean of 0, but for rounding."""
    scatter = torch.tensor([[1.0 + rounding, -0.4], [-0.4, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(principal_direction(scatter), torch.tensor([-0.5, 0.5], dtype=torch.float64))


def test_a_column_that_never_changes_ranks_nothing_along_the_stream() -> None:
    """Of two classes one is always the nearer: standard scores are 0.7071 for every image, but for rounding."""
    text = torch.nn.functional.normalize(torch.tensor([[1.0, 0.2, 0.1], [0.0, 1.0, 0.3]]), dim=-1)
    noise = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    images = torch.nn.functional.normalize(0.1 * noise + text[1], dim=-1)
    scores = whole(SPARC(mode="running", compound="none"), Task(["alder", "birch"], text, text[:, None], 100.0), images)
    assert torch.equal(scores, torch.zeros(30, 2))
