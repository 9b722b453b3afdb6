"""Fetching a file over a line that breaks, from a host that may be slow, gone or replaced by a mirror.

A download goes to FILE.part and resumes from there, whoever serves the rest: only the checksum decides whether the
whole is the file that was meant.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import shutil
import ssl
import string
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from tta_bench.errors import TTABenchError
from tta_bench.system.progress import Reporter
from tta_bench.system.text import visible

AGAIN = "the same command goes on from there"
CHUNK = 1 << 20  # the progress bar's unit: a MiB
TIMEOUT = 60.0  # seconds without a sign of life: VOC's server has taken minutes to answer
ATTEMPTS = 4  # connections per address and command
PAUSE = 1.0  # seconds before the next attempt
BUSY = (408, 425, 429, 500, 502, 503, 504)  # answers that may be others in a moment


class DownloadFailed(TTABenchError):
    """A download did not succeed; the message says why and that the command can be repeated."""


class Checksum(NamedTuple):
    """What a whole file must have."""

    algorithm: str  # as hashlib names it
    value: str  # in small hexadecimal letters


class Remote(Protocol):
    """A file somewhere else."""

    @property
    def url(self) -> str: ...

    @property
    def mirrors(self) -> tuple[str, ...]: ...  # where others keep the same file, tried in this order after `url`

    @property
    def file_name(self) -> str: ...  # on this machine

    @property
    def size(self) -> int | None: ...  # a server whose file has another length is left alone

    @property
    def checksum(self) -> Checksum | None: ...


class _Failed(Exception):
    """An address did not give the file."""

    def __init__(self, reason: str, advice: str, passing: bool = False) -> None:
        super().__init__(reason)
        self.advice, self.passing = advice, passing  # passing: another attempt may succeed


def fetch(remote: Remote, folder: Path, reporter: Reporter) -> Path:
    """The file, complete and with the right checksum: from its own address, or else from a mirror."""
    file, part = folder / remote.file_name, folder / f"{remote.file_name}.part"
    if file.is_file():
        return file
    failures: list[tuple[str, _Failed]] = []
    for url in (remote.url, *remote.mirrors):
        if failures:
            reporter.line(f"{failures[-1][0]}: {failures[-1][1]}; trying the mirror {url}")
        try:
            _fetch_from(url, remote, part, reporter)
            return part.replace(file)
        except _Failed as failure:
            failures.append((url, failure))
    reasons = "; ".join(f"{url}: {failure}" for url, failure in failures)
    raise DownloadFailed(f"{reasons}; {failures[0][1].advice}") from failures[-1][1]


def _fetch_from(url: str, remote: Remote, part: Path, reporter: Reporter) -> None:
    """Completes `part` from one address and checks it, or raises `_Failed`."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _download(url, remote, part, reporter)
            break
        except _Failed as failure:
            if not failure.passing or attempt == ATTEMPTS:
                raise
            reporter.line(f"{remote.file_name}: {failure}; trying again")
            time.sleep(PAUSE)
    wanted = remote.checksum
    if wanted and _digest(part, wanted.algorithm) != wanted.value:
        part.unlink()
        differs = f"what arrived is not the file that was meant ({wanted.algorithm} differs)"
        raise _Failed(differs, "the same command downloads it anew")


