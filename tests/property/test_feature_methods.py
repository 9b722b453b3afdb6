"""What must hold for every method that needs nothing but features, on any stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.structured import make_stream, make_task, random, run, unit_rows
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.methods.bca import BCA
from tta_bench.methods.bcp import BCP
from tta_bench.methods.boostadapter import BoostAdapter
from tta_bench.methods.dmn import DMN
from tta_bench.methods.dota import DOTA
from tta_bench.methods.dpe import DPE
from tta_bench.methods.mta import MTA
from tta_bench.methods.purf import PuRF
from tta_bench.methods.reta import ReTA
from tta_bench.methods.sparc import SPARC
from tta_bench.methods.tda import TDA
from tta_bench.methods.views import AveragedViews
from tta_bench.methods.zero import ZERO
from tta_bench.methods.zregions import ZRegions

METHODS = [
    TDA,
    lambda: TDA(gate=(-1.0, 1.0)),  # every image enters the negative cache
    lambda: BoostAdapter(gate=(-1.0, 1.0)),
    lambda: BoostAdapter(predict_from="original"),
    lambda: DMN(memory=2),
    lambda: DMN(memory=3, score="native"),
    DPE,
    ReTA,
    PuRF,
    lambda: DPE(predict_from="selected", emulate_fp16=True),
    lambda: ReTA(predict_from="selected", ratio=0.2, emulate_fp16=True),
    lambda: ReTA(rank=4, score="native"),
    lambda: PuRF(selection="abs", mu_stat="pooled", cache_mode="region_avg"),
    lambda: PuRF(selection="global_only", view_set="V"),
    lambda: PuRF(rp=False),
    lambda: PuRF(ep=False, tr=False),
    AveragedViews,
    ZRegions,
    lambda: ZERO(tie_break="clean"),
    MTA,
    BCA,
    lambda: BCA(count_1=3, tau_2=0.1, score="native"),
    BCP,
    lambda: BCP(mu=0.0, order="before", anchor_score="add", pmi_min=-1.0),
    DOTA,
    lambda: SPARC(mode="running", compound="none"),
]
every_method = pytest.mark.parametrize("make", METHODS, ids=lambda make: getattr(make, "__name__", ""))


@every_method
@pytest.mark.parametrize("views", [0, 5, 20])
@pytest.mark.parametrize("classes", [1, 2, 7])
def test_scores_are_finite(make: Any, views: int, classes: int) -> None:
    task = make_task(classes, dtype=torch.float32)
    scores = run(make(), task, make_stream(task, views=views))
    assert scores.shape == (12, classes)
    assert scores.isfinite().all()


@pytest.mark.parametrize(
    "method", [DPE(lr_text=0, lr_image=1), ReTA(lr=0), ReTA(lr=1), PuRF(lr=0, delta=3), PuRF(lr=1)]
)
def test_whole_numbers_are_numbers(method: Method) -> None:
    """A hyper-parameter that was written without a decimal point."""
    task = make_task(dtype=torch.float32)
    assert run(method, task, make_stream(task)).isfinite().all()


@every_method
def test_scores_may_be_changed_by_the_caller(make: Any) -> None:
    task = make_task(dtype=torch.float32)
    stream = make_stream(task)
    expected = run(make(), task, stream)
    method = make()
    method.start(task)
    for x, scores in zip(stream, expected, strict=True):
        changed = method.step(x)
        assert torch.equal(changed, scores)
        changed.zero_()  # neither refused, nor felt by the next step


@every_method
def test_degenerate_images(make: Any) -> None:
    """Duplicate classes, 50 identical regions, and an image whose views are all the same."""
    task = make_task(6, prompts=1, dtype=torch.float32)
    task.text_bank[1] = task.text_bank[0]
    task.text = unit_rows(task.text_bank.mean(1))
    image = unit_rows(random(12)).float()
    same = Observation(0, image, {"views": image.expand(63, -1), "regions": image.expand(50, -1)})
    flat = Observation(1, torch.full((12,), 12**-0.5), {"views": torch.full((63, 12), 12**-0.5)})
    scores = run(make(), task, [same, flat, same, same, flat])
    assert scores.isfinite().all()
    assert not scores.eq(scores[:, :1]).all()


def test_identical_regions_do_not_fail_their_own_mean() -> None:
    task = make_task(6, dtype=torch.float32)
    image = unit_rows(random(12)).float()
    method = PuRF(gate=0.0)  # the text stays, and with it the regions' confidence
    method.start(task)
    for i in range(20):
        method.step(Observation(i, image, {"regions": image.expand(50, -1)}))
        assert method.take_report()["kept_share"] == 1.0


@every_method
def test_classes_may_be_permuted(make: Any) -> None:
    task = make_task()
    stream = make_stream(task)
    order = torch.tensor([4, 2, 6, 0, 1, 5, 3])
    permuted = Task([task.class_names[i] for i in order], task.text[order], task.text_bank[order], task.scale)
    torch.testing.assert_close(run(make(), permuted, stream), run(make(), task, stream)[:, order], rtol=0, atol=1e-6)


@pytest.mark.parametrize("make", [TDA, BoostAdapter, DMN, DPE, ReTA, PuRF, ZRegions, ZERO, MTA, BCA, BCP, DOTA])
def test_a_class_without_text_gives_finite_scores(make: Any) -> None:
    """Its prototype is the zero vector. (In emulated half precision the slopes of one overflow, as they did there.)"""
    task = make_task(dtype=torch.float32)
    stream = make_stream(task)
    task.text[2], task.text_bank[2] = 0.0, 0.0
    assert run(make(), task, stream).isfinite().all()


@every_method
def test_start_forgets(make: Any) -> None:
    task = make_task(dtype=torch.float32)
    stream = make_stream(task)
    method = make()
    first = run(method, task, stream)
    assert torch.equal(run(method, task, stream), first)
    alone = run(make(), task, stream[-1:])[0]
    assert torch.equal(first[-1], alone) == (method.setting == "episodic")  # otherwise nothing was there to forget


@every_method
def test_state_round_trip_is_bit_identical(make: Any) -> None:
    task = make_task(dtype=torch.float32)
    stream = make_stream(task)
    method = make()
    expected = run(method, task, stream)
    run(method, task, stream[:5])
    state = method.state_dict()
    method.step(stream[5])  # the copy must not follow
    resumed = make()
    resumed.start(task)
    resumed.load_state_dict(state)
    assert torch.equal(torch.stack([resumed.step(x) for x in stream[5:]]), expected[5:])


def numbers(state: Mapping[str, Any]) -> int:
    """How many numbers the tensors of a state hold, those of its parts included."""
    return sum(numbers_in(value) for value in state.values())


def numbers_in(value: object) -> int:
    if isinstance(value, dict):
        return numbers(value)
    if isinstance(value, list):
        return sum(map(numbers_in, value))
    return value.numel() if isinstance(value, Tensor) else 0


@every_method
def test_state_does_not_grow(make: Any) -> None:
    task = make_task(dtype=torch.float32)
    stream = make_stream(task)
    method = make()

    def size() -> int:
        return numbers(method.state_dict())

    run(method, task, stream[:1])
    after_one = size()
    run(method, task, stream * 3)
    assert size() == after_one


@every_method
def test_inputs_are_left_alone(make: Any) -> None:
    task = make_task(dtype=torch.float32)
    stream = make_stream(task)
    text, bank, image, views = (
        task.text.clone(),
        task.text_bank.clone(),
        stream[0].image.clone(),
        stream[0]["views"].clone(),
    )
    run(make(), task, stream)
    assert torch.equal(task.text, text)
    assert torch.equal(task.text_bank, bank)
    assert torch.equal(stream[0].image, image)
    assert torch.equal(stream[0]["views"], views)


def test_one_prompt_is_as_good_as_three_equal_ones() -> None:
    """PuRF keeps one slot then, which must be felt in nothing but speed."""
    task = make_task(prompts=1)
    three = Task(task.class_names, task.text, task.text_bank.repeat(1, 3, 1), task.scale)
    stream = make_stream(task, n=30)
    methods = PuRF(gate=0.5), PuRF(gate=0.5)
    scores = [run(method, prompts, stream) for method, prompts in zip(methods, (task, three), strict=True)]
    assert methods[0].bank.updates > 3
    assert methods[0].bank.sum.numel() * 3 == methods[1].bank.sum.numel()
    torch.testing.assert_close(*scores)
    torch.testing.assert_close(methods[0].text_bank, methods[1].text_bank)


@pytest.mark.parametrize("method", [TDA, BoostAdapter, DMN, DPE, ReTA, PuRF, DOTA])
def test_presets_name_hyper_parameters(method: Any) -> None:
    assert len(method.presets) == (1 if method is PuRF else 15)
    for preset in method.presets.values():
        method(**preset)
