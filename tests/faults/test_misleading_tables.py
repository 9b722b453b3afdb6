"""Tables and figures that would be read wrongly: errors shown as scores, means over other rules, hidden warnings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TOY, Invoke
from tests.e2e.test_grid import METHOD
from tests.record_fixtures import on, record
from tests.unit.test_comparison import saved
from tta_bench import records
from tta_bench.errors import UsageError
from tta_bench.metrics import AP_CONVENTIONS
from tta_bench.plugins import Registry
from tta_bench.records import Identity, Results, RunRecord
from tta_bench.report import figures
from tta_bench.report.board import Board, Wanted, boards
from tta_bench.report.comparison import between, class_frame, compare
from tta_bench.report.comparison_text import to_markdown
from tta_bench.report.figure_style import by_row, title
from tta_bench.report.frame import long_form
from tta_bench.report.leaderboard import Leaderboard
from tta_bench.report.selection import Selection
from tta_bench.report.standings import standings
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.runs.exchange import add, checked
from tta_bench.system import asked
from tta_bench.system.progress import Silent
from tta_bench.system.text import signed

TEXTS = ("console", "md", "latex", "csv", "json", "html")


def one_line(text: str) -> str:
    return " ".join(text.split())


def board_of(runs: list[RunRecord], wanted: Wanted | None = None) -> Board:
    (board,) = boards(long_form(runs), wanted)
    return board


def with_statistics(runs: list[RunRecord], shown: list[RunRecord] | None = None) -> Board:
    wanted = Wanted(metrics=("mAP",))
    (board,) = boards(long_form(shown or runs), wanted, standings(runs, wanted.metrics, wanted.baseline))
    return board


def test_what_was_asked_for_last_is_shown(tmp_path: Path, toy_registry: Registry, invoke: Invoke) -> None:
    """An edit that was tried and taken back: the first code is the present one, though the other's run is younger."""
    bench, plugin = Bench(tmp_path, registry=toy_registry, progress=Silent()), tmp_path / "mine.py"

    def run(scores: str) -> RunRecord:
        plugin.write_text(METHOD.replace("SCORES", scores))
        registry = Registry([TOY, plugin])
        return Bench(tmp_path, registry=registry, progress=Silent()).run(RunSpec("mine", "toy", "toyclip")).record

    first, second = run("self.task.text @ x.image"), run("-(self.task.text @ x.image)")
    assert [run.run_id for run in Selection({}).of([first, second]).runs] == [second.run_id]
    assert run("self.task.text @ x.image").run_id == first.run_id
    again = Results(records.load_all(bench.runs)[0])
    assert [run.run_id for run in Selection({}).of(list(again)).runs] == [first.run_id]
    assert first.folder is not None
    (first.folder / "asked.txt").write_text("nonsense")
    again = Results(records.load_all(bench.runs)[0])
    assert [run.run_id for run in Selection({}).of(list(again)).runs] == [second.run_id]


@pytest.mark.parametrize("codes", [("aa", "ab"), ("aa", "bb")])
def test_a_comparison_of_runs_by_different_code_of_ttabench_says_so(tmp_path: Path, codes: tuple[str, str]) -> None:
    """Within a configuration, and between the two."""

    def by(method: str, code: str) -> list[RunRecord]:
        runs = [saved(tmp_path / code, method, 0.5, seed) for seed in range(len(code))]
        versions = [{"versions": {"ttabench": f"0.2.0+{one}"}} for one in code]
        return [replace(run, provenance=own) for run, own in zip(runs, versions, strict=True)]

    one, other = by("clip", codes[0]), by("odd", codes[1])
    said = "recorded by 2 versions of ttabench (0.2.0+a, 0.2.0+b): part of the differences may be theirs"
    for notes in (compare([*one, *other]).notes, between(other, one)[1]):
        (note,) = notes
        assert said in note
        assert note.startswith("toy × tiny")
    assert compare([*one, *by("odd", "aaa")]).notes == ()


def test_what_a_notebook_has_replaced_hides_no_other_row() -> None:
    true = record("tda", 50.0, config=Identity({"method": "tda", "source": "0" * 64}))
    patched = record("tda", 60.0, config=Identity({"method": "tda", "source": "0" * 64, "replaced": "1" * 64}))
    assert len(Selection({}).of([true, patched]).runs) == 2


