"""Bad input of every kind: one readable line, the right exit code, no traceback, nothing damaged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TOY, Invoke, Result, some_slow
from tta_bench import records
from tta_bench.errors import StoreError
from tta_bench.system.files import write_atomically


def complaint(result: Result, code: int) -> str:
    """The one line on stderr."""
    assert result.code == code, result
    assert "Traceback" not in result.err
    lines = [line for line in result.err.splitlines() if line.startswith("ttabench: ")]
    assert len(lines) == 1, result.err
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--method", "tdaa"], ["unknown method 'tdaa'", "Did you mean tda?", "ttabench list methods"]),
        (["--method", "clip", "--dataset", "scens"], ["unknown dataset 'scens'", "Did you mean scenes?"]),
        (["--method", "clip", "--backbone", "tinny"], ["unknown backbone 'tinny'", "Did you mean tiny?"]),
        (["--method", "clip", "--dataset", "scenes:frog"], ["frog", "Did you mean fog"]),
        (["--method", "clip", "--prompt", "foto"], ["unknown prompt 'foto'", "Did you mean photo?"]),
        (["--method", "clip", "--order", "random"], ["--order random", "sequential"]),
        (["--method", "clip", "--seed", "x"], ["--seed x"]),
        (["--method", "clip", "--precision", "fp8"], ["fp8", "bf16"]),
        (["--method", "clip", "--device", "tpu"], ["--device tpu"]),
        (["--method", "tda", "--set", "shot=3"], ["unknown hyper-parameter of tda 'shot'", "Did you mean shots"]),
        (["--method", "tda", "--set", "shots=three"], ["tda.shots=three", "int"]),
        (["--method", "tda", "--set", "shots=2.5"], ["tda.shots=2.5", "int"]),
        (["--method", "tda", "--set", "gate=0.1"], ["tda.gate=0.1", "[a, b]"]),
        (["--method", "tda", "--set", "shots"], ["key=value"]),
        (["--method", "tda,clip", "--set", "nonsense=1"], ["nonsense", "none of the methods"]),
        (["--method", "tda", "--recipe", "view=plain63"], ["view role", "Did you mean views?"]),
        (["--method", "tda", "--recipe", "views=augmx63"], ["augmx", "Did you mean augmix"]),
        (["--method", "tda", "--preset", "imagnet"], ["imagnet", "Did you mean imagenet"]),
        (["--method", " , "], ["--method is empty"]),
        (["--method", "clip", "--plugin", "nowhere.py"], ["nowhere.py", "no such file"]),
        (["--method", "clip", "--plugin", "."], ["--plugin .: a folder; name one file"]),
    ],
)
def test_wrong_words(invoke: Invoke, arguments: list[str], words: list[str]) -> None:
    line = complaint(invoke("run", *arguments), 2)
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    "arguments", [["run"], ["run", "--method", "clip", "--limit", "0"], ["nonsense"], ["run", "--nope"]]
)
def test_misuse_of_the_command_line(invoke: Invoke, arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.code == 2
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("how", "words"), [("nan", "not finite"), ("shape", "(3,)"), ("raise", "ZeroDivisionError: division by zero")]
)
def test_a_method_that_goes_wrong_names_itself_and_the_image(toy_run: Invoke, home: Path, how: str, words: str) -> None:
    line = complaint(toy_run("broken", "--set", f"how={how}"), 1)
    assert "method 'broken', image 2 of the stream (toy-" in line
    assert words in line
    assert not list((home / "runs").glob("*/run.json"))


def test_debug_shows_the_traceback(toy_run: Invoke) -> None:
    from tta_bench.errors import PluginError

    with pytest.raises(PluginError) as caught:
        toy_run("broken", "--set", "how=raise", "--debug")
    (note,) = caught.value.__cause__.__notes__  # type: ignore[union-attr]
    assert "toy_plugin.py" in note
    assert "ZeroDivisionError: " in note


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_corrupt_image_is_named(toy_run: Invoke, home: Path, workers: str) -> None:
    line = complaint(toy_run("secondeyes", "--dataset", "toy:corrupt", "--workers", workers), 2)
    assert line == "ttabench: toy-007.png: the image is truncated"
    assert not list((home / "runs").glob("*/run.json"))


def test_a_method_that_tunes_prompts_needs_a_backbone_that_lets_it(invoke: Invoke, tmp_path: Path) -> None:
    plugin = tmp_path / "plain.py"
    plugin.write_text(TOY.read_text().replace("def init_context", "def no_context"))
    common = ("--dataset", "toy", "--backbone", "toyclip", "--plugin", str(plugin))
    assert "tunes prompts" in complaint(invoke("run", "--method", "prompttuner", *common), 2)


def damage(store: Path, how: str) -> None:
    for file in store.glob("*/*/features.bin"):
        content = bytearray(file.read_bytes())
        if how == "truncate":
            content = content[: len(content) // 2]
        else:
            content[len(content) // 3] ^= 1
        file.write_bytes(content)


@pytest.mark.parametrize("how", ["truncate", "flip"])
def test_a_damaged_store_is_noticed_and_mended(toy_run: Invoke, home: Path, how: str) -> None:
    toy_run("twobranches")
    (before,) = records.load_all(home / "runs")[0]
    damage(home / "store", how)
    result = toy_run("twobranches", "--force")
    assert "damaged blocks" in result.err
    (after,) = records.load_all(home / "runs")[0]
    assert after.metrics == before.metrics


@pytest.mark.slow
def test_lost_meta_data_means_encoding_again(toy_run: Invoke, home: Path) -> None:
    toy_run("twobranches")
    for file in (home / "store").glob("*/*/meta.json"):
        file.write_text("{")
    assert "216 encoder forwards" in toy_run("twobranches", "--force").err


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_is_one_line_and_harmless(toy_run: Invoke, home: Path, tmp_path: Path) -> None:
    small = home
    small.mkdir()
    if os.system(f"mount -t tmpfs -o size=24k tmpfs {small} 2>/dev/null"):
        pytest.skip("no mounting here")
    try:
        line = complaint(toy_run("twobranches"), 1)
        assert "no space left" in line or "MB left" in line
        os.system(f"mount -o remount,size=10m {small}")
        assert toy_run("twobranches").code == 0
        (healed,) = records.load_all(small / "runs")[0]
        shutil.rmtree(small / "store")
        toy_run("twobranches", "--force")
        (fresh,) = records.load_all(small / "runs")[0]
        assert healed.metrics == fresh.metrics
    finally:
        os.system(f"umount -l {small}")  # lazily: features may still be mapped


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "run.json"
    write_atomically(file, b"old")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError, match="no space left"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_an_unwritable_results_folder(toy_run: Invoke, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "can't write" in complaint(toy_run("secondeyes", "--results", str(tmp_path / "file")), 1)


def test_a_damaged_record_is_named_and_does_not_hide_the_others(toy_run: Invoke, invoke: Invoke, home: Path) -> None:
    toy_run("twobranches")
    bad = home / "runs" / "bad"
    bad.mkdir()
    (bad / "run.json").write_text('{"schema": 1')
    result = invoke("leaderboard", "--format", "csv")
    assert result.code == 0
    assert "twobranches" in result.out
    assert str(bad / "run.json") in complaint(result, 0)


def test_an_empty_leaderboard_says_what_to_do(invoke: Invoke) -> None:
    assert "ttabench run" in complaint(invoke("leaderboard"), 2)


def test_show_an_unknown_run(toy_run: Invoke, invoke: Invoke) -> None:
    toy_run("secondeyes")
    assert "Did you mean secondeyes-toy-toyclip" in complaint(invoke("show", "secondeyes-toy-toyclop"), 2)


@pytest.mark.parametrize("seed", ["4-0", "0-99999999999", "1-", "-1"])
def test_seeds_that_make_no_sense(invoke: Invoke, seed: str) -> None:
    assert invoke("run", "--method", "clip", f"--seed={seed}").code == 2


@pytest.mark.parametrize(
    ("method", "setting"),
    [("purf", "delta=0"), ("purf", "keep=7"), ("purf", "kappa_g=nan"), ("tda", "shots=0"), ("tda", "gate=[0.5, 0.2]"),
     ("dmn", "memory=-3"), ("reta", "rank=0"), ("boostadapter", "delta=-1"), ("dpe", "keep=0"),
     ("purf", "alpha=-1")],
)  # fmt: skip
def test_hyper_parameters_that_make_no_sense(invoke: Invoke, method: str, setting: str) -> None:
    assert method in complaint(invoke("run", "--method", method, "--set", setting), 2)


def plugin_with(tmp_path: Path, old: str, new: str) -> tuple[str, ...]:
    """The toy plugin with a fault."""
    file = tmp_path / "faulty.py"
    assert old in TOY.read_text()
    file.write_text(TOY.read_text().replace(old, new))
    return ("--plugin", str(file), "--dataset", "toy", "--backbone", "toyclip", "--workers", "0")


def test_features_that_are_not_finite_are_not_stored(invoke: Invoke, tmp_path: Path) -> None:
    faulty = plugin_with(tmp_path, "(pixels.flatten(1) - 0.5)", "(pixels.flatten(1) / 0)")
    assert "backbone 'toyclip'" in complaint(invoke("run", "--method", "clip", *faulty), 1)
    mended = plugin_with(tmp_path, "(pixels.flatten(1) - 0.5)", "(pixels.flatten(1) - 0.4)")
    assert invoke("run", "--method", "clip", *mended).code == 0


def test_labels_of_a_wrong_shape_are_found_before_encoding(invoke: Invoke, tmp_path: Path) -> None:
    faulty = plugin_with(tmp_path, ".random(4) < 0.5", ".random(5) < 0.5")
    result = invoke("run", "--method", "clip", *faulty)
    assert "dataset toy, image toy-000" in complaint(result, 2)
    assert "encoder forwards" not in result.err


@pytest.mark.parametrize("command", [("run", "--method", "clip"), ("pack", "export", "toy.safetensors")])
def test_class_names_that_are_no_texts_are_found_before_prompts_are_made(
    command: tuple[str, ...], invoke: Invoke, tmp_path: Path
) -> None:
    *faulty, _, _ = plugin_with(tmp_path, "[str, ...] = CLASSES", '[Any, ...] = ("a", "b", "c", 4)')
    line = complaint(invoke(*command, *faulty), 2)
    assert "dataset toy: class_names must be a list or tuple of texts" in line


@pytest.mark.parametrize("name", some_slow(["scores.safetensors"], ["run.json"]))
def test_a_finished_run_with_damaged_files_is_run_again(toy_run: Invoke, home: Path, name: str) -> None:
    toy_run("twobranches")
    (file,) = (home / "runs").glob(f"*/{name}")
    before = records.load(file.parent).metrics
    file.write_bytes(b"xx")
    result = toy_run("twobranches")
    assert "running again" in result.err
    assert records.load(file.parent).metrics == before
    assert "done before" in toy_run("twobranches").out


def test_two_loose_plugins_may_share_a_file_name(invoke: Invoke, tmp_path: Path) -> None:
    files = []
    for folder in ("a", "b"):
        file = tmp_path / folder / "mine.py"
        file.parent.mkdir()
        file.write_text(
            "from dataclasses import dataclass\nfrom typing import ClassVar\nfrom tta_bench import hookimpl\n"
            "from tta_bench.interfaces import Method\n@dataclass\nclass Mine(Method):\n"
            f"    name: ClassVar[str] = 'mine-{folder}'\n"
            "    def start(self, task): ...\n    def step(self, x): ...\n"
            "@hookimpl\ndef ttabench_methods(): return [Mine]\n"
        )
        files += ["--plugin", str(file)]
    listed = invoke("list", "methods", *files, *files[:2]).out
    assert "mine-a" in listed
    assert "mine-b" in listed


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ImportError("libtorch_cpu.so: failed to map"), "a library can't be loaded (libtorch_cpu.so: failed to map)"),
        (MemoryError(), "there is not enough memory: "),
    ],
)
def test_a_library_that_does_not_fit_into_memory(
    error: Exception, words: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loads_torch(_: object) -> None:
        raise error

    monkeypatch.setattr("tta_bench.cli.app.configured", loads_torch)
    line = complaint(invoke("doctor"), 1)
    assert line.startswith(f"ttabench: {words}")
    assert "ulimit -v" in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
def test_output_that_can_not_be_written_and_a_folder_that_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tta_bench", "list", "methods"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "ttabench: the output can't be written: No space left on device\n")
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f'rmdir "{gone}"; exec "$0" "$@"'
    done = subprocess.run(
        ["sh", "-c", script, *command[:3], "leaderboard"], cwd=gone, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "ttabench: the working folder is gone: change to one that is there\n")
