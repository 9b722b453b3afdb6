"""LaTeX tables go into a paper as they are: compiled, and within the width of their column."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.record_fixtures import on, record
from tests.unit.test_comparison import saved
from tta_bench.plugins import Registry
from tta_bench.records import RunRecord
from tta_bench.report.board import Wanted
from tta_bench.report.frame import SCORES, long_form
from tta_bench.report.latex import LatexStyle, to_latex
from tta_bench.report.latex_text import latex
from tta_bench.report.standings import standings

TITLES = {"methods": {"purf": "PuRF", "clip": "CLIP"}, "backbones": {"tiny": "ViT-B/16"}, "datasets": {"toy": "COCO"}}
EVERY_SCRIPT = "άΩς é½ 中😀 \x1b\u202e кот"
ARTICLE = r"""\documentclass[twocolumn]{article}
\usepackage{booktabs}
\begin{document}
%s
\end{document}
"""


def scored_runs(root: Path) -> list[RunRecord]:
    gains = {"clip": 1.0, "regions": 1.2, "purf": 4.0, "tda": 3.9}
    return [
        saved(root / "runs", method, gain, seed, protocol=dataset)
        for dataset in ("toy", "photos")
        for method, gain in gains.items()
        for seed in (0, 1)
    ]


def test_names_in_print_grouped_headers_and_aligned_points() -> None:
    runs = [record("purf", 55.2), record("clip", 9.5), on("other", 60.0, "purf")]
    text = to_latex(long_form(runs), style=LatexStyle(titles=TITLES))
    assert r"\multicolumn{2}{c}{COCO}" in text
    assert r"\cmidrule" not in text  # one kind of number, which the caption names
    two = to_latex(long_form(runs), Wanted(("mAP", "mAP_softmax")), style=LatexStyle(titles=TITLES))
    assert r"\cmidrule(lr){2-5} \cmidrule(lr){6-9}" in two
    assert r"PuRF & 60. & 00 & \textbf{55.} & \textbf{20}" in text
    assert "CLIP & " in text
    assert "9. & 50" in text
    assert "with ViT-B/16" in text
    assert "centred" not in text  # one metric, unless asked
    assert r"\label{tab:tiny-photo}" in text
    assert re.search(r"Images \(protocol\): other 10 \([0-9a-f]{8}\), COCO 10 \([0-9a-f]{8}\)", text)


def test_rows_stand_together_by_setting_and_long_names_are_broken() -> None:
    changes = {"selection": "global_only", "cache_mode": "region_avg", "view_set": "V"}
    runs = [
        record("purf", 60.0, setting="online", changes=changes, tag="tuned"),
        record("clip", 70.0, setting="episodic"),
        *(on(f"NUS-WIDE {i}", 50.0 + i, "clip", setting="episodic") for i in range(4)),
    ]
    text = to_latex(long_form(runs), style=LatexStyle("narrow", TITLES))
    assert text.index(r"\emph{episodic}") < text.index("CLIP &") < text.index(r"\emph{online}") < text.rindex("PuRF")
    assert r"\begin{tabular}{p{" in text
    assert r"selection=\allowbreak{}global\_\allowbreak{}only" in text
    assert r"\shortstack{NUS-\\WIDE\\1}" in text


def test_what_does_not_fit_is_dropped_in_the_stated_order(tmp_path: Path) -> None:
    runs = [run for run in scored_runs(tmp_path) if run.dataset == "toy"]
    found = standings(runs, ["mAP"], "clip")
    wide = to_latex(long_form(runs), None, found)
    narrow = to_latex(long_form(runs), None, found, LatexStyle("narrow"))
    assert all(part in wide for part in (r"\pm", r"{c}{95 \%}", r"{c}{rank}", r"$\Delta$ clip", "table*"))
    assert r"$\Delta$ clip" in narrow
    assert not any(part in narrow for part in (r"\scriptsize", r"{c}{95 \%}", "95 \\% is", "table*"))
    assert r"\underline{" in narrow


def test_names_in_any_script_are_set_or_written_out() -> None:
    assert latex("café Łódź ąß") == r"caf\'{e} \L{}\'{o}d\'{z} a\ss{}"
    assert latex("κ_g Δ Ά µ ≤") == r"$\kappa$\_g $\Delta$ A $\mu$ $\leq$".replace(" A ", r" \'{A} ")
    assert latex("中 😀 кот\x1b[31m") == (
        r"\textbackslash{}u4e2d \textbackslash{}U0001f600 \textbackslash{}u043a\textbackslash{}u043e"
        r"\textbackslash{}u0442\textbackslash{}x1b[31m"
    )
    text = to_latex(long_form([record(EVERY_SCRIPT, dataset=EVERY_SCRIPT, prompt=EVERY_SCRIPT)]))
    assert [line for line in text.splitlines() if not line.startswith("%") and not line.isascii()] == []


def test_built_in_plugins_have_names_in_print() -> None:
    registry = Registry(only=())
    titles = {plugin.name: plugin.title for plugin in registry.plugins()}
    assert (titles["purf"], titles["boostadapter"], titles["vit-b16"]) == ("PuRF", "BoostAdapter", "ViT-B/16")
    assert all(plugin.title for plugin in registry.plugins("methods"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex: `make latex` installs it")
@pytest.mark.parametrize("columns", ["wide", "narrow"])
def test_tables_compile_and_stay_within_their_column(tmp_path: Path, columns: str) -> None:
    runs = scored_runs(tmp_path)
    nasty = [record(r"a_b&c%\x~^{}<|>[*", changes={"x": "$1"}, tag="tuned", dataset="#1 `'\"", prompt="_^"), record()]
    many = [on(f"dataset{i}", 40.0 + i, method) for i in range(14) for method in ("purf", "clip")]
    tables = [
        to_latex(long_form(runs), None, standings(runs, ["mAP"], "clip"), LatexStyle(columns, TITLES)),
        to_latex(long_form(runs), Wanted(tuple(SCORES)), standings(runs, SCORES, "clip"), LatexStyle(columns, TITLES)),
        to_latex(long_form(many), style=LatexStyle(columns)),
        to_latex(long_form(nasty), style=LatexStyle(columns)),
        to_latex(long_form([record(EVERY_SCRIPT, backbone="中文"), record()]), style=LatexStyle(columns)),
    ]
    (tmp_path / "paper.tex").write_text(ARTICLE % "\n\\clearpage\n".join(tables), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    # Words of a caption may stick out by a hair in a narrow column; a table that is too wide does by far more.
    too_wide = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide\)", done.stdout)]
    assert max(too_wide, default=0.0) < 15.0
