"""The page in a real Chromium: what a reader does with a mouse, a keyboard, a phone, and without scripts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.browser import Browser
from tests.conftest import start_process
from tests.page_fixtures import save_grid, save_run
from tests.record_fixtures import on, record
from tta_bench import records
from tta_bench.report.page import page
from tta_bench.report.page.opening import Opening

pytestmark = pytest.mark.slow
HOSTILE = ["<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "\"'`&", "\u202eevil\u2066", "{{7*7}}"]
ROWS = "#live tbody th[scope=row] .name"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTABENCH_HOME", str(folder / "home"))
        save_grid(folder / "runs")
        (folder / "page.html").write_text(page(records.load_all(folder / "runs")[0]), encoding="utf-8")
    return folder / "page.html"


@pytest.fixture(autouse=True)
def quiet(browser: Browser, file: Path) -> Iterator[None]:
    """Every test begins with the page as it opens, and ends without a word on the console or a request."""
    browser.resize(1280, 900)
    browser.prefer("light")
    browser.open(file.as_uri())
    browser.run("localStorage.clear()")
    browser.console(), browser.requests()
    yield
    assert browser.console() == []
    assert [
        address for address in browser.requests() if not address.startswith(("file:", "about:", "http://127"))
    ] == []


def test_a_click_sorts_and_a_second_turns_round(browser: Browser) -> None:
    assert browser.texts(ROWS)[0] == "purf"
    browser.click("#live thead th:nth-child(2) button")
    assert browser.texts(ROWS)[-1] == "purf"
    assert browser.run("return document.querySelector('#live th:nth-child(2)').ariaSort") == "ascending"
    browser.click("#live thead th:first-child button")
    assert browser.texts(ROWS) == ["clip", "purf", "regions", "tda"]
    assert browser.run("return document.querySelector('#live th:nth-child(2)').ariaSort") == "none"


def test_it_opens_as_it_was_asked_for_until_the_reader_chooses(browser: Browser, file: Path) -> None:
    made = file.with_name("opening.html")
    opening = Opening(metric="mAP_softmax", sort="second", baseline="clip")
    made.write_text(page(records.load_all(file.parent / "runs")[0], opening=opening), encoding="utf-8")
    browser.open(made.as_uri())
    assert "mAP_softmax less that of clip" in browser.texts("#live h2")[0]
    assert browser.run("return document.querySelector('#live th[aria-sort=descending]').textContent") == "second"
    browser.click("#live .controls > button")  # No baseline
    assert "less that of" not in browser.texts("#live h2")[0]
    browser.open(browser.address)  # a link says it, too
    assert browser.texts("#live h2")[0].endswith("mAP_softmax")


def test_classes_are_framed_against_any_row(browser: Browser, file: Path) -> None:
    for baseline in ("clip", "tda"):
        browser.open(f"{file.as_uri()}#view=classes&baseline={baseline}&column=toy")
        assert f"different from {baseline}" in " ".join(browser.texts("#live .notes"))
        assert browser.run("return document.querySelectorAll('#live td.certain.up').length") > 0


def test_words_filter_the_rows(browser: Browser) -> None:
    browser.click("#filter")
    browser.press("Pu")
    assert browser.texts(ROWS) == ["purf"]
    assert browser.run("return document.activeElement.id") == "filter"
    browser.press("x")
    assert "No row is left" in browser.texts("#live .empty")[0]


def test_best_bold_and_the_interval_on_focus_and_hover(browser: Browser) -> None:
    assert browser.run("return document.querySelector('#live tr:has(td.best) .name').textContent") == "purf"
    marked = browser.texts("#live tr:has(td.best:nth-child(2)) .name")
    assert browser.texts("#live tbody th small")[0].startswith("online")
    assert marked == ["purf", "regions"]  # the best of all, and that of the episodic ones
    browser.run("document.querySelector('#live td').focus()")
    assert "95 % interval" in browser.texts("#tip")[0]
    assert "rank 1 of 4" in browser.texts("#tip")[0]


def test_a_baseline_turns_cells_into_differences(browser: Browser) -> None:
    clip = browser.texts(ROWS).index("clip") + 1
    browser.click(f"#live tbody tr:nth-child({clip}) th")
    assert "baseline" in browser.run("return document.querySelector('#live tr.baseline').className")
    cells = browser.texts("#live tbody tr:first-child td")
    assert cells[0].startswith("+")
    assert "±" in cells[0]
    assert "p " in cells[0]
    browser.run("document.querySelector('#live td').focus()")
    assert "(Holm)" in browser.texts("#tip")[0]
    assert "baseline=clip" in browser.address
    browser.back()
    browser.until("!document.querySelector('tr.baseline')")
    browser.forward()
    browser.until("document.querySelector('tr.baseline')")


def test_a_cell_opens_its_provenance_and_the_command_is_copied(browser: Browser) -> None:
    browser.devtools("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.click("#live tbody td")
    text = browser.texts("dialog")[0]
    for word in ("Protocol", "Config", "c0ffee", "seed 1", "not verified", "torch", "AMD EPYC"):
        assert word in browser.run("return document.querySelector('dialog').textContent"), word
    command = browser.texts("dialog code")[0]
    assert command in text
    browser.click("dialog .copy")
    browser.until("document.querySelector('dialog .copy').textContent === 'Copied'")
    assert browser.run("return navigator.clipboard.readText()") == command
    browser.press("Escape")
    browser.until("!document.querySelector('dialog').open && !location.hash.includes('cell=')")


def test_a_link_opens_what_it_was_copied_from(browser: Browser, file: Path) -> None:
    link = f"{file.as_uri()}#metric=mAP_softmax&sort=method&filter=r&cell={quote('purf on toy')}"
    browser.open(link)
    assert browser.run("return document.querySelector('dialog').open")
    assert browser.texts("dialog h2") == ["purf on toy"]
    assert browser.texts(ROWS) == ["purf", "regions"]
    browser.open(f"{file.as_uri()}#view=nonsense&baseline=nobody&cell=999&metric=x&column=y")
    assert len(browser.texts(ROWS)) == 4


@pytest.mark.parametrize("view", ["classes", "stream", "cost", "published"])
def test_the_other_views(browser: Browser, file: Path, view: str) -> None:
    browser.click(f"nav a[href*='view={view}']")
    browser.until(f"document.querySelector('nav [aria-current]').textContent.toLowerCase() === '{view}'")
    if view == "published":
        assert "No paper prints" in browser.texts("#live .empty")[0]
    elif view == "classes":
        assert browser.texts("#live tbody th[scope=row]") == ["cat", "dog", "tree", "sun"]
        browser.click("#live thead th:nth-child(3) button")
        deltas = [float(t.replace("−", "-")) for t in browser.texts("#live tbody td:nth-child(3)")]
        assert deltas == sorted(deltas, reverse=True)
        assert browser.run("return document.querySelectorAll('.heat td.certain').length") > 0
    else:
        assert browser.run("return document.querySelector('svg[role=img]').getAttribute('aria-label')")
        assert "purf" in browser.run("return document.querySelector('svg').textContent")
        assert browser.run("return document.querySelectorAll('.numbers tbody tr').length") >= 4


def test_what_is_on_screen_is_saved(browser: Browser, tmp_path: Path) -> None:
    browser.devtools("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.click("#live thead th:first-child button")
    for button, name in enumerate(("leaderboard.csv", "leaderboard.tex"), 1):
        browser.click(f".exports button:nth-child({button})")
        end = time.monotonic() + 15
        while not (tmp_path / name).is_file() and time.monotonic() < end:
            time.sleep(0.05)
    lines = (tmp_path / "leaderboard.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "method,second,toy,average"
    assert [line.split(",")[0] for line in lines[1:]] == ["clip", "purf", "regions", "tda"]
    assert lines[1].split(",")[1] == browser.texts("#live tbody td .value")[0]
    assert r"\textbf{" in (tmp_path / "leaderboard.tex").read_text(encoding="utf-8")


def test_dark_by_the_system_and_by_the_switch(browser: Browser) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    light = browser.run(paper)
    browser.prefer("dark")
    dark = browser.run(paper)
    assert dark != light
    browser.click("#theme")
    assert browser.run(paper) == light  # switched to light on a dark system
    browser.prefer("light")
    browser.click("#theme")
    assert browser.run(paper) == dark


@pytest.mark.parametrize(
    "view", ["", "#view=classes", "#view=stream", "#view=cost", "#view=published", "#cell=purf%20on%20toy"]
)
def test_a_phone_has_nothing_to_push_sideways(browser: Browser, file: Path, view: str) -> None:
    browser.resize(360, 700)
    browser.open(file.as_uri() + view)
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.run(
        "return [...document.querySelectorAll('nav a')].every((a) => a.getBoundingClientRect().right <= innerWidth)"
    )


def test_the_keyboard_suffices(browser: Browser) -> None:
    browser.run("document.getElementById('theme').focus()")
    for _ in range(40):
        browser.press("Tab")
        if browser.run("return document.activeElement.matches('tbody th, tbody td')"):
            break
    where = "return document.activeElement.dataset.row + '/' + document.activeElement.dataset.cell"
    purf = browser.run(where)
    assert purf.endswith("/undefined")  # the name of the first row
    browser.press("Enter")
    browser.until("document.querySelector('tr.baseline')")
    assert browser.run(where) == purf  # the place is kept though the table is drawn anew
    browser.press("Enter", "Right", "Down", "Down")
    assert browser.run("return document.activeElement.parentElement.rowIndex") == 3
    browser.press("Enter")
    assert browser.run("return document.querySelector('dialog').open")
    browser.press("Escape")
    browser.until("!document.querySelector('dialog').open")
    assert (
        browser.run(
            "return document.activeElement.matches('tbody td') && document.activeElement.parentElement.rowIndex"
        )
        == 3
    )


def test_without_scripts_the_whole_table_is_there(browser: Browser, file: Path) -> None:
    browser.scripts(allowed=False)
    try:
        browser.open(file.as_uri())
        tree = browser.devtools("Accessibility.getFullAXTree")["nodes"]
        names = {str(node.get("name", {}).get("value", "")) for node in tree if not node.get("ignored")}
    finally:
        browser.scripts(allowed=True)
    assert {"purf", "clip", "toy", "second", "centred", "img/s"} <= names
    assert "Theme" not in names  # nothing that does not work


def test_hostile_names_and_values_are_text(browser: Browser, tmp_path: Path) -> None:
    made = [record(n, dataset=n, prompt=n, tag=n, changes={n: n}, notes=[n], provenance={n: n}) for n in HOSTILE]
    made += [on(n, 1e308 if i else float("nan"), n, per_class_ap={n: 50.0}) for i, n in enumerate(HOSTILE)]
    made += [save_run(tmp_path / "runs", n, n) for n in HOSTILE[:3]]
    (tmp_path / "hostile.html").write_text(page(made), encoding="utf-8")
    address = (tmp_path / "hostile.html").as_uri()
    for view in ("", "#view=classes", "#view=stream", "#view=cost", "#view=published"):
        browser.open(address + view)
        assert browser.run("return document.querySelectorAll('img, #live script, #live b').length") == 0
        assert browser.run("return document.scripts.length") == 2
    browser.open(f"{address}#prompt=photo")
    shown = browser.texts(ROWS)
    assert any("<img src=x" in text for text in shown)
    assert not any("\u202e" in text for text in shown)
    browser.click("#live tbody td")
    assert browser.run("return document.querySelectorAll('dialog img, dialog script').length") == 0


def test_two_hundred_rows_of_twenty_columns_stay_fluent(browser: Browser, tmp_path: Path) -> None:
    made = [on(f"dataset {d}", 30 + (m * 7 + d) % 50, f"method {m}") for m in range(200) for d in range(20)]
    (tmp_path / "large.html").write_text(page(made), encoding="utf-8")
    browser.open((tmp_path / "large.html").as_uri())
    took = browser.run(
        "const t = performance.now(); document.querySelector('#live thead th:nth-child(5) button').click();"
        "document.body.getBoundingClientRect(); return performance.now() - t"
    )
    assert len(browser.texts(ROWS)) == 200
    assert took < 1500  # milliseconds, drawing and layout; a fifth of it on a machine with nothing else to do


def test_a_table_that_fills_while_runs_are_added(browser: Browser, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    save_run(runs, "clip")
    process = start_process("view", "--port", "0", "--results", str(runs), home=tmp_path / "home")
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split(" ")[0]
        browser.open(f"{address}#sort=method")
        assert browser.texts(ROWS) == ["clip"]
        save_run(runs, "purf")
        browser.until("document.querySelectorAll('#live tbody th[scope=row]').length === 2")
        assert browser.address.endswith("#sort=method")
    finally:
        process.terminate()
        process.wait()
