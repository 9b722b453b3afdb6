"""Fetching an official archive and unpacking it, so that a broken line or a full disk costs nothing but time.

A download goes to FILE.part and resumes from there. Only when it is complete and sound does it become FILE; it is
unpacked beside itself, and whole files are moved to their place. So a dataset's folder never holds half a file.
"""

from __future__ import annotations

import hashlib
import http.client
import shutil
import stat
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from tta_bench.errors import TTABenchError
from tta_bench.system.progress import Reporter

TIMEOUT = 10.0  # seconds without a sign of life from the server
ATTEMPTS = 4  # connections per file and command; the later ones only after the server broke off
PAUSE = 1.0  # seconds before the next attempt
CHUNK = 1 << 20  # the progress bar's unit: a MiB
AGAIN = "the same command goes on from there"


class DownloadFailed(TTABenchError):
    """A download did not succeed; the message says why and that the command can be repeated."""


@dataclass(frozen=True)
class Archive:
    """One official file, and where its content belongs below the data root."""

    url: str
    into: str = ""
    md5: str | None = None  # None where the publisher gives none: then the zip's own checksums must do
    only: str | None = None  # the one member that is wanted; once it is in place, the archive is not needed again

    @property
    def file_name(self) -> str:
        return self.url.rpartition("/")[2]


# ----------------------------------------------------------------------------------------------------------- fetch


class _BrokenOff(Exception):
    """The connection ended before the file did."""


class _TooLong(Exception):
    """What is here is longer than the server's file: it can't be the beginning of it."""


def fetch(archive: Archive, folder: Path, reporter: Reporter) -> Path:
    """The archive's file, complete and with the right checksum."""
    file, part = folder / archive.file_name, folder / f"{archive.file_name}.part"
    if file.is_file():
        return file
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _download(archive, part, reporter)
            break
        except _BrokenOff as error:
            if attempt == ATTEMPTS:
                raise DownloadFailed(f"{archive.url}: {error}; {AGAIN}") from error
            reporter.line(f"{archive.file_name}: {error}; trying again")
            time.sleep(PAUSE)
    if archive.md5 and _md5(part) != archive.md5:
        part.unlink()
        raise DownloadFailed(
            f"{archive.url}: what arrived is not the official file (md5 differs); the same command downloads it anew"
        )
    return part.replace(file)


def _download(archive: Archive, part: Path, reporter: Reporter) -> None:
    """One connection: appends to `part` until the file is complete, or raises `_BrokenOff`."""
    done = part.stat().st_size if part.is_file() else 0
    try:
        _append(archive, part, done, reporter)
    except _TooLong:
        part.unlink()
        raise _BrokenOff("the file on the server is shorter than what was here") from None


