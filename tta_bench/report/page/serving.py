"""The page over HTTP, to this machine alone: one address, and a mark that changes as soon as there are other runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tta_bench.errors import UsageError
from tta_bench.records import RunRecord
from tta_bench.report.page import page
from tta_bench.report.page.memory import Memory
from tta_bench.system import asked, outcome
from tta_bench.system.files import digest

HERE = "127.0.0.1"
NAMES = (HERE, "localhost")  # that a browser may have called us by; another name is a page that was led here
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Type": "text/html; charset=utf-8",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Viewer:
    """The page of a folder of runs, made anew when they change."""

    def __init__(self, folder: Path, load: Callable[[], Sequence[RunRecord]]) -> None:
        self._folder, self._load = folder, load
        self._memory, self._lock = Memory(), threading.Lock()
        self._made: tuple[str, bytes] = ("", b"")

    def mark(self) -> str:
        """Another one as soon as a run is added, removed, written again, asked for or verified."""
        facts = []
        beside = {file for name in (asked.FILE, outcome.FILE) for file in self._folder.glob(f"*/{name}")}
        for file in sorted({*self._folder.glob("*/run.json"), *beside}):
            try:
                facts.append([file.parent.name, file.name, file.stat().st_mtime_ns])
            except OSError:  # removed this moment
                continue
        return digest(facts)[:16]

    def page(self) -> tuple[str, bytes]:
        """The mark and the page; a second reader waits for the first one's."""
        with self._lock:
            mark = self.mark()
            if self._made[0] != mark:
                self._made = mark, page(self._load(), mark, self._memory).encode()
            return self._made


def server(viewer: Viewer, port: int) -> ThreadingHTTPServer:
    """Bound to this machine; port 0 takes a free one."""

    class Answers(BaseHTTPRequestHandler):
        server_version, sys_version, timeout = "ttabench", "", 30

        def do_GET(self) -> None:
            if self._refused():
                return
            mark, content = viewer.page()
            self._answer(200, content, mark)

        def do_HEAD(self) -> None:
            if not self._refused():
                self._answer(200, b"", viewer.mark())

        def _refused(self) -> bool:
            if self.headers.get("Host", "").lower() not in [f"{name}:{made.server_port}" for name in NAMES]:
                self._answer(421, b"This server answers to this machine only.\n")
            elif self.path != "/":
                self._answer(404, b"There is one page, and it is not here.\n")
            else:
                return False
            return True

        def _answer(self, status: int, content: bytes, mark: str = "") -> None:
            self.send_response(status)
            for name, value in HEADERS.items():
                self.send_header(name, value if status == 200 or name != "Content-Type" else "text/plain")
            if mark:
                self.send_header("ETag", f'"{mark}"')
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing: only the command line prints."""

    try:
        made = ThreadingHTTPServer((HERE, port), Answers)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"port {port} of {HERE}: {why}; --port 0 takes one that is free") from error
    return made
