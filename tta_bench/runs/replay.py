"""One method over one stream: step by step, with checkpoints from which a killed run goes on bit for bit."""

from __future__ import annotations

import io
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tta_bench import metrics
from tta_bench.errors import BadData, PluginError, Raised, TTABenchError
from tta_bench.features.stream import Stream
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.runs import proof, state
from tta_bench.runs.answers import reported, unusable_results, unusable_scores
from tta_bench.runs.cost import FlopCounter, weigh
from tta_bench.runs.proof import Earlier
from tta_bench.runs.state import Started
from tta_bench.runs.watched import Seen
from tta_bench.system.code import in_words, own_line
from tta_bench.system.files import write_atomically
from tta_bench.system.progress import Reporter
from tta_bench.system.seal import opened, sealed

RUNNING_MAP_SECONDS = 2.0
TRIED_AT_LEAST, TRIED_AT_MOST = 4, 64  # images that somebody else's method has before its run
A_MOMENT = 2.0  # seconds


@dataclass
class Adaptation:
    """How far a method has come along a stream."""

    outputs: Tensor | None = None  # [N, B, C]; rows up to `position` are filled
    diagnostics: dict[str, list[float]] = field(default_factory=dict)
    position: int = 0
    seconds: float = 0.0  # spent in `step`, over all resumptions
    slowest: float = field(default=0.0, kw_only=True)  # of the steps in this process
    first_state: str = ""  # digest of the method's state after the first image
    step_flops: int = 0  # of the last step
    resumed_at: int = 0  # images that an earlier process had done
    started: Started = field(kw_only=True)

    def record(self, scores: Tensor, report: dict[str, float], total: int) -> None:
        branches = scores if scores.dim() == 2 else scores[None]  # [B, C]
        if self.outputs is None:
            self.outputs = torch.empty(total, *branches.shape)
        if branches.shape != self.outputs.shape[1:]:
            now, before = tuple(branches.shape), tuple(self.outputs.shape[1:])
            raise PluginError(f"image {self.position} of the stream: step returned {now} after {before} until then")
        self.outputs[self.position] = branches
        for name in {*report, *self.diagnostics}:
            column = self.diagnostics.setdefault(name, [float("nan")] * self.position)
            column.append(report.get(name, float("nan")))
        self.position += 1

    def content(self) -> dict[str, Any]:
        """What a checkpoint keeps of it, the method's state aside."""
        return {
            "outputs": None if self.outputs is None else self.outputs[: self.position],
            "diagnostics": self.diagnostics,
            "position": self.position,
            "seconds": self.seconds,
            "first_state": self.first_state,
        }

    @classmethod
    def resumed(cls, content: Mapping[str, Any], total: int, started: Started) -> Adaptation:
        position = content["position"]
        done = cls(None, content["diagnostics"], position, content["seconds"], content["first_state"], started=started)
        done.resumed_at = position
        if content["outputs"] is not None:
            done.outputs = torch.empty(total, *content["outputs"].shape[1:])
            done.outputs[: done.position] = content["outputs"]
        return done


