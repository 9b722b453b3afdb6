"""PuRF against a second, literal implementation: Python sets and lists, loops, and autograd instead of closed forms.

The two share no code but the torch library. Every switch is compared on streams that reach the rare branches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from tta_bench.interfaces import Observation, Task
from tta_bench.methods.purf import PuRF


def unit(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=-1)


def shannon(logits: Tensor) -> Tensor:
    p = torch.softmax(logits, -1)
    return -(p * torch.log_softmax(logits, -1)).sum(-1)


def adjacent(prompts: Tensor) -> Tensor:
    """One class's prompts [P, D] -> [3, D]."""
    if len(prompts) < 3:
        return unit(prompts.mean(0)).expand(3, -1)
    typical = [sum(float(a @ b) for j, b in enumerate(prompts) if j != i) for i, a in enumerate(prompts)]
    order = sorted(range(len(prompts)), key=lambda i: typical[i])
    third = len(prompts) // 3
    return torch.stack([unit(prompts[order[:n]].mean(0)) for n in (third, 2 * third, len(prompts))])


def top(values: Tensor, k: int) -> set[int]:
    return set(sorted(range(len(values)), key=lambda c: (-float(values[c]), c))[:k])


@dataclass
class Entry:
    feature: Tensor
    h: float
    born: int


