"""Attributes that stay what they were set to."""

from __future__ import annotations

from tta_bench.errors import UsageError


class SetOnce:
    """A dataset whose features are kept under its fingerprint: another value would be another dataset by its name."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in vars(self):
            raise UsageError(f"{type(self).__name__}.{name} stays what the dataset was opened with: open another one")
        super().__setattr__(name, value)
