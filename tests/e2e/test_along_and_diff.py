"""`show` along the stream, `diff`, orders on the command line, and the same from Python."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import tta_bench
from tests.conftest import Invoke
from tests.record_fixtures import record
from tta_bench import metrics
from tta_bench.errors import UsageError
from tta_bench.records import Identity, Results, RunRecord
from tta_bench.report.along import baseline_of
from tta_bench.report.diff import differences, to_text
from tta_bench.report.orders import to_text as orders_to_text
from tta_bench.runs.bench import Bench

METHODS = ("clip", "tda")


def on_toy(bench: Bench, order: str | list[str] = "shuffled", methods: tuple[str, ...] = METHODS) -> Results:
    return tta_bench.grid(methods, "toy", "toyclip", order=order, bench=bench)


@pytest.mark.slow
def test_several_orders_on_the_command_line(toy_run: Invoke) -> None:
    done = toy_run("clip,tda", "--orders", "2")
    assert done.code == 0
    assert "tda on toy with toyclip, seed 0, order shuffled:1" in done.out
    heading, *lines = done.out.partition("mAP over orders")[2].splitlines()[1:]
    assert heading.split() == ["method", "order", "runs", "mean", "worst", "spread"]
    assert [line.split()[:3] for line in lines] == [["clip", "shuffled", "2"], ["tda", "shuffled", "2"]]
    assert lines[0].split()[-1] == "0.00"  # CLIP has no memory
    assert "order rarest" in toy_run("clip", "--order", "rarest,bursts:3").out


def test_lines_of_other_images_stand_under_another_heading() -> None:
    """With a limit every order sees other images: lines of one name told nothing of which belong together."""
    runs = [
        record(method, protocol=Identity({"order": order}), replicate=Identity({"order": order}), order=order, n=4)
        for method in METHODS
        for order in ("shuffled", "shuffled:1")
    ]
    lines = orders_to_text(Results(runs).orders())
    headings = [line for line in lines if line.startswith("mAP over orders")]
    marks = [run.protocol.digest[:6] for run in runs[:2]]
    assert sorted(headings) == sorted(f"mAP over orders: toy (4 of 10) #{m} with tiny, prompt 'photo'" for m in marks)
    assert [line.split()[0] for line in lines if " shuffled " in line] == ["clip", "tda"] * 2
    assert sum("compare within a heading only" in line for line in lines) == 1
    both = [record("clip", config=Identity({"array": i}), replicate=Identity({"order": i})) for i in range(2)]
    heading, _, *rows = orders_to_text(Results(both).orders())
    assert heading == "mAP over orders: toy with tiny, prompt 'photo'"
    assert sorted(row.split()[1] for row in rows) == sorted(f"#{run.config.digest[:6]}" for run in both)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--order", "burst"), "bursts:B"),
        (("--order", "domains"), "does not say which domain"),
        (("--order", "rarest", "--orders", "2"), "leave one of the two out"),
    ],
)
def test_orders_that_can_not_be(toy_run: Invoke, options: tuple[str, ...], said: str) -> None:
    done = toy_run("clip", *options)
    assert done.code != 0
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_an_order_shows_the_same_images_and_a_memoryless_method_scores_the_same(toy_bench: Bench) -> None:
    runs = on_toy(toy_bench, ["shuffled", "rarest"], ("clip",))
    assert [run.order for run in runs] == ["shuffled", "rarest"]
    assert runs[0].protocol == runs[1].protocol
    assert runs[0].ids() != runs[1].ids()
    assert runs[0].metrics["mAP"] == runs[1].metrics["mAP"]


def test_curves_end_at_the_runs_own_numbers_beside_clip_in_another_order(toy_bench: Bench) -> None:
    (clip,) = on_toy(toy_bench, "shuffled", ("clip",))
    (tda,) = on_toy(toy_bench, "rarest", ("tda",))
    frame = Results([clip, tda]).along(points=4).query("method == 'tda'")
    assert frame["images"].tolist()[-1] == tda.n
    assert frame["mAP"].iloc[-1] == pytest.approx(tda.metrics["mAP"])
    assert frame["clip"].iloc[-1] == pytest.approx(clip.metrics["mAP"])
    first = int(frame["images"].iloc[0])
    same = [clip.ids().index(image) for image in tda.ids()[:first]]
    ap = metrics.average_precision(clip.scores()[same], clip.labels()[same])
    assert frame["clip"].iloc[0] == pytest.approx(metrics.mean_average_precision(ap), nan_ok=True)
    assert Results([tda]).along()["clip"].isna().all()
    with pytest.raises(UsageError, match="window"):
        Results([tda]).along(window=tda.n + 1)


def test_the_record_keeps_the_halves(toy_bench: Bench) -> None:
    (run,) = on_toy(toy_bench, methods=("tda",))
    half = run.n // 2
    for name, rows in (("first", slice(0, half)), ("second", slice(half, None))):
        expected = metrics.summary(run.scores()[rows], run.labels()[rows])["mAP"]
        assert run.along["halves"][name] == pytest.approx(expected)
    assert "domains" not in run.along


def test_diagnostics_have_a_row_per_image(toy_bench: Bench) -> None:
    runs = on_toy(toy_bench, methods=("clip", "purf"))
    frame = runs.diagnostics()
    purf = runs.filter(method="purf")[0]
    reported = purf.diagnostics()
    assert reported
    assert set(frame["method"]) == {"purf"}
    assert frame["id"].tolist() == list(purf.ids())
    for name, values in reported.items():
        assert np.array_equal(frame[name].to_numpy(), values, equal_nan=True)
    assert Results([]).diagnostics().empty


def test_a_baseline_is_plain_clip_on_the_same_protocol() -> None:
    run, other = record(), Identity({"dataset": "other"})
    clip, rarest = record("clip"), record("clip", order="rarest", replicate=Identity({"order": "rarest"}))
    assert baseline_of(run, [record("clip", protocol=other), record("regions")]) is None
    assert baseline_of(run, [record("clip", changes={"recipe": "x"}), rarest]) is rarest
    assert baseline_of(run, [rarest, clip]) is clip
    assert baseline_of(clip, [clip]) is None


def test_show_has_curve_halves_and_cost(toy_run: Invoke, invoke: Invoke, home: Path) -> None:
    toy_run("tda")
    shown = invoke("show", "tda").out
    assert "clip was not run on these images" in shown
    toy_run("clip")
    shown = invoke("show", "tda").out
    for words in ("mAP of halves alone", "(clip ", "mAP along the stream", "clip, last", "state at the end", "FLOP"):
        assert words in shown
    assert "level with clip" in shown or "does not break even" in shown
    assert "was not run" not in shown
    (folder,) = (home / "runs").glob("tda-*")
    (folder / "scores.safetensors").write_bytes(b"damage")
    assert "can't be told" in invoke("show", "tda").out


@pytest.mark.slow
def test_diff_names_every_field_in_words(toy_run: Invoke, invoke: Invoke) -> None:
    toy_run("tda")
    toy_run("tda", "--set", "shots=5", "--order", "rarest", "--limit", "6")
    first, second = sorted(run.run_id for run in tta_bench.load_results())
    shown = invoke("diff", first, second).out
    for words in ("number of images:", "which images:", "shots: ", "order: ", "the labels:"):
        assert words in shown
    assert "hardware" not in shown
    found = json.loads(invoke("diff", first, second, "--json").out)
    assert {"section": "replicate", "field": "order"}.items() <= found[-1].items()
    assert "No field" in invoke("diff", first, first).out
    assert "did you mean" in invoke("diff", first[:-1] + "x", first).err.lower()


def test_differences_of_lists_digests_and_missing_fields() -> None:
    names = [f"class {i}" for i in range(5)]
    digests = ["a" * 64, "b" * 64]
    first = record(protocol=Identity({"class_names": names, "labels": digests[0]}), hardware={"device": "cpu"})
    other = [*names[:3], "dining table", "tv"]
    second = record(protocol=Identity({"class_names": other, "labels": digests[1], "extra": 1}))
    found = {difference.field: (difference.first, difference.second) for difference in differences(first, second)}
    assert found["class names"] == ("class 3 (and 1 more)", "dining table (and 1 more)")
    assert found["the labels"] == ("#aaaaaaaaaaaa", "#bbbbbbbbbbbb")
    assert found["extra"] == ("nothing", "1")
    assert found["device"] == ("cpu", "nothing")
    assert max(map(len, to_text(first, second))) <= 70


def test_an_old_record_has_no_parts_and_is_shown_all_the_same(invoke: Invoke, tmp_path: Path) -> None:
    kept = Path(__file__).parents[1] / "golden" / "record_v1"
    old: RunRecord = tta_bench.records.load(kept)
    folder = shutil.copytree(kept, tmp_path / old.run_id)
    assert old.along == {}
    assert "mAP along the stream" in invoke("show", str(folder)).out
