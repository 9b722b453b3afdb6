"""Suites hold the paper's tables, verdicts are what docs/reproduce.md says, and explanations are found or denied."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TOY, Invoke
from tests.dataset_fixtures import make_voc
from tests.record_fixtures import record
from tta_bench import metrics, records
from tta_bench.cli.explaining import explained
from tta_bench.errors import BadData, UnknownName, UsageError
from tta_bench.plugins import Registry
from tta_bench.records import Identity, RunRecord
from tta_bench.report import reproduction
from tta_bench.report.explain import Change, OtherLabels, explanation, of_one_seed, rescored
from tta_bench.report.reproduction import Line, lines, speed_lines
from tta_bench.report.reproduction_text import facts, to_csv, to_markdown
from tta_bench.report.turnover import turnover
from tta_bench.runs import suites
from tta_bench.runs.bench import Bench
from tta_bench.runs.executors.work import Answer, Ended, Task, perform
from tta_bench.runs.explaining import other_labels
from tta_bench.runs.reproducing import Reproduction
from tta_bench.runs.spec import RunOptions, RunSpec
from tta_bench.runs.suites import Attempt, Choice, Obstacle, Suite, SuiteCell, method_of
from tta_bench.system import published
from tta_bench.system.progress import Silent
from tta_bench.system.published import PublishedCell

ALL = suites.load("purf:all")
HEADER = ",".join(published.FIELDS)
ROW = "own,table1,tiny photo tda,toy mAP,50,,"
SUITE = Suite("own", "table1", "toys", ["tiny"], ["photo"], ["toy", "toy2"], {"tda": "TDA"}, average=True)


def printed(value: float, dataset: str = "toy", note: str = "") -> PublishedCell:
    return PublishedCell("own", "table1", "tiny photo tda", f"{dataset} mAP", value, note)


def attempt(*runs: RunRecord, dataset: str = "toy", suite: Suite = SUITE, **changes: object) -> Attempt:
    cell = SuiteCell(suite, "tda", "tiny", "photo", dataset)
    return Attempt(replace(cell, **changes), runs)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------------- suites


def test_every_printed_number_is_one_line_of_one_suite() -> None:
    found: Counter[tuple[str, str, str]] = Counter()
    for suite in ALL:
        cells = suites.cells(suite, Choice())
        shown = lines([Attempt(cell) for cell in cells], published.cells())
        for cell in {(cell.backbone, cell.prompt, cell.row): cell for cell in cells}.values() if suite.speed else ():
            shown += speed_lines(cell, published.cells(), {}, "")
        columns = {reproduction.RATE: "avg fps_rtx3090", reproduction.MEMORY: "avg memory_gb"}
        assert suite.name.startswith("fig") or all(line.published is not None for line in shown)
        for line in shown:
            place = f"{line.backbone} {line.prompt} {line.row}", columns.get(line.metric, f"{line.dataset} mAP")
            found[suite.name, *place] += line.published is not None
    assert +found == Counter((cell.table, cell.row, cell.column) for cell in published.cells())
    assert found.total() == 508


def test_every_row_is_a_method_with_settings_that_it_has(home: Path) -> None:
    bench = Bench(home)
    for suite in ALL:
        for cell in suites.cells(suite, Choice(prompt_files={"coop": "coop:f", "maple": "maple:f", "cupl": "cupl:f"})):
            bench.configure(cell.runs[0])


@pytest.mark.parametrize(("table", "changed"), [("table5", 6), ("table6", 3), ("table7", 3), ("fig3", 1)])
def test_the_rows_of_an_ablation_are_different_runs_and_one_is_purf_itself(
    home: Path, table: str, changed: int
) -> None:
    (suite,) = suites.load(f"purf:{table}")
    bench = Bench(home)
    own = {row: bench.configure(RunOptions(settings=method_of(row)[1]).cell("purf", "x", "y", 0)) for row in suite.rows}
    plain = bench.configure(RunOptions().cell("purf", "x", "y", 0)).values
    different = {str(configured.values) for configured in own.values() if configured.values != plain}
    assert len(different) == changed == len(own) - 1


def test_what_is_wanted_filters_or_stands_in_place() -> None:
    (suite,) = suites.load("purf:table5")
    assert len(suites.cells(suite, Choice())) == 14
    assert {cell.dataset for cell in suites.cells(suite, Choice(datasets=["coco2017"]))} == {"coco2017"}
    other = suites.cells(suite, Choice(datasets=["scenes"], backbones=["tiny"], seeds=[0, 1]))
    assert [(cell.dataset, cell.backbone, len(cell.runs)) for cell in other] == [("scenes", "tiny", 2)] * 7
    (table2,) = suites.load("purf:table2")
    assert all(cell.obstacles and not cell.runs for cell in suites.cells(table2, Choice()))
    given = suites.cells(table2, Choice(prompt_files={"coop": "coop:mine.pth"}))
    assert {cell.runs[0].prompt for cell in given if cell.runs} == {"coop:mine.pth"}


def test_names_that_do_not_exist() -> None:
    for target in ("purf:table9", "purf", "other:table1"):
        with pytest.raises(UnknownName):
            suites.load(target)
    with pytest.raises(UsageError, match="METHOD"):
        method_of("purf[rp]")
    with pytest.raises(BadData, match="caption"):
        suites.parsed("captoin: misspelt", "own", "table1")


# --------------------------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("values", "said"),
    [([50.5], "agrees"), ([49.5], "agrees"), ([50.51], "differs"), ([48.0, 54.0], "agrees"), ([51.0, 53.0], "differs")],
)
def test_agreement_is_half_a_point_or_lying_between_the_seeds(values: list[float], said: str) -> None:
    runs = [record(value=value, seed=seed) for seed, value in enumerate(values)]
    (line,) = lines([attempt(*runs)], [printed(50.0)])
    assert (line.verdict, line.runs) == (said, len(values))
    assert line.difference == pytest.approx(np.mean(values) - 50.0)


def test_another_protocol_neither_agrees_nor_differs() -> None:
    part, untrained = record(n=5), record(random_weights=True)
    assert lines([attempt(part)], [printed(50.0)])[0].verdict == "other protocol: images"
    assert lines([attempt(untrained)], [printed(50.0)])[0].verdict == "other protocol: weights (untrained)"
    elsewhere = lines([attempt(record(), dataset="other")], [printed(50.0)])[0]
    assert (elsewhere.instead, elsewhere.verdict) == ("other dataset", "other protocol: dataset")
    captions = lines([attempt(record(), unlike={"captions": "none here"})], [printed(50.0)])[0]
    assert (captions.verdict, captions.reasons) == ("other protocol: captions", ["none here"])


def test_what_was_not_run_says_why_and_what_can_be_run_waits() -> None:
    cell = attempt().cell
    lacking = Attempt(cell, obstacles=[Obstacle("weights", "get them"), Obstacle("data", "buy it")])
    (line,) = lines([lacking], [printed(50.0, note="a slip")])
    assert (line.verdict, line.reasons, line.published) == ("not run: weights, data", ["get them", "buy it"], 50.0)
    assert lines([Attempt(cell)], [])[0].verdict == "to run"
    markdown = to_markdown(SUITE, [line])
    assert "| TDA | – | 50.00 [1] | – | not run: weights, data [2, 3] |" in markdown
    assert "- [3] buy it" in markdown


def test_a_picture_says_why_it_is_not_run() -> None:
    (suite,) = suites.load("purf:fig6")
    assert suites.cells(suite, Choice()) == []
    assert "not run: a picture without numbers: --figures DIR draws it" in to_markdown(suite, [])
    (cell,) = suites.replays(suite, Choice(datasets=["toy"]))
    assert [(spec.method, spec.dataset, spec.backbone) for spec in cell] == [("purf", "toy", "vit-b16")]
    assert suites.replays(suite, Choice(methods=["dpe"])) == []


def test_an_average_needs_every_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction, "_half", lambda runs, resamples: 3.0 if runs[0].seed == 0 else 4.0)
    both = [attempt(record(value=40.0)), attempt(record(value=61.0, seed=1), dataset="toy2")]
    numbers = [printed(40.0), printed(61.0, "toy2"), printed(50.5, "avg")]
    *_, average = lines(both, numbers)
    assert (average.dataset, average.value, average.half, average.verdict) == ("avg", 50.5, 2.5, "agrees")
    *_, average = lines([both[0], Attempt(both[1].cell, obstacles=[Obstacle("data", "…")])], numbers)
    assert (average.value, average.verdict) == (None, "not run: 1 of 2 datasets")
    assert [line.dataset for line in lines(both[:1], numbers)] == ["toy"]
    variant = attempt(record(value=90.0, dataset="toy:other"), dataset="toy:other")
    *_, average = lines([*both, variant], numbers)
    assert (average.value, average.verdict) == (None, "not averaged: toy twice")


def test_a_mean_over_some_seeds_is_no_verdict_over_all() -> None:
    runs = [RunSpec("tda", "toy", "tiny", seed) for seed in range(3)]
    some = attempt(record(), record(seed=1), runs=runs)
    lacking = replace(some, obstacles=[Obstacle("failed", "seed 2: out of memory", 1)])
    (line,) = lines([lacking], [printed(50.0)])
    assert (line.said, line.reasons) == ("agrees (2 of 3 seeds)", ["seed 2: out of memory"])
    assert "measured 50.00 over 2 of 3 seeds" in explanation(replace(line, published=60.0), [])[0]
    assert lines([some], [])[0].reasons == ["the other seeds are to run"]
    whole = attempt(*(record(seed=seed) for seed in range(3)), runs=runs, dataset="toy2")
    *_, average = lines([lacking, whole], [printed(50.0, "avg")])
    assert (average.said, average.runs) == ("agrees (2 of 3 seeds)", 2)
    assert lines([whole], [printed(50.0, "toy2")])[0].said == "agrees"


def test_what_some_seeds_lack_is_looked_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--dry-run` gave the mean of the seeds that are done as if it were that of all."""
    (suite,) = suites.load("purf:table1")
    bench = Bench(home, registry=Registry((TOY,)), progress=Silent())
    monkeypatch.setattr(bench, "find", lambda spec: None if spec.seed else record("clip"))
    for dataset, why in (
        ("toy", "the other seeds are to run"),
        ("voc2007", "`ttabench data get voc2007` downloads it"),
    ):
        asked = Choice(methods=["clip"], datasets=[dataset], backbones=["toyclip"], seeds=[0, 1])
        (found,) = Reproduction(bench).look(suites.cells(suite, asked))
        (line,) = lines([found], [])
        assert (line.seeds, why in " ".join(line.reasons)) == ("1 of 2 seeds", True)


