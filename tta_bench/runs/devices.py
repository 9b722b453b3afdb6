"""Which device encodes, and which one adapts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tta_bench.errors import UsageError

if TYPE_CHECKING:
    from tta_bench.interfaces import Method

AUTO = "auto"


def usable(name: str, option: str) -> str:
    """The device of that name if this machine has it; for auto an accelerator if there is one."""
    import torch

    if name == AUTO:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "gpu":
        raise UsageError(f"{option} gpu: say cuda (or cuda:1 for the second), mps, cpu, or auto")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{option} {name} can't be used here: {reason}") from error
    return name


def of_adaptation(asked: str, encoders: str, method: Method) -> str:
    """Where the method's steps run. A step on features is many small operators: launching each on an accelerator, and
    waiting for single numbers from it, takes longer than they do. A method that tunes prompts goes through a text
    tower, and must be where that is."""
    if asked == AUTO:
        return encoders if method.tunes_prompts else "cpu"
    chosen = usable(asked, "--adapt-device")
    if method.tunes_prompts and chosen != encoders:
        raise UsageError(
            f"--adapt-device {asked}: {method.name} tunes prompts through the text encoder, which is on {encoders}"
        )
    return chosen
