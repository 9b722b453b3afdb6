"""What is said about suspect numbers, what a method costs, and the numbers that papers print."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from tta_bench.errors import BadData
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.plugins import Registry
from tta_bench.runs import alarms, cost
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.system import published

DIM = 5


@dataclass
class Remembers(Method):
    """Counts images, and multiplies the class texts with the image."""

    name: ClassVar[str] = "remembers"
    learns: bool = True

    def start(self, task: Task) -> None:
        self._task, self.seen = task, torch.zeros(2)

    def step(self, x: Observation) -> Tensor:
        self.seen += float(self.learns)
        self.report({"seen": self.seen[0]})
        return self._task.text @ x.image


def test_flops_of_the_last_step(toy_bench: Bench) -> None:
    """4 classes of 16 numbers, times a vector: as many multiplications as additions."""
    record = toy_bench.run(RunSpec(Remembers(), "toy", "toyclip")).record
    assert record.counts["step_flops"] == 2 * 4 * 16
    assert record.counts["state_bytes"] == 2 * 4
    assert record.counts["forwards_per_image"] == 1
    assert record.diagnostics()["seen"][-1] == record.n  # counted, not stepped twice


def test_a_scale_that_may_be_a_logarithm_is_said() -> None:
    assert "if it is that, everything but raw zero-shot mAP is wrong" in alarms.logarithmic_scale(4.6052)[0]
    assert "(100" in alarms.logarithmic_scale(4.6052)[0]
    assert "exponentiated twice" in alarms.logarithmic_scale(1.9e7)[0]
    assert alarms.logarithmic_scale(14.29) == alarms.logarithmic_scale(100.0) == []


def test_one_class_leaves_nothing_to_centre() -> None:
    assert alarms.one_class(2) == []
    assert "there is one class" in alarms.one_class(1)[0]


def test_prompts_that_are_cut_are_said(toy_bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "long.json"
    names = toy_bench.dataset("toy").class_names
    file.write_text(json.dumps({name: [f"a {name}.", "in this picture " * 20 + name] for name in names}))
    record = toy_bench.run(RunSpec("clip", "toy", "tiny", prompt=f"cupl:{file}")).record
    (note,) = [note for note in record.notes if "cut" in note]
    assert note.startswith("4 prompts of 8 are longer than tiny reads, and cut: the first is 'in this picture in")
    assert len(note) < 200
    assert not [n for n in toy_bench.run(RunSpec("clip", "toy", "tiny")).record.notes if "cut" in n]
    assert "1 prompt of 2 is longer" in alarms.cut_prompts(["x\ny"], 2, "tiny")[0]
    assert "'x\\ny'" in alarms.cut_prompts(["x\ny"], 2, "tiny")[0]


def test_a_formula_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(flop_registry, torch.ops.aten.mm, lambda *_, **__: 1 / 0)
    with cost.FlopCounter() as counter:
        assert torch.equal(torch.ones(2, 2) @ torch.ones(2, 2), torch.full((2, 2), 2.0))
    assert counter.total == 0


def test_our_counter_agrees_with_torch_s_own() -> None:
    context = torch.ones(4, DIM, requires_grad=True)

    def work() -> None:
        hidden = torch.nn.functional.linear(context, torch.ones(7, DIM))  # [4, 7]
        attended = torch.nn.functional.scaled_dot_product_attention(hidden[None], hidden[None], hidden[None])
        torch.einsum("bij,bkj->bik", attended, attended).sum().backward()  # type: ignore[no-untyped-call]

    with FlopCounterMode(display=False) as theirs:
        work()
    with cost.FlopCounter() as ours:
        work()
    assert ours.total == theirs.get_total_flops() > 0


def test_bytes_of_a_state() -> None:
    state = {"a": torch.zeros(3, dtype=torch.float16), "b": [1, 2.0], "c": {"d": "é", "e": None}}
    assert cost.state_bytes(state) == 6 + 16 + 2


def test_states_are_told_apart_by_content() -> None:
    def digest(memory: torch.Tensor | None) -> str:
        method = Remembers()
        if memory is not None:
            method.seen = memory
        return cost.weigh(method).digest

    assert digest(None) == ""
    assert digest(torch.ones(2)) == digest(torch.ones(2))
    assert digest(torch.ones(2)) != digest(torch.zeros(2))


@pytest.mark.parametrize("name", Registry().names("methods"))
def test_no_method_is_taken_for_one_of_another_process(name: str) -> None:
    """Told by a member's name alone: `mta` has one that is called `weigh`."""
    assert not isinstance(Registry().method(name)(), cost.Remote)


@pytest.mark.parametrize(("learns", "notes"), [(True, 0), (False, 1)])
def test_a_memory_that_never_changes_is_said(toy_bench: Bench, learns: bool, notes: int) -> None:
    record = toy_bench.run(RunSpec(Remembers(learns=learns), "toy", "toyclip")).record
    assert record.n >= alarms.SOME_IMAGES
    assert sum("the state that a checkpoint would hold is the same" in note for note in record.notes) == notes
    assert {"forwards_per_image", "state_bytes", "step_flops"} <= set(record.counts)


