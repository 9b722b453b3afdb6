"""`--executor print`: each cell as a command for whatever scheduler there is. It runs nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from tta_bench.errors import UsageError
from tta_bench.runs.executors.work import Workplace, refuse_objects
from tta_bench.runs.spec import RunSpec

OPTIONS = {  # of RunOptions, those that are one option with one value
    "prompt": "--prompt",
    "order": "--order",
    "limit": "--limit",
    "preset": "--preset",
    "protocol_preset": "--protocol-preset",
    "precision": "--precision",
    "weights": "--weights",
    "empty_classes": "--empty-classes",
    "ties": "--ties",
}


def command(spec: RunSpec, workplace: Workplace, force: bool = False) -> str:
    """The shell line that runs this cell and no other, from any folder: no ttabench.toml there has a say in it."""
    refuse_objects(spec)
    words = ["ttabench", "run", "--method", spec.method_name]
    if spec.pack is not None:
        words += ["--pack", str(spec.pack.absolute())]
    else:
        words += ["--dataset", str(spec.dataset), "--backbone", str(spec.backbone)]
    words += ["--seed", str(spec.seed), *_options(spec), *_place(workplace)]
    words += ["--force"] if force else []
    places = f"TTABENCH_CONFIG={os.devnull} TTABENCH_HOME={shlex.quote(str(workplace.home))}"
    return f"{_go_there(spec, workplace.folder)}{places} {shlex.join(words)}"


def _go_there(spec: RunSpec, folder: Path) -> str:
    """A setting may be the name of a file, which only its method can tell: it is looked for where it was found."""
    names = [value for value in spec.settings.values() if isinstance(value, str | Path)]
    relative = any(not Path(name).is_absolute() and os.path.lexists(folder / name) for name in names)
    return f"cd {shlex.quote(str(folder))} && " if relative else ""


def _options(spec: RunSpec) -> Iterator[str]:
    for name, option in OPTIONS.items():
        value = getattr(spec, name)
        if name == "prompt" and ":" in value:
            kind, _, file = value.partition(":")
            value = f"{kind}:{Path(file).absolute()}"
        if value is not None:
            yield from (option, str(value.absolute() if isinstance(value, Path) else value))
    for key, value in spec.settings.items():
        yield from ("--set", f"{key}={value}")
    for role, recipe in spec.recipes.items():
        if not isinstance(recipe, str):
            raise UsageError(f"{role}={recipe}: a recipe must be a text to stand in a command")
        yield from ("--recipe", f"{role}={recipe}")
    if spec.random_weights:
        yield "--random-weights"


def _place(workplace: Workplace) -> Iterator[str]:
    encoding = workplace.encoding
    yield from ("--results", str(workplace.runs), "--data-root", str(workplace.data_root))
    for name, path in workplace.data.items():
        yield from ("--data", f"{name}={path}")
    for file in workplace.plugins:
        yield from ("--plugin", str(file))
    for name in workplace.without:
        yield from ("--no-plugin", name)
    yield from ("--device", workplace.device, "--adapt-device", workplace.adapt_device)
    yield from ("--features", encoding.dtype, "--batch-size", str(encoding.batch_size))
    yield from ("--workers", str(encoding.workers), "--checkpoint-seconds", str(workplace.checkpoint_seconds))
    if workplace.step_timeout is not None:
        yield from ("--step-timeout", str(workplace.step_timeout))
