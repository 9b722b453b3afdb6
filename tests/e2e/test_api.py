"""The Python door: ten lines in a notebook, instances without a file, quick and quiet."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import tta_bench
from tests.conftest import TOY
from tta_bench import api
from tta_bench.errors import UnknownName, UsageError
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.plugins import Registry, get_method
from tta_bench.runs import bench as bench_module
from tta_bench.runs.bench import Bench
from tta_bench.system.progress import TTABenchWarning


@dataclass
class Scaled(Method):
    """A class of a notebook."""

    name: ClassVar[str] = "scaled"
    factor: float = 1.0  # of the logits

    def start(self, task: Task) -> None:
        self.task = task

    def step(self, x: Observation) -> Tensor:
        return self.factor * self.task.text @ x.image


@pytest.fixture
def toys(home: Path) -> tta_bench.Bench:
    return tta_bench.Bench(home, registry=Registry([TOY]))


@pytest.mark.slow
def test_ten_lines_run_purf_and_clip_over_three_seeds() -> None:
    results = tta_bench.grid(["clip", "purf"], ["scenes"], ["tiny"], seeds=range(3), limit=12)
    frame = results.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame["method"].value_counts()) == [3, 3]
    assert results.failures == ()
    assert frame["mAP"].between(0, 100).all()
    again = tta_bench.load_results()
    assert len(again) == 6
    assert len(again.filter(method="purf")) == 3
    assert "purf" in again.leaderboard()


@pytest.mark.parametrize("module", [api, bench_module])
def test_examples_in_docstrings(module: object) -> None:
    outcome = doctest.testmod(module)  # type: ignore[arg-type]
    assert outcome.failed == 0
    assert outcome.attempted > 2


def test_instances_need_no_file(toys: tta_bench.Bench) -> None:
    first = tta_bench.run(Scaled(2.0), toys.dataset("toy"), toys.backbone("toyclip"), bench=toys)
    assert (first.method, first.dataset, first.backbone) == ("scaled", "toy", "toyclip")
    assert first.tag == "tuned"
    assert first.changes == {"factor": "2.0"}
    assert first.config.parts["source"]
    assert first.scores().shape == (24, 4)
    same = tta_bench.run(Scaled(2.0), toys.dataset("toy"), toys.backbone("toyclip"), bench=toys)
    assert same.created == first.created  # it was not run again
    assert tta_bench.run(Scaled(), "toy", "toyclip", bench=toys).config.digest != first.config.digest


def test_an_instance_of_a_built_in_is_the_built_in(toys: tta_bench.Bench) -> None:
    by_name = tta_bench.run("tda", "toy", "toyclip", settings={"shots": 2}, bench=toys)
    instance = tta_bench.run(get_method("tda")(shots=2), "toy", "toyclip", bench=toys)  # type: ignore[call-arg]
    assert by_name.run_id == instance.run_id


def test_a_setting_that_is_the_default_is_no_change(toys: tta_bench.Bench) -> None:
    record = tta_bench.run("tda", "toy", "toyclip", settings={"shots": 3, "gate": [0.2, 0.5]}, bench=toys)
    assert (record.tag, record.changes) == ("default", {})


def test_what_can_not_be(toys: tta_bench.Bench) -> None:
    with pytest.raises(UsageError, match="has its settings already"):
        tta_bench.run(Scaled(), "toy", settings={"factor": 2.0})
    with pytest.raises(UsageError, match="don't name others beside it"):
        tta_bench.run("clip", "toy", pack="some.safetensors")
    nameless = Scaled()
    nameless.name = ""  # type: ignore[misc]
    with pytest.raises(UsageError, match="a method without a name can't stand in tables"):
        tta_bench.run(nameless, "toy")
    with pytest.raises(UsageError, match="no such folder"):
        tta_bench.load_results("/nowhere/at/all")
    toys.runs.mkdir(parents=True, exist_ok=True)
    with pytest.raises(UsageError, match="an empty path is not the working folder"):
        tta_bench.load_results("")
    with pytest.raises(UsageError, match="a recipe's name is wanted"):
        tta_bench.run("regions", "toy", "toyclip", recipes={"regions": 4}, bench=toys)  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="it has a folder of them: load_results"):
        tta_bench.load_results(toys.home)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tta_bench.run("clip", seed=-1), "seed -1"),
        (lambda: tta_bench.run("clip", seed=1.0), "seed 1.0"),  # type: ignore[arg-type]
        (lambda: tta_bench.run("clip", seed=True), "seed True"),
        (lambda: tta_bench.run("clip", limit="10"), "limit '10'"),  # type: ignore[arg-type]
        (lambda: tta_bench.run("clip", limit=0), "limit 0"),
        (lambda: tta_bench.run(Scaled), r"an instance: Scaled\(\)"),  # type: ignore[arg-type]
        (lambda: tta_bench.run(None), "a name or an instance"),  # type: ignore[arg-type]
        (lambda: tta_bench.run("clip", Path("scenes")), "Did you mean scenes|a name or an instance|scenes"),  # type: ignore[arg-type]
        (lambda: tta_bench.run("clip", prompt=None), "prompt is a text"),  # type: ignore[arg-type]
        (lambda: tta_bench.run("clip", settings=["a"]), "settings are a mapping"),  # type: ignore[arg-type]
        (lambda: tta_bench.grid([]), "no method to run"),
        (lambda: tta_bench.grid("clip", []), "no dataset to run"),
        (lambda: tta_bench.grid("clip", seeds="01"), "whole numbers"),  # type: ignore[arg-type]
        (lambda: tta_bench.grid("clip", seeds=[]), "no seed to run"),
    ],
)
def test_odd_input_is_refused_in_words(call: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        call()


def test_the_protocol_of_another_suite(toys: tta_bench.Bench) -> None:
    """As `--protocol-preset`: its views, order and seed, except what the caller says."""
    record = tta_bench.run("tda", "toy", "toyclip", protocol_preset="ttabc", limit=4, bench=toys)
    assert (record.seed, record.order, record.hyper_parameters["alpha"]) == (2022, "shuffled", 2.0)
    assert record.changes["protocol_preset"] == "ttabc"
    episodic = {"protocol_preset": "tta-vlm-episodic", "limit": 4, "bench": toys}
    (found,) = tta_bench.grid("zero", "toy", "toyclip", **episodic)  # type: ignore[arg-type]
    assert (found.seed, found.order, found.hyper_parameters["score"]) == (0, "sequential", "native")
    assert found.changes["views"] == "augmix63"
    own = tta_bench.run("clip", "toy", "toyclip", order="shuffled", seed=3, **episodic)  # type: ignore[arg-type]
    assert (own.seed, own.order) == (3, "shuffled")
    assert "not the protocol tta-vlm-episodic in full: order is shuffled and not sequential" in own.notes
    with pytest.raises(UnknownName, match="Did you mean ttabc"):
        tta_bench.run("clip", "toy", "toyclip", protocol_preset="ttabd", bench=toys)


def test_a_replicate_counts_once(toys: tta_bench.Bench) -> None:
    seeds = np.array([0, 0, 1])
    results = tta_bench.grid(["clip", "clip"], ("toy", "toy"), iter(["toyclip"]), seeds=seeds, bench=toys)
    assert sorted(run.seed for run in results) == [0, 1]
    same = tta_bench.run("clip", "toy", "toyclip", order="shuffled:1", seed=1, bench=toys)
    assert same.run_id == next(run for run in results if run.seed == 1).run_id


def test_a_grid_of_instances_and_names_shares_its_views(toys: tta_bench.Bench) -> None:
    tda = get_method("tda")()
    results = tta_bench.grid([tda, "boostadapter"], "toy", "toyclip", recipes={"views": "plain4"}, bench=toys)
    assert {run.config.parts["recipes"]["views"] for run in results} == {"Plain(n=4)"}


@pytest.mark.slow
def test_all_takes_what_can_run(toys: tta_bench.Bench) -> None:
    results = tta_bench.grid("all", "toy", "toyclip", limit=2, bench=toys)
    assert {"clip", "purf", "tpt"} <= {run.method for run in results}
    assert all(words.startswith("broken") for words in results.failures)


def test_the_precision_is_that_of_the_loaded_backbone(toys: tta_bench.Bench) -> None:
    loaded = toys.backbone("tiny", "bf16")
    record = tta_bench.run("clip", "scenes", loaded, limit=2, bench=toys)
    assert record.protocol.parts["precision"] == "bf16"


def test_paths_of_the_config_file_hold_here_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ttabench.toml").write_text('[data]\ncoco2017 = "/mnt/coco"\n')
    assert tta_bench.Bench().root_of("coco2017:mltta") == Path("/mnt/coco")


def test_a_grid_names_what_failed(toys: tta_bench.Bench) -> None:
    results = tta_bench.grid(["broken", "clip"], "toy", "toyclip", bench=toys)
    assert [run.method for run in results] == ["clip"]
    (failure,) = results.failures
    assert failure.startswith("broken on toy with toyclip, seed 0: ")
    assert "scores are not finite" in failure


def test_scores_fit_the_stream(toys: tta_bench.Bench) -> None:
    shuffled, sequential = (
        tta_bench.run("clip", "toy", "toyclip", order=o, bench=toys) for o in ("shuffled", "sequential")
    )
    order = [sequential.ids().index(name) for name in shuffled.ids()]
    assert np.array_equal(shuffled.scores(), sequential.scores()[order])
    assert np.array_equal(shuffled.labels(), sequential.labels()[order])


def test_quiet_by_default_but_not_about_the_numbers(toys: tta_bench.Bench, capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tta_bench.run("clip", "toy", "tiny", limit=3, bench=toys)
    (warning,) = [str(w.message) for w in said if w.category is TTABenchWarning]
    assert "tiny was made for scenes alone" in warning
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    tta_bench.run("clip", "toy", "toyclip", bench=tta_bench.Bench(registry=toys.registry, progress=True))
    assert "encoder forwards" in capfd.readouterr().err


def quick(code: str) -> float:
    """The best of several runs, beside an interpreter that does nothing."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
        times.append(time.perf_counter() - began)
    return min(times)


