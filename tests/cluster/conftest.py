"""Everything here runs on a real engine. One that can't be started fails its tests with the reason: it never passes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import dying_workers

SLURM = Path(__file__).parent / "slurm_local.sh"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The grid's scores as one process gives them."""
    return dying_workers.in_one_process(tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Slurm of one node; the value for SLURM_CONF."""
    folder = tmp_path_factory.mktemp("slurm")
    started = subprocess.run([SLURM, "start", folder], capture_output=True, text=True)
    if started.returncode:
        pytest.fail(f"no Slurm can be started here: {started.stderr.strip()}")
    yield str(folder / "slurm.conf")
    subprocess.run([SLURM, "stop", folder], check=True)
