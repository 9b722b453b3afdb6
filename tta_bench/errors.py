"""Errors that a user can act on. The command line prints them as one line and exits with their code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tta_bench.system.text import visible


class TTABenchError(Exception):
    """Something that the user can mend; its message is all that they need to see."""

    exit_code = 1
    several_lines = False  # most are one line; what tells several ways on puts each on a line of its own


class UsageError(TTABenchError):
    """The command asks for something that does not exist or makes no sense."""

    exit_code = 2


class UnknownName(UsageError):
    """A method, dataset, backbone or recipe that nobody registered."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        known = sorted(known)
        plain = {_plain(candidate): candidate for candidate in known}
        close = [plain[match] for match in difflib.get_close_matches(_plain(name), plain, n=3, cutoff=0.6)]
        message = visible(f"unknown {kind} '{name}'.")
        if close:
            message += f" Did you mean {' or '.join(close)}?"
        super().__init__(f"{message} {hint}".rstrip())
        self.close = close


def _plain(name: str) -> str:
    """ViT-B/16, vit_b16 and vit-b16 are one name to whoever types them."""
    return "".join(c for c in name.casefold() if c.isalnum()) or name


class DataMissing(UsageError):
    """The dataset is not on this machine; the message says how to get it."""


class WeightsMissing(UsageError):
    """The backbone's weights are not on this machine; the message says how to get them."""

    several_lines = True


class BadData(TTABenchError):
    """A file is there but can't be used; the message names it."""

    exit_code = 2


class PluginError(TTABenchError):
    """A plugin can't be loaded or breaks the interface."""


class Raised(Exception):
    """What a plugin raised in a process of its own, in one line with the place in its author's file."""


class BackboneChanged(PluginError):
    """A method has left the backbone other than it was: whatever it encodes from now on would be wrong."""


class Interrupted(TTABenchError):
    """Ctrl-C. Everything that was finished is kept."""

    exit_code = 130

    def __init__(self) -> None:
        super().__init__("interrupted: the same command goes on from where it was")


class StoreError(TTABenchError):
    """The feature store or the results folder can't be written or read."""
