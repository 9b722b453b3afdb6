"""One method over one stream: step by step, with checkpoints from which a killed run goes on bit for bit."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
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
from tta_bench.runs import state
from tta_bench.runs.cost import FlopCounter, weigh
from tta_bench.runs.state import Started
from tta_bench.system.code import in_words, own_line
from tta_bench.system.files import write_atomically
from tta_bench.system.progress import Reporter
from tta_bench.system.seal import opened, sealed

RUNNING_MAP_SECONDS = 2.0
RESERVED = "__metadata__"  # of the file format in which reports are kept
FINEST = 1e-4  # of the spread of scores; float32 keeps logits to a millionth of it


@dataclass
class Adaptation:
    """How far a method has come along a stream."""

    outputs: Tensor | None = None  # [N, B, C]; rows up to `position` are filled
    diagnostics: dict[str, list[float]] = field(default_factory=dict)
    position: int = 0
    seconds: float = 0.0  # spent in `step`, over all resumptions
    first_state: str = ""  # digest of the method's state after the first image
    step_flops: int = 0  # of the last step
    resumed_at: int = 0  # images that an earlier process had done
    started: Started = field(kw_only=True)
    _proven: bool = False  # a checkpoint of this run has been read back

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

    def save(self, file: Path, method: Method, task: Task, code: str) -> None:
        content = {
            "outputs": None if self.outputs is None else self.outputs[: self.position],
            "diagnostics": self.diagnostics,
            "position": self.position,
            "seconds": self.seconds,
            "first_state": self.first_state,
            "state": self.started.save(method),
            "rng": task.rng.get_state(),
        }
        buffer = io.BytesIO()
        torch.save(content, buffer)
        self._proven = self._proven or state.can_be_loaded(buffer)
        write_atomically(file, sealed(buffer.getvalue(), code))

    @classmethod
    def resume(cls, file: Path, method: Method, task: Task, total: int, code: str) -> Adaptation:
        """Continues from the checkpoint: `method` has been started and takes over its state.

        Raises:
            Exception: the file is damaged or belongs to other code; the caller starts afresh.
        """
        content = torch.load(io.BytesIO(opened(file.read_bytes(), code)), weights_only=True)
        position, started = content["position"], Started(method)
        done = cls(None, content["diagnostics"], position, content["seconds"], content["first_state"], started=started)
        done.resumed_at = position
        if content["outputs"] is not None:
            done.outputs = torch.empty(total, *content["outputs"].shape[1:])
            done.outputs[: done.position] = content["outputs"]
        state.load(method, content["state"])
        task.rng.set_state(content["rng"])
        return done


def adapt(
    method: Method,
    task: Task,
    stream: Stream,
    observe: Callable[[int], Iterator[Observation]],
    checkpoint: Path,
    checkpoint_seconds: float,
    reporter: Reporter,
    code: str,
    ties: metrics.Ties = "threshold",
) -> Adaptation:
    """Runs the method over the stream, from its checkpoint if there is one that `code` wrote: which run by which code.

    A state goes on bit for bit only under the code that it comes from.
    """
    progress = _begin(method, task, len(stream), checkpoint, reporter, code)
    saved, shown = time.monotonic(), time.monotonic()
    bar = reporter.task(f"adapting {method.name}", len(stream), "images", done=progress.position)
    with limited_threads(adapting_threads(method)), bar as advance:
        for x in observe(progress.position):
            counter = FlopCounter() if x.index == len(stream) - 1 else None
            began = time.perf_counter()
            with counter or nullcontext():
                scores = _step(method, x, stream.ids[x.index], len(task.class_names))
            progress.seconds += time.perf_counter() - began
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
            if now - saved >= checkpoint_seconds and progress.position < len(stream):
                progress.save(checkpoint, method, task, code)
                saved = now
            advance(1, note)
    return progress


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


def _begin(method: Method, task: Task, total: int, checkpoint: Path, reporter: Reporter, code: str) -> Adaptation:
    fresh_rng = task.rng.get_state()
    _start(method, task)
    if not checkpoint.exists():
        return Adaptation(started=Started(method))
    try:
        progress = Adaptation.resume(checkpoint, method, task, total, code)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the file may be damaged in any way, and the method may raise anything
        why = str(error) if isinstance(error, BadData | Raised) else type(error).__name__
        reporter.line(f"checkpoint unusable ({why}): starting from the first image")
        task.rng.set_state(fresh_rng)
        _start(method, task)
        return Adaptation(started=Started(method))
    reporter.line(f"resuming at image {progress.position} of {total}")
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
    return scores.detach().float().cpu()


def unusable_scores(scores: object, classes: int) -> str:
    """What is wrong with what `step` returned; empty if nothing is."""
    wanted = f"step must return scores [{classes}] or [branches, {classes}]"
    if not isinstance(scores, Tensor):
        return f"{wanted}, not {type(scores).__name__}"
    if kind := _odd_kind(scores):
        return f"{wanted} that are plain real numbers, not a {kind} tensor"
    if scores.dim() not in (1, 2) or scores.shape[-1] != classes or len(scores) == 0:
        return f"{wanted}, not {tuple(scores.shape)}"
    as_recorded = scores.detach().float()
    if not np.isfinite(as_recorded.cpu().numpy()).all():  # numpy takes a third of torch's time for a few numbers
        return "scores are not finite"
    return _lost_in_float32(scores, as_recorded)


def unusable_results(scores: object, outputs: Tensor) -> str:
    """What is wrong with what `finish` returned for outputs [N, B, C]; empty if nothing is."""
    wanted = f"finish must return a tensor {(outputs.shape[0], outputs.shape[2])}"
    if not isinstance(scores, Tensor):
        return f"{wanted}, not {type(scores).__name__}"
    if kind := _odd_kind(scores):
        return f"{wanted} of plain real numbers, not a {kind} one"
    if scores.shape != (outputs.shape[0], outputs.shape[2]):
        return f"{wanted}, not {tuple(scores.shape)}"
    return _lost_in_float32(scores, scores.detach().float())


def _lost_in_float32(scores: Tensor, as_recorded: Tensor) -> str:
    """A large offset in float64 would round differences away, and with them the ranking."""
    if scores.dtype.itemsize <= as_recorded.dtype.itemsize:
        return ""
    exact = scores.detach().double()
    lost, spread = (as_recorded.double() - exact).abs().max(), exact.max() - exact.min()
    if not lost > FINEST * spread:
        return ""
    return f"scores are recorded as float32, which rounds these by up to {lost:.2g}: take their large offset away"


def reported(method: Method) -> dict[str, float]:
    """The step's diagnostics, checked: a method may have a `take_report` of its own."""
    report: object = method.take_report()
    if not isinstance(report, dict):
        raise PluginError(f"method '{method.name}': take_report must return a dict, not {type(report).__name__}")
    for name, value in report.items():
        if name == RESERVED:
            raise PluginError(f"method '{method.name}': a report may not be called {RESERVED}")
        if not isinstance(name, str) or not isinstance(value, int | float):
            raise PluginError(
                f"method '{method.name}': take_report must return numbers by name, not {type(value).__name__} for "
                f"{name!r}"
            )
    return report


def _odd_kind(tensor: Tensor) -> str:
    """Tensors that would lose something, or everything, on the way to float32."""
    if tensor.is_nested or tensor.layout is not torch.strided:
        return "nested" if tensor.is_nested else "sparse"
    if tensor.is_complex() or tensor.is_quantized:
        return "complex" if tensor.is_complex() else "quantised"
    return "meta" if tensor.is_meta else ""


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
    return {name: np.asarray(values, dtype=np.float32) for name, values in diagnostics.items()}