def test_no_memory_tuned_prompts_and_a_few_images_are_no_reason() -> None:
    assert alarms.unchanged_state("a", "a", 10, False)
    assert not alarms.unchanged_state("a", "b", 10, False)
    assert not alarms.unchanged_state("", "", 10, False)
    assert not alarms.unchanged_state("a", "a", 9, False)
    assert not alarms.unchanged_state("a", "a", 10, True)


def test_features_of_no_spread() -> None:
    alike = torch.ones(4, DIM) + 0.01 * torch.eye(4, DIM)
    (note,) = alarms.no_spread(alike, "the images")
    assert "all but equal" in note
    assert alarms.no_spread(torch.eye(4, DIM), "the images") == []
    assert alarms.no_spread(alike[:1], "the images") == []


def test_images_to_look_at_are_spread_over_the_stream() -> None:
    assert alarms.spread_over(3) == [0, 1, 2]
    assert alarms.spread_over(128) == list(range(0, 128, 2))
    assert len(alarms.spread_over(1000)) == alarms.LOOKED_AT


@pytest.mark.parametrize(
    ("backbone", "prompt", "dataset", "value", "said"),
    [
        ("vit-b16", "photo", "voc2007", 79.58, ""),
        ("vit-b16", "photo", "voc2007", 76.60, ""),
        ("vit-b16", "photo", "voc2007", 76.50, "3.08 below the 79.58"),
        ("vit-b16", "photo", "voc2007:mltta", 90.0, "10.42 above the 79.58"),
        ("vit-b16", "coop:ctx.pt", "coco2014", 50.0, "6.12 below the 56.12"),
        ("vit-b16", "ensemble", "voc2007", 10.0, ""),
        ("tiny", "photo", "scenes", 10.0, ""),
    ],
)
def test_clip_far_from_its_published_value(backbone: str, prompt: str, dataset: str, value: float, said: str) -> None:
    notes = alarms.far_from_published(backbone, prompt, dataset, value)
    assert len(notes) == bool(said)
    assert all(said in note and "weights, prompt wording" in note for note in notes)


@pytest.mark.parametrize(
    ("method", "limit", "said"), [("clip", None, True), ("clip", 5, False), ("regions", None, False)]
)
def test_only_a_complete_run_of_clip_is_held_against_the_papers(
    toy_bench: Bench, monkeypatch: pytest.MonkeyPatch, method: str, limit: int | None, said: bool
) -> None:
    cell = published.PublishedCell("paper", "table1", "toyclip photo clip", "toy mAP", 0.5)
    monkeypatch.setattr(published, "cells", lambda: (cell,))
    record = toy_bench.run(RunSpec(method, "toy", "toyclip", limit=limit), force=True).record
    assert any("published" in note for note in record.notes) == said


def test_all_numbers_of_the_paper_are_there() -> None:
    found = [cell for cell in published.cells() if cell.paper == "purf"]
    assert len(found) == 508
    cell = published.find("vit-b16", "photo", "purf", "coco2017")
    assert cell is not None
    assert (cell.table, cell.value) == ("table1", 65.33)
    assert "65.35" in cell.note


@pytest.mark.parametrize(
    "damage", [lambda t: t.replace("row", "line", 1), lambda t: t + "a,b\n", lambda t: t.replace("75.91", "many")]
)
def test_a_file_of_published_numbers_that_is_none(tmp_path: Path, damage: Callable[[str], str]) -> None:
    file = tmp_path / "own.csv"
    text = ",".join(published.FIELDS) + "\nown,table1,rn50 photo clip,voc2007 mAP,75.91,,\n"
    file.write_text(text)
    assert published.read(file)[0].value == 75.91
    file.write_text(damage(text))
    with pytest.raises(BadData, match=r"own\.csv"):
        published.read(file)
    with pytest.raises(BadData, match="can't be read"):
        published.read(tmp_path / "nothing.csv")


@pytest.mark.parametrize(
    ("slowest", "seconds", "images", "said"),
    [(20.0, 21.0, 600, True), (20.0, 600.0, 600, False), (1.0, 1.5, 600, False), (20.0, 21.0, 2, False)],
)
def test_a_step_in_which_the_process_was_suspended(slowest: float, seconds: float, images: int, said: bool) -> None:
    """9 images/s in place of 94, and nothing said so."""
    assert bool(alarms.one_slow_step(slowest, seconds, images)) is said


def test_a_method_may_have_a_function_called_weigh() -> None:
    """MTA has one; only a method in another process is asked to weigh itself."""

    @dataclass
    class Weighs(Remembers):
        name: ClassVar[str] = "weighs"

        def weigh(self, views: Tensor) -> Tensor:
            return views

    assert cost.weigh(Weighs()).bytes == 0  # it has not begun