def _download(url: str, remote: Remote, part: Path, reporter: Reporter) -> None:
    """One connection: appends to `part` until the file is complete."""
    done = part.stat().st_size if part.is_file() else 0
    with _answer(url, part, done) as response:
        if response is None:  # the server has nothing beyond what is here
            return
        done, total = _extent(response, part, done)
        if remote.size is not None and total not in (None, remote.size):
            raise _Failed(
                f"the server's file has {total:,} bytes, the one that was meant {remote.size:,}", "it may have changed"
            )
        needed = remote.size if total is None else total
        if needed is not None:
            check_space(part.parent, needed - done)
        reporter.line(f"{url}: {megabytes(needed)}" + (f", {megabytes(done)} are here already" if done else ""))
        title, steps = remote.file_name, -(-(needed or 0) // CHUNK)
        with part.open("ab" if done else "wb") as out, reporter.task(title, steps, "MiB", done // CHUNK) as advance:
            while chunk := _read(response, done, total):
                out.write(chunk)
                done += len(chunk)
                advance(1)
    if total is not None and done < total:
        raise _broken_off(done, total)


@contextmanager
def _answer(url: str, part: Path, start: int) -> Iterator[http.client.HTTPResponse | None]:
    """The response from byte `start` on; None when the file ends right there."""
    headers = {"User-Agent": "ttabench", "Accept-Encoding": "identity"} | (
        {"Range": f"bytes={start}-"} if start else {}
    )
    try:
        request = urllib.request.Request(_quoted(url), headers=headers)
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and start:
                if error.headers.get("Content-Range") == f"bytes */{start}":
                    yield None
                    return
                part.unlink()  # it can't be the beginning of the server's file
                raise _Failed(
                    "the file on the server is shorter than what was here", "the same command downloads it anew", True
                ) from error
            advice = "it may have moved" if error.code in (404, 410) else f"try again later: {AGAIN}"
            answer = f"{error.code} {_one_line(error.reason)}"
            raise _Failed(f"the server answers {answer}", advice, error.code in BUSY) from error
    except (OSError, http.client.HTTPException) as error:  # URLError and timeouts are OSErrors
        reason = getattr(error, "reason", None) or error
        trusted = not isinstance(reason, ssl.SSLCertVerificationError)  # which does not mend itself
        raise _Failed(f"no connection ({_one_line(reason)})", f"once there is one, {AGAIN}", passing=trusted) from error
    except ValueError as error:  # of the address itself, or of one that the server sends us to
        raise _Failed(f"that leads to no address ({_one_line(error)})", "it may be misspelt") from error
    with response:
        yield response


def _quoted(url: str) -> str:
    """With spaces and letters beyond ASCII as a browser would send them; what is quoted already stays."""
    parts = urllib.parse.urlsplit(url)
    path, query = (urllib.parse.quote(part, safe=string.punctuation) for part in (parts.path, parts.query))
    return urllib.parse.urlunsplit(parts._replace(path=path, query=query))


def _one_line(reason: object) -> str:
    """Servers and libraries write paragraphs, and what a terminal would obey."""
    return visible(" ".join(str(reason).split()))


def _extent(response: http.client.HTTPResponse, part: Path, start: int) -> tuple[int, int | None]:
    """Where the response's first byte belongs and how long the whole file is, if the server says so."""
    if response.status == 206:
        first, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        if first.partition("-")[0] == str(start):
            return start, _count(total)
        part.unlink(missing_ok=True)  # with this server it can't be gone on from, but perhaps begun again
        raise _Failed("the server sent another part of the file than was asked for", "try again later", start > 0)
    return 0, _count(response.headers.get("Content-Length", ""))  # it knows no ranges, and starts from the beginning


def _count(text: str) -> int | None:
    """Bytes, if it is a number that a file could have."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _read(response: http.client.HTTPResponse, done: int, total: int | None) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        if total is not None and isinstance(error, http.client.IncompleteRead):
            return error.partial  # the length tells that more should have come
        raise _broken_off(done, total, f" ({error})") from error


def _broken_off(done: int, total: int | None, why: str = "") -> _Failed:
    return _Failed(f"the connection broke off after {megabytes(done)} of {megabytes(total)}{why}", AGAIN, passing=True)


def _digest(file: Path, algorithm: str) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


# ------------------------------------------------------------------------------------------------------------ the disk


def check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadFailed(
            f"{megabytes(needed)} are needed but the disk that holds {folder} has {megabytes(free)} left; "
            f"make room and {AGAIN}"
        )


def megabytes(count: int | None) -> str:
    return "an unknown size" if count is None else f"{count / 1e6:,.1f} MB"


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Makes the folder. A full or read-only disk in one line; nothing that was downloaded is lost by it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DownloadFailed(f"no space left on the disk that holds {folder}; make room and {AGAIN}") from error
        raise DownloadFailed(f"can't write {error.filename or folder}: {error.strerror or error}") from error