def test_what_all_runs_say_of_a_dataset_stands_below_its_table() -> None:
    common, own = "voc2007 lists 3 images here; the official split has 4,952", "its scores are constant"
    runs = [record("clip", notes=[common]), record("tda", notes=[common, own]), record("dpe", notes=[common])]
    for format_ in ("console", "md", "latex"):
        text = one_line(Results(runs).leaderboard(format_)).replace("\\", "")
        assert f"toy: {common}." in text
        assert "repeats: tda." in text.replace("\\texttt", "")


def test_no_average_over_other_weights_or_prompt_files_of_one_name() -> None:
    def under(dataset: str, weights: str, value: float) -> RunRecord:
        parts = {"dataset": dataset, "images": dataset, "backbone_digest": weights}
        return record("clip", value, dataset=dataset, n=10, dataset_size=10, protocol=Identity(parts))

    same = board_of([under("a", "w1", 60.0), under("b", "w1", 40.0)])
    assert "average" in [column.name for column in same.columns]
    other = board_of([under("a", "w1", 60.0), under("b", "w2", 40.0)])
    assert "average" not in [column.name for column in other.columns]
    said = " ".join(other.notes)
    assert "No average: backbone or prompt file are not the same in all columns." in said
    assert "though their names are (a; b)." in said
    packs = board_of([under("a", "a", 60.0), under("b", "b", 40.0)])  # which don't tell their backbone apart
    assert "average" in [column.name for column in packs.columns]
    assert "a, b don't say which weights they were made with" in " ".join(packs.notes)


def test_no_average_over_packs_of_other_weights() -> None:
    def packed(dataset: str, weights: str) -> RunRecord:
        parts = {"dataset": dataset, "images": dataset, "backbone_digest": dataset, "packed_backbone": weights}
        return record("clip", dataset=dataset, n=10, dataset_size=10, protocol=Identity(parts))

    images = {"dataset": "c", "images": "c", "backbone_digest": "w1"}
    same = [packed("a", "w1"), packed("b", "w1"), record("clip", dataset="c", protocol=Identity(images))]
    assert [column.name for column in board_of(same).columns] == ["a", "b", "c", "average"]
    assert "average" not in [column.name for column in board_of([packed("a", "w1"), packed("b", "w2")]).columns]


def test_a_pack_is_not_averaged_with_the_images_that_it_was_made_from() -> None:
    of_pack = {"images": "p", "backbone_digest": "p", "packed_images": "i", "packed_backbone": "w"}
    of_images = {"images": "i", "backbone_digest": "w"}
    runs = [
        record("clip", dataset=name, protocol=Identity({"dataset": name, **parts}))
        for name, parts in (("a", of_pack), ("b", of_images))
    ]
    assert [column.name for column in board_of(runs).columns] == ["a", "b"]


def test_numbers_of_several_machines_are_said() -> None:
    def on_machine(processor: str, seed: int, method: str = "clip") -> RunRecord:
        return record(method, seed=seed, replicate=Identity({"seed": seed}), hardware={"processor": processor})

    one_cell = Results([on_machine("EPYC", 0), on_machine("Xeon", 1)]).leaderboard("md")
    assert "different versions or machines (hardware EPYC, Xeon)" in one_cell
    rows = Results([on_machine("EPYC", 0), on_machine("Xeon", 0, "tda")]).leaderboard("md")
    assert "Runs of 2 kinds of machine (EPYC; Xeon): compare no img/s." in rows
    assert "machine" not in Results([on_machine("EPYC", 0), on_machine("EPYC", 1)]).leaderboard("md")


def test_one_processor_with_several_sets_of_instructions_is_said() -> None:
    def with_set(instructions: str, seed: int, method: str = "clip") -> RunRecord:
        hardware = {"processor": "EPYC"} | ({"instructions": instructions} if instructions else {})
        return record(method, seed=seed, replicate=Identity({"seed": seed}), hardware=hardware)

    one_cell = Results([with_set("AVX2", 0), with_set("SSE", 1), with_set("", 2)]).leaderboard("md")
    assert "different versions or machines (instructions AVX2, SSE)" in one_cell
    assert "Runs of 2 kinds of machine (EPYC with AVX2; EPYC with SSE): compare no img/s." in one_cell
    assert "machine" not in Results([with_set("AVX2", 0), with_set("", 1)]).leaderboard("md")


