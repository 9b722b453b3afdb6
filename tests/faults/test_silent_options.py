"""What was asked for and what was read are what was run: no option is dropped, and no file is taken for another."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.conftest import TOY, Invoke
from tests.e2e.test_grid import METHOD
from tests.record_fixtures import record
from tta_bench.cli.means import show_sweep
from tta_bench.errors import BadData, UsageError
from tta_bench.generated import Generated
from tta_bench.interfaces import Method, Observation, Preprocess, Task
from tta_bench.records import Identity
from tta_bench.runs import known, values
from tta_bench.runs.bench import Bench
from tta_bench.runs.plain_torch import plain_torch
from tta_bench.runs.spec import RunSpec
from tta_bench.system.files import file_digest
from tta_bench.system.names import same_setting


@pytest.mark.parametrize("beside", [{"weights": Path("w.pt")}, {"random_weights": True}, {"precision": "bf16"}])
def test_a_pack_takes_no_weights_and_no_precision(beside: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="weights and precision are those that it was made with"):
        RunSpec("clip", pack=Path("p.safetensors"), **beside)


def test_a_prompt_of_a_pack_is_a_name_and_no_file() -> None:
    names = ("coop:model.pth.tar-50", f"coop:{Path.cwd()}/model.pth.tar-50")
    requests = [known._plain(RunSpec("clip", pack=Path("p"), prompt=name)) for name in names]
    assert requests[0] != requests[1]
    on_images = [known._plain(RunSpec("clip", prompt=name)) for name in names]
    assert on_images[0] == on_images[1]  # there a relative path and the whole one are the same file


@pytest.mark.parametrize(("text", "value"), [("010", 10), ("-7", -7), ("+3", 3)])
def test_whole_numbers_are_decimal(text: str, value: int) -> None:
    assert values.fitted(text, int, "shots") == value


def test_a_time_of_day_is_no_number() -> None:
    with pytest.raises(UsageError, match=r"shots=1:30: a value of type int is wanted"):
        values.fitted("1:30", int, "shots")


def test_a_field_is_set_or_swept(invoke: Invoke) -> None:
    assert same_setting("shots", "tda.shots")
    assert not same_setting("dpe.shots", "tda.shots")
    result = invoke("run", "-m", "tda", "--set", "tda.shots=3", "--sweep", "shots=1,5")
    assert result.code == 2
    assert "--sweep shots and --set tda.shots: leave one of the two out" in result.err


def test_a_sweep_of_two_methods_shows_each_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        record(method, config=Identity({"m": method, "s": shots}), hyper_parameters={"shots": shots})
        for method, shots in (("tda", 2), ("dpe", 4))
    ]
    show_sweep(runs, ["tda.shots", "dpe.shots"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["tda", "toy", "tiny", "2", "-", "50.00", "1"] in lines
    assert ["dpe", "toy", "tiny", "-", "4", "50.00", "1"] in lines


# ----------------------------------------------------------------------------------------- files that change meanwhile


@pytest.mark.parametrize("how", ["edited", "replaced"])
def test_generated_pictures_that_change_are_not_drawn(tmp_path: Path, how: str) -> None:
    picture = tmp_path / "a" / "0.png"
    picture.parent.mkdir()
    Image.new("RGB", (8, 8)).save(picture)
    recipe = Generated(1, str(tmp_path))
    preprocess = Preprocess(8, "bilinear", "shortest")
    recipe.render(Image.new("RGB", (8, 8)), "a", 0, preprocess)
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "a", other)
    if how == "edited":
        Image.new("RGB", (8, 9), "red").save(picture)
    else:  # another folder in its place: no file in it has changed
        picture.parent.rename(tmp_path / "old")
        other.rename(tmp_path / "a")
    with pytest.raises(BadData, match=r"0\.png was changed while the run read it"):
        recipe.render(Image.new("RGB", (8, 8)), "a", 0, preprocess)


@dataclass
class Reads(Method):
    """A file that is changed by the time that it is read."""

    name: ClassVar[str] = "reads"
    file: str = ""

    def digests(self) -> dict[str, str]:
        return {"file": file_digest(Path(self.file))}

    def start(self, task: Task) -> None:
        Path(self.file).write_text("changed")
        self.text = task.text

    def step(self, x: Observation) -> Tensor:
        return self.text @ x.image


@dataclass
class Named(Method):
    """By a file, or by the name of something on a hub, of which there is no digest."""

    name: ClassVar[str] = "named"
    model: str = ""

    def digests(self) -> dict[str, str]:
        return {"model": file_digest(Path(self.model)) if Path(self.model).is_file() else ""}

    def start(self, task: Task) -> None:
        self.text = task.text

    def step(self, x: Observation) -> Tensor:
        return self.text.roll(len(self.model), 1) @ x.image


def test_the_name_of_what_is_no_file_counts_in_full(toy_bench: Bench) -> None:
    """Two models of one last name were one configuration: 32.22 for 30.27."""
    made = [toy_bench.run(RunSpec(Named(model), "toy", "toyclip")) for model in ("some/clip", "others/larger/clip")]
    assert [outcome.already for outcome in made] == [False, False]
    assert made[0].record.config.digest != made[1].record.config.digest


def test_a_file_of_a_method_that_changes_gives_no_number(toy_bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("as it was")
    with pytest.raises(BadData, match=r"a\.txt was changed while the run read it: nothing is recorded"):
        toy_bench.run(RunSpec(Reads(str(file)), "toy", "toyclip"))
    assert toy_bench.run(RunSpec(Reads(str(file)), "toy", "toyclip")).record.n == 24


def test_a_file_that_a_guest_declares_and_that_changes_gives_no_number(invoke: Invoke, tmp_path: Path) -> None:
    """32.64 in place of 49.90, under the digest of the file as it was, and found again as done."""
    alpha, plugin = tmp_path / "alpha.txt", tmp_path / "mine.py"
    alpha.write_text("as it was")
    source = METHOD.replace("SCORES", "self.edit(x) or self.task.text @ x.image")
    plugin.write_text(source + DECLARING.replace("ALPHA", repr(str(alpha))))
    run = ("run", "-m", "mine", "--plugin", str(plugin), "--plugin", str(TOY), "-d", "toy", "-b", "toyclip")
    done = invoke(*run)
    assert done.code == 2, done.out
    assert "was changed while the run read it: nothing is recorded; run it again" in " ".join(done.err.split())
    assert invoke(*run).code == 0


DECLARING = """
import dataclasses
from pathlib import Path
from tta_bench.system.files import file_digest