def test_an_interval_ends_where_map_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction, "_half", lambda runs, resamples: 30.0)
    (line,) = lines([attempt(record(value=90.0))], [printed(40.0)])
    (row,) = facts([line])
    assert (row["low"], row["high"]) == (60.0, 100.0)
    assert "90.00 ± 30.00" in to_markdown(SUITE, [line])


def test_speed_is_compared_on_the_papers_hardware_only() -> None:
    (suite,) = suites.load("purf:table3")
    cell = SuiteCell(suite, "clip", "vit-b16", "photo", "coco2017")
    measured = {reproduction.RATE: 100.0, reproduction.MEMORY: 0.5}
    here = speed_lines(cell, published.cells(), measured, "some processor")
    assert [line.verdict for line in here] == ["other protocol: hardware"] * 2
    assert "some processor" in here[0].reasons[0]
    same = speed_lines(cell, published.cells(), measured, "NVIDIA GeForce RTX 3090")
    assert [(line.published, line.verdict) for line in same] == [(106.25, "agrees"), (0.35, "differs")]


def test_a_hostile_note_steers_neither_terminal_nor_spreadsheet() -> None:
    (line,) = lines([attempt(record())], [printed(50.0, note="=1+1\x1b[31m<b>|")])
    assert "'=1+1\\x1b[31m" in to_csv([line])
    assert "&lt;b>\\|" in to_markdown(SUITE, [line])


