"""`ttabench view` and `leaderboard --format html`: one page, to this machine, that knows when there are new runs."""

from __future__ import annotations

import http.client
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Invoke, start_process
from tests.record_fixtures import record, write
from tta_bench import records
from tta_bench.report.page.serving import Viewer, server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "runs", record("clip"))
    return tmp_path / "runs"


@pytest.fixture
def port(folder: Path) -> Iterator[int]:
    with server(Viewer(folder, lambda: records.load_all(folder)[0]), 0) as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        yield serving.server_port
        serving.shutdown()
        thread.join()


def ask(port: int, path: str = "/", verb: str = "GET", host: str | None = None) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest(verb, path, skip_host=True)
    if host != "":
        connection.putheader("Host", host or f"127.0.0.1:{port}")
    connection.endheaders()
    return connection.getresponse()


def test_the_page_is_served_and_marked(port: int, folder: Path) -> None:
    first = ask(port)
    text = first.read().decode()
    assert first.status == 200
    assert ">clip<" in text
    assert first.headers["Cache-Control"] == "no-store"
    mark = ask(port, verb="HEAD").headers["ETag"]
    assert mark == first.headers["ETag"]
    assert f'"mark":{mark}' in text
    write(folder, record("tda"))
    assert ask(port, verb="HEAD").headers["ETag"] != mark
    assert ">tda<" in ask(port, host=f"localhost:{port}").read().decode()


@pytest.mark.parametrize("name", ["verified.json", "asked.txt"])
def test_a_run_that_is_verified_or_asked_for_is_another_page(name: str, port: int, folder: Path) -> None:
    mark = ask(port, verb="HEAD").headers["ETag"]
    (run,) = (file.parent for file in folder.glob("*/run.json"))
    (run / name).write_text("{}")
    assert ask(port, verb="HEAD").headers["ETag"] != mark


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1.evil.example:{port}", ""]
)
@pytest.mark.parametrize("verb", ["GET", "HEAD"])
def test_a_foreign_host_is_refused(port: int, host: str, verb: str) -> None:
    answer = ask(port, verb=verb, host=host.format(port=port))
    assert answer.status == 421
    assert answer.headers["ETag"] is None
    assert b"clip" not in answer.read()


@pytest.mark.parametrize("path", ["/run.json", "/../runs/", "/?x", "/favicon.ico", "/clip/run.json"])
def test_nothing_else_is_served(port: int, path: str) -> None:
    assert ask(port, path).status == 404


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_sent(port: int, verb: str) -> None:
    assert ask(port, verb=verb).status == 501


def test_it_listens_to_this_machine_only(folder: Path) -> None:
    with server(Viewer(folder, list), 0) as serving:
        assert serving.server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_one_line(invoke: Invoke) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = invoke("view", "--port", str(taken.getsockname()[1]))
    assert done.code == 2
    assert "--port 0 takes one that is free" in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.slow
def test_the_command_says_where_it_is_and_ends_with_an_interrupt(folder: Path, home: Path) -> None:
    (folder / "broken").mkdir()
    (folder / "broken" / "run.json").write_text("{")
    process = start_process("view", "--port", "0", "--results", str(folder), home=home)
    assert process.stdout is not None
    said = process.stdout.readline()
    port = int(said.split("/ shows")[0].rpartition(":")[2])
    for _ in range(2):
        assert ">clip<" in ask(port).read().decode()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err.count("broken") == 1  # said once, however often the page is made


def test_the_leaderboard_becomes_a_file(invoke: Invoke, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "deep" / "leaderboard.html"
    done = invoke("leaderboard", "--format", "html", "-o", str(file), "--results", str(folder))
    assert (done.code, done.out) == (0, "")
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    shown = invoke("leaderboard", "--format", "html", "--results", str(folder))
    assert shown.out.strip() == file.read_text(encoding="utf-8").strip()


def test_untrained_runs_are_shown_when_asked_for(invoke: Invoke, folder: Path, tmp_path: Path) -> None:
    write(folder, record("tda", random_weights=True))
    file = tmp_path / "page.html"
    invoke("leaderboard", "--format", "html", "-o", str(file), "--results", str(folder))
    assert ">tda" not in file.read_text(encoding="utf-8")
    invoke("leaderboard", "--format", "html", "-o", str(file), "--results", str(folder), "--random-weights")
    assert "tda (untrained)" in file.read_text(encoding="utf-8")
