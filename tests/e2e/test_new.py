"""`ttabench new`: what it writes keeps the rules as it is, installed and loose, and bad names are refused."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import TOY, Invoke
from tests.fresh_venv import FreshVenv
from tta_bench.cli import demo
from tta_bench.errors import BadData
from tta_bench.plugins import Registry

ROOT = Path(__file__).parents[2]
KINDS = ("method", "dataset", "backbone")


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def data_root(folder: Path, name: str) -> Path:
    """Two images where the generated dataset looks for them."""
    images = folder / "data" / name / "images"
    images.mkdir(parents=True)
    for image, colour in (("a.png", "red"), ("b.png", "blue")):
        Image.new("RGB", (40, 40), colour).save(images / image)
    (images.parent / "labels.json").write_text(json.dumps({"a.png": ["dog"], "b.png": ["dog", "cat"]}))
    return folder / "data"


@pytest.mark.parametrize("kind", KINDS)
def test_a_loose_file_keeps_the_rules(kind: str, invoke: Invoke, working_folder: Path) -> None:
    written = invoke("new", kind, "my-own", "--file")
    assert written.code == 0, written.err
    assert [file.name for file in working_folder.iterdir()] == ["my_own.py"]
    step = written.out.splitlines()[2].split()
    assert step[:3] == ["ttabench", "check", "my_own.py"]
    root = data_root(working_folder, "my-own")
    checked = invoke(*(str(root) if word == "DIR" else word for word in step[1:]))
    assert checked.code == 0, checked.out
    assert f"{kind}s.my-own" in checked.out


def test_the_new_method_runs_beside_others(invoke: Invoke, working_folder: Path) -> None:
    written = invoke("new", "method", "newcomer", "--file")
    assert written.code == 0, written.err
    toy = ("--plugin", str(TOY), "--dataset", "toy", "--backbone", "toyclip", "--workers", "0")
    run = (*written.out.splitlines()[-2].split()[1:], *toy)
    assert run[run.index("--limit") + 1] == str(demo.IMAGES)
    result = invoke(*run, "--set", "newcomer.strength=0.2")
    assert result.code == 0, result.err
    assert "newcomer on toy with toyclip" in result.out
    assert "strength is a share" in invoke(*run, "--set", "newcomer.strength=2").err


def test_the_new_dataset_turns_photos_upright_and_refuses_odd_labels(invoke: Invoke, working_folder: Path) -> None:
    assert invoke("new", "dataset", "birds", "--file").code == 0
    images = working_folder / "birds" / "images"
    images.mkdir(parents=True)
    turned = Image.Exif()
    turned[274] = 6  # orientation: a quarter turn
    Image.new("RGB", (40, 20)).save(images / "a.jpg", exif=turned)
    listed = working_folder / "birds" / "labels.json"
    listed.write_text('{"a.jpg": ["wren"]}')
    dataset = Registry([working_folder / "birds.py"]).dataset("birds")
    assert dataset.open(working_folder)[0].image.size == (20, 40)
    for wrong in ('{"a.jpg": "wren"}', '{"a.jpg": 3}', '{"a.jpg": [" "]}', '["a.jpg"]'):
        listed.write_text(wrong)
        with pytest.raises(BadData, match=r"labels\.json"):
            dataset.open(working_folder)


def test_a_package_is_complete_and_never_overwritten(invoke: Invoke, working_folder: Path) -> None:
    written = invoke("new", "dataset", "birds")
    assert written.code == 0, written.err
    package = working_folder / "birds"
    expected = {"birds.py", "test_birds.py", "pyproject.toml", "README.md", ".gitignore"}
    assert {file.name for file in package.iterdir()} == expected
    assert '"datasets.birds" = "birds"' in (package / "pyproject.toml").read_text()
    (package / "birds.py").write_text("mine")
    again = invoke("new", "dataset", "birds")
    assert (again.code, again.err) == (2, "ttabench: ./birds is there already: nothing is overwritten\n")
    assert (package / "birds.py").read_text() == "mine"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["task", "sample", "path", "towers", "images"])
def test_a_class_never_takes_a_name_that_its_file_uses(kind: str, name: str, invoke: Invoke) -> None:
    assert invoke("new", kind, name, "--file").code == 0
    tree = ast.parse(Path(f"{name}.py").read_text())
    imported = [alias.asname or alias.name for node in tree.body if hasattr(node, "names") for alias in node.names]
    defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    assert len({*imported, *defined}) == len(imported + defined)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("metod", "mine"), "unknown kind of plugin 'metod'. Did you mean method?"),
        (("method", "MyMethod"), "Did you mean my-method?"),
        (("method", "../x"), "'../x' can't be a plugin's name"),
        (("method", "n" * 65), "write up to 64 small letters"),
        (("method", "1st"), "a letter first"),
        (("method", "tda"), "'tda' is a method of ttabench "),
        (("dataset", "scenes"), "'scenes' is a dataset of ttabench "),
        (("method", "all"), "'all' stands for every method"),
        (("method", "class"), "'class' is a word of Python"),
        (("method", "json"), "'json' is a Python module already: call yours my-json"),
        (("backbone", "torch"), "'torch' is a Python module already"),
    ],
)
def test_what_is_refused_in_one_line(
    arguments: tuple[str, str], complaint: str, invoke: Invoke, working_folder: Path
) -> None:
    result = invoke("new", *arguments)
    assert result.code == 2
    assert complaint in result.err
    assert result.err.count("\n") == 1
    assert list(working_folder.iterdir()) == []


@pytest.mark.slow
def test_packages_install_and_pass_their_own_tests(invoke: Invoke, working_folder: Path, tmp_path: Path) -> None:
    environment = FreshVenv.make(tmp_path / "venv", ROOT)
    for kind in KINDS:
        assert invoke("new", kind, f"own-{kind}").code == 0
        environment.pip_install("-e", str(working_folder / f"own-{kind}"))
    for kind in KINDS:
        said = environment.call("python", "-m", "pytest", "-q", cwd=working_folder / f"own-{kind}")
        assert " passed" in said
        assert "ttabench-own-" in environment.call("python", "-m", "tta_bench", "list", f"{kind}s", cwd=tmp_path)