@pytest.mark.parametrize("value", ["nan", "inf", "1e308", '"' + "9" * 200_000 + '"'])
def test_numbers_that_no_table_prints_are_refused(tmp_path: Path, value: str) -> None:
    file = tmp_path / "own.csv"
    file.write_text(f"{','.join(published.FIELDS)}\nown,table1,tiny photo tda,toy mAP,{value},,\n")
    with pytest.raises(BadData, match=r"own\.csv"):
        published.read(file)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "the first line must be"),
        ("paper,table,row,value\n", "the first line must be"),
        (f"{HEADER},license\n{ROW},MIT\n", "the first line must be"),
        (f"{HEADER}\nown,table1,tiny photo tda\n", "line 2: not the seven fields"),
        (f"{HEADER}\n{ROW},more\n", "line 2: not the seven fields"),
        (f"{HEADER}\n{ROW}\n" + f"{ROW}\n" * 10**6, "more than 100,000 numbers"),
        (f"{HEADER}\n" + "x" * 2**26, "larger than 64 MB"),
    ],
    ids=["empty", "fields missing", "a later version", "a short line", "a long line", "a million lines", "enormous"],
)
def test_a_file_that_is_not_of_published_numbers_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "own.csv"
    file.write_text(content, encoding="utf-8")
    start = time.perf_counter()
    with pytest.raises(BadData, match=said):
        published.read(file)
    assert time.perf_counter() - start < 10.0


