"""What was asked for last is noted beside a run, or it is said that it can't be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tta_bench.errors import StoreError
from tta_bench.system import asked


@pytest.mark.parametrize(("beside", "said"), [("tda-toy-tiny-0000", True), ("dmn-toy-tiny-0000", False)])
def test_what_can_not_be_noted_is_said_where_a_table_may_go_wrong(
    beside: str, said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an edit was taken back on a full disk, the table had the edit's number: 46.92 beside 48.65."""
    run = tmp_path / "tda-toy-tiny-1234"
    for folder in (run, tmp_path / beside):
        folder.mkdir()
    assert asked.note(run) == ""
    assert asked.read(run)

    def full(*_: object, **__: object) -> None:
        raise StoreError("no space left")

    monkeypatch.setattr(asked, "write_atomically", full)
    assert ("can't be noted" in asked.note(run)) is said
