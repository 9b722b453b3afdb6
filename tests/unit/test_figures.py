"""Figures from records: what is drawn is what was measured, and what can't be drawn is one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Invoke
from tests.page_fixtures import save_run
from tests.record_fixtures import record
from tta_bench import records
from tta_bench.cli import plot
from tta_bench.errors import UsageError
from tta_bench.records import Identity, RunRecord
from tta_bench.report import figures
from tta_bench.report.comparison import ProtocolStatistics
from tta_bench.report.figure_style import saved

pytest.importorskip("matplotlib", reason="pip install 'ttabench[plots]'")


@pytest.fixture
def runs(tmp_path: Path) -> list[RunRecord]:
    for method in ("clip", "tda", "purf"):
        for seed in (0, 1):
            save_run(tmp_path / "runs", method, seed=seed)
    return records.load_all(tmp_path / "runs")[0]


def swept(folder: Path, **values: float) -> None:
    save_run(
        folder,
        "tda",
        hyper_parameters=values,
        config=Identity(dict(values)),
        changes={k: str(v) for k, v in values.items()},
    )


def test_the_command_knows_every_kind() -> None:
    assert tuple(figures.KINDS) == plot.OF_RUNS


def test_the_curve_ends_at_the_mean_of_the_runs(runs: list[RunRecord]) -> None:
    (axes,) = figures.stream(runs).axes
    ends = {line.get_label(): line.get_ydata()[-1] for line in axes.lines}
    for method in ("clip", "tda", "purf"):
        own = [run.metrics["mAP"] for run in runs if run.method == method]
        assert ends[method] == pytest.approx(sum(value for value in own if value) / 2)


def test_bars_are_the_differences_of_the_classes(runs: list[RunRecord]) -> None:
    two = [run for run in runs if run.method != "tda"]
    (axes,) = figures.classes(two).axes
    statistics = ProtocolStatistics(two)
    (pair,) = statistics.against("clip")
    expected = sorted(c.estimate.value for c in statistics.classes(pair.config, pair.baseline).values())
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(expected)
    with pytest.raises(UsageError, match="one method beside clip; here are: purf, tda"):
        figures.classes(runs)


def test_the_front_is_joined(runs: list[RunRecord]) -> None:
    (axes,) = figures.pareto(runs).axes
    speeds = list(axes.lines[0].get_xdata())
    assert speeds == sorted(speeds, reverse=True)
    assert {text.get_text() for text in axes.texts} == {"clip", "tda", "purf"}


def test_a_sweep_is_a_line_or_a_map(tmp_path: Path) -> None:
    for alpha in (3.0, 1.0, 2.0):
        swept(tmp_path / "one", alpha=alpha, beta=5.0)
    line = figures.sweep(records.load_all(tmp_path / "one")[0]).axes[0]
    assert list(line.lines[0].get_xdata()) == [1.0, 2.0, 3.0]
    assert line.get_xlabel() == "alpha"
    for alpha, beta in ((1.0, 1.0), (1.0, 2.0), (2.0, 1.0)):
        swept(tmp_path / "two", alpha=alpha, beta=beta)
    (image,) = figures.sweep(records.load_all(tmp_path / "two")[0]).axes[0].images
    assert image.get_array().shape == (2, 2)
    with pytest.raises(UsageError, match="here differ: nothing"):
        figures.sweep(records.load_all(tmp_path / "one")[0][:1])


def test_every_run_is_a_mark_of_its_order(runs: list[RunRecord]) -> None:
    (axes,) = figures.orders(runs).axes
    assert sum(len(line.get_xdata()) for line in axes.lines) == len(runs)


def test_a_figure_of_several_orders_is_headed_by_none(runs: list[RunRecord]) -> None:
    several = [replace(runs[0], order="bursts:3"), *runs]
    assert "order" not in str(figures.orders(several).get_suptitle())
    assert "order bursts:3" in str(figures.orders(several[:1]).get_suptitle())


def test_measured_beside_published() -> None:
    usual = {"backbone": "vit-b16", "dataset": "voc2007"}
    (axes,) = figures.agreement([record("tda", 80.0, **usual), record("tda", 1.0, n=5, **usual)]).axes
    assert list(axes.lines[0].get_ydata()) == [80.0]
    with pytest.raises(UsageError, match="no paper prints"):
        figures.agreement([record()])


def test_other_rules_than_the_papers_are_named_beside_the_dataset() -> None:
    """Runs in another order and with other rules were set beside published numbers without a word."""
    usual = record("tda", 80.0, backbone="vit-b16", dataset="voc2007")
    parts = {**usual.protocol.parts, "empty_classes": "zero"}
    other = replace(usual, order="sequential", protocol=Identity(parts))
    labels = [line.get_label() for run in (usual, other) for line in figures.agreement([run]).axes[0].lines[:1]]
    assert labels[0] == "voc2007"
    assert str(labels[1]).startswith("voc2007, order sequential, ")
    assert "classes without positives" in str(labels[1])


@pytest.mark.parametrize("kind", ["turnover", "diagnostics"])
def test_what_nobody_reported_is_said(runs: list[RunRecord], kind: str) -> None:
    with pytest.raises(UsageError, match="report"):
        figures.KINDS[kind](runs)


def test_two_protocols_are_no_figure(runs: list[RunRecord], tmp_path: Path) -> None:
    other = save_run(tmp_path / "runs", "tda", "second")
    with pytest.raises(UsageError, match="2 protocols"):
        figures.stream([*runs, other])
    with pytest.raises(UsageError, match="no runs to draw"):
        figures.stream([])


@pytest.mark.parametrize(
    ("kind", "begins"),
    [
        ("svg", b"<?xml"),
        pytest.param("png", b"\x89PNG", marks=pytest.mark.slow),
        pytest.param("pdf", b"%PDF", marks=pytest.mark.slow),
    ],
)
def test_the_command_writes_the_same_file_twice(
    runs: list[RunRecord], invoke: Invoke, tmp_path: Path, kind: str, begins: bytes
) -> None:
    file = tmp_path / f"figure.{kind}"
    asked = ("plot", "pareto", "-o", str(file), "--results", str(tmp_path / "runs"), "--method", "clip,purf")
    assert invoke(*asked).code == 0
    first = file.read_bytes()
    assert first.startswith(begins)
    assert invoke(*asked).code == 0
    assert file.read_bytes() == first


def test_what_is_no_figure_is_one_line(invoke: Invoke, tmp_path: Path) -> None:
    for asked in (("piechart", "-o", "a.png"), ("stream", "-o", "a.txt"), ("stream", "-o", "a.png", "nobody")):
        done = invoke("plot", *asked, "--results", str(tmp_path))
        assert done.code == 2
        assert len(done.err.splitlines()) == 1


def test_names_from_anywhere_are_text(tmp_path: Path) -> None:
    save_run(tmp_path, r"$\frac{<b>", "toy")
    text = saved(figures.stream(records.load_all(tmp_path)[0]), "svg").decode()
    assert r"$\frac{&lt;b&gt;" in text