def test_ones_own_numbers_are_besides_the_papers_and_each_there_once(tmp_path: Path) -> None:
    file, head = tmp_path / "own.csv", ",".join(published.FIELDS)
    printed = published.cells()[0]
    own = "own,table1,tiny photo tda,toy mAP,50,,\n"
    file.write_text(f"{head}\n{','.join(printed.place)},10,,\n")
    with pytest.raises(BadData, match="is there already: printed by the paper"):
        published.read(file)
    file.write_text(f"{head}\n{own}{own.replace('50', '51')}")
    with pytest.raises(BadData, match="or twice in the file"):
        published.read(file)
    file.write_text(f"\ufeff{head}\n{own}", encoding="utf-8")  # as spreadsheets save it
    assert published.read(file)[0].value == 50


def test_names_in_a_published_file_steer_no_terminal(tmp_path: Path, invoke: Invoke) -> None:
    file = tmp_path / "own.csv"
    file.write_text(f"{HEADER}\n<b>\x1b[31m,\u202et,\x1b[2Jrow,<script> mAP,50,\x07note,\n", encoding="utf-8")
    for arguments in (("list",), ("show",), ("show", "--json"), ("list", "--json")):
        result = invoke("published", *arguments, "--published", str(file))
        assert result.code == 0
        assert not [c for c in result.out if not c.isprintable() and c != "\n"]
        assert "<b>" in result.out


class InThisProcess:
    """An executor without processes."""

    slots, waiting_costs = 2, False

    def __init__(self, bench: Bench, failure: str = "") -> None:
        self.bench, self.failure, self.tasks, self.sent = bench, failure, list[Task](), 0

    def submit(self, tasks: Sequence[Task]) -> None:
        self.tasks += tasks
        self.sent += len(tasks)

    def wait(self) -> list[Ended]:
        failed = Answer(failure=self.failure) if self.failure else None
        ended = [Ended(task, failed or perform(self.bench, task)) for task in self.tasks]
        self.tasks.clear()
        return ended

    def close(self) -> None:
        self.tasks.clear()


def test_an_executor_runs_each_missing_run_once(tmp_path: Path) -> None:
    def bench(name: str) -> Bench:
        return Bench(tmp_path, results=tmp_path / name, registry=Registry((TOY,)), progress=Silent())

    (suite,) = suites.load("purf:table6")
    asked = Choice(datasets=["toy"], backbones=["toyclip"], seeds=[0], shared=RunOptions(limit=3))
    cells = suites.cells(suite, asked)
    here = list(Reproduction(bench("one")).run(cells))
    executor = InThisProcess(bench("two"))
    there = list(Reproduction(executor.bench, executor).run([*cells, *cells]))
    assert executor.sent == len(cells) == 4
    assert [a.records[0].metrics for a in there] == [a.records[0].metrics for a in here] * 2
    lost = Reproduction(executor.bench, InThisProcess(executor.bench, failure="out of memory"))
    limited = suites.cells(suite, replace(asked, shared=RunOptions(limit=2)))
    failed = list(lost.run(limited))
    assert [list(a.records) for a in failed] == [[]] * 4
    assert [list(a.obstacles) for a in failed] == [[Obstacle("failed", "out of memory")]] * 4


# --------------------------------------------------------------------------------------------------------- explaining


def stored(folder: Path, scores: np.ndarray, labels: np.ndarray, **diagnostics: np.ndarray) -> RunRecord:
    n = len(scores)
    convention = {"average_precision": metrics.AP_CONVENTIONS["threshold"], "empty_classes": "skip"}
    protocol = Identity({"dataset": "toy", **convention})
    made = record(n=n, dataset_size=n, protocol=protocol)
    ids = list(map(str, range(n)))
    return replace(
        records.save(made, folder, scores[:, None], scores, labels, np.arange(n), ids, diagnostics), folder=folder
    )


