"""What makes a run's numbers suspect: a sentence each, for the record's notes and a line after the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tta_bench.interfaces import LARGEST_SCALE
from tta_bench.runs.watched import Reached
from tta_bench.system import published
from tta_bench.system.code import Origin
from tta_bench.system.text import counted, visible

FAR = 3.0  # mAP points from the published value
ALIKE = 0.999  # cosine of features that say nothing about what they are of
LOOKED_AT = 64  # images
SHOWN = 60  # characters of a text
PAUSE = 2.0  # seconds: no step of a cache is that slow
SOME_IMAGES = 10  # that a memory may take to change


def far_from_published(backbone: str, prompt: str, dataset: str, value: float | None) -> list[str]:
    """Zero-shot CLIP on a complete dataset should be where papers have it: nothing is adapted yet."""
    known = published.find(backbone, prompt.partition(":")[0], "clip", dataset.partition(":")[0])
    if known is None or value is None or abs(value - known.value) <= FAR:
        return []
    side = "above" if value > known.value else "below"
    return [
        f"zero-shot mAP {value:.2f} is {abs(value - known.value):.2f} {side} the {known.value:.2f} published for "
        f"{dataset} with {backbone} ({known.paper} {known.table}); likely causes: other weights, prompt wording, image "
        "preprocessing or label variant (NAME:VARIANT)"
    ]


def no_spread(features: Tensor, what: str) -> list[str]:
    """Features [N, D] that all point one way rank by rounding errors."""
    if len(features) < 2:
        return []
    unit = torch.nn.functional.normalize(features.float(), dim=-1)
    least = float((unit @ unit.T).min())
    if least < ALIKE:
        return []
    return [
        f"the features of {what} are all but equal (cosine {least:.4f} or more between any two), so scores are mostly "
        "rounding errors; likely causes: broken weights, preprocessing or precision"
    ]


def logarithmic_scale(scale: float) -> list[str]:
    """Weights hold the scale's logarithm, and whoever writes a pack or a backbone by hand may hand that on, or take
    the scale for it."""
    if scale > LARGEST_SCALE:
        return [
            f"the logit scale is {scale:.4g}, more than any backbone's: if it was exponentiated twice, everything but "
            "raw zero-shot mAP is wrong"
        ]
    if scale > math.log(LARGEST_SCALE):
        return []
    return [
        f"the logit scale is {scale:.4g}, as small as the logarithm of one ({math.exp(scale):.4g}): if it is that, "
        "everything but raw zero-shot mAP is wrong"
    ]


def cut_prompts(cut: Sequence[str], count: int, backbone: str, what: str = "prompt") -> list[str]:
    """Prompts, or texts that a method encodes itself, whose end the text encoder has not read: it may have been what
    told one class from another."""
    if not cut:
        return []
    first = visible(cut[0] if len(cut[0]) <= SHOWN else f"{cut[0][:SHOWN]}…")
    return [
        f"{counted(len(cut), what)} of {count:,} {'is' if len(cut) == 1 else 'are'} longer than {backbone} reads, "
        f"and cut: the first is '{first}'"
    ]


def changed_class(method: str) -> list[str]:
    """An instance whose class, or whose module, is not what it was when the run began."""
    return [
        f"{method} has changed its own class or what it uses of its module, which counts as its code: its next run in "
        "this process begins with that, and is another row (keep what is learnt on `self`, and make it in `start`)"
    ]


def other_scores(method: str) -> list[str]:
    """An instance that its identity takes for one that was run, and which gives something else."""
    return [
        f"an earlier run of the same identity gave {method} other scores from the first images on, and is replaced by "
        "this one: something decides them that no identity knows (make it a hyper-parameter)"
    ]


def other_each_time(method: str, tried: Sequence[Tensor], outputs: Tensor | None) -> list[str]:
    """A method that gives the first images other scores when it has them again, in a process as new as the first."""
    if outputs is None or all(
        torch.equal(one.reshape(-1), now.reshape(-1)) for one, now in zip(tried, outputs, strict=False)
    ):
        return []
    return [
        f"{method} gives the same images other scores each time, so that this number can't be repeated: draw from "
        "task.rng, and keep nothing in files"
    ]


def run_anew(method: str) -> list[str]:
    """An instance of which no copy can be tried, so that nothing tells whether it is the one that was run."""
    return [
        f"{method} can't be copied to see whether it still gives what an earlier run recorded, which this one replaces"
    ]


def changed_instance(method: str) -> list[str]:
    """An instance of which a copy has run, and which shares with it what copying does not copy."""
    return [
        f"{method} was changed by its own run: it holds what a copy shares with it (a closure, a hook, an object that "
        "copies to itself), so its next run begins with that, and is another row (make in `start` what it learns)"
    ]


def uncopied(method: str, why: str) -> list[str]:
    """An instance that runs itself, since what it holds can't be copied."""
    if not why:
        return []
    return [
        f"{method} ran itself and not a copy of it ({why}), so what earlier runs of the same object have left in what "
        "it holds counts: make it anew for each run, or make in `start` what it learns"
    ]


