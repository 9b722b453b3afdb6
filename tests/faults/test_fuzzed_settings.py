"""ttabench.toml and `--set`, damaged or wild at random: one line each, whatever they say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from tests.conftest import Invoke
from tests.faults.fuzzing import WILD, WILD_TEXT, altered, damaged, few_and_many, for_all, outcome
from tta_bench.cli.app import commands
from tta_bench.cli.options import configured
from tta_bench.errors import UsageError
from tta_bench.methods.clip import CLIP
from tta_bench.runs import hyperparameters, values
from tta_bench.system import config

CONFIG: dict[str, Any] = {
    "home": "~/ttabench",
    "data_root": "data",
    "data": {"coco2017": "/mnt/coco"},
    "run": {"backbone": "vit-b16", "device": "cuda", "seed": "0-2", "set": ["shots=3"]},
    "pack": {"export": {"dataset": "scenes"}},
}


def toml(value: Any) -> str:
    """As TOML, where it has such a value; otherwise as whatever comes of it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value).lower() if isinstance(value, float | bool) else json.dumps(value)


def document(content: Any) -> bytes:
    lines = [f"{json.dumps(str(key))} = {toml(value)}" for key, value in content.items()]
    return "\n".join(lines).encode(errors="surrogatepass")


def use_config(folder: Path) -> None:
    found = config.load()
    for path in filter(None, (found.home, found.data_root, *found.data.values())):
        (path / "store").exists()
    configured(commands())


@few_and_many
def test_a_damaged_config_is_refused_or_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, examples: int) -> None:
    monkeypatch.chdir(tmp_path)

    def check(content: bytes) -> None:
        (tmp_path / "ttabench.toml").write_bytes(content)
        outcome(lambda: use_config(tmp_path))

    (tmp_path / "ttabench.toml").write_bytes(document(CONFIG))
    use_config(tmp_path)
    for_all(examples, damaged(document(CONFIG)), check)


@few_and_many
def test_an_edited_config_is_refused_or_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Invoke, examples: int
) -> None:
    """The whole command, because values go as defaults to the parser of the command line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TTABENCH_HOME")
    listing = {"list": {"plugin": [], "format": "json"}, "show": {"results": "runs"}, "home": "home", "data": {}}

    def check(content: Any) -> None:
        if isinstance(content, dict):
            (tmp_path / "ttabench.toml").write_bytes(document(content))
            shown = invoke("show", "clip")
            assert shown.code in (1, 2)
            assert "unexpected" not in shown.err
            assert shown.err.count("\n") == 1

    for_all(examples, altered(listing), check)


# ------------------------------------------------------------------------------------------------------------- --set

YAML = st.one_of(
    WILD_TEXT,
    WILD.map(lambda value: json.dumps(value)),
    st.text("0123456789.:-+_eExo[]{},&*!|>'\"~ab \n", max_size=12),
    st.sampled_from(
        ["2001-13-45", "[" * 1100, "9" * 5000, "1:30", "010", "!!python/object:os.system", "&a [*a]", "!!set {}"]
    ),
)
HINTS: tuple[Any, ...] = (int, float, str, bool, float | None, tuple[float, float], tuple[int, ...], Literal["a", "b"])


@few_and_many
def test_a_wild_hyper_parameter_is_refused_or_of_its_type(examples: int) -> None:
    def check(case: tuple[str, Any]) -> None:
        text, hint = case
        value = outcome(lambda: [values.fitted(text, hint, "--set x")])
        if value is not None and isinstance(hint, type):
            assert type(value[0]) is hint

    for_all(examples, st.tuples(YAML, st.sampled_from(HINTS)), check)


@pytest.mark.parametrize("text", ["9" * 5000, "1" + "0" * 400, "2001-13-45", "[" * 1100, "nan", "1e999"])
def test_an_impossible_number_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="a finite number is wanted"):
        values.fitted(text, float, "--set x")


@pytest.mark.parametrize(
    ("hint", "wanted"),
    [(Literal["fp32", "fp16"] | float, "fp32, fp16 or a finite number"), (float | None, "a finite number or null")],
)
def test_a_field_of_several_types_names_them_all(hint: Any, wanted: str) -> None:
    with pytest.raises(UsageError, match=f"{wanted} is wanted"):
        values.fitted("-inf", hint, "--set x")


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (str | int, "5", 5),
        (str | int, "all", "all"),
        (str | int, "5.5", "5.5"),
        (str | bool, "true", True),
        (str | None, "null", None),
        (float | int, "5", 5),
        (str | tuple[int, ...], "[5, 6]", (5, 6)),
        (tuple[str | int, ...], "[5, '5']", (5, "5")),
        (Literal["5"] | int, "5", 5),
    ],
)
def test_a_field_of_several_types_takes_the_value_as_it_is(hint: Any, text: str, value: Any) -> None:
    """Anything can be read as a text, so that is the last thing to be tried."""
    for found in (values.fitted(text, hint, "x"), values.fitted(value, hint, "x")):
        assert found == value
        assert type(found) is type(value)


@pytest.mark.parametrize("given", [np.int64(3), np.float32(3), torch.tensor(3), torch.tensor(3.0)])
def test_a_number_of_numpy_or_torch_is_that_number(given: Any) -> None:
    """As an object it would be a run of its own, whose record does not tell the value."""
    for hint in (float, float | None):
        found = values.fitted(given, hint, "x")
        assert type(found) is float
        assert found == 3
    assert values.fitted((given, 1), tuple[float, float], "x") == (3.0, 1.0)


@pytest.mark.parametrize("given", [Fraction(1, 2), None, np.ones(2), {}, object])
def test_an_object_in_place_of_a_number_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="a finite number is wanted"):
        values.fitted(given, float, "x")
    assert values.fitted(given, Any, "x") is given  # a field of the author's own kind takes it


def test_a_name_with_a_line_break_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ttabench.toml").write_text('"r\\n" = {backbone = "tiny"}')
    with pytest.raises(UsageError, match=r"unknown command in .*'r\\n'"):
        use_config(tmp_path)


@dataclass
class Clamped(CLIP):
    """Knows better."""

    k: int = 5

    def __post_init__(self) -> None:
        self.k = min(self.k, 10)


@pytest.mark.parametrize(("asked", "changes"), [("50", {"k": "10"}), ("7", {"k": "7"}), ("5", {})])
def test_a_change_is_what_the_method_has(asked: str, changes: dict[str, str]) -> None:
    assert hyperparameters.build(Clamped, {"k": asked}).changes == changes
