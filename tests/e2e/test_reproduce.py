"""`ttabench published` and `reproduce` as a user types them, on the toy dataset and on packs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import TOY, Invoke, some_slow, start_process
from tta_bench import records
from tta_bench.system import published

TOYS = ("--plugin", str(TOY), "--dataset", "toy", "--backbone", "toyclip")


def own_numbers(folder: Path, **values: float) -> Path:
    """A file that has numbers for Table 6 on the toy dataset."""
    rows = [f"purf,table6,toyclip photo purf[selection={row}],toy mAP,{value},,\n" for row, value in values.items()]
    file = folder / "own.csv"
    file.write_text(",".join(published.FIELDS) + "\n" + "".join(rows))
    return file


def facts(invoke: Invoke, *arguments: str) -> dict[str, dict[str, object]]:
    result = invoke("reproduce", *arguments, "--format", "json")
    assert result.code == 0, result.err
    return {row["row"]: row for row in json.loads(result.out)}


def test_published_numbers_are_listed_and_shown_with_the_papers_slips(invoke: Invoke, tmp_path: Path) -> None:
    listed = invoke("published", "list").out
    assert [line.split()[:2] for line in listed.splitlines()][::6] == [["purf:table1", "264"], ["purf:table7", "4"]]
    shown = invoke("published", "show", "purf:table1").out
    assert "65.33  coco2017 mAP  [2]" in shown
    assert "[2] Tables 5 to 7 print 65.35 for the same run" in shown
    assert "toy mAP" in invoke("published", "show", "purf", "--published", str(own_numbers(tmp_path, rel=1.0))).out
    assert len(json.loads(invoke("published", "show", "--json").out)) == 508
    result = invoke("published", "show", "purf:tabel1")
    assert (result.code, "Did you mean purf:table1" in result.err) == (2, True)


def test_a_limit_leaves_no_mean_over_seeds(invoke: Invoke) -> None:
    result = invoke("reproduce", "purf:table6", *TOYS, "--limit", "5", "--seed", "0-1")
    assert result.code == 2
    assert "with --limit every seed means other images" in result.err


def test_a_table_is_run_once_and_then_found(invoke: Invoke) -> None:
    first = invoke("reproduce", "purf:table6", *TOYS)
    assert first.code == 0, first.err
    assert first.out.count("other protocol: dataset, backbone") == 4
    assert first.out.count("other dataset") == 4
    assert "encoder forwards" in first.err
    again = invoke("reproduce", "purf:table6", *TOYS)
    assert (again.out, "encoder forwards" in again.err) == (first.out, False)
    looked = facts(invoke, "purf:table6", *TOYS, "--dry-run", "--limit", "3")
    assert {row["verdict"] for row in looked.values()} == {"to run"}


@pytest.mark.slow
def test_jobs_run_what_is_missing_and_change_no_number(invoke: Invoke, tmp_path: Path) -> None:
    there = ("purf:table6", *TOYS, "--limit", "4", "-m", "purf")
    alone = facts(invoke, *there)
    elsewhere = invoke("reproduce", *there, "--jobs", "2", "--results", str(tmp_path / "two"), "--format", "json")
    assert list(alone.values()) == json.loads(elsewhere.out), elsewhere.err
    assert len(list((tmp_path / "two").glob("*/run.json"))) == 4  # a run for each row
    again = invoke("reproduce", *there, "--jobs", "2", "--results", str(tmp_path / "two"), "--format", "json")
    assert (again.out, again.err) == (elsewhere.out, "")


@pytest.mark.slow
def test_numbers_agree_or_differ_and_what_differs_is_explained(invoke: Invoke, tmp_path: Path) -> None:
    measured = facts(invoke, "purf:table6", *TOYS)
    value = float(str(measured["purf[selection=rel]"]["measured"]))
    file = own_numbers(tmp_path, rel=value + 0.3, abs=1.0)
    held = facts(invoke, "purf:table6", *TOYS, "--published", str(file))
    verdicts = {row: held[f"purf[selection={row}]"]["verdict"] for row in ("rel", "abs", "all")}
    assert verdicts == {"rel": "agrees", "abs": "differs", "all": "other protocol: dataset, backbone"}
    said = invoke("reproduce", "purf:table6", *TOYS, "--published", str(file), "--explain").out
    assert "Abs-score on toy with toyclip: measured" in said
    assert "  nearest: " in said or "no single change comes nearer" in said
    assert "Rel-score on toy" not in said
    deep = invoke("reproduce", "purf:table6", "--published", str(file), *TOYS, "--explain", "deep")
    assert deep.code == 0, deep.err
    for tried in ("prompt ensemble", "order sequential"):
        assert tried in deep.out
    part = facts(invoke, "purf:table6", *TOYS, "--published", str(file), "--limit", "3", "-m", "purf")
    assert part["purf[selection=abs]"]["verdict"] == "other protocol: images"


@pytest.mark.parametrize("jobs", some_slow(["1"], ["2"]))
def test_a_seed_that_failed_is_missing_in_all_that_is_said(invoke: Invoke, tmp_path: Path, jobs: str) -> None:
    """What was left was shown as the mean of all: a number that differed agreed without the seed that was off."""
    arguments = ("purf:table6", *TOYS, "-m", "purf", "--seed", "0-2", "--jobs", jobs)
    whole = facts(invoke, *arguments, "--results", str(tmp_path / "whole"))
    broken = [run for run in records.load_all(tmp_path / "whole")[0] if run.seed == 1]
    (tmp_path / "part").mkdir()
    for run in broken:
        (tmp_path / "part" / run.run_id).touch()  # no folder can be made there
    rel = [run.metrics["mAP"] for run in records.load_all(tmp_path / "whole")[0] if run.seed != 1 and not run.changes]
    there = (*arguments, "--results", str(tmp_path / "part"))
    file = ("--published", str(own_numbers(tmp_path, rel=sum(value or 0.0 for value in rel) / 2)))
    said = {how: invoke("reproduce", *there, *file, "--format", how) for how in ("console", "md", "csv", "json")}
    assert {result.code for result in said.values()} == {1}  # as `run` has it
    assert "4 of 12 runs failed:" in said["console"].err
    for result in said.values():
        assert result.out.count("agrees (2 of 3 seeds)") == 1 + (result is said["console"])  # which sums up
        assert result.out.count("other protocol: dataset, backbone (2 of 3 seeds)") == 3
        assert "seed 1: " in result.out
    left = {row["row"]: row for row in json.loads(said["json"].out)}["purf[selection=rel]"]
    assert (left["runs"], whole["purf[selection=rel]"]["runs"]) == (2, 3)


def test_what_is_not_here_is_named_with_how_to_get_it(invoke: Invoke) -> None:
    result = invoke("reproduce", "purf:table1", "--backbone", "tiny", "--dataset", "voc2007", "-m", "clip,difftpt")
    assert result.code == 0, result.err
    assert "not run: data [1]" in result.out
    assert "`ttabench data get voc2007` downloads it" in result.out
    assert "not run: files, data [1, 2]" in result.out
    assert "difftpt needs generated images" in result.out


def test_a_pack_runs_what_it_holds(invoke: Invoke, toy_pack: Path) -> None:
    shown = facts(invoke, "purf:table1", "--pack", str(toy_pack))
    assert shown["clip"]["verdict"] == "other protocol: dataset, backbone"
    assert shown["clip"]["measured"] is not None
    assert shown["purf"]["verdict"] == "not run: failed"
    assert "does not have" in str(shown["purf"]["reason"])


@pytest.mark.slow
def test_a_dry_run_of_all_lists_every_number_and_loads_no_weights(home: Path) -> None:
    process = start_process("reproduce", "purf:all", "--dry-run", "--format", "csv", home=home)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    lines = out.splitlines()
    tables = [line for line in lines if line.startswith("table") and ",purf," in line]
    assert len(tables) == 508
    assert not [line for line in tables if "not run" not in line and "to run" not in line]
    assert not list(home.glob("runs/*"))


@pytest.mark.parametrize("width", [60, 80, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    from rich.console import Console

    from tta_bench.report.reproduction import lines
    from tta_bench.report.reproduction_text import print_lines
    from tta_bench.runs import suites

    for suite in suites.load("purf:all"):
        lacking = [suites.Obstacle("weights", "of a long name " * 20), suites.Obstacle("data", "more of it")]
        attempts = [suites.Attempt(cell, (), lacking) for cell in suites.cells(suite, suites.Choice())]
        console = Console(width=width, highlight=False, force_terminal=False)
        made = lines(attempts, published.cells())
        with console.capture() as capture:
            print_lines(suite, made, console)
        shown = capture.get()
        assert max(map(len, shown.splitlines())) <= width
        assert shown.count("not run:") == len(made) + bool(suite.not_run)
        assert "…" not in shown


@pytest.mark.slow
def test_what_the_paper_draws_is_drawn(invoke: Invoke, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'ttabench[plots]'")
    targets = ("purf:fig3", "purf:fig5", "purf:fig6")
    result = invoke("reproduce", *targets, *TOYS, "--figures", str(tmp_path / "figures"))
    assert result.code == 0, result.err
    kinds = ["fig3-stream", "fig3-turnover", "fig5-cache", "fig6-regions"]
    assert sorted(file.name for file in (tmp_path / "figures").iterdir()) == [
        f"purf-{k}-toy-toyclip.pdf" for k in kinds
    ]


@pytest.mark.slow
def test_speed_includes_the_encoder_and_names_the_machine(invoke: Invoke) -> None:
    result = invoke("reproduce", "purf:table3", *TOYS, "-m", "clip")
    assert result.code == 0, result.err
    assert "images/s, this machine, toyclip" in result.out
    assert "from decoding the image to the method's step; the paper: RTX 3090" in " ".join(result.out.split())
    assert "other protocol: hardware, backbone" in result.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["purf:table8"], "unknown table of purf 'table8'"),
        (["purf:table6", "-d", "voc20007"], "unknown dataset 'voc20007'"),
        (["purf:table6", "-m", "tda"], "There are: purf."),
        (["purf:table6", "--weights", "x.pt"], "--weights FILE is for one backbone"),
        (["purf:table6", "--set", "delta=3"], "METHOD.KEY=VALUE"),
        (["purf:table6", "--set", "purf.detla=3", "-d", "scenes", "-b", "tiny"], "detla"),
        (["purf:table2", "--prompt", "photo"], "KIND:FILE"),
        (["purf:table6", "--pack", "x", "-d", "scenes"], "leave --dataset and --backbone out"),
        (["purf:table6", "--published", "nothing.csv"], "can't be read"),
    ],
)
def test_mistakes_are_one_line(invoke: Invoke, arguments: list[str], said: str) -> None:
    result = invoke("reproduce", *arguments)
    assert result.code == 2
    assert said in result.err
    assert len(result.err.splitlines()) == 1
