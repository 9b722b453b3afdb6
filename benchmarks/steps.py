"""How long one step of each feature-level method takes, as a multiple of scoring the views once.

    python benchmarks/steps.py [METHOD ...]

The unit is the best time of `(views @ text.T).softmax()`, (64 x 512) @ (512 x 80), in the same run on one thread.
Streams are synthetic: random unit features around their classes' prototypes, so that the caches fill.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from tta_bench.errors import PluginError
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.plugins import default_registry, get_method

CLASSES, DIM, VIEWS, REGIONS, PROMPTS = 80, 512, 64, 50, 7
SCALE = 100.0
IMAGES = 256  # distinct images, replayed in a circle
WARM_UP = 400  # steps, for the caches to fill
CHUNKS, CHUNK = 5, 64  # the best mean of CHUNKS times CHUNK calls


def make_task(rng: torch.Generator) -> Task:
    centres = normalize(torch.randn(CLASSES, 1, DIM, generator=rng), dim=-1)
    bank = normalize(centres + 0.02 * torch.randn(CLASSES, PROMPTS, DIM, generator=rng), dim=-1)  # [C, P, D]
    names = [f"class {c}" for c in range(CLASSES)]

    def encode_texts(texts: Sequence[str]) -> Tensor:
        return normalize(torch.randn(len(texts), DIM, generator=rng), dim=-1)

    return Task(names, normalize(bank.mean(1), dim=-1), bank, SCALE, encode_texts=encode_texts, rng=rng)


def make_stream(task: Task, rng: torch.Generator) -> list[Observation]:
    """Images of two classes each; a view or region sees more or less of either."""

    def around(pair: Tensor, count: int) -> Tensor:
        mix = torch.rand(count, 2, generator=rng) @ task.text[pair]  # [count, D]
        return normalize(0.3 * mix + 0.04 * torch.randn(count, DIM, generator=rng), dim=-1)

    stream = []
    for i in range(IMAGES):
        pair = torch.randint(0, CLASSES, (2,), generator=rng)
        views, regions = around(pair, VIEWS), around(pair, REGIONS)
        stream.append(Observation(i, views[0], {"views": views[1:], "regions": regions}))
    return stream


def chunk_time(call: Callable[[], object]) -> float:
    """Seconds per call, the mean of one chunk."""
    begin = time.perf_counter()
    for _ in range(CHUNK):
        call()
    return (time.perf_counter() - begin) / CHUNK


def ready_step(method: Method, task: Task, stream: list[Observation]) -> Callable[[], object]:
    """The method's next step, with its caches filled."""
    method.start(task)
    circle = itertools.cycle(stream)
    for _ in range(WARM_UP):
        method.step(next(circle))
    return lambda: method.step(next(circle))


def feature_level_methods(names: list[str]) -> Iterator[type[Method]]:
    """Those that need nothing but features of views and regions. One that can't be loaded is named and skipped."""
    for name in names:
        try:
            method = get_method(name)
        except PluginError as error:
            print(error, file=sys.stderr)
            continue
        if not method.tunes_prompts and set(method.recipes) <= {"views", "regions"}:
            yield method


def ratios(names: Sequence[str] = ()) -> dict[str, float]:
    """Method -> its step as a multiple of scoring the views once."""
    torch.set_num_threads(1)
    rng = torch.Generator().manual_seed(0)
    task = make_task(rng)
    stream = make_stream(task, rng)
    views, weights = torch.cat((stream[0].image[None], stream[0]["views"])), task.text.T.contiguous()
    with torch.no_grad():  # as the runner does
        calls: dict[str, Callable[[], object]] = {"(unit)": lambda: (views @ weights).softmax(-1)}
        for method in feature_level_methods(list(names) or default_registry().names("methods")):
            calls[method.name] = ready_step(method(), task, stream)
        # In turns, so that a busy minute of the machine does not fall on one of them alone.
        rounds = [{name: chunk_time(call) for name, call in calls.items()} for _ in range(CHUNKS)]
    seconds = {name: min(round_[name] for round_ in rounds) for name in calls}
    print(f"{'method':<14}{'µs per step':>12}{'x unit':>8}")
    for name, value in seconds.items():
        print(f"{name:<14}{value * 1e6:>12.0f}{value / seconds['(unit)']:>8.1f}")
    return {name: value / seconds["(unit)"] for name, value in seconds.items() if name != "(unit)"}


if __name__ == "__main__":
    ratios(sys.argv[1:])