@dataclass
class Checkpoints:
    """A run's checkpoint: when it is written, and what is read from it.

    Args:
        writer: which run by which code. A state goes on bit for bit only under the code that it comes from.
        proven: a method that is not built in goes on only after it has been seen to go on as it would have (proof.py).
    """

    file: Path
    seconds: float  # from one to the next
    writer: str
    proven: bool
    watch: Seen | None = field(default=None, init=False)  # of what a method in the caller's process reaches for
    _earlier: Earlier | None = field(default=None, init=False)
    at_start: proof.Looks = field(default_factory=dict, init=False)
    _saved: float = field(default_factory=time.monotonic, init=False)
    _loadable: bool = field(default=False, init=False)  # one of this run has been read back

    def after_start(self, method: Method) -> None:
        if self.proven:
            self.at_start = proof.seen(method)

    def after_step(self, progress: Adaptation, method: Method, task: Task, reporter: Reporter) -> None:
        """Writes one if it is time. A state that can't be kept is no reason to lose the run."""
        try:
            self._write_in_time(progress, method, task)
        except (TypeError, Raised) as error:
            self.seconds, self._earlier = math.inf, None
            reporter.warn(f"{method.name}: no checkpoints, so if it is killed it starts from the first image: {error}")

    def _write_in_time(self, progress: Adaptation, method: Method, task: Task) -> None:
        if self._earlier is not None and self._earlier.proven_at == progress.position:
            self._write(progress, earlier=vars(self._earlier), at_start=self.at_start, seen=proof.seen(method))
            self._earlier = None
        if self._earlier is not None or time.monotonic() - self._saved < self.seconds:
            return
        if self.proven:
            self._earlier = Earlier.of(method, task, progress.started, progress.position)
        else:
            self._write(progress, state=progress.started.save(method), rng=task.rng.get_state())

    def _write(self, progress: Adaptation, **state_then: Any) -> None:
        buffer = io.BytesIO()
        reached = {} if self.watch is None else {"reached": self.watch.told()}
        torch.save(progress.content() | state_then | reached, buffer)
        self._loadable = self._loadable or state.can_be_loaded(buffer)
        write_atomically(self.file, sealed(buffer.getvalue(), self.writer))
        self._saved = time.monotonic()

    def read(self) -> dict[str, Any]:
        """Raises anything if it is damaged, or belongs to another run or other code."""
        content = torch.load(io.BytesIO(opened(self.file.read_bytes(), self.writer)), weights_only=True)
        return dict(content)


def adapt(
    method: Method,
    task: Task,
    stream: Stream,
    observe: Callable[[int], Iterator[Observation]],
    checkpoints: Checkpoints,
    reporter: Reporter,
    ties: metrics.Ties = "threshold",
) -> Adaptation:
    """Runs the method over the stream, from its checkpoint if there is one that it can go on from."""
    progress = _begin(method, task, stream, observe, checkpoints, reporter)
    shown = time.monotonic()
    bar = reporter.task(f"adapting {method.name}", len(stream), "images", done=progress.position)
    with limited_threads(adapting_threads(method)), bar as advance:
        for x in observe(progress.position):
            counter = FlopCounter() if x.index == len(stream) - 1 else None
            began = time.perf_counter()
            with counter or nullcontext():
                scores = _step(method, x, stream.ids[x.index], len(task.class_names))
            took = time.perf_counter() - began
            progress.seconds, progress.slowest = progress.seconds + took, max(progress.slowest, took)
            progress.record(scores, reported(method), len(stream))
            if progress.position == 1:
                progress.first_state = weigh(method).digest
            if counter is not None:
                progress.step_flops = counter.total
            now = time.monotonic()
            note = ""
            if now - shown > RUNNING_MAP_SECONDS and progress.outputs is not None:
                note = f"mAP {_running_map(progress.outputs[: progress.position], stream, ties):.1f}"
                shown = time.monotonic() + 20 * (time.monotonic() - now)  # at most a twentieth of the time
            if progress.position < len(stream):
                checkpoints.after_step(progress, method, task, reporter)
            advance(1, note)
    return progress


