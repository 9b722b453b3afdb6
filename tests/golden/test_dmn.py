"""DMN against the official implementation's outputs on a synthetic stream, and what its memory keeps."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

from tests.golden.streams import Golden, close, make_stream, make_task, read_golden, run, unit
from tta_bench.errors import UsageError
from tta_bench.interfaces import Observation
from tta_bench.methods.dmn import DMN


@pytest.fixture(scope="module")
def golden() -> Golden:
    return read_golden("golden_dmn_v32_m3.npz")


def make_method(golden: Golden, score: Literal["logits", "native"] = "native") -> DMN:
    return DMN(
        memory=int(golden["memory_size"]),
        beta=float(golden["beta"]),
        fusion=1.0,
        keep=float(golden["select_ratio"]),
        score=score,
    )


def test_official_stream(golden: Golden) -> None:
    method = make_method(golden)
    method.start(make_task(torch.from_numpy(golden["text"]), float(golden["logit_scale"])))
    for i, x in enumerate(make_stream(torch.from_numpy(golden["features"]))):
        vote = method.vote(x)
        close(vote.logits.softmax(0), golden["prob_text"][i], 5e-5)
        close(vote.probs, golden["prob_pseudo"][i], 5e-5)
        close(vote.entropy, golden["pseudo_entropy"][i], 5e-5)
        assert int(vote.probs.argmax()) == golden["pseudo_label"][i]
        close(method.step(x), golden["final_scores_beta2_1"][i], 1e-4)  # the sum of two probabilities of 5e-5 each
        close(method.read(x.image).softmax(0), golden["prob_dynamic"][i], 5e-5)


def test_official_memory_at_the_end(golden: Golden) -> None:
    method = make_method(golden)
    run(method, make_task(torch.from_numpy(golden["text"])), make_stream(torch.from_numpy(golden["features"])))
    # slot 0 is the text
    features, entropies = method.features[1:].transpose(0, 1), method.entropies[:, 1:]
    assert torch.equal(method.features[0], torch.from_numpy(golden["text"]))
    filled = entropies.isfinite()
    np.testing.assert_array_equal(filled.sum(1), golden["mem_count"])
    assert (np.diff(filled.int(), axis=1) <= 0).all()  # the used slots are the first ones
    assert (golden["mem_count"] == golden["memory_size"]).any()  # some class had to replace
    close(entropies[filled], golden["mem_entropy"][filled], 5e-5)
    close(features[filled], golden["mem_features"][filled], 1e-6)


def test_logits_are_the_raw_analogue_of_the_native_score(golden: Golden) -> None:
    text, stream = torch.from_numpy(golden["text"]), make_stream(torch.from_numpy(golden["features"]))
    native, raw = make_method(golden), make_method(golden, "logits")
    raw.fusion = 0.5
    native.start(make_task(text))
    raw.start(make_task(text))
    for x in stream[:20]:
        native.step(x)
        base, dynamic = 100 * text @ x.image, native.read(x.image)
        torch.testing.assert_close(raw.step(x), base + 0.5 * dynamic, rtol=0, atol=2e-4)


def test_an_empty_memory_answers_with_the_text(golden: Golden) -> None:
    text, image = unit(6, 16, seed=0), unit(16, seed=1)
    method = DMN()
    method.start(make_task(text, 50.0))
    torch.testing.assert_close(method.read(image), 50 * text @ image, rtol=0, atol=2e-4)


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_the_memory_answers_as_if_the_weighted_sum_were_formed(golden: Golden, scale: float) -> None:
    text, stream = torch.from_numpy(golden["text"]), make_stream(torch.from_numpy(golden["features"]))
    method = DMN(memory=4)
    run(method, make_task(text, scale), stream)
    for x in stream[:10]:
        image = x.image.double()
        expected = []
        for t, rows, entropies in zip(text, method.features[1:].transpose(0, 1), method.entropies[:, 1:], strict=True):
            items = torch.cat((t[None], rows[entropies.isfinite()])).double()
            answer = sum((torch.exp(-5.5 * (1 - item @ image)) * item for item in items), torch.zeros(len(image)))
            expected.append(scale * (answer / answer.norm()) @ image)
        torch.testing.assert_close(method.read(x.image).double(), torch.stack(expected), rtol=0, atol=1e-6 * scale)


def test_items_that_cancel_out_give_a_cosine() -> None:
    text, image = torch.eye(2)[:1], torch.eye(2)[1]
    method = DMN(memory=1)
    method.start(make_task(text, 10.0))
    method.step(Observation(0, -text[0]))  # now the class holds t and −t, and the image is at right angles to both
    assert method.read(image).abs() <= 10.0


def test_a_full_class_replaces_its_least_certain_image_in_place() -> None:
    text = torch.eye(2)
    angles = torch.tensor([0.60, 0.50, 0.70, 0.55])  # the closer to π/4, the less certain, all below it: class 0
    images = torch.stack((angles.cos(), angles.sin()), 1)
    method = DMN(memory=2)
    method.start(make_task(text, 10.0))
    stored = []
    for i, image in enumerate(images):
        method.step(Observation(i, image))
        stored.append(method.features[1:, 0].clone())
    assert torch.equal(stored[1], images[[0, 1]])
    assert torch.equal(stored[2], images[[0, 1]])  # less certain than both: not admitted
    assert torch.equal(stored[3], images[[3, 1]])


def test_the_original_is_stored_whatever_the_views_are() -> None:
    text, stream = unit(4, 16, seed=0), make_stream(unit(1, 32, 16, seed=1))
    method = DMN()
    run(method, make_task(text), stream)
    (row,) = method.features[method.entropies.isfinite().T]
    assert torch.equal(row, stream[0].image)


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="score"):
        DMN(score="probs")  # type: ignore[arg-type]  # that is the point
