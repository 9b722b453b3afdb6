"""Suite files: what they may say, and which cells they mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from tta_bench.errors import UsageError
from tta_bench.runs import suite
from tta_bench.runs.bench import Bench


def write(folder: Path, text: str) -> Path:
    file = folder / "suite.yaml"
    file.write_text(text)
    return file


def test_every_combination_is_a_cell_and_each_is_there_once(tmp_path: Path) -> None:
    text = """
        methods: [clip, tda]
        datasets: [scenes, "scenes:clean"]
        prompts: [photo, ensemble]
        seeds: 0-2
        orders: [shuffled, rarest]
        settings: [{tda.shots: 3}, {tda.shots: 4}]
        sweep: {tda.alpha: [1, 2]}
        limit: 20
    """
    cells = suite.read(write(tmp_path, text)).cells(Bench(tmp_path))
    of_tda = [spec for spec in cells if spec.method == "tda"]
    assert len(of_tda) == 2 * 2 * 3 * 2 * 2 * 2
    assert len(cells) - len(of_tda) == 2 * 2 * 3 * 2  # clip has neither hyper-parameter
    assert {(spec.settings["shots"], spec.settings["alpha"]) for spec in of_tda} == {(3, 1), (3, 2), (4, 1), (4, 2)}
    assert {spec.limit for spec in cells} == {20}


def test_what_is_left_out_is_as_in_run(tmp_path: Path) -> None:
    (cell,) = suite.read(write(tmp_path, "methods: clip")).cells(Bench(tmp_path))
    assert (cell.dataset, cell.backbone, cell.prompt, cell.seed, cell.order) == (
        "scenes",
        "tiny",
        "photo",
        0,
        "shuffled",
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("methods: [clip]\nsedes: 1", "unknown key in .*'sedes'. Did you mean seeds"),
        ("methods: [clip]\nseeds: many", "seeds: a number, a list of numbers or a range such as 0-4 is wanted"),
        ("methods: [clip]\nseeds: [true]", "seeds: a number"),
        ("methods: [clip]\nseeds: 0-99999999999999", "seeds: a range that goes upwards and has at most 1000 seeds"),
        ("methods: [tda]\nsettings: {shots: 2026-01-01}", "settings: plain numbers, texts and lists are, not a date"),
        ("methods: [tda]\nsweep: {shots: [{a: 1}]}", "sweep: a mapping from hyper-parameters to lists"),
        ("methods: [clip]\npacks: ['hf:a/b/c.safetensors']", "packs: files are wanted, not .*hf:a.*: download it"),
        ("methods: [clip]\npacks: ['HTTPS://a/b#sha256=0']", "packs: files are wanted"),
        ("methods: [clip, 3]", "methods: a name or a list of names is wanted"),
        ("datasets: [scenes]", "names at least methods"),
        ("- clip", "a suite is a mapping"),
        ("methods: [clip]\nmethods: [tda]", r"methods is given twice \(line 2\)"),
        ("methods: [clip]\nprecision: fp8", "unknown value of precision"),
        ("methods: [clip]\nlimit: 0", "limit: a number of images is wanted"),
        ("methods: [clip]\nlimit: 024", "024 is no plain whole number"),
        ("methods: [clip]\nseeds: 1:30", "1:30 is no plain whole number"),
        ("methods: [tda]\nsettings: {alpha: 0.0_5}", "0.0_5 is no plain number"),
        ("methods: [tda]\nsettings: {alpha: '1:30.5', beta: 1:30.5}", "1:30.5 is no plain number"),
        ("methods: [tda]\nsettings: [shots]", "settings: a mapping"),
        ("methods: [tda]\nsweep: {shots: 3}", "sweep: a mapping from hyper-parameters to lists"),
        ("methods: [tda]\nsettings: {shots: 3}\nsweep: {shots: [4]}", "shots is in settings and in sweep"),
        ("methods: [tda]\npacks: [a.safetensors]\ndatasets: [scenes]", "leave datasets out"),
        ("methods: !!python/object/apply:os.system [ls]", "can't be read"),
        ("methods: [", "can't be read"),
    ],
)
def test_a_mistake_is_one_line_with_the_file(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as error:
        suite.read(write(tmp_path, text))
    assert "suite.yaml" in str(error.value)


def test_one_mapping_may_be_merged_into_another(tmp_path: Path) -> None:
    """Its own keys go before those that it takes over, once or several times."""
    anchors = "settings:\n- &x {shots: 5, alpha: 1.0}\n- &y {<<: *x, alpha: 3.0}\n- {<<: *y, beta: 2.0}"
    read = suite.read(write(tmp_path, f"methods: [tda]\n{anchors}")).settings
    assert [dict(one) for one in read] == [
        {"shots": 5, "alpha": 1.0},
        {"shots": 5, "alpha": 3.0},
        {"shots": 5, "alpha": 3.0, "beta": 2.0},
    ]


def test_a_name_that_nobody_offers_is_refused_with_a_guess(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown method 'tdaa'. Did you mean"):
        suite.read(write(tmp_path, "methods: [tdaa]")).cells(Bench(tmp_path))


def test_a_product_beyond_all_measure_is_refused_before_it_is_made(tmp_path: Path) -> None:
    text = f"methods: [tda]\nseeds: 0-999\nsweep: {{shots: {list(range(1, 101))}, alpha: [1, 2]}}"
    with pytest.raises(UsageError, match="200,000 cells; 100,000 are the most"):
        suite.read(write(tmp_path, text)).cells(Bench(tmp_path))


def test_packs_are_found_beside_the_suite(tmp_path: Path) -> None:
    (cell,) = suite.read(write(tmp_path, "methods: [clip]\npacks: [a.safetensors]")).cells(Bench(tmp_path))
    assert cell.pack == tmp_path / "a.safetensors"