def test_features_of_another_machine_are_said_where_runs_differ_in_it() -> None:
    """A store that was copied, or is shared: the record named the machine of the run alone."""

    def with_features(maker: str, seed: int) -> RunRecord:
        hardware = {"processor": "EPYC"} | ({"encoded_by": maker} if maker else {})
        return record(seed=seed, replicate=Identity({"seed": seed}), hardware=hardware)

    cell = Results([with_features("AVX2, torch 2.9", 0), with_features("SSE, torch 2.9", 1), with_features("", 2)])
    assert "different versions or machines (features by AVX2, torch 2.9, SSE, torch 2.9)" in cell.leaderboard("md")
    assert "features by" not in Results([with_features("AVX2", 0), with_features("", 1)]).leaderboard("md")


def test_looking_at_fewer_rows_makes_none_more_certain(tmp_path: Path) -> None:
    runs = [saved(tmp_path, name, float(i)) for i, name in enumerate(["clip", "regions", "tda", "dpe", "dmn", "reta"])]
    everything = Results(runs)
    few = everything.filter(method=["clip", "tda"])
    whole = everything.compare("clip").set_index("method")["p_adjusted"]
    assert few.compare("clip").set_index("method")["p_adjusted"].to_dict() == {"tda": whole["tda"]}
    assert "Ranks and p are among 6 rows, 4 of which are not shown." in few.leaderboard("md")
    assert len(few.filter(seed=0).compare("clip")) == 1
    assert "Ranks and p are among 6 rows, 4 of which are not shown." in few._repr_html_()


def test_a_slice_has_the_numbers_of_its_own_runs(tmp_path: Path) -> None:
    """It may hold some of a filter's seeds, and tables showed differences that come from all of them."""
    runs = [
        saved(tmp_path, name, float(3 * i + seed), seed=seed)
        for i, name in enumerate(["clip", "tda"])
        for seed in (0, 1, 2)
    ]
    sliced = Results(runs).filter(method=["clip", "tda"])[::2]
    assert [(run.method, run.seed) for run in sliced] == [("clip", 0), ("clip", 2), ("tda", 1)]
    alone = Results(list(sliced))
    assert sliced.leaderboard("md") == alone.leaderboard("md")
    assert sliced.compare("clip").equals(alone.compare("clip"))


def test_each_row_names_the_baseline_that_it_is_set_against(tmp_path: Path) -> None:
    clip = saved(tmp_path, "clip", 0.0)
    swept = [saved(tmp_path, "tda", float(k), config=str(k)) for k in (1, 2)]
    rows = compare([clip, *swept], "tda").rows
    text = one_line(to_markdown(rows))
    assert "clip − tda setting=1" in text
    assert "clip − tda setting=2" in text
    assert "Of 2 pairs set against 2 configurations of tda" in text
    assert "clip − tda" not in to_markdown(compare([clip, swept[0]], "tda").rows)


def test_a_tuned_baseline_is_named_as_such(tmp_path: Path) -> None:
    clip, tuned = saved(tmp_path, "clip", 0.0), saved(tmp_path, "tda", 1.0, config="5")
    text = one_line(to_markdown(compare([clip, tuned], "tda").rows))
    assert "mAP against tda setting=5: toy" in text
    assert "than tda setting=5 by" in text


def test_what_was_asked_for_last_travels_with_the_runs(tmp_path: Path, toy_bench: Bench) -> None:
    run = toy_bench.run(RunSpec("clip", "toy", "toyclip")).record
    assert run.folder is not None
    asked.note(run.folder)
    copied = checked(run.folder)
    assert list(copied.contents)[-1] == "run.json"
    add(copied.compact(), tmp_path / "two", shared=False)
    assert records.load_all(tmp_path / "two")[0][0].asked == asked.read(run.folder) > run.created


def test_tables_of_other_rules_and_images_are_headed_otherwise(tmp_path: Path) -> None:
    clip, tda = (saved(tmp_path, name, 0.0) for name in ("clip", "tda"))

    def under(**rules: str) -> list[RunRecord]:
        protocol = Identity({**clip.protocol.parts, **rules})
        return [replace(run, protocol=protocol) for run in (clip, tda)]

    rows = compare([*under(empty_classes="zero"), *under(image_ids="1"), *under(image_ids="2")]).rows
    heads = [line for line in to_markdown(rows).splitlines() if line.startswith("###")]
    assert len(set(heads)) == 3
    assert "classes without positives zero" in heads[0]


def test_a_figure_names_what_is_not_usual() -> None:
    usual = record("clip")
    assert title([usual]) == "toy, tiny, 10 images"
    odd = record("clip", order="rarest", prompt="ensemble", dataset_size=600)
    assert title([odd]) == "toy, tiny, prompt ensemble, order rarest, 10 of 600 images"
    other = record("tda", seed=1, replicate=Identity({"seed": 1}), config=Identity({"method": "tda"}))
    assert title([usual, other]).endswith("rows over other seeds")