def edit(self, x):
    if x.index == 5:
        Path(self.alpha).write_text("edited")

Mine.alpha = ALPHA
Mine.edit = edit
Mine.digests = lambda self: {"alpha": file_digest(Path(self.alpha))}
"""


# ------------------------------------------------------------------------------------------------------ what is left on


def test_a_set_has_one_order_in_all_guests(invoke: Invoke, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    step = "(list({*self.task.class_names}).index(self.task.class_names[0]) + 1) * (self.task.text @ x.image)"
    plugin.write_text(METHOD.replace("SCORES", f"print(sys.flags.hash_randomization) or {step}") + "\nimport sys\n")
    result = invoke(
        "run", "-m", "mine", "--plugin", str(plugin), "--plugin", str(TOY), "--dataset", "toy", "--backbone", "toyclip"
    )
    assert result.code == 0, result.err
    (log,) = Path(tmp_path).rglob("log.txt")
    assert set(log.read_text().split()) == {"0"}


def test_what_a_method_switches_on_is_switched_back() -> None:
    before = torch.get_float32_matmul_precision()
    with plain_torch():
        torch.set_float32_matmul_precision("medium")
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(
    "words",
    [
        ("run", "-m", "clip", "--results", ""),
        ("run", "-m", "clip", "--weights="),
        ("run", "-m", "clip", "--data-root", ""),
        ("run", "-m", "clip", "--plugin", ""),
        ("leaderboard", "-o", ""),
        ("pack", "export", ""),
    ],
)
def test_an_empty_path_is_not_the_working_folder(invoke: Invoke, words: tuple[str, ...]) -> None:
    """As a shell's variable that was never set leaves it."""
    result = invoke(*words)
    assert (result.code, "is empty" in result.err) == (2, True)


@pytest.mark.parametrize("line", ['home = ""', 'data_root = ""', '[data]\nfolder = ""', '[run]\nresults = ""'])
def test_an_empty_path_of_a_config_file_is_not_the_working_folder(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    (tmp_path / "ttabench.toml").write_text(line)
    monkeypatch.chdir(tmp_path)
    result = invoke("run", "-m", "clip", "--limit", "1", "--seed", "-1")
    assert result.code == 2
    assert "is empty" in result.err or "can't be a path" in result.err