def _append(archive: Archive, part: Path, done: int, reporter: Reporter) -> None:
    with _answer(archive.url, done) as response:
        if response is None:  # the server has nothing beyond what is here
            return
        done, total = _extent(response, done)
        if total is not None:
            _check_space(part.parent, total - done)
        reporter.line(
            f"{archive.url}: {_megabytes(total)}" + (f", {_megabytes(done)} are here already" if done else "")
        )
        title, steps = archive.file_name, -(-(total or 0) // CHUNK)
        with part.open("ab" if done else "wb") as out, reporter.task(title, steps, "MiB", done // CHUNK) as advance:
            while chunk := _read(response, done, total):
                out.write(chunk)
                done += len(chunk)
                advance(1)
    if total is not None and done < total:
        raise _BrokenOff(f"the connection broke off after {_megabytes(done)} of {_megabytes(total)}")


@contextmanager
def _answer(url: str, start: int) -> Iterator[http.client.HTTPResponse | None]:
    """The response from byte `start` on; None when the file ends right there."""
    request = urllib.request.Request(url, headers={"User-Agent": "ttabench", "Accept-Encoding": "identity"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and start:
                if error.headers.get("Content-Range") == f"bytes */{start}":
                    yield None
                    return
                raise _TooLong from error
            advice = "it may have moved" if error.code in (404, 410) else f"try again later: {AGAIN}"
            raise DownloadFailed(f"{url}: the server answers {error.code} {error.reason}; {advice}") from error
    except (OSError, http.client.HTTPException) as error:  # URLError and timeouts are OSErrors
        reason = getattr(error, "reason", None) or error
        raise DownloadFailed(f"{url}: no connection ({reason}); once there is one, {AGAIN}") from error
    with response:
        yield response


def _extent(response: http.client.HTTPResponse, start: int) -> tuple[int, int | None]:
    """Where the response's first byte belongs and how long the whole file is, if the server says so."""
    if response.status == 206:
        first, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        if first.partition("-")[0] == str(start):
            return start, int(total) if total.isdigit() else None
        raise DownloadFailed(f"{response.url}: the server sent another part of the file than was asked for")
    length = response.headers.get("Content-Length", "")  # a server that knows no ranges starts from the beginning
    return 0, int(length) if length.isdigit() else None


def _read(response: http.client.HTTPResponse, done: int, total: int | None) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        if total is not None and isinstance(error, http.client.IncompleteRead):
            return error.partial  # the length tells that more should have come
        raise _BrokenOff(
            f"the connection broke off after {_megabytes(done)} of {_megabytes(total)} ({error})"
        ) from error


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadFailed(
            f"{_megabytes(needed)} are needed but the disk that holds {folder} has {_megabytes(free)} left; "
            f"make room and {AGAIN}"
        )


def _md5(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _megabytes(count: int | None) -> str:
    return "an unknown size" if count is None else f"{count / 1e6:,.1f} MB"


# ---------------------------------------------------------------------------------------------------------- unpack


def unpack(archive: Archive, file: Path, target: Path, reporter: Reporter) -> None:
    """All wanted members, checked, then moved to `target` in the order of their names: images after annotations."""
    staging = file.with_name(f"{file.name}.unpacked")
    shutil.rmtree(staging, ignore_errors=True)
    reporter.line(f"unpacking {file.name}")
    try:
        size = _size(file, archive)
        _check_space(file.parent, size)
        with reporter.task(f"unpacking {file.name}", -(-size // CHUNK), "MiB") as advance:
            written = 0
            for name, content in _members(file, archive):
                goal = staging / _safe(name, archive)
                goal.parent.mkdir(parents=True, exist_ok=True)
                with content, goal.open("wb") as out:
                    shutil.copyfileobj(content, out, CHUNK)
                    before, written = written, written + out.tell()
                advance(written // CHUNK - before // CHUNK)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        file.unlink()
        raise DownloadFailed(
            f"{archive.url}: what arrived is damaged ({error}); the same command downloads it anew"
        ) from error
    else:
        for source in sorted(path for path in staging.rglob("*") if path.is_file()):
            goal = target / source.relative_to(staging)
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(source, goal)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _members(file: Path, archive: Archive) -> Iterator[tuple[str, IO[bytes]]]:
    """Regular files only: links, devices and permissions of an archive are never recreated."""
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as packed:
            for info in _wanted_zip(packed, archive):
                yield info.filename, packed.open(info)  # reading it to its end checks its CRC
        return
    with tarfile.open(file) as tape:
        for member in tape:
            content = tape.extractfile(member) if member.isreg() else None
            if content is not None:
                yield member.name, content


def _wanted_zip(packed: zipfile.ZipFile, archive: Archive) -> list[zipfile.ZipInfo]:
    wanted = [
        info
        for info in packed.infolist()
        if not info.is_dir() and not stat.S_ISLNK(info.external_attr >> 16) and archive.only in (None, info.filename)
    ]
    if not wanted:
        raise zipfile.BadZipFile(f"{archive.only or 'any file'} is not in it")
    return wanted


def _size(file: Path, archive: Archive) -> int:
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as packed:
            return sum(info.file_size for info in _wanted_zip(packed, archive))
    return file.stat().st_size  # a tar is not compressed


def _safe(name: str, archive: Archive) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or not path.parts:
        raise DownloadFailed(f"{archive.url}: refused: its member '{name}' would leave the folder")
    return path
