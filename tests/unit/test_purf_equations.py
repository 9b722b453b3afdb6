"""Each equation of PuRF on three classes and four regions, with numbers that can be checked by hand.

The text prototypes are the unit vectors e0, e1, e2, so that a feature's cosines are its coordinates:

    region   cosines          2^(10 cos)         softmax at S = 10 ln 2
    f0       (1,   0,   0)    (1024,   1,   1)   1024/1026 for class 0
    f1       (.6,  .8,  0)    (  64, 256,   1)    256/321  for class 1
    f2       (0,   .6,  .8)   (   1,  64, 256)    256/321  for class 2
    f3       (.8,  0,   .6)   ( 256,   1,  64)    256/321  for class 0
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tta_bench.functional import prototypes, scaled_product, text_bank
from tta_bench.functional.class_cache import ClassCache
from tta_bench.functional.prototypes import adamw_step, alignment_of, info_nce, inverse_length
from tta_bench.functional.text_bank import Directions
from tta_bench.interfaces import Observation, Task
from tta_bench.methods import purf
from tta_bench.methods.purf import (
    PuRF,
    Purified,
    aggregate,
    anchors,
    bce_and_slope,
    global_candidates,
    log_aged,
    mean_entropy_and_slope,
    purity,
    region_candidates,
    relative_confidence,
    running_threshold,
    strongest,
)

S = 10 * math.log(2)
TEXT = torch.eye(3)
REGIONS = torch.tensor([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8], [0.8, 0.0, 0.6]])
DOMINANT = torch.tensor([0, 1, 2, 0])
IMAGE = torch.tensor([0.6, 0.0, 0.8])
CLEAR, FAIR = 1024 / 1026, 256 / 321


def started(scale: float = S, **settings: Any) -> PuRF:
    method = PuRF(**settings)
    method.start(Task(list("abc"), TEXT, TEXT[:, None].repeat(1, 3, 1), scale))
    return method


def shown(regions: Tensor, labels: Sequence[bool] = (False,) * 3) -> Purified:
    """An image of pure regions, of which only the given parts matter."""
    crops = torch.cat((regions, IMAGE[None]))
    return Purified(
        crops=crops,
        logits=S * crops,
        entropies=torch.zeros(len(crops)),
        dominant=regions.argmax(-1),
        pure=torch.ones(len(regions), dtype=torch.bool),
        log_mask=torch.zeros(len(regions), 1),
        labels=torch.tensor(labels),
        n_labels=sum(labels),
        confident=torch.zeros(1, 3),
        confident_logits=torch.zeros(1, 3),
    )


def put(method: PuRF, classes: list[int], features: Tensor, entropies: list[float]) -> None:
    """Offer one region to each class, as if it were its anchor."""
    seen = shown(features, [c in classes for c in range(3)])
    method.purify_cache(seen._replace(dominant=torch.tensor(classes), entropies=torch.tensor([*entropies, 9.0])))


def close(actual: Tensor, expected: list[Any] | float) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected), rtol=0, atol=2e-6)


def test_eq_1_cosine_with_the_text() -> None:
    close(scaled_product(IMAGE[None], TEXT.mT, 1.0)[0], [0.6, 0.0, 0.8])
    # Without region purification the score is that of the image, times S.
    close(started(rp=False).score(shown(REGIONS), TEXT, torch.zeros(3)), [0.6 * S, 0.0, 0.8 * S])


def test_eq_2_cache_score_of_the_whole_image() -> None:
    # One entry e0 in class 0: ⟨F_V, F_cache⟩ = 0.6, so A = 6 exp(−5 (1 − 0.6)) = 6 e^−2. The others have none: 0.
    method = started(ep=False)
    method.cache.offer_by_entropy(0, TEXT[0], 0.1)
    close(method.cache_scores(shown(REGIONS)), [6 * math.exp(-2), 0.0, 0.0])


def test_eq_3_residual_of_the_text() -> None:
    # At E = e0 with g = (0, 1e-3, 0): ΔF = −lr · 1e-3 / (1e-3 + eps) = −lr/2 in the second coordinate.
    moved = adamw_step(TEXT[:1], torch.tensor([[0.0, 1e-3, 0.0]]), floor=torch.tensor([[1e-3]]), lr=0.2)
    close(moved[0], [1.0, -0.1, 0.0])


def test_eq_4_running_text() -> None:
    # All three slots of class 0 move from e0 to e1. The prompt counts as one sample, so the bank is at (½, ½, 0),
    # not normalised, and the prototype at (1, 1, 0)/√2. Equal scores have entropy ln 3: too high, nothing moves.
    method = started()
    vectors = 2 * TEXT[[1, 1, 2], None].repeat(1, 3, 1)  # [C, 3, D], of any length
    adapted = Directions(vectors, inverse_length(vectors))
    method.evolve_text(adapted, torch.zeros(3))
    assert method.bank.updates == 0
    close(method.text, TEXT.tolist())
    method.evolve_text(adapted, torch.tensor([100.0, 0.0, 0.0]))
    assert method.bank.updates == 1
    close(method.text_bank[0], [[0.5, 0.5, 0.0]] * 3)
    close(method.text[0], [math.sqrt(0.5), math.sqrt(0.5), 0.0])


def test_eq_5_global_candidates() -> None:
    # κ_g = 0.7 of 3 classes: two per view. {0, 1} ∩ {1, 2} = {1}. κ_g = 0.1 rounds down to none, but one is the least.
    logits = torch.tensor([[3.0, 2.0, 1.0], [1.0, 3.0, 2.0]])
    assert global_candidates(logits, 0.7).tolist() == [False, True, False]
    assert global_candidates(logits, 0.1).tolist() == [False, False, False]
    assert global_candidates(logits[:1], 0.1).tolist() == [True, False, False]
    assert global_candidates(torch.zeros(1, 3), 0.7).tolist() == [True, True, False]  # ties: the first classes


def test_eq_6_relative_confidence() -> None:
    p, entropy = relative_confidence(S * REGIONS)
    expected = [[1024, 1, 1], [64, 256, 1], [1, 64, 256], [256, 1, 64]]
    close(p, [[value / sum(row) for value in row] for row in expected])
    # f1, f2 and f3 share H = ln 321 − (64 ln 64 + 256 ln 256)/321.
    fair = math.log(321) - (64 * math.log(64) + 256 * math.log(256)) / 321
    own, dominant = p.max(-1)
    close(own, [CLEAR, FAIR, FAIR, FAIR])
    assert dominant.tolist() == DOMINANT.tolist()
    close(entropy, [math.log(1026) - 1024 * math.log(1024) / 1026, fair, fair, fair])


@pytest.mark.parametrize(
    ("stat", "first", "second"),
    [
        # Image 1 has f0..f3: class 0 dominates f0 and f3, mean (CLEAR + FAIR)/2; classes 1 and 2 one region each.
        # Image 2 has f1 alone: class 1 stays at FAIR, and no other class is touched.
        ("dominated", [(CLEAR + FAIR) / 2, FAIR, FAIR], [(CLEAR + FAIR) / 2, FAIR, FAIR]),
        # With a second image of f3 alone "pooled" and "dominated" would differ: see the next test.
        ("pooled", [(CLEAR + FAIR) / 2, FAIR, FAIR], [(CLEAR + FAIR) / 2, FAIR, FAIR]),
        # Mean over all four regions of every class's softmax; then half of it plus half of f1's row.
        (
            "printed",
            [
                (1024 / 1026 + (64 + 1 + 256) / 321) / 4,
                (1 / 1026 + (256 + 64 + 1) / 321) / 4,
                (1 / 1026 + (1 + 256 + 64) / 321) / 4,
            ],
            [
                (1024 / 1026 + 1) / 8 + 32 / 321,
                (1 / 1026 + 1) / 8 + 128 / 321,
                (1 / 1026 + 1) / 8 + 0.5 / 321,
            ],
        ),
    ],
)
def test_eq_7_running_threshold(stat: str, first: list[float], second: list[float]) -> None:
    p, _ = relative_confidence(S * REGIONS)
    mu, n = running_threshold(torch.zeros(3), torch.zeros(3), p, *p.max(-1), stat)
    close(mu, first)
    mu, n = running_threshold(mu, n, p[1:2], *p[1:2].max(-1), stat)
    close(mu, second)


@pytest.mark.parametrize(
    ("stat", "expected"),
    # Class 0 had f0 and f3 in image 1 and has f3 in image 2. By images: ((CLEAR + FAIR)/2 + FAIR)/2;
    # by regions: (CLEAR + 2 FAIR)/3.
    [("dominated", (CLEAR + 3 * FAIR) / 4), ("pooled", (CLEAR + 2 * FAIR) / 3)],
)
def test_eq_7_counts_images_or_regions(stat: str, expected: float) -> None:
    p, _ = relative_confidence(S * REGIONS)
    mu, n = running_threshold(torch.zeros(3), torch.zeros(3), p, *p.max(-1), stat)
    mu, n = running_threshold(mu, n, p[3:], *p[3:].max(-1), stat)
    close(mu[0], expected)


def test_eq_8_pure_regions() -> None:
    # After image 1 class 0 asks for (CLEAR + FAIR)/2: f0 passes, f3 does not; f1 and f2 equal their class's mean.
    p, _ = relative_confidence(S * REGIONS)
    mu, _ = running_threshold(torch.zeros(3), torch.zeros(3), p, *p.max(-1), "dominated")
    assert purity(p.amax(-1), mu[DOMINANT]).tolist() == [True, True, True, False]


def test_eq_8_without_any_pure_region_the_nearest_miss_is_used() -> None:
    # Thresholds (1, .9, .8), from so many images that this one does not move them: f0 misses by .002, f1 by .102, f2 by
    # .0025, f3 by .2025. f0 alone is scored; it gives no label, although its class is among the proposed.
    method = started(kappa_g=1.0)
    method.mu, method.mu_count = torch.tensor([1.0, 0.9, 0.8]), torch.full((3,), 1e9)
    seen = method.purify_regions(Observation(0, IMAGE, {"regions": REGIONS}))
    assert seen.pure.tolist() == [True, False, False, False]
    assert seen.log_mask[:, 0].tolist() == [0, -math.inf, -math.inf, -math.inf]
    assert not seen.labels.any()
    report = method.take_report()
    assert (report["kept_share"], report["G"], report["R"], report["Y"]) == (0, 3, 0, 0)


def test_eq_9_region_candidates_and_their_intersection() -> None:
    # Regions 0 and 2 of class 0, region 1 of class 2, region 3 of class 1; 2 and 3 are not pure: R = {0, 2}.
    pure = torch.tensor([True, True, False, False])
    assert region_candidates(torch.tensor([0, 2, 0, 1]), pure, 3).tolist() == [True, False, True]
    # The image (.6, 0, .8) proposes its best 2 classes (κ_g = 0.7), {2, 0}; pure are f0, f1, f2, so R = {0, 1, 2}.
    method = started(kappa_g=0.7)
    seen = method.purify_regions(Observation(0, IMAGE, {"regions": REGIONS}))
    assert seen.crops.tolist() == [*REGIONS.tolist(), IMAGE.tolist()]
    assert seen.pure.tolist() == [True, True, True, False]
    assert seen.log_mask[:, 0].tolist() == [0, 0, 0, -math.inf]
    assert seen.labels.tolist() == [True, False, True]
    report = method.take_report()
    assert (report["kept_share"], report["G"], report["R"], report["Y"]) == (0.75, 2, 3, 2)


def test_eq_10_global_and_local_scores() -> None:
    # ½ (.6, 0, .8) + ½ max over f0, f1, f2 = ½ (1, .8, .8), and a cache that adds 1 to class 2.
    log_mask = torch.tensor([[0.0], [0.0], [0.0], [-math.inf]])
    local, cached = strongest(REGIONS @ TEXT.mT, log_mask), torch.tensor([0.0, 0.0, 1.0])
    close(local, [1.0, 0.8, 0.8])
    close(aggregate(IMAGE @ TEXT.mT, local, cached), [0.8, 0.4, 1.8])
    # And the method's score, S times the cosines. f3 would not change these maxima, so f0 is left out as well.
    log_mask = torch.tensor([[-math.inf], [0.0], [0.0], [-math.inf]])
    score = started().score(shown(REGIONS)._replace(log_mask=log_mask), TEXT, cached)
    close(score, [0.6 * S, 0.4 * S, 0.8 * S + 1])


def test_eq_11_bce() -> None:
    # σ(0) = ½, σ(ln 3) = ¾, σ(−ln 3) = ¼: −ln ½ − ln(1 − ¾) − ln(1 − ¼) = ln 2 + ln 4 + ln 4/3 = ln 32/3.
    scores = torch.tensor([0.0, math.log(3), -math.log(3)])
    loss, slope = bce_and_slope(scores, torch.tensor([1.0, 0.0, 0.0]))
    assert loss == pytest.approx(math.log(32 / 3), abs=1e-6)
    close(slope, [-0.5, 0.75, 0.25])
    # With class 1 as the label: −ln(1 − ½) − ln ¾ − ln(1 − ¼) = ln 32/9.
    loss, slope = bce_and_slope(scores, torch.tensor([0.0, 1.0, 0.0]))
    assert loss == pytest.approx(math.log(32 / 9), abs=1e-6)
    close(slope, [0.5, -0.25, 0.25])


def test_eq_12_anchors() -> None:
    # Class 0 dominates regions 0 and 3, of which 3 is surer. Region 2 is the surest of all, but not class 0's or 1's.
    entropies = torch.tensor([0.3, 0.2, 0.05, 0.1])
    everything = torch.ones(4, dtype=torch.bool)
    assert anchors(entropies, DOMINANT, everything, torch.tensor([0, 1])).tolist() == [3, 1]
    # If region 3 is not pure, region 0 is class 0's anchor.
    assert anchors(entropies, DOMINANT, everything & (entropies != 0.1), torch.tensor([0, 1])).tolist() == [0, 1]


def test_eq_12_tells_very_sure_regions_apart() -> None:
    # At S = 100 the classes' logits differ by 65 in the first region and view, and by 80 in the second: entropies of
    # about 65 e^−65 and 80 e^−80. The second is the surer, though both are next to nothing.
    first, second = torch.tensor([[0.85, 0.2, 0.0], [0.9, 0.1, 0.0]])
    views = torch.stack((first, second))
    method = started(scale=100.0, selection="all", keep=0.4)  # one of the three views
    seen = method.purify_regions(Observation(0, IMAGE, {"views": views, "regions": views}))
    assert seen.confident.tolist() == [second.tolist()]
    assert anchors(seen.entropies[:-1], seen.dominant, seen.pure, torch.tensor([0])).tolist() == [1]


@pytest.mark.parametrize(
    ("mode", "cosines"),
    # Entries e0 in class 0 and e1 in class 1, none in class 2; the regions are f1 = (.6, .8, 0) and f3 = (.8, 0, .6).
    [("region_max", (0.8, 0.8)), ("region_avg", (0.7, 0.4)), ("region_globalretrieve", (0.6, 0.0))],
)
def test_eq_13_cache_scores(mode: str, cosines: tuple[float, float]) -> None:
    method = started(cache_mode=mode)
    put(method, [0, 1], TEXT[:2], [0.1, 0.1])
    expected = [6 * math.exp(-5 * (1 - cosine)) for cosine in cosines]
    close(method.cache_scores(shown(REGIONS[[1, 3]])), [*expected, 0.0])


def test_eq_14_entries_hold_feature_entropy_and_age() -> None:
    method = started()
    for seen, feature in ((3, REGIONS[1]), (5, REGIONS[0])):
        method.seen = seen
        put(method, [1], feature[None], [0.1 * seen])
    assert method.cache.features[1, :2].tolist() == REGIONS[[1, 0]].tolist()
    close(method.cache.entropies[1, :2], [0.3, 0.5])
    assert method.born[1].tolist() == [3, 5, 0]
    # F_cache: mean of (.6, .8, 0) and (1, 0, 0) is (.8, .4, 0), of length √.8.
    close(method.cache.keys[:, 1], [0.8 / math.sqrt(0.8), 0.4 / math.sqrt(0.8), 0.0])
    assert (method.cache.keys[:, [0, 2]] == 0).all()


def test_eq_15_age_raises_the_entropy() -> None:
    # δ = 4: exp((0 − 4)/4) = 1/e, exp((4 − 4)/4) = 1, exp((8 − 4)/4) = e.
    aged = log_aged(torch.full((3,), 0.5), torch.tensor([10.0, 6.0, 2.0]), 10, 4.0).exp()
    close(aged, [0.5 / math.e, 0.5, 0.5 * math.e])
    # δ = 1, ages 70 and 80, entropies 1 and .5: e^69 against .5 e^79, where the older is the worse.
    assert log_aged(torch.tensor([1.0, 0.5]), torch.tensor([30.0, 20.0]), 100, 1.0).argmax() == 1


@pytest.mark.parametrize(
    ("tr", "h", "replaced"),
    # Entropies .1, .2, .3, born at 1, 9, 9; now 9 and δ = 4. H' = .1e = .272, .2/e = .074, .3/e = .110: the oldest is
    # the worst although its raw entropy is the best. Without refreshing the third one is.
    [(True, 0.2, 0), (True, 0.28, None), (False, 0.2, 2), (False, 0.28, 2), (False, 0.3, None)],
)
def test_eq_15_who_is_replaced(tr: bool, h: float, replaced: int | None) -> None:
    method = started(delta=4.0, tr=tr)
    for born, entropy in ((1, 0.1), (9, 0.2), (9, 0.3)):
        method.seen = born
        put(method, [2], TEXT[:1], [entropy])
    method.take_report()
    put(method, [2], TEXT[1:2], [h])
    changed = [slot for slot in range(3) if method.cache.features[2, slot, 1] == 1]
    assert changed == ([] if replaced is None else [replaced])
    report = method.take_report()
    assert (report["entries_in"], report["entries_out"]) == ((0, 0) if replaced is None else (1, 1))
    if replaced is not None:
        close(method.cache.entropies[2, replaced], h)  # stored as it is, not aged


def test_eq_16_mean_of_the_confident_views_entropies() -> None:
    # Two views at S = ln 2 with cosines (1, 0, 0) and (0, 0, 0) have p = (½, ¼, ¼) and (⅓, ⅓, ⅓), so H = 1.5 ln 2 and
    # ln 3. All views count as confident here, the most confident first.
    method = started(scale=math.log(2), keep=1.0)
    views = torch.zeros(1, 3)
    seen = method.purify_regions(Observation(0, TEXT[0], {"views": views}))
    expected = (1.5 * math.log(2) + math.log(3)) / 2
    loss, slope = mean_entropy_and_slope(seen.confident_logits)
    close(loss, expected)
    # dH/dl_c = −p_c (ln p_c + H): for the first −½ (−ln 2 + 1.5 ln 2) = −¼ ln 2 and twice ¼ · ½ ln 2; half of each in
    # the mean of two views.
    ln_2 = math.log(2)
    close(slope, [[-ln_2 / 8, ln_2 / 16, ln_2 / 16], [0.0, 0.0, 0.0]])
    method.adapt_text(seen, torch.zeros(3))
    assert method.take_report()["loss_entropy"] == pytest.approx(expected, abs=1e-6)


def test_eq_17_alignment() -> None:
    # Class 2 has no entry. Cosines of prototype 0 with texts 0 and 1: .01 ln 3 apart, so softmax ¾ at τ = .01; of
    # prototype 1: equal, so ½. The mean of −ln ¾ and −ln ½ is ½ ln 8/3.
    gap = 0.01 * math.log(3)
    cosine = torch.tensor([[0.5 + gap, 0.5, 0.9], [0.2, 0.2, 0.9], [0.9, 0.9, 0.9]])
    loss, slope = info_nce(cosine.mT, alignment_of(torch.tensor([1.0, 1.0, 0.0])))
    assert loss == pytest.approx(0.5 * math.log(8 / 3), abs=1e-5)
    # τ d/d(cos) = (p − 1[i = j]) / 2: half of (¾ − 1, ¼) and of (½, ½ − 1).
    expected = torch.tensor([[-0.125, 0.125, 0.0], [0.25, -0.25, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(0.01 * slope.mT, expected, rtol=0, atol=1e-5)


def gradient_of(monkeypatch: pytest.MonkeyPatch, lambda_1: float, lambda_2: float) -> Tensor:
    """dL*/d(residual) [C, 3, D] for one region f2 = (0, .6, .8), no pseudo-label, entries e0 in class 0 and 1."""
    seen_gradients: list[Tensor] = []

    def recording(x: Tensor, slope: Tensor, floor: Tensor, lr: float, fp16_norm: Tensor | None) -> Tensor:
        seen_gradients.append(slope / (floor / method.eps))
        return adamw_step(x, slope, floor, lr, fp16_norm)

    monkeypatch.setattr(text_bank, "adamw_step", recording)
    method = started(scale=math.log(3) / 0.3, lambda_1=lambda_1, lambda_2=lambda_2)
    put(method, [0, 1], TEXT[[0, 0]], [0.1, 0.1])
    crops = torch.stack((REGIONS[2], IMAGE))
    seen = shown(REGIONS[2:3])._replace(
        logits=method.scale * crops, confident=TEXT[:1], confident_logits=torch.tensor([[0.0, math.log(2), 0.0]])
    )
    method.adapt_text(seen, torch.zeros(3))
    report = method.take_report()
    # BCE of the scores ln 3, ln 3 and 8/3 ln 3 without a label. InfoNCE of text 0 is 0, of text 1 a hundred, cut at 60.
    assert report["loss_bce"] == pytest.approx(2 * math.log(4) + math.log(1 + 3 ** (8 / 3)), abs=1e-5)
    assert report["loss_align"] == pytest.approx(60 / 2, abs=1e-5)
    return seen_gradients[0]


def test_eq_18_the_losses_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    entropy = gradient_of(monkeypatch, 0.0, 0.0)
    bce = gradient_of(monkeypatch, 1.0, 0.0) - entropy
    align = gradient_of(monkeypatch, 0.0, 1.0) - entropy
    torch.testing.assert_close(gradient_of(monkeypatch, 0.2, 0.5), entropy + 0.2 * bce + 0.5 * align)
    # The one confident view is e0 with p = (¼, ½, ¼) and H = 1.5 ln 2, so dH/dl = −p (ln p + H) is −¼ ln 2 for class 1
    # and ⅛ ln 2 for class 2: their prototypes get that times S e0, and of it each slot a third.
    scale = math.log(3) / 0.3
    close(entropy[1], [[-scale * math.log(2) / 12, 0.0, 0.0]] * 3)
    close(entropy[2], [[scale * math.log(2) / 24, 0.0, 0.0]] * 3)
    # Class 1 scores S · ½ · .6 = ln 3, so σ = ¾ and the slope in its prototype is ¾ · ½ S (F_V + f2)
    # = ⅜ S (.6, .6, 1.6). Its component along e1 is lost in the normalisation; each of the three slots gets a third.
    close(bce[1], [[0.125 * scale * 0.6, 0.0, 0.125 * scale * 1.6]] * 3)
    # Prototypes 0 and 1 are both e0: cosines (1, 0) each, softmax (1, e^−100). Text 1 gets (p_01 + p_11 − 1) / (2 τ) e0
    # = −50 e0, a third per slot; text 0 is parallel to e0 and cannot turn.
    close(align[1], [[-50 / 3, 0.0, 0.0]] * 3)
    close(align[0], [[0.0, 0.0, 0.0]] * 3)


def test_the_table_of_equations_names_what_exists() -> None:
    """docs/purf.md: one row per equation, with functions and tests that are there."""
    owners: dict[str, Any] = {"PuRF": PuRF, "TextBank": text_bank.TextBank, "ClassCache": ClassCache}
    owners |= {"": purf, "prototypes": prototypes}
    lines = (Path(__file__).parents[2] / "docs" / "purf.md").read_text(encoding="utf-8").splitlines()
    rows = [line.replace(r"\|", "").split(" | ") for line in lines if re.match(r"\| \d", line)]
    assert [row[0] for row in rows] == [f"| {number}" for number in range(1, 19)]
    for _, _, functions, tests, _ in rows:
        for owner, name in re.findall(r"`(?:(\w+)\.)?(\w+)`", functions):
            assert callable(getattr(owners[owner], name)), name
        named = re.findall(r"`(\w+)`", tests)
        assert named
        assert all(test in globals() for test in named), named
    tested = {test for row in rows for test in re.findall(r"`(\w+)`", row[3])}
    assert tested == {name for name in globals() if name.startswith("test_eq_")}
