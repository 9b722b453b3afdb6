"""Writes docs/closeness.md: how far each method's scores are from those that it is held against.

    python -m docs.closeness            compute and write the table (`make readme`)
    python -m docs.closeness --check    fail when a difference has grown or shrunk tenfold (`make lint`)

The set-ups are those of tests/golden/, where the same streams are tests; here the differences themselves are shown.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from docs.generated import table, write_or_check
from tests.golden import (
    prompt_tower,
    streams,
    test_boostadapter,
    test_difftpt,
    test_dmn,
    test_dpe,
    test_mltta,
    test_purf,
    test_reta,
    test_sparc,
    test_tda,
    test_tpt,
)
from tta_bench.interfaces import Method, Observation
from tta_bench.methods.bca import BCA
from tta_bench.methods.bcp import BCP
from tta_bench.methods.clip import CLIP
from tta_bench.methods.difftpt import DiffTPT
from tta_bench.methods.dota import DOTA
from tta_bench.methods.mta import MTA
from tta_bench.methods.purf import PuRF
from tta_bench.methods.rlcf import RLCF
from tta_bench.methods.sparc import SPARC
from tta_bench.methods.zero import ZERO
from tta_bench.methods.zregions import ZRegions

ABOVE = """# How close to the official code

The scores of each method beside those of the code that it is held against, on recorded streams: the largest and the
median difference over all images and classes, in the units of the score. *Range* is how far the scores themselves lie
apart, so that a difference can be judged. `make readme` computes this table from the files in `tests/golden/`; `make
lint` fails when a difference is no longer of the size shown. The tests compare more than scores: what is kept,
cached, chosen and lost at each step, and the state at the end.

"""
BELOW = """
- Both sides compute in single precision. Where a softmax is saturated, one step of an optimiser divides by a gradient
  that is rounding alone: that is where `dpe`, `reta` and `purf` have their largest differences, and why the median
  stands beside it.
- `mta` computes in double precision here, because the release's distances lose digits: the largest difference is the
  release's own rounding. Against the release run in double precision see its row of [methods](methods.md).
- The prompt tuners are compared on a small text tower, on which their official steps were recorded.
- `views` and `regions` are ours and are single formulas, which tests compute by hand. `purf` and `bcp` have no
  official code: they are compared with independent implementations *of the same reading of the paper*, which can't
  show that the reading is right. `bca` is held against a third party's port.
