"""`own_line`: the plugin's own line behind an error, wherever below it the error arose."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tta_bench.errors import PluginError
from tta_bench.system import distributions
from tta_bench.system.code import author_line, own_line
from tta_bench.system.text import counted
from tta_bench.system.whose import LIBRARIES


def helper() -> NoReturn:
    json.loads("{")
    raise AssertionError


def caught(call: object) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011  # any will do
        call()  # type: ignore[operator]
    return caught.value


def test_the_innermost_frame_in_the_file_counts() -> None:
    line = helper.__code__.co_firstlineno + 1
    assert own_line(caught(helper), __file__) == f"test_own_line.py, line {line}"
    assert own_line(caught(helper), Path(__file__)) == f"test_own_line.py, line {line}"


def test_an_error_in_other_words_leads_to_its_cause() -> None:
    error = PluginError("in other words")
    error.__cause__ = caught(helper)
    assert own_line(error, __file__).startswith("test_own_line.py, line ")


def test_where_the_file_has_no_part_in_it(tmp_path: Path) -> None:
    assert own_line(caught(helper), tmp_path / "test_own_line.py") == ""
    assert own_line(caught(helper), None) == ""
    assert own_line(ValueError("never raised"), __file__) == ""


def test_a_file_that_does_not_even_compile(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("x = 1\ndef broken(:\n")
    error = caught(lambda: compile(file.read_text(), str(file), "exec"))
    assert own_line(error, file) == "mine.py, line 2"


def test_a_symlink_leads_to_the_same_file(tmp_path: Path) -> None:
    link = tmp_path / "link.py"
    link.symlink_to(__file__)
    assert own_line(caught(helper), link).startswith("link.py, line ")


def test_a_plugin_that_is_installed_among_the_libraries_has_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    code = compile("def fails():\n    return {}['no']\n", f"{LIBRARIES[0]}/birds/reader.py", "exec")
    module: dict[str, Any] = {"__name__": "birds.reader"}
    exec(code, module)
    error = caught(module["fails"])
    assert author_line(error).startswith("test_own_line.py, line ")  # where it was called: libraries are nobody's own
    entry = EntryPoint("datasets.birds", "birds.reader", "ttabench")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry])
    distributions.offering.cache_clear()
    assert author_line(error) == "reader.py, line 2"
    distributions.offering.cache_clear()


def test_counted() -> None:
    assert counted(1, "class") == "1 class"
    assert counted(0, "class") == "0 classes"
    assert counted(5000, "image") == "5,000 images"