def test_the_smallest_error_stands_first_and_none_is_marked() -> None:
    """It is one of logits, and some methods return votes: softmax of those is flat, which may look well calibrated."""
    runs = [record("clip", metrics={"mAP": 50.0, "ECE": 3.0}), record("tda", metrics={"mAP": 50.0, "ECE": 19.0})]
    board = board_of(runs, Wanted(metrics=("ECE",)))
    (column,) = board.columns
    assert [row.method for row in board.rows] == ["clip", "tda"]
    assert [board.is_best(row, column, "ECE") for row in board.rows] == [False, False]
    assert "ECE takes scores for logits" in " ".join(board.notes)


@pytest.mark.parametrize(
    ("part", "value", "mark"),
    [
        ("average_precision", AP_CONVENTIONS["dataset"], "ties by the dataset's order"),
        ("empty_classes", "zero", "classes without positives zero"),
        ("precision", "bf16", "bf16"),
        ("features", "float32", "features float32"),
    ],
)
def test_columns_of_other_rules_say_so_and_are_not_averaged(part: str, value: str, mark: str) -> None:
    other = on("b", 60.0)
    unusual = replace(other, protocol=Identity({**other.protocol.parts, part: value}))
    assert any(column.name == "average" for column in board_of([on("a"), other]).columns)
    board = board_of([on("a"), unusual])
    assert [column.name for column in board.columns] == ["a", f"b ({mark})"]
    assert "No average: the columns follow different rules." in board.notes
    assert long_form([unusual])["rules"][0] == mark


@pytest.mark.parametrize("format_", TEXTS)
def test_what_a_run_warned_of_is_said_in_every_table(format_: str) -> None:
    runs = Results([record("clip"), record("mine", notes=["its features are all but equal"])])
    text = one_line(runs.leaderboard(format_))  # type: ignore[arg-type]
    warned = "its features are all but equal" if format_ in ("csv", "json") else "Recorded with a warning"
    assert warned in text
    assert warned not in one_line(runs.filter(method="clip").leaderboard(format_))  # type: ignore[arg-type]


@pytest.mark.parametrize("format_", TEXTS)
def test_where_nothing_is_fenced_off_is_said_in_every_table(format_: str) -> None:
    runs = Results([record("clip"), record("mine", provenance={"process": "the caller's: an instance"})])
    said = "the caller's" if format_ in ("csv", "json") else "where nothing is fenced off: mine."
    assert said in one_line(runs.leaderboard(format_)).replace("\\texttt{mine}", "mine")  # type: ignore[arg-type]
    assert said not in one_line(runs.filter(method="clip").leaderboard(format_))  # type: ignore[arg-type]


def test_two_records_of_one_run_with_other_numbers_are_none() -> None:
    one, other = record("tda", 29.13), record("tda", 35.28)
    results = Results([one, other, record("clip")])
    assert [run.method for run in results] == ["clip"]
    assert "two records of one run with other numbers" in results.problems[0]
    slower = replace(one, speed={"images_per_s": 1.0})
    assert Results([one, slower]).runs == (one,)  # a copy from another machine


def test_a_note_of_latex_stands_where_it_is_read() -> None:
    runs = [record("clip", 40.0), record("tda", 50.0), on("toy", 90.0, "purf", n=5, dataset_size=10)]
    text = Leaderboard(runs, Wanted(metrics=("mAP",), mixed=True), fast=True).text("latex", 100)
    caption = next(line for line in text.splitlines() if line.lstrip().startswith(r"\caption"))
    assert "is of another protocol than the rest of its column" in caption


# ------------------------------------------------------------------------------------------------------ other seeds


def test_a_gap_between_other_seeds_is_no_significant_one(tmp_path: Path) -> None:
    runs = [saved(tmp_path, "clip", 1.0, 0), *(saved(tmp_path, "good", 4.0, seed) for seed in range(3))]
    board = with_statistics(runs)
    assert "but over other seeds or orders" in board.sentence
    assert any("rest on those that two rows share" in note for note in board.notes)
    (found,) = standings(runs, ["mAP"], "clip").values()
    assert next(iter(found.deltas.values())).replicates == 1