@dataclass
class Reference:
    """PuRF, step by step; `config` holds the same switches as the method's fields."""

    config: PuRF
    task: Task
    T: int = 0
    n: int = 0
    mu: dict[int, float] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    cache: dict[int, list[Entry]] = field(default_factory=dict)
    log: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.E = torch.stack([adjacent(prompts) for prompts in self.task.text_bank])  # [C, 3, D]
        self.C = len(self.E)

    def text(self, residual: Tensor | float = 0.0) -> Tensor:
        return unit(unit(self.E + residual).mean(1))

    def threshold(self, confidences: Tensor, dominant: list[int]) -> None:
        stat = self.config.mu_stat
        if stat == "printed":
            for c in range(self.C):
                old = self.mu.get(c, 0.0)
                self.mu[c] = old + (float(confidences[:, c].mean()) - old) / self.T
            return
        for c in sorted(set(dominant)):
            own = [float(confidences[q, c]) for q, d in enumerate(dominant) if d == c]
            for value in own if stat == "pooled" else [sum(own) / len(own)]:
                self.counts[c] = self.counts.get(c, 0) + 1
                self.mu[c] = self.mu.get(c, 0.0) + (value - self.mu.get(c, 0.0)) / self.counts[c]

    def write(self, c: int, feature: Tensor, h: float) -> None:
        entries = self.cache.setdefault(c, [])
        new = Entry(feature, h, self.T)
        if len(entries) < self.config.shots:
            entries.append(new)
            self.log["in"] += 1
            return
        delta = self.config.delta
        weighted = [e.h * (math.exp((self.T - e.born - delta) / delta) if self.config.tr else 1.0) for e in entries]
        worst = weighted.index(max(weighted))
        if h < weighted[worst]:
            entries[worst] = new
            self.log["in"] += 1
            self.log["out"] += 1

    def step(self, x: Observation) -> Tensor:
        cfg, S = self.config, self.task.scale
        self.T += 1
        self.log = {"in": 0, "out": 0, "empty": False}
        W0 = self.text()
        g = x.image
        augmented = list(x.views.get("views", torch.empty(0)))
        regions = list(x.views.get("regions", torch.empty(0)))
        if not regions or (cfg.rp and cfg.selection == "global_only"):
            F, tested = [g], False
        else:
            F, tested = regions, cfg.rp and cfg.selection != "all"

        # region purification
        P = torch.stack([torch.softmax(S * W0 @ f, -1) for f in F])
        cosines = torch.stack([W0 @ f for f in F])
        dominant = [int(p.argmax()) for p in P]
        pure = list(range(len(F)))
        if tested:
            confidences = cosines if cfg.selection == "abs" else P
            self.threshold(confidences, dominant)
            margin = [float(confidences[q, c]) - self.mu[c] for q, c in enumerate(dominant)]
            pure = [q for q in pure if margin[q] >= -1e-6]
            if not pure:
                self.log["empty"] = True
                pure = [margin.index(max(margin))]
        views = [g, *augmented]
        k = max(1, math.floor(cfg.kappa_g * self.C))
        entropies = [float(shannon(S * W0 @ v)) for v in views]
        n_kept = max(1, math.floor(cfg.keep * len(views)))
        Vf = [views[i] for i in sorted(range(len(views)), key=lambda i: (entropies[i], i))[:n_kept]]
        agreeing = Vf if cfg.view_set == "Vf" else (augmented or [g])
        G = set.intersection(*[top(W0 @ v, k) for v in agreeing])
        R = {dominant[q] for q in pure}
        Y = set() if self.log["empty"] else G & R
        self.log["Y"] = Y

        # cache purification
        if not cfg.ep:
            self.write(int((W0 @ g).argmax()), g, float(shannon(S * W0 @ g)))
        for y in sorted(Y) if cfg.ep else []:
            if cfg.cache_mode == "global_multi":
                self.write(y, g, float(shannon(S * W0 @ g)))
            else:
                candidates = [q for q in pure if dominant[q] == y]
                best = min(candidates, key=lambda q: float(shannon(S * W0 @ F[q])))
                self.write(y, F[best], float(shannon(S * W0 @ F[best])))
        K = {c: unit(torch.stack([e.feature for e in entries]).mean(0)) for c, entries in sorted(self.cache.items())}
        cs = torch.zeros(self.C, dtype=g.dtype)
        for c, key in K.items():
            local = torch.stack([F[q] @ key for q in pure])
            if not cfg.ep or cfg.cache_mode in ("region_globalretrieve", "global_multi"):
                cosine = g @ key
            else:
                cosine = local.mean() if cfg.cache_mode == "region_avg" else local.max()
            cs[c] = cfg.alpha * torch.exp(-cfg.beta * (1 - cosine))

        # one optimisation step
        def score(W: Tensor) -> Tensor:
            if not cfg.rp:
                return S * (W @ g) + cs
            return S * (0.5 * (W @ g) + 0.5 * torch.stack([W @ F[q] for q in pure]).max(0).values) + cs

        residual = torch.zeros_like(self.E, requires_grad=True)
        W = self.text(residual)
        loss = torch.stack([shannon(S * W @ v) for v in Vf]).mean()
        if cfg.rp and (Y or cfg.empty_labels == "zero"):
            target = torch.tensor([float(c in Y) for c in range(self.C)], dtype=g.dtype)
            s = score(W) + self.task.bias
            s = s if cfg.bce_space == "scaled" else s / S
            loss = loss + cfg.lambda_1 * torch.nn.functional.binary_cross_entropy_with_logits(
                s, target, reduction="sum"
            )
        if K:
            similarity = torch.stack(list(K.values())) @ W[list(K)].T / 0.01
            loss = loss + cfg.lambda_2 * torch.nn.functional.cross_entropy(similarity, torch.arange(len(K)))
        optimiser = torch.optim.AdamW([residual], lr=cfg.lr, eps=cfg.eps, weight_decay=0.1)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

        # predict, then let the text evolve
        with torch.no_grad():
            final = score(self.text(residual))
            normalised = float(shannon(final)) / math.log2(self.C) if self.C > 1 else 0.0
            self.log["updated"] = normalised < cfg.gate
            if self.log["updated"]:
                self.n += 1
                self.E = self.n / (self.n + 1) * self.E + unit(self.E + residual.detach()) / (self.n + 1)
        return final


def stream(
    n: int = 40, classes: int = 6, prompts: int = 7, views: int = 20, regions: int = 8, seed: int = 0
) -> tuple[Task, list[Observation]]:
    """Images with one to three objects; noisy enough for empty label sets, full caches and rejected regions."""
    rng = torch.Generator().manual_seed(seed)
    dim = 16

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, dim, generator=rng, dtype=torch.float64) / math.sqrt(dim)

    concepts = unit(noise(classes))
    bank = unit(concepts[:, None] + 0.5 * noise(classes, prompts))
    task = Task([f"class {c}" for c in range(classes)], unit(bank.mean(1)), bank, scale=20.0)
    observations = []
    for i in range(n):
        objects = concepts[torch.randint(classes, (3,), generator=rng)]
        scene = objects.mean(0) + 0.2 * noise()
        shown = objects[torch.randint(3, (regions,), generator=rng)]
        if i % 5 == 4:  # every region shows all objects: none is as clear as those seen before
            shown = objects.mean(0).expand(regions, -1)
        blur = 0.05 if i % 5 == 4 else 1.0
        observations.append(
            Observation(
                i,
                unit(scene),
                {
                    "views": unit(scene + 0.6 * noise(views)),
                    "regions": unit(shown + blur * noise(regions)),
                },
            )
        )
    return task, observations


