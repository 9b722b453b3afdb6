"""Intervals hold the truth as often as they say, on streams whose truth is known. The figures of docs/statistics.md
come from the same script; here are few streams, and bounds that chance alone does not cross."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("coverage_simulation", ROOT / "benchmarks" / "coverage.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_few_streams(simulation: ModuleType) -> None:
    """Of 150 streams 95 % ± 1.8 %: three deviations to either side."""
    found = simulation.coverage(simulation.WORLDS[0], streams=150, resamples=100, truth=500)
    assert 0.895 <= found.cell <= 1
    assert 0.895 <= found.pair <= 1
    assert found.rejected <= 0.105


@pytest.mark.slow
def test_few_streams_with_replicates_that_differ(simulation: ModuleType) -> None:
    world = simulation.World("", 100, 5, 0.1, 0.4, replicates=4, spread=0.3)
    found = simulation.coverage(world, streams=150, resamples=100, truth=500)
    assert 0.895 <= found.cell <= 1
    assert 0.895 <= found.pair <= 1
    assert found.rejected <= 0.105


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 2], ids=["100 images", "500 images"])
def test_many_streams(simulation: ModuleType, place: int) -> None:
    found = simulation.coverage(simulation.WORLDS[place], streams=2000, resamples=200)
    assert 0.93 <= found.cell <= 0.97
    assert 0.93 <= found.pair <= 0.97
    assert found.rejected <= 0.06
