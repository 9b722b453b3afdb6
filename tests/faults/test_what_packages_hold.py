"""What installed packages hold beside their code: it counts, or is named; two classes of one name are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_grid import METHOD
from tests.faults.test_installed_plugins import put
from tta_bench.errors import PluginError
from tta_bench.plugins import Registry

SOUND = METHOD.replace("SCORES", "self.task.text @ x.image")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of libraries that Python looks into."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_two_classes_of_one_name_in_a_package_are_refused(site: Path) -> None:
    better = "\n\nclass Better(Mine):  # forgot a name of its own\n    pass\n"
    code = SOUND.replace("\n\n@hookimpl", f"{better}\n\n@hookimpl")
    for name, offered, refused in (("twice", "Mine, Better", True), ("again", "Mine, Mine", False)):
        put(site, name, {f"{name}/__init__.py": code.replace("[Mine]", f"[{offered}]")}, offers=name)
        registry = Registry(only=[name])
        if not refused:
            assert registry.method("mine").__qualname__ == "Mine"
            continue
        with pytest.raises(PluginError, match=r"two classes offer the method 'mine': twice\.Mine and twice\.Better"):
            registry.method("mine")