def test_the_import_is_light() -> None:
    heavy = "{'torch', 'numpy', 'pandas', 'typer'}"
    code = f"import sys, tta_bench; dir(tta_bench); sys.exit(bool({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
    subprocess.run(
        [sys.executable, "-c", "import sys, tta_bench; tta_bench.Bench; sys.exit('torch' in sys.modules)"], check=True
    )
    assert quick("import tta_bench") - quick("import pluggy") < 0.1


def test_python_dash_m() -> None:
    done = subprocess.run([sys.executable, "-m", "tta_bench", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ttabench 0.")


def test_a_finished_run_is_found_without_torch(home: Path) -> None:
    tta_bench.run("clip", limit=5)
    code = (
        "import sys; sys.argv = ['ttabench', 'run', '--method', 'clip', '--limit', '5']\n"
        "from tta_bench.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as e:\n    assert not e.code\n"
        "assert 'torch' not in sys.modules and 'open_clip' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "done before" in done.stdout


def test_instances_that_are_equal_in_their_fields_are_two(toy_bench: Bench) -> None:
    @dataclass
    class Signed(Method):
        name: ClassVar[str] = "signed"

        def start(self, task: Task) -> None:
            self.task = task

        def step(self, x: Observation) -> Tensor:
            return self._sign * (self.task.text @ x.image)  # type: ignore[no-any-return,attr-defined]

    one, other = Signed(), Signed()
    vars(one)["_sign"], vars(other)["_sign"] = 1, -1
    assert one == other
    assert len(tta_bench.grid([one, other, one], "toy", "toyclip", bench=toy_bench)) == 2


def test_what_a_notebook_has_switched_on_changes_no_number(toy_bench: Bench) -> None:
    expected = tta_bench.run("clip", "toy", "toyclip", bench=toy_bench, seed=0).scores()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.set_default_dtype(torch.float64)
        mkldnn: Any = torch.backends.mkldnn
        mkldnn.enabled = False
        before = np.seterr(all="raise")
        try:
            again = tta_bench.run("clip", "toy", "toyclip", bench=toy_bench, seed=0, force=True)
            assert torch.get_default_dtype() == torch.float64
            assert not mkldnn.enabled
        finally:
            mkldnn.enabled = True
            np.seterr(**before)
            torch.set_default_dtype(torch.float32)
    np.testing.assert_array_equal(again.scores(), expected)
    with torch.device("meta"), pytest.raises(UsageError, match="default device is meta"):
        tta_bench.run("clip", "toy", "toyclip", bench=toy_bench, seed=1)


def test_a_column_of_pandas_is_many(toy_bench: Bench) -> None:
    methods, seeds = pd.Series(["clip", "clip"], name="method"), pd.Series([0, 1], name="seed")
    assert len(tta_bench.grid(methods, "toy", "toyclip", seeds=seeds, bench=toy_bench)) == 2