"""


class Compared(NamedTuple):
    ours: np.ndarray[Any, Any]  # [N, C], or more axes
    theirs: np.ndarray[Any, Any]


@dataclass(frozen=True)
class Closeness:
    method: str
    against: str
    what: str
    pairs: list[Compared]

    def row(self) -> list[str]:
        apart = np.concatenate([np.abs(ours.astype(float) - theirs).ravel() for ours, theirs in self.pairs])
        scores = np.concatenate([theirs.ravel() for _, theirs in self.pairs])
        largest, median, scale = apart.max(), np.median(apart), scores.max() - scores.min()
        name = f"[`{self.method}`](methods/{self.method}.md)"
        return [name, self.against, self.what, f"{apart.size:,}", size(largest), size(median), f"{scale:.3g}"]


def closeness() -> Iterator[Closeness]:
    """In the order of docs/methods.md."""
    official, steps, logits = "official code", "official steps on a small tower", "logits"
    tpt, small = prompt_tower.load("tpt"), [Observation(i, rows[0]) for i, rows in enumerate(tensor("tpt", "x_views"))]
    text = torch.from_numpy(tpt["text_features_init"])
    zero_shot = Compared(scores(CLIP(), streams.make_task(text, 20.0), small), tpt["logits_zero_shot"])
    yield Closeness("clip", "zero-shot logits of the official tower", logits, [zero_shot])
    yield Closeness("zregions", "an independent reference", logits, [zregions()])
    runs = [tuned(test_tpt.make_method(tpt, run), "tpt", f"{run}/logits") for run in "AB"]
    yield Closeness("tpt", steps, logits, runs)
    lr, count, cosine, entropy = prompt_tower.load("difftpt")["A/hparams_lr_steps_selcos_selent"].tolist()
    diffused = DiffTPT(lr, int(count), cosine, entropy)
    yield Closeness("difftpt", steps, logits, [tuned(diffused, "difftpt", "A/logits", test_difftpt.GENERATED)])
    yield Closeness("rlcf", steps, logits, [rlcf(run) for run in "AB"])
    yield Closeness("mltta", steps, "logits of both branches", [mltta(run) for run in "AB"])
    yield Closeness("zero", official, "votes", [zero(part) for part in ("main__", "small__")])
    yield Closeness("mta", official, logits, [streamed(MTA(**floats("mta", "lambda_y", "lambda_q")), "mta", "logits")])
    tda, boost = (streams.read_golden(f"golden_{name}_v64.npz") for name in ("tda", "boostadapter"))
    yield Closeness("tda", official, logits, [streamed(test_tda.make_method(tda), "tda_v64", "final_logits")])
    dmn = test_dmn.make_method(streams.read_golden("golden_dmn_v32_m3.npz"))
    yield Closeness("dmn", official, "sums of two probabilities", [streamed(dmn, "dmn_v32_m3", "final_scores_beta2_1")])
    boosted = streamed(test_boostadapter.make_method(boost), "boostadapter_v64", "final_logits")
    yield Closeness("boostadapter", official, logits, [boosted])
    with pytest.MonkeyPatch.context() as patch:
        golden = streams.read_golden("golden_dpe.npz")
        runs = [Compared(test_dpe.Replay(golden, r, patch).logits, golden[f"{r}__final_logits"]) for r in test_dpe.RUNS]
    yield Closeness("dpe", official, logits, runs)
    with pytest.MonkeyPatch.context() as patch:
        golden = streams.read_golden("golden_reta.npz")
        replays = {run: test_reta.Replay(golden, run, patch) for run in test_reta.RUNS}
    rows = [Compared(ours.rows, golden[f"{run}__final_rows"]) for run, ours in replays.items()]
    outputs = [Compared(ours.outputs, golden[f"{run}__final_prob"]) for run, ours in replays.items()]
    yield Closeness("reta", official, "logits of all embeddings", rows)
    yield Closeness("reta", official, "probabilities", outputs)
    yield Closeness("purf", "an independent reference of the same reading", logits, [purf()])
    bca = BCA(**json.loads(str(streams.read_golden("golden_bca.npz")["config_json"])))
    yield Closeness("bca", "a third party's port", logits, [streamed(bca, "bca", "logits")])
    reference = "an independent reference of the same reading"
    yield Closeness("bcp", reference, logits, [bcp(run) for run in ("main", "before", "anchor")])
    dota = DOTA(**json.loads(str(streams.read_golden("golden_dota.npz")["config_json"])))
    yield Closeness("dota", official, logits, [streamed(dota, "dota", "logits")])
    yield Closeness("sparc", official, "standardised scores", [sparc()])


def size(difference: float) -> str:
    return re.sub("e-0?", "e-", f"{difference:.1e}") if difference else "0"


def tensor(golden: str, name: str) -> torch.Tensor:
    return torch.from_numpy(prompt_tower.load(golden)[name])


def floats(golden: str, *names: str) -> dict[str, float]:
    return {name: float(prompt_tower.load(golden)[name]) for name in names}


def scores(method: Method, task: Any, stream: list[Observation]) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        return streams.run(method, task, stream).numpy()


def streamed(method: Method, golden: str, expected: str) -> Compared:
    """A cache method on the stream of features [N, V, D] of its golden file."""
    found = streams.read_golden(f"golden_{golden}.npz")
    task = streams.make_task(
        torch.from_numpy(found["text"]), float(found["scale" if "scale" in found else "logit_scale"])
    )
    return Compared(scores(method, task, streams.make_stream(torch.from_numpy(found["features"]))), found[expected])


def tuned(method: Method, golden: str, expected: str, generated: int = 0) -> Compared:
    """A prompt tuner on the small text tower."""
    found = prompt_tower.load(golden)
    method.start(prompt_tower.make_task(found))
    steps = [method.step(x).detach().numpy() for x in prompt_tower.stream(found, generated)]
    return Compared(np.stack(steps), found[expected])


def rlcf(run: str) -> Compared:
    found = prompt_tower.load("rlcf")[f"{run}/hparams_lr_wd_steps_selp_k_procbatch_amplify"].tolist()
    lr, decay, steps, keep, k, batch, amplify = found
    return tuned(RLCF(lr, decay, int(steps), keep, int(k), bool(batch), bool(amplify)), "rlcf", f"{run}/logits")


def mltta(run: str) -> Compared:
    golden = prompt_tower.load("mltta")
    both = np.stack([golden[f"{run}/logits_view"], golden[f"{run}/logits_cap"]], 1)  # [N, 2, C]
    ours = tuned(test_mltta.make_method(golden, run), "mltta", f"{run}/logits_view").ours
    return Compared(ours, both)


def zero(part: str) -> Compared:
    golden = streams.part(streams.read_golden("golden_zero.npz"), part)
    task = streams.make_task(torch.from_numpy(golden["text"]), float(golden["scale"]))
    stream = streams.make_stream(torch.from_numpy(golden["features"]))
    return Compared(scores(ZERO(keep=float(golden["keep"]), score="native"), task, stream), golden["votes"])


def zregions() -> Compared:
    golden = streams.read_golden("golden_zregions.npz")
    features = torch.from_numpy(golden["features"])
    stream = [Observation(i, views[0], {"regions": views[1:]}) for i, views in enumerate(features)]
    task = streams.make_task(torch.from_numpy(golden["text"]), float(golden["scale"]))
    return Compared(scores(ZRegions(beta=float(golden["beta"])), task, stream), golden["scores"])


def purf() -> Compared:
    golden = streams.read_golden("golden_purf.npz")
    method = PuRF(**json.loads(str(golden["config_json"])))
    return Compared(scores(method, test_purf.make_task(golden), test_purf.make_stream(golden)), golden["scores"])


def bcp(run: str) -> Compared:
    golden = streams.read_golden("golden_bcp.npz")
    task = streams.make_task(torch.from_numpy(golden["text"]), float(golden["scale"]))
    stream = [Observation(i, image) for i, image in enumerate(torch.from_numpy(golden["image"]))]
    method = BCP(**json.loads(str(golden[f"{run}__config_json"])))
    return Compared(scores(method, task, stream), golden[f"{run}__scores"])


def sparc() -> Compared:
    golden = streams.read_golden("golden_sparc.npz")
    with tempfile.TemporaryDirectory() as folder:
        file = test_sparc.write_compound(golden, Path(folder, "compound.txt"))
        task, images = test_sparc.task_of(golden, file), torch.from_numpy(golden["image"])
        return Compared(test_sparc.whole(SPARC(compound=str(file)), task, images).numpy(), golden["scores"])


def page() -> str:
    head = ["method", "held against", "compared", "scores", "largest difference", "median", "range"]
    return ABOVE + table(head, [found.row() for found in closeness()]) + BELOW


def alike(old: str, new: str) -> bool:
    """The same words, and differences of the same order: other processors round otherwise."""
    number = re.compile(r"(?<=\| )(?:\d\.\de-\d+|0)(?= \|)")
    if number.sub("#", old) != number.sub("#", new):
        return False
    sizes = [[max(float(found), 1e-6) for found in number.findall(text)] for text in (old, new)]
    return all(0.1 <= a / b <= 10 for a, b in zip(*sizes, strict=True))


if __name__ == "__main__":
    sys.exit(write_or_check(__doc__, lambda: {"closeness.md": page()}, alike))
