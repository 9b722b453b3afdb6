"""A record names the commit of the checkout that its code came from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import tta_bench
from tta_bench.system.provenance import git_state

CHECKOUT = Path(tta_bench.__file__).resolve().parents[1]


@pytest.mark.skipif(not (CHECKOUT / ".git").exists(), reason="not run from a checkout")
def test_the_commit_is_that_of_the_checkout() -> None:
    command = ["git", "-C", str(CHECKOUT), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert git_state()["git_commit"] == head
