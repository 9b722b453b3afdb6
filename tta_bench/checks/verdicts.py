"""What the three kits of `ttabench check` have in common: verdicts, and a plugin's exceptions taken as such."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from tta_bench.checks.remedies import ANY_CHECK, REMEDIES
from tta_bench.system.code import own_line

Subject = TypeVar("Subject")
Checks = Mapping[str, Callable[[Subject], str]]  # each gives the reason why it failed, "" if it passed


class CannotTell(Exception):
    """Raised by a check that does not apply here; its message says why."""


@dataclass(frozen=True)
class Verdict:
    check: str
    passed: bool
    reason: str = ""
    skipped: bool = False  # it does not apply, so it counts against nobody
    remedy: str = ""  # what to do about it, where it failed


@dataclass
class Examination:
    """All verdicts on one plugin, and what is worth knowing but no fault."""

    name: str  # methods.tda
    remark: str = ""  # what a reader must know of the circumstances, e.g. that the backbone was untrained
    verdicts: list[Verdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def complaints(self) -> list[str]:
        """A line for each check that failed: which, why, and how to mend it. A plugin's own test compares it to []."""
        return [f"{v.check}: {v.reason}. To mend it: {v.remedy}" for v in self.verdicts if not v.passed]

    def judge(self, checks: Checks[Subject], subject: Subject, cls: type) -> None:
        """A verdict for each check of `subject`, whatever the code of `cls` raises meanwhile."""
        raised: list[str] = []
        for name, check in checks.items():
            try:
                reason = check(subject)
            except CannotTell as error:
                self.verdicts.append(Verdict(name, True, str(error), skipped=True))
                continue
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a plugin may raise anything, SystemExit included: a verdict on it
                reason = blame(error, cls)
                raised.append(reason)
            if reason:
                self.fail(name, reason)
            else:
                self.verdicts.append(Verdict(name, True))
        everywhere = {reason for reason in raised if raised.count(reason) > len(checks) // 2}
        self.verdicts = [replace(v, remedy=ANY_CHECK) if v.reason in everywhere else v for v in self.verdicts]

    def fail(self, check: str, reason: str) -> None:
        kind = self.name.partition(".")[0]
        self.verdicts.append(Verdict(check, False, reason, remedy=REMEDIES[kind][check]))


def blame(error: BaseException, cls: type) -> str:
    """An exception in one line, with the plugin's own line that it comes from."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    where = next(filter(None, (own_line(error, file) for file in source_files(cls))), "")
    return f"{text} ({where})" if where else text


def source_files(cls: type) -> list[Path]:
    """The files of a class and of its ancestors, its own first: its code may be inherited. Ours is not among them."""
    files: list[Path] = []
    for ancestor in cls.__mro__:
        file = getattr(sys.modules.get(ancestor.__module__), "__file__", None)
        if file and ancestor.__module__ != "tta_bench.interfaces":
            files.append(Path(file))
    return list(dict.fromkeys(files))