def test_rows_that_are_not_shown_count(tmp_path: Path) -> None:
    gains = {"clip": 1.0, "regions": 1.2, "good": 4.0, "twin": 3.9}
    runs = [saved(tmp_path, method, gain, 0) for method, gain in gains.items()]
    whole, part = with_statistics(runs), with_statistics(runs, runs[2:3])
    (column,) = part.columns
    (shown,) = part.rows
    assert part.text(shown, column, "rank") == whole.text(shown, column, "rank")
    assert "Δ" in part.difference  # to a row that is not there
    assert part.text(shown, column, part.difference) == whole.text(shown, column, whole.difference) != "–"
    assert any("among 4 rows, 3 of which are not shown" in note for note in part.notes)


def test_one_image_has_no_statistics() -> None:
    run = record("clip", n=1, dataset_size=1, folder=Path("nowhere"))
    (found,) = standings([run], ["mAP"], "clip").values()
    assert not found.intervals
    assert "one image can't be resampled" in found.notes[0]


def test_equal_columns_are_led_by_nobody() -> None:
    runs = [on(name, value, method) for name, value, method in [("a", 50.0, "clip"), ("a", 50.0, "tda")]]
    runs += [on("b", 40.0, "clip"), on("b", 45.0, "tda")]
    assert "is led by tda in 1, nobody in 1 of 2 columns" in board_of(runs).sentence
    assert "the best are equal in all 2 columns" in board_of([*runs[:2], on("b", 7.0, "clip"), on("b", 7.0)]).sentence


# ---------------------------------------------------------------------------------------------------------- figures


def test_a_figures_row_is_one_configuration() -> None:
    edited = [record("mine", value, config=Identity({"source": str(value)})) for value in (29.0, 35.0)]
    assert sorted(len(those) for those in by_row(edited).values()) == [1, 1]
    assert all(name.startswith("mine #") for name in by_row(edited))
    assert list(by_row(edited[:1])) == ["mine"]


def test_published_numbers_are_held_against_one_protocol() -> None:
    names = {"backbone": "vit-b16", "method": "clip", "dataset": "voc2007"}
    shuffled = record(**names)  # type: ignore[arg-type]
    sorted_ = replace(shuffled, order="rarest", replicate=Identity({"order": "rarest"}))
    figures.agreement([shuffled])
    with pytest.raises(UsageError, match="clip on voc2007 with vit-b16 was run under several protocols, orders"):
        figures.agreement([shuffled, sorted_])


def test_a_sweep_is_of_configurations_that_differ_in_nothing_else(tmp_path: Path) -> None:
    def swept(rate: float, recipe: str) -> RunRecord:
        run = saved(tmp_path / f"{recipe}-{rate}", "mine", rate, 0)
        config = Identity({"rate": rate, "recipe": recipe})
        return replace(run, config=config, hyper_parameters={"rate": rate})

    figures.sweep([swept(1.0, "augmix"), swept(2.0, "augmix")])
    with pytest.raises(UsageError, match="differ in rate alone, and some of these differ in views"):
        figures.sweep([swept(1.0, "augmix"), swept(1.0, "plain"), swept(2.0, "augmix")])


def test_no_difference_is_neither_a_gain_nor_a_loss() -> None:
    assert [signed(value) for value in (-0.001, 0.0, -0.006, 1.239)] == ["+0.00", "+0.00", "-0.01", "+1.24"]


def test_the_last_of_runs_alike_in_name_is_of_the_same_rules() -> None:
    usual = record(created="2026-01-01", protocol=Identity({"empty_classes": "skip"}))
    other = record(created="2026-01-02", protocol=Identity({"empty_classes": "zero"}))
    assert Selection({}, latest=True).of([usual, other]).runs == [usual, other]


def test_one_folder_under_two_names_is_not_averaged_with_itself() -> None:
    names = ("folder:f", "folder:/abs/f", "scenes")
    runs = [
        replace(run, protocol=Identity({**run.protocol.parts, "images": "scenes" if run.dataset == "scenes" else "f"}))
        for run in map(on, names)
    ]
    assert any("would count twice" in note for note in board_of(runs).notes)
    assert any(column.name == "average" for column in board_of(runs[1:]).columns)


def test_a_difference_names_what_it_is_to(tmp_path: Path) -> None:
    runs = [saved(tmp_path, method, gain, 0) for method, gain in {"clip": 1.0, "good": 4.0}.items()]
    changed = replace(runs[0], changes={"shots": "5"}, tag="tuned")
    assert any("is the gain over clip [tuned: shots=5]" in note for note in with_statistics([changed, runs[1]]).notes)
    assert not any("is the gain over" in note for note in with_statistics(runs).notes)