def test_rescoring_names_the_decision_that_made_the_difference(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.eye(3, 4, dtype=np.int8)[rng.integers(0, 3, 30)]  # the fourth class has no positive
    offset = rng.normal(size=(30, 1)) * 20
    run = stored(tmp_path, (labels + offset).astype(np.float32), labels)
    wrong = OtherLabels(range(30), 1 - labels)
    by_change = {change.what: change.value for change in rescored(run, {"toy:other": wrong})}
    assert by_change[("centred scores",)] == pytest.approx(100.0)  # the offset was all that was wrong
    assert by_change[("centred scores", "classes without positives count 0")] == pytest.approx(75.0)
    assert ("labels of toy:other",) in by_change
    assert len(by_change) == 3 * 2 * 2 - 1
    line = Line(SUITE, "tiny", "photo", "toy", "tda", "differs", value=40.0, published=99.8)
    said = explanation(line, rescored(run, {}))
    assert said[-1] == "  nearest: centred scores, which agrees"


def test_a_change_is_of_the_seeds_that_the_number_is_of(tmp_path: Path) -> None:
    """Held against the mean of all, a rule that changes nothing came nearer where the first seed lay so."""
    labels = np.eye(3, dtype=np.int8)[np.random.default_rng(0).integers(0, 3, 30)]
    runs = []
    for seed in range(3):
        scores = (labels + np.random.default_rng(seed).normal(size=(30, 3))).astype(np.float32)
        run = stored(tmp_path / str(seed), scores, labels)
        value = metrics.mean_average_precision(metrics.average_precision(scores, labels))
        runs.append(replace(run, seed=seed, metrics={"mAP": value}))
    measured = float(np.mean([run.metrics["mAP"] for run in runs]))
    assert runs[0].metrics["mAP"] != pytest.approx(measured)
    cell = SuiteCell(SUITE, "tda", "tiny", "photo", "toy", [RunSpec("tda", "toy", "tiny", seed) for seed in range(3)])
    line = Line(SUITE, "tiny", "photo", "toy", "tda", "differs", value=measured, published=100.0)
    said = list(explained(Bench(tmp_path), [line], [Attempt(cell, runs)], deep=False))
    assert f"  {measured:.2f} ({measured - 100:+.2f})  classes without positives count 0" in said


def test_what_was_run_for_one_seed_is_held_against_that_seed() -> None:
    runs = [record(value=value, seed=seed) for seed, value in ((1, 44.0), (2, 48.0))]
    moved = of_one_seed("prompt ensemble", 45.0, runs)
    assert moved == Change(("prompt ensemble (of seed 1, from 44.00 to 45.00)",), 47.0)
    assert of_one_seed("prompt ensemble", 45.0, runs[:1]) == Change(("prompt ensemble",), 45.0)


def test_label_variants_are_those_of_the_same_images(home: Path, tmp_path: Path) -> None:
    make_voc(tmp_path / "VOC2007")
    bench = Bench(home, tmp_path, progress=Silent())
    run = bench.run(RunSpec("clip", "voc2007", "tiny")).record
    found = {name: (rows, labels) for name, rows, labels in other_labels(bench, run)}
    default = bench.dataset("voc2007")
    ignored = np.stack([default[i].labels for i in range(len(default))]) == -1
    assert ignored.any()  # difficult objects: ignored by default
    for variant, value in (("negative", 0), ("positive", 1)):
        rows, labels = found[f"voc2007:{variant}"]
        assert rows == list(range(run.n))
        assert (labels[ignored] == value).all()
    assert "voc2007:default" not in found
    part = {"voc2007:part": OtherLabels(range(2), labels[:2])}
    assert f"labels of voc2007:part (2 of {run.n} images)" in {w for c in rescored(run, part) for w in c.what}


def test_when_nothing_explains_it_that_is_said() -> None:
    line = Line(SUITE, "tiny", "photo", "toy", "tda", "differs", value=40.0, published=50.0)
    said = explanation(line, [Change(("softmax scores",), 30.0)])
    assert said[-1] == "  no single change comes nearer than what was run: something else differs"
    said = explanation(line, [Change(("softmax scores",), 45.0), Change(("softmax scores", "labels of x"), 49.9)])
    assert "which does not explain it: 5.00 are left" in said[-2]
    assert said[-1].startswith("  nearer together: softmax scores and labels of x")


def test_turnover_is_the_mean_per_image_of_each_part(tmp_path: Path) -> None:
    labels = np.ones((20, 1), dtype=np.int8)
    entered = np.repeat([1.0, 0.0], 10)
    run = stored(tmp_path, np.arange(20.0, dtype=np.float32)[:, None], labels, entries_in=entered)
    heading, *rows = turnover(run, ["entries_in", "nothing_reported"])
    assert heading.split() == ["images", "entries_in", "mAP", "so", "far"]
    assert [row.split()[:2] for row in (rows[0], rows[4], rows[5], rows[-1])] == [
        ["2", "1.000"],
        ["10", "1.000"],
        ["12", "0.000"],
        ["20", "0.000"],
    ]


def test_in_a_file_of_ones_own_a_variant_has_its_own_number() -> None:
    fog = attempt(record(value=51.0, dataset="toy:fog"), dataset="toy:fog")
    (line,) = lines([fog], [printed(49.0)])
    assert line.published is None
    (line,) = lines([fog], [printed(49.0), printed(51.0, "toy:fog")])
    assert (line.published, line.verdict) == (51.0, "agrees")
