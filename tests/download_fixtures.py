"""A server on this machine that breaks off, lies about lengths, ignores ranges and fails; and archives for it."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tta_bench.datasets._archives import Archive


@dataclass
class Host:
    """What the server holds, how it misbehaves, and what it was asked for."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    break_after: int | None = None  # bytes of a body before the connection is cut
    breaks: int = 10**6  # how many times it does that
    claim_more: int = 0  # added to Content-Length, and to the total of a range
    ignore_range: bool = False
    other_part: bool = False  # than was asked for
    no_length: bool = False
    error: int | None = None
    errors: int = 10**6  # how many times it answers with that
    headers: dict[str, str] = field(default_factory=dict)  # with every answer about a file that it has
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # GETs, with their ranges

    def archive(self, name: str, **more: Any) -> Archive:
        return Archive(f"{self.url}/{name}", **more)


@contextmanager
def serve() -> Iterator[Host]:
    """A server on this machine for as long as the block lasts."""
    host = Host()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            host.asked.append((self.path, wanted))
            assert len(host.asked) < 20, "the client does not give up"
            self.answer(wanted)

        def do_HEAD(self) -> None:
            self.answer(None, with_body=False)

        def answer(self, wanted: str | None, with_body: bool = True) -> None:
            content = host.files.get(self.path.lstrip("/"))
            if content is None or (host.error and host.errors > 0):
                host.errors -= 1
                self.send_response(404 if content is None else host.error or 500)
                self.send_header("X-Error-Code", "EntryNotFound" if content is None else "")  # as the hub does
                self.send_header("Content-Length", "0")
                for name, value in host.headers.items() if content is not None else ():
                    self.send_header(name, value)
                self.end_headers()
                return
            total = len(content) + host.claim_more
            start = 0
            if wanted and not host.ignore_range:
                start = 7 if host.other_part else int(wanted.removeprefix("bytes=").removesuffix("-"))
                if start >= len(content):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(content)}")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
            else:
                self.send_response(200)
            if not host.no_length:
                self.send_header("Content-Length", str(total - start))
            for name, value in host.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if not with_body:
                return
            body = content[start:]
            if host.break_after is not None and host.breaks > 0:
                host.breaks -= 1
                body = body[: host.break_after]
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    host.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    try:
        yield host
    finally:
        server.shutdown()
        server.server_close()


def tar_of(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tape:
        for file in sorted(folder.rglob("*")):
            tape.add(file, file.relative_to(folder).as_posix(), recursive=False)
    return buffer.getvalue()


def zip_of(folder: Path, *members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for member in members:
            for file in sorted((folder / member).rglob("*")) or [folder / member]:
                packed.write(file, file.relative_to(folder).as_posix())
    return buffer.getvalue()


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