def test_class_by_class_differences_keep_protocols_apart(tmp_path: Path) -> None:
    clip, good = (saved(tmp_path, method, gain, 0) for method, gain in {"clip": 1.0, "good": 4.0}.items())
    frame = class_frame(between([good], [clip])[0])
    assert set(frame["protocol"]) == {good.protocol.digest[:12]}
    assert set(frame["n"]) == {good.n}


@pytest.mark.parametrize("order", ["sequential", "rarest", "bursts:5"])
@pytest.mark.parametrize("format_", ["console", "md", "csv", "latex"])
def test_a_table_without_a_shuffle_is_a_table(order: str, format_: Any) -> None:
    assert "tda" in Results([record(order=order), record("clip", order=order)]).leaderboard(format_)


def test_configurations_alike_in_name_are_told_apart_wherever_they_are_compared(tmp_path: Path, invoke: Invoke) -> None:
    saved(tmp_path, "clip", 0.0)
    digests = [saved(tmp_path, "mine", gain, version=number).config.digest for number, gain in enumerate((2.0, 3.0))]
    shown = invoke("compare", "--format", "md", "--results", str(tmp_path)).out
    assert all(f"| mine #{digest[:6]} |" in shown for digest in digests)
    refused = invoke("compare", "mine", "clip", "--results", str(tmp_path))
    assert refused.code == 2
    assert all(f"#{digest[:6]}" in refused.err for digest in digests)
    assert invoke("compare", f"#{digests[0][:12]}", "clip", "--results", str(tmp_path)).code == 0


def test_rows_that_could_not_be_compared_with_the_best_are_named(tmp_path: Path) -> None:
    runs = [saved(tmp_path, "clip", 3.0, 0), saved(tmp_path, "clip", 3.0, 1), saved(tmp_path, "mine", 2.0, 2)]
    assert "not marked: mine" in " ".join(with_statistics(runs).notes)
    assert "not marked" not in " ".join(with_statistics(runs[:2]).notes)


def test_rows_whose_scores_are_not_at_hand_are_named(tmp_path: Path) -> None:
    runs = [saved(tmp_path, name, gain) for name, gain in (("clip", 1.0), ("good", 3.0), ("odd", 2.0))]
    gone = [*runs[:2], replace(runs[2], folder=None)]
    assert "Ranks, p and intervals leave out odd, whose scores are not at hand." in with_statistics(gone).notes
    without_baseline = " ".join(with_statistics([replace(runs[0], folder=None), *runs[1:]]).notes)
    assert "leave out clip, whose scores are not at hand" in without_baseline
    assert "no run of clip" not in without_baseline


def test_what_was_asked_for_is_shown_in_full(tmp_path: Path, invoke: Invoke) -> None:
    run = saved(tmp_path, "mine", 1.0, alpha=2.00004)
    lines = invoke("show", run.run_id, "--results", str(tmp_path)).out.splitlines()
    assert "alpha 2.00004" in [" ".join(line.split()) for line in lines]


def test_a_metric_without_statistics_is_refused_with_those_that_have_them(tmp_path: Path, invoke: Invoke) -> None:
    saved(tmp_path, "clip", 0.0)
    saved(tmp_path, "mine", 1.0)
    said = invoke("compare", "--metric", "CF1", "--results", str(tmp_path)).err
    assert "made for mAP, mAP_centered, mAP_softmax" in said


def test_columns_over_other_seeds_are_not_counted_as_undecided(tmp_path: Path) -> None:
    """A baseline needs no seeds, so it is often run with one."""
    runs = [saved(tmp_path, "clip", 0.5, 0), *(saved(tmp_path, "mine", 4.0, seed) for seed in (0, 1, 2))]
    runs += [saved(tmp_path, "clip", 0.5, 0, protocol="other"), saved(tmp_path, "mine", 4.0, 0, protocol="other")]
    said = with_statistics(runs).sentence
    assert "1 of 1 significantly (1 over other seeds or orders)" in said
    assert "clip in 1 of 1 (1 over other seeds or orders)" in said


def test_a_baseline_may_be_beaten_by_another_than_the_best(tmp_path: Path) -> None:
    runs = [saved(tmp_path, name, 0.5, 0, protocol=data) for name in ("clip",) for data in ("toy", "other")]
    runs += [saved(tmp_path, "good", 4.0, 0, protocol=data) for data in ("toy", "other")]
    runs += [saved(tmp_path, "best", 4.5, seed, protocol=data) for seed in (0, 1) for data in ("toy", "other")]
    assert "clip in 2 of 2" in with_statistics(runs).sentence
