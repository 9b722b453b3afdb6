"""`ttabench data`: what is here, where it was looked for, and getting the rest; for plugins as for built-ins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Invoke, Result
from tests.dataset_fixtures import BUILDERS, build, make_coco, make_folder, make_nuswide
from tests.download_fixtures import serve
from tta_bench.cli.options import data_paths
from tta_bench.errors import UsageError

PLUGIN = """
from pathlib import Path
from tta_bench import hookimpl
from tta_bench.interfaces import DataStatus

class Mine:
    name = "mine"

    @classmethod
    def status(cls, root):
        return [DataStatus("mine", True, str(root), 3, 5, "ask me")]

    @classmethod
    def download(cls, root, reporter):
        reporter.line(f"fetched into {root}")

@hookimpl
def ttabench_datasets():
    return [Mine]
"""


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    file = tmp_path / "mine_plugin.py"
    file.write_text(PLUGIN)
    return str(file)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def rows(result: Result) -> dict[str, dict[str, object]]:
    assert result.code == 0, result.err
    return {row["dataset"]: row for row in json.loads(result.out)}


def complaint(result: Result) -> str:
    assert result.code == 2, result
    (line,) = result.err.splitlines()
    return line


# ---------------------------------------------------------------------------------------------------------- status


def test_status_of_nothing(invoke: Invoke, root: Path) -> None:
    found = rows(invoke("data", "status", "--data-root", str(root), "--json"))
    assert set(found) == set(BUILDERS) - {"folder"}
    assert not any(row["found"] or row["complete"] or row["images"] for row in found.values())
    assert all(row["looked_in"] == str(root) for row in found.values())
    assert "ttabench data get coco2014" in str(found["coco2014"]["how"])
    assert (found["voc2012"]["expected"], found["nuswide"]["expected"]) == (5823, 107859)
    shown = invoke("data", "status", "--data-root", str(root)).out
    assert f"data root: {root}" in shown
    assert "not found" in shown
    assert "looked in" in shown


def test_status_of_what_is_there(invoke: Invoke, root: Path) -> None:
    for name in set(BUILDERS) - {"folder"}:
        build(name, root)
    make_folder(root / "mine")
    (root / "coco/val2014/COCO_val2014_000000000139.jpg").unlink()
    (root / "VOCdevkit/VOC2012/JPEGImages/000001.jpg").unlink()
    (root / "nuswide/Flickr/zebra/0002_1567438822.jpg").unlink()
    found = rows(invoke("data", "status", "--data-root", str(root), "--json"))
    assert {name: (row["found"], row["images"], row["complete"]) for name, row in found.items()} == {
        "voc2007": (True, 4, False),
        "voc2012": (True, 3, False),
        "coco2014": (True, 5, False),
        "coco2017": (True, 6, False),
        "nuswide": (True, 3, False),
        "folder:mine": (True, 2, True),
    }
    assert found["nuswide"]["where"] == str(root / "nuswide")
    shown = invoke("data", "status", "--data-root", str(root)).out
    assert "4 of 4,952" in shown
    assert "3 of 107,859" in shown
    assert "Runs leave out the photos that are missing." in shown


def test_a_half_dataset_is_not_found_but_located(invoke: Invoke, root: Path) -> None:
    make_coco(root / "coco")
    (root / "coco/val2017").rename(root / "elsewhere")
    row = rows(invoke("data", "status", "--data-root", str(root), "--json"))["coco2017"]
    assert (row["found"], row["where"], row["images"]) == (False, str(root / "coco"), 0)


def test_a_damaged_dataset_does_not_hide_the_others(invoke: Invoke, root: Path) -> None:
    make_nuswide(root / "nuswide")
    (root / "nuswide/ImageList/TestImagelist.txt").write_bytes(b"\xff")
    found = rows(invoke("data", "status", "--data-root", str(root), "--json"))
    assert "TestImagelist.txt, line 1: not UTF-8" in str(found["nuswide"]["how"])
    assert "voc2007" in found


def test_a_dataset_may_have_a_root_of_its_own(invoke: Invoke, root: Path, tmp_path: Path) -> None:
    own = make_coco(tmp_path / "disk" / "photos")
    arguments = ("data", "status", "--data", f"coco2017={own}")
    found = rows(invoke(*arguments, "--data-root", str(root), "--json"))
    assert (found["coco2017"]["where"], found["coco2017"]["looked_in"]) == (str(own), str(own))
    assert found["coco2014"]["looked_in"] == str(root)
    assert set(rows(invoke(*arguments, "--json"))) == {"coco2017"}  # there is no common root to look into
    assert f"data root of coco2017: {own}" in invoke(*arguments).out


def test_a_missing_root_says_what_to_do(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    for result, folder in (
        (invoke("data", "status"), home / "data"),
        (invoke("data", "status", "--data-root", str(tmp_path / "none")), tmp_path / "none"),
        (invoke("data", "status", "--data", f"coco2017={tmp_path}/none"), tmp_path / "none"),
    ):
        line = complaint(result)
        assert str(folder) in line
    line = complaint(invoke("data", "status"))
    assert "--data-root DIR" in line
    assert "TTABENCH_DATA" in line


@pytest.mark.parametrize("command", [["status"], ["get", "voc2007"]])
def test_own_roots_that_make_no_sense(invoke: Invoke, root: Path, command: list[str]) -> None:
    common = ("data", *command, "--data-root", str(root), "--data")
    assert "write NAME=DIR" in complaint(invoke(*common, "coco2017"))
    assert "write NAME=DIR" in complaint(invoke(*common, "coco2017="))
    assert "Did you mean coco2017" in complaint(invoke(*common, f"coco217={root}"))
    assert "given twice" in complaint(invoke(*common, f"coco2017={root}", "--data", "coco2017=/elsewhere"))


def test_own_roots_are_read() -> None:
    assert data_paths([]) == {}
    assert data_paths(["coco2017=/a=b", "voc2007 = ~/voc"]) == {
        "coco2017": Path("/a=b"),
        "voc2007": Path("~/voc").expanduser(),
    }
    with pytest.raises(UsageError):
        data_paths(["=/mnt"])


def test_status_imports_nothing_heavy(root: Path) -> None:
    make_coco(root / "coco")
    code = (
        f"import sys; sys.argv = ['ttabench', 'data', 'status', '--data-root', {str(root)!r}]\n"
        "from tta_bench.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('loaded:', [name for name in ('torch', 'pandas', 'open_clip') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


# ------------------------------------------------------------------------------------------------------------- get


def test_get_creates_the_root(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tta_bench.datasets import voc
    from tta_bench.system import fetching

    monkeypatch.setattr(fetching, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve() as host:
        monkeypatch.setattr(voc.VOC2007Test, "archives", (host.archive("none.tar"),))
        result = invoke("data", "get", "voc2007", "--data", f"voc2007={tmp_path}/new/place")
    assert result.code == 1
    assert "404" in result.err
    assert (tmp_path / "new/place/downloads").is_dir()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nuswide", "NUS-WIDE has no single official archive"),
        ("voc207", "unknown dataset 'voc207'. Did you mean voc2007"),
        ("scenes", "dataset 'scenes' has nothing to download"),
        ("folder", "your own images"),
    ],
)
def test_names_that_cannot_be_downloaded(invoke: Invoke, name: str, words: str) -> None:
    assert words in complaint(invoke("data", "get", name))


# --------------------------------------------------------------------------------------------------------- plugins


def test_a_dataset_of_a_plugin_has_the_same_commands(invoke: Invoke, root: Path, plugin: str) -> None:
    common = ("--data-root", str(root), "--plugin", plugin)
    row = rows(invoke("data", "status", *common, "--json"))["mine"]
    assert (row["images"], row["expected"], row["how"]) == (3, 5, "ask me")
    assert f"fetched into {root}" in invoke("data", "get", "mine", *common).err