BASE: dict[str, Any] = {"kappa_g": 0.4, "delta": 8.0}
SWITCHES: list[dict[str, Any]] = [
    {},
    {"mu_stat": "printed"},
    {"mu_stat": "pooled"},
    {"view_set": "V"},
    {"bce_space": "cosine", "lambda_1": 1.0},
    {"empty_labels": "skip"},
    *[{"rp": rp, "ep": ep, "tr": tr} for rp in (False, True) for ep in (False, True) for tr in (False, True)],
    {"selection": "abs"},
    {"selection": "abs", "mu_stat": "printed"},
    {"selection": "abs", "mu_stat": "pooled"},
    {"selection": "all"},
    {"selection": "global_only"},
    {"selection": "global_only", "rp": False},
    {"cache_mode": "region_avg"},
    {"cache_mode": "region_globalretrieve"},
    {"cache_mode": "global_multi"},
    {"cache_mode": "region_avg", "rp": False},
    {"cache_mode": "global_multi", "ep": False},
    {"shots": 1, "keep": 0.3, "gate": 0.02, "alpha": 3.0, "beta": 8.0, "lr": 5e-3, "eps": 1e-8, "lambda_2": 0.0},
]
SHAPES: list[dict[str, int]] = [
    {"prompts": 1},
    {"prompts": 2},
    {"prompts": 3},
    {"classes": 1},
    {"classes": 2},
    {"views": 0},
    {"views": 5},
    {"regions": 0},
    {"regions": 1},
]


def compare(settings: dict[str, Any], task: Task, observations: list[Observation]) -> list[dict[str, Any]]:
    """Run both and compare every score and decision; the reference's log per step."""
    method = PuRF(**(BASE | settings))
    method.start(task)
    reference = Reference(PuRF(**(BASE | settings)), task)
    logs = []
    for x in observations:
        scores, expected = method.step(x), reference.step(x)
        torch.testing.assert_close(scores, expected, rtol=0, atol=1e-7)
        report = method.take_report()
        assert set(method.labels.nonzero()[:, 0].tolist()) == reference.log["Y"]
        assert (report["entries_in"], report["entries_out"]) == (reference.log["in"], reference.log["out"])
        assert report["text_updated"] == reference.log["updated"]
        logs.append(reference.log)
    torch.testing.assert_close(method.text_bank, reference.E, rtol=0, atol=1e-8)
    for c, entries in reference.cache.items():
        filled = method.cache.entropies[c].isfinite()
        assert method.born[c][filled].tolist() == [e.born for e in entries]
        torch.testing.assert_close(method.cache.features[c][filled], torch.stack([e.feature for e in entries]))
    return logs


@pytest.mark.parametrize("settings", SWITCHES, ids=str)
def test_every_switch(settings: dict[str, Any]) -> None:
    compare(settings, *stream())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape(shape: dict[str, int]) -> None:
    compare({}, *stream(n=15, **shape))


@pytest.mark.parametrize("seed", range(1, 4))
def test_other_scale_and_bias(seed: int) -> None:
    task, observations = stream(n=20, seed=seed)
    task.scale, task.bias = 35.0, -6.0
    compare({"bce_space": "cosine" if seed == 2 else "scaled"}, task, observations)


def test_views_and_regions_may_be_missing() -> None:
    task, observations = stream(n=6)
    compare({}, task, [Observation(x.index, x.image) for x in observations])


def test_the_stream_reaches_the_rare_branches() -> None:
    logs = compare({}, *stream())
    assert any(log["empty"] for log in logs)
    assert any(not log["Y"] and not log["empty"] for log in logs)
    assert any(len(log["Y"]) > 1 for log in logs)
    assert sum(log["out"] for log in logs) >= 3
    assert len({log["updated"] for log in logs}) == 2