def one_draw(seed: int, packed: object, seeded: Sequence[str]) -> list[str]:
    """A pack has its views once. `packed` is the seed that they were drawn with, if it says so."""
    if not seeded or seed == packed or (packed is None and seed == 0):
        return []
    return [
        f"the pack has one draw of {', '.join(seeded)}, so that seed {seed} changes the stream's order alone: a spread "
        "over seeds leaves out that of the views"
    ]


def not_ours(places: Sequence[str]) -> list[str]:
    """What of ttabench is something else in this process than its source says, or of a library somebody else's."""
    if not places:
        return []
    return [
        f"{_some(places)} stood for other code than ttabench's or its libraries' in this process, so the number is not "
        "its own"
    ]


def other_weights(backbone: str) -> list[str]:
    """Of a reward model that has the student's name."""
    return [f"--weights are the student's alone: as reward model {backbone} has its own"]


def altered(origin: Origin) -> list[str]:
    """A dataset or backbone whose module was edited, reloaded or patched since this process has it."""
    if not origin.altered:
        return []
    places = _some(origin.altered.split(", "))
    return [
        f"{places} is no longer what it was when {origin.label} was loaded, so that a new process may give another "
        "number: run it there"
    ]


def left_by_another(method: str) -> list[str]:
    """An instance of a class that an earlier run in this process has changed, be it an interrupted one, another
    class's, or the look at a run that was found."""
    return [
        f"an earlier run in this process has changed the class of {method} or what it uses of its module, so that this "
        "number may depend on that run: run it again in a new process"
    ]


def unchanged_state(first: str, last: str, images: int, episodic: bool) -> list[str]:
    """A method with a memory that never changes. `first` and `last` are digests of the state after these images, empty
    where there is none; an episodic method starts afresh with every image."""
    if not first or first != last or images < SOME_IMAGES or episodic:
        return []
    return [
        f"the state that a checkpoint would hold is the same after image 1 and image {images:,}: it learns nothing "
        "from the stream, or keeps it in attributes with a leading underscore, which are no state (right for constants)"
    ]


def one_slow_step(slowest: float, seconds: float, images: int) -> list[str]:
    """A laptop that was shut, a job that was stopped, or a library that compiled."""
    if slowest < PAUSE or slowest < seconds / 2 or images < SOME_IMAGES:
        return []
    return [
        f"one step took {slowest:.1f} of {seconds:.1f} s, as if the process had been suspended: images per second say "
        "nothing"
    ]


def strangers(backbone: str, known_to: Sequence[str], dataset: str) -> list[str]:
    """A backbone that can know nothing of a dataset runs on it all the same, and its numbers look like any."""
    if not known_to or dataset.partition(":")[0] in known_to:
        return []
    return [
        f"{backbone} was made for {', '.join(known_to)} alone and knows nothing else, so on {dataset} its numbers say "
        "nothing about a method; choose another --backbone"
    ]


def one_class(classes: int) -> list[str]:
    """A mean or a softmax over one class leaves nothing to rank by."""
    if classes != 1:
        return []
    return ["there is one class, so that centred and softmax scores are all equal: their mAP says nothing"]


def nothing_absent(labels: np.ndarray[Any, Any]) -> list[str]:
    """Labels in {1, -1}: many files spell "absent" as -1, which is "ignore" here. Or nothing but 1."""
    if (labels == 0).any():
        never = (labels == 1).any(axis=0) & (labels == -1).any(axis=0) & ~(labels == 0).any(axis=0)  # [C]
        if not never.any():
            return []
        several = f"in {int(never.sum())} classes" if never.sum() > 1 else "in a class"
        return [
            f"{several} images are labelled 1 or -1 (ignore) and never 0 (absent): nothing can be ranked wrongly there "
            "and AP is 100; absent is written as 0"
        ]
    if not (labels == -1).any():
        return ["every image has every class, so that nothing can be ranked wrongly and every AP is 100"]
    return [
        "the labels are 1 or -1 (ignore) and never 0 (absent): nothing can be ranked wrongly, so that every AP is 100 "
        "or undefined; absent is written as 0"
    ]


def unknown(modules: Sequence[str], reached: Reached) -> list[str]:
    """Code that ran, and what it read, of which an edit would go unnoticed; and where it could have found labels."""
    found = []
    if modules:
        found.append(
            f"it imported {_some(modules)} in a way that can't be foreseen, so that its identity does not know that "
            "code: an edit there is not noticed, and needs --force"
        )
    if reached.unknown:
        found.append(
            f"it reached for {_some(reached.unknown)}, which its identity does not know: an edit there is not noticed, "
            "and needs --force; a file's digest belongs into `digests`"
        )
    if reached.variables:
        found.append(
            f"it asked the environment for {_some(reached.variables)}, which its identity does not know: another value "
            "is not noticed, and needs --force; what a number depends on belongs into a hyper-parameter"
        )
    if reached.datasets:
        found.append(f"it imported {_some(reached.datasets)}, which can tell the labels")
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def spread_over(count: int) -> list[int]:
    """Positions of the images to look at."""
    return sorted({count * k // LOOKED_AT for k in range(LOOKED_AT)} & set(range(count)))
