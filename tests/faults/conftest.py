"""A bench whose runs leave a checkpoint after every image."""

from __future__ import annotations

import pytest

from tta_bench.runs.bench import Bench


@pytest.fixture
def bench(toy_bench: Bench) -> Bench:
    toy_bench.checkpoint_seconds = 0.0
    return toy_bench