def first_steps(
    method: Method, task: Task, stream: Stream, observe: Callable[[int], Iterator[Observation]]
) -> list[Tensor]:
    """Scores of the first images, [C] or [B, C] each: as many as take a moment. Nothing is recorded."""
    scores: list[Tensor] = []
    with limited_threads(adapting_threads(method)):
        _start(method, task)
        began = time.monotonic()
        for x in itertools.islice(observe(0), min(TRIED_AT_MOST, max(TRIED_AT_LEAST, len(stream) // 3))):
            if len(scores) >= TRIED_AT_LEAST and time.monotonic() - began > A_MOMENT:
                break
            scores.append(_step(method, x, stream.ids[x.index], len(task.class_names)))
    return scores


def adapting_threads(method: Method) -> int:
    """Steps on features are many small products, which a second thread only slows down; a text tower is larger."""
    return torch.get_num_threads() if method.tunes_prompts else 1


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _begin(
    method: Method,
    task: Task,
    stream: Stream,
    observe: Callable[[int], Iterator[Observation]],
    checkpoints: Checkpoints,
    reporter: Reporter,
) -> Adaptation:
    if checkpoints.file.exists():
        fresh_rng = task.rng.get_state()
        undo: Callable[[], None] | None = None
        try:
            content = checkpoints.read()
            undo = proof.way_back(method) if "earlier" in content else None
            progress = _resume(method, task, stream, observe, content, checkpoints)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the file may be damaged in any way, and the method may raise anything
            why = str(error) if isinstance(error, TTABenchError | Raised) else type(error).__name__
            reporter.line(f"checkpoint unusable ({why}): starting from the first image")
            checkpoints.file.unlink(missing_ok=True)
            task.rng.set_state(fresh_rng)
            if undo is not None:
                undo()
        else:
            reporter.line(f"resuming at image {progress.position} of {len(stream)}")
            return progress
    _start(method, task)
    checkpoints.after_start(method)
    return Adaptation(started=Started(method))


def _resume(
    method: Method,
    task: Task,
    stream: Stream,
    observe: Callable[[int], Iterator[Observation]],
    content: Mapping[str, Any],
    checkpoints: Checkpoints,
) -> Adaptation:
    """Starts the method and gives it the checkpoint's state. Raises anything if that is not what it was."""
    _start(method, task)
    progress = Adaptation.resumed(content, len(stream), Started(method))
    if checkpoints.watch is not None:
        checkpoints.watch.recall(content["reached"])
    if "earlier" not in content:
        state.load(method, content["state"])
        task.rng.set_state(content["rng"])
        return progress
    checkpoints.after_start(method)
    earlier = Earlier(**content["earlier"])
    earlier.load(method, task)
    with limited_threads(adapting_threads(method)):
        for x in itertools.islice(observe(earlier.position), progress.position - earlier.position):
            try:
                scores = _step(method, x, stream.ids[x.index], len(task.class_names))
            except PluginError as error:  # an image that was no trouble before
                raise BadData(f"{proof.NOT_AS_IT_WAS}: {error}") from error
            reported(method)
            proof.refuse_other_scores(x.index, scores, content["outputs"][x.index])
        at_start = (content["at_start"], checkpoints.at_start)
        proof.refuse_other_looks(at_start, (content["seen"], proof.seen(method)))
    return progress


def _start(method: Method, task: Task) -> None:
    try:
        with torch.no_grad():
            method.start(task)
    except (TTABenchError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a method may raise anything, SystemExit included
        raise _fault(method, f"method '{method.name}' can't start", error) from error


def _step(method: Method, x: Observation, image_id: str, classes: int) -> Tensor:
    """One step, its result checked: a wrong shape or a NaN must not become a number in a table."""
    where = f"method '{method.name}', image {x.index} of the stream ({image_id})"
    try:
        with torch.no_grad():
            scores = method.step(x)
    except (TTABenchError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise _fault(method, where, error) from error
    if fault := unusable_scores(scores, classes):
        raise PluginError(f"{where}: {fault}")
    return scores.detach().float().cpu().resolve_neg()


def finished(method: Method, outputs: Tensor) -> Tensor:
    """`finish` with its result checked: [N, B, C] -> [N, C]. It gets a copy: the outputs are kept as they were."""
    try:
        scores = method.finish(outputs.clone())
    except (TTABenchError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise _fault(method, f"method '{method.name}', finish", error) from error
    if fault := unusable_results(scores, outputs):
        raise PluginError(f"method '{method.name}': {fault}")
    return scores


def _fault(method: Method, where: str, error: BaseException) -> PluginError:
    """What the method raised, in one line with the place in its author's own file."""
    place = own_line(error, getattr(sys.modules.get(type(method).__module__), "__file__", None))
    return PluginError(f"{where}: {in_words(error, place)}")


def _running_map(outputs: Tensor, stream: Stream, ties: metrics.Ties) -> float:
    """Of the first branch. `finish` is not asked: when it is called must not depend on how fast a machine is."""
    scores = outputs[:, 0].numpy()
    return metrics.mean_average_precision(metrics.average_precision(scores, stream.labels[: len(scores)], ties))


def columns(diagnostics: dict[str, list[float]]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.asarray(values, dtype=np.float64) for name, values in diagnostics.items()}
