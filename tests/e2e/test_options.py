"""Options: lists can be repeated and take commas, anything else given twice is refused, old names still work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors import safe_open

from tests.conftest import TOY, Invoke, Result
from tta_bench import records
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.system import config

TOYS = ("--plugin", str(TOY), "--dataset", "toy", "--backbone", "toyclip")


def refused(result: Result, *words: str) -> None:
    assert result.code == 2, result
    (line,) = result.err.strip().splitlines()
    for word in words:
        assert word in line


def test_export_keeps_every_recipe_that_is_named(invoke: Invoke, tmp_path: Path) -> None:
    """docs/packs.md repeats the option; only the last recipe used to be kept, and nothing was said."""
    for recipes in (("--recipe", "plain3", "--recipe", "crops2"), ("--recipe", "plain3,crops2")):
        file = tmp_path / f"{len(recipes)}.safetensors"
        assert invoke("pack", "export", str(file), *TOYS, *recipes, "--prompt", "photo").code == 0
        with safe_open(file, "np") as pack:
            assert {name for name in pack.keys() if name.startswith("views/")} == {"views/plain3", "views/crops2"}  # noqa: SIM118


@pytest.mark.slow
def test_lists_are_repeatable_and_take_commas(invoke: Invoke, home: Path) -> None:
    more = ("--workers", "0", "--limit", "2")
    assert (
        invoke("run", "-m", "twobranches", "-m", "secondeyes", "--seed", "0,2", "--seed", "5", *TOYS, *more).code == 0
    )
    runs, _ = records.load_all(home / "runs")
    assert {(run.method, run.seed) for run in runs} == {
        (m, s) for m in ("twobranches", "secondeyes") for s in (0, 2, 5)
    }
    shown = invoke("leaderboard", "--method", "twobranches", "--method", "secondeyes", "--format", "csv")
    assert len(shown.out.strip().splitlines()) == 1 + 6


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("run", "-m", "tda", "--prompt", "photo", "--prompt", "ensemble"), "--prompt"),
        (("run", "-m", "tda", "--limit", "3", "--limit", "4"), "--limit"),
        (("run", "-m", "tda", "--weights", "a.pt", "--checkpoint", "b.pt"), "--weights"),
        (("leaderboard", "--format", "md", "--format", "csv"), "--format"),
        (("pack", "export", "x.safetensors", "--dataset", "toy", "--dataset", "scenes"), "--dataset"),
        (("preview", "--seed", "1", "--seed", "2"), "--seed"),
    ],
)
def test_other_options_given_twice_are_refused(invoke: Invoke, arguments: tuple[str, ...], word: str) -> None:
    refused(invoke(*arguments), word, "given twice")


def test_one_key_set_twice_is_refused(invoke: Invoke) -> None:
    refused(invoke("run", "-m", "tda", "--set", "shots=3", "--set", "shots=4"), "shots", "twice", "3 and 4")
    refused(invoke("run", "-m", "tda", "--recipe", "views=plain3", "--recipe", "views=plain4"), "views", "twice")


@pytest.mark.parametrize("option", [("--dataset", "scenes"), ("--backbone", "tiny"), ("-d", "voc2007")])
def test_a_pack_beside_a_dataset_or_backbone_is_refused(invoke: Invoke, option: tuple[str, str]) -> None:
    refused(invoke("run", "-m", "clip", "--pack", "some.safetensors", *option), "--pack stands for")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "purf"), "did you mean `ttabench run --method purf`?"),
        (("run",), "which method?"),
        (("run", "-m", "clip", "--backbone", "ViT-B/16"), "Did you mean vit-b16"),
        (("run", "-m", "PuRF"), "Did you mean purf"),
        (("run", "-m", "clip", "--device", "gpu", "--limit", "1"), "say cuda"),
        (("run", "-m", "clip", "--data", "coco2017"), "write NAME=DIR"),
    ],
)
def test_what_is_meant_is_said(invoke: Invoke, arguments: tuple[str, ...], words: str) -> None:
    refused(invoke(*arguments), words)


def test_help_is_short_too(invoke: Invoke) -> None:
    assert "Usage" in invoke("-h").out
    assert "--method" in invoke("run", "-h").out
    assert "--checkpoint " not in invoke("run", "--help").out  # an old name, which works but is not shown


def test_an_own_root_for_one_dataset(invoke: Invoke, tmp_path: Path) -> None:
    missing = invoke(
        "run", "-m", "clip", "-d", "coco2017", "--data", f"coco2017={tmp_path}/here", "--data-root", "/other"
    )
    assert f"{tmp_path}/here" in missing.err
    assert missing.code == 2


# ------------------------------------------------------------------------------------------------------ ttabench.toml


def test_the_config_file_gives_defaults(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own home"
    Path("ttabench.toml").write_text(
        f'home = "{own}"\ndata_root = "/nowhere"\n[data]\ncoco2017 = "/mnt/coco"\n'
        f'[run]\nmethod = "twobranches"\nlimit = 3\nplugin = ["{TOY}"]\ndataset = ["toy"]\nbackbone = "toyclip"\n'
        'set = ["weight=0.25"]\n'
    )
    monkeypatch.delenv("TTABENCH_HOME")
    assert invoke("run").code == 0
    (run,) = records.load_all(own / "runs")[0]
    assert (run.n, run.hyper_parameters["weight"]) == (3, 0.25)
    assert invoke("run", "--limit", "2").code == 0  # what is typed goes before the file
    assert {run.n for run in records.load_all(own / "runs")[0]} == {2, 3}
    assert "/mnt/coco" in invoke("run", "--dataset", "coco2017").err
    assert "/nowhere" in invoke("run", "--dataset", "voc2007").err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[rum]\nlimit = 3\n", "Did you mean run"),
        ("[run]\nlimitt = 3\n", "Did you mean limit"),
        ("[run]\nlimit = true\n", "[run]: limit = true: it is no switch, and takes a value"),
        ("home = 3\n", "can't use `home`"),
        ("[data]\ncoco2017 = 3\n", "can't use `data`"),
        ("not toml", "can't be read"),
    ],
)
def test_a_config_file_with_a_mistake(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ttabench.toml").write_text(content)
    refused(invoke("list", "methods"), "ttabench.toml", words)


def test_the_config_file_may_change_while_a_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        Path("ttabench.toml").write_text(f'data_root = "{tmp_path / name}"\n')
        assert config.load().data_root == tmp_path / name


def test_a_path_in_the_config_file_may_begin_at_home(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("ttabench.toml").write_text('[run]\nweights = "~/w.pt"\n')
    refused(invoke("run", "--method", "clip"), f"{tmp_path}/w.pt")


def test_subcommands_in_the_config_file(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ttabench.toml").write_text("[pack.info]\njson = true\n")
    file = tmp_path / "toy.safetensors"
    assert invoke("pack", "export", str(file), *TOYS, "--recipe", "plain3").code == 0
    assert json.loads(invoke("pack", "info", str(file)).out)["images"] == 24


def test_a_default_backbone_does_not_stand_in_a_packs_way(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy_pack: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ttabench.toml").write_text('[run]\nbackbone = "vit-b16"\ndataset = "coco2017"\n')
    assert invoke("run", "-m", "clip", "--pack", str(toy_pack)).code == 0


def test_help_works_with_a_broken_config_file(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ttabench.toml").write_text("not toml")
    assert invoke("run", "--help").code == 0


@pytest.mark.parametrize(
    "arguments",
    [("run", "-m", "clip", "--limit", "ten"), ("nosuch",), ("show",), ("run", "--nosuch"), ("pack", "info")],
)
def test_what_the_parser_refuses_is_one_line_too(invoke: Invoke, arguments: tuple[str, ...]) -> None:
    refused(invoke(*arguments), "ttabench: ")


def test_an_own_root_for_an_unknown_dataset_is_refused(invoke: Invoke) -> None:
    refused(invoke("run", "-m", "clip", "--data", "coco17=/x"), "Did you mean coco2017")


def test_a_recipe_that_is_the_default_is_no_change(toy_bench: Bench) -> None:
    spelt = toy_bench.run(RunSpec("views", "toy", "toyclip", recipes={"views": "augmix063"})).record
    assert spelt.changes == {}
    other = toy_bench.run(RunSpec("views", "toy", "toyclip", recipes={"views": "augmix07"})).record
    assert other.changes == {"views": "augmix7"}
