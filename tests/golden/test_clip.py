"""CLIP's scores against the official towers' zero-shot logits, and the `views` baseline against its formula."""

from __future__ import annotations

import torch

from tests.golden.streams import close, make_stream, make_task, read_golden, run, unit
from tta_bench.interfaces import Observation
from tta_bench.methods.clip import CLIP
from tta_bench.methods.views import AveragedViews


def test_official_zero_shot_logits() -> None:
    golden = read_golden("golden_tpt.npz")
    text, images = (torch.from_numpy(golden[name]) for name in ("text_features_init", "x_views"))
    stream = [Observation(i, views[0]) for i, views in enumerate(images)]
    close(run(CLIP(), make_task(text, 20.0), stream), golden["logits_zero_shot"], 1e-4)


def test_views_average_probabilities() -> None:
    text, features = unit(5, 16, seed=0), unit(3, 7, 16, seed=1)
    scores = run(AveragedViews(), make_task(text, 9.0), make_stream(features))
    torch.testing.assert_close(scores, (9 * features @ text.T).softmax(-1).mean(1).log())
