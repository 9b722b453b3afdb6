"""ZERO against the official implementation's votes, and its tie rules on views that can be worked out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.golden.streams import Golden, close, make_stream, make_task, part, read_golden, run
from tta_bench.errors import UsageError
from tta_bench.interfaces import Observation
from tta_bench.methods.zero import ZERO


@pytest.fixture(scope="module", params=["main__", "small__"])
def golden(request: pytest.FixtureRequest) -> Golden:
    return part(read_golden("golden_zero.npz"), request.param)


def test_official_votes(golden: Golden) -> None:
    task = make_task(torch.from_numpy(golden["text"]), float(golden["scale"]))
    stream = make_stream(torch.from_numpy(golden["features"]))
    close(run(ZERO(keep=float(golden["keep"]), score="native"), task, stream), golden["votes"], 1e-6)
    close(run(ZERO(keep=float(golden["keep"])), task, stream).exp(), golden["ranked"], 1e-5)


def test_official_ballots(golden: Golden) -> None:
    method = ZERO(keep=float(golden["keep"]))
    method.start(make_task(torch.from_numpy(golden["text"]), float(golden["scale"])))
    for i, x in enumerate(make_stream(torch.from_numpy(golden["features"]))):
        ballot = method.ballot(x)
        assert ballot.kept.tolist() == golden["kept"][i].tolist()
        close(ballot.log_marginal.exp(), golden["marginal"][i], 1e-5)
        votes = method.count(ballot)
        assert int((votes == votes.max()).sum()) == max(1, int(golden["tied"][i]))


def test_the_official_fall_back_is_in_the_golden_file() -> None:
    golden = part(read_golden("golden_zero.npz"), "small__")
    task = make_task(torch.from_numpy(golden["text"]), float(golden["scale"]))
    clean = ZERO(keep=float(golden["keep"]), score="native", tie_break="clean")
    votes = run(clean, task, make_stream(torch.from_numpy(golden["features"])))
    differ = (votes.numpy() != golden["votes"]).any(1)
    assert differ.any()
    assert (golden["broken_by"][differ] == -2).all()


def cast(views: Tensor, **settings: object) -> Tensor:
    """Votes of views [V, C] whose cosines with the classes are their entries."""
    method = ZERO(score="native", **settings)  # type: ignore[arg-type]  # as the test says
    task = make_task(torch.eye(views.shape[1]), 10.0)
    return run(method, task, [Observation(0, views[0], {"views": views[1:]})])[0]


def test_a_tie_goes_to_the_most_confident_of_the_rest_that_can_break_it() -> None:
    sure = torch.tensor([[0.9, 0.0, 0.0], [0.0, 0.9, 0.0]])
    rest = torch.tensor([[0.0, 0.0, 0.8], [0.1, 0.6, 0.0], [0.4, 0.1, 0.0]])  # in order of confidence
    assert cast(torch.cat((rest, sure)), keep=0.4).tolist() == [1, 2, 0]


def test_if_no_view_can_break_a_tie() -> None:
    """Classes 0 and 1 of four are tied; the release rules out classes 3 and 2, which are ¬0 and ¬1."""
    views = torch.tensor([[0.9, 0.0, 0.0, 0.0], [0.0, 0.9, 0.0, 0.0], [0.0, 0.1, 0.2, 0.6]])
    assert cast(views, keep=0.7).tolist() == [1, 2, 0, 0]
    views = torch.tensor([[0.9, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.9], [0.3, 0.6, 0.1, 0.2]])  # ¬0 = 3 and ¬3 = 0
    assert cast(views, keep=0.7).tolist() == [1, 1, 0, 1]  # not tied, and yet it wins
    assert cast(views, keep=0.7, tie_break="clean").tolist() == [2, 0, 0, 1]


def test_a_class_without_votes_or_probability_has_a_score() -> None:
    views = torch.tensor([[1.0, -1.0]])
    (scores,) = run(ZERO(), make_task(torch.eye(2), 200.0), [Observation(0, views[0])])
    close(scores, np.array([math.log(2), -400.0]), 1e-4)


def test_without_other_views_a_tie_stays() -> None:
    assert cast(torch.tensor([[0.5, 0.5, 0.0]])).tolist() == [0.5, 0.5, 0.0]


def test_temperatures() -> None:
    views = torch.tensor([[0.5, 0.499, 0.0]])
    assert cast(views).tolist() == [1, 0, 0]
    soft = 1 / (1 + math.exp(-(0.5 - 0.499) * 1024))
    close(cast(views, temperature="fp16"), np.array([soft, 1 - soft, 0]), 1e-4)
    close(cast(views, temperature=0.5), np.asarray((2 * views[0]).softmax(0)), 1e-6)


@pytest.mark.parametrize("wrong", [{"temperature": "bf16"}, {"temperature": 0.0}, {"keep": 0.0}])
def test_nonsense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        ZERO(**wrong)  # type: ignore[arg-type]  # that is the point
