"""An official archive: what it is, and unpacking it so that a full disk costs nothing but time.

A download becomes FILE only when it is complete and sound (`system/fetching.py`). It is unpacked beside itself, and
whole files are moved to their place: a dataset's folder never holds half a file.
"""

from __future__ import annotations

import errno
import lzma
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from tta_bench.system.fetching import CHUNK, Checksum, DownloadFailed, check_space
from tta_bench.system.progress import Reporter

DEEPEST = 64  # folders of a member; official archives have 4
UNUSABLE = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)  # names that no folder can hold together
DAMAGE = (  # what reading a broken, encrypted or hostile archive raises
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, RuntimeError, ValueError),
)


@dataclass(frozen=True)
class Archive:
    """One official file, and where its content belongs below the data root.

    Attributes:
        url: The publisher's address.
        into: The folder below the data root that it is unpacked into.
        md5: Of the whole file; without it the archive's own checksums must do, and there can be no mirrors.
        size: In bytes; a server whose file has another length is left alone.
        mirrors: Where others keep the same file, tried in this order after `url`.
        only: The one member that is wanted; once it is in place, the archive is not needed again.
    """

    url: str
    into: str = ""
    md5: str | None = None
    size: int | None = None
    mirrors: tuple[str, ...] = ()
    only: str | None = None

    def __post_init__(self) -> None:
        if self.mirrors and not self.md5:
            raise ValueError(f"{self.url}: only a checksum tells whether a mirror has the same file")

    @property
    def file_name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def checksum(self) -> Checksum | None:
        return Checksum("md5", self.md5) if self.md5 else None


# ---------------------------------------------------------------------------------------------------------- unpack


def unpack(archive: Archive, file: Path, target: Path, reporter: Reporter) -> None:
    """All wanted members, checked, then moved to `target` in the order of their names: images after annotations."""
    staging = file.with_name(f"{file.name}.unpacked")
    shutil.rmtree(staging, ignore_errors=True)
    reporter.line(f"unpacking {file.name}")
    try:
        size = _size(file, archive)
        check_space(file.parent, size)
        with reporter.task(f"unpacking {file.name}", -(-size // CHUNK), "MiB") as advance:
            written = 0
            for name, content in _members(file, archive):
                goal = staging / _safe(name)
                goal.parent.mkdir(parents=True, exist_ok=True)
                with content, goal.open("wb") as out:
                    shutil.copyfileobj(content, out, CHUNK)
                    before, written = written, written + out.tell()
                advance(written // CHUNK - before // CHUNK)
    except DAMAGE as error:
        raise _damaged(archive, file, str(error)) from error
    except OSError as error:
        if error.errno not in UNUSABLE:
            raise
        raise _damaged(archive, file, f"its members' names can't be: {error.strerror}") from error
    else:
        for source in sorted(path for path in staging.rglob("*") if path.is_file()):
            goal = target / source.relative_to(staging)
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(source, goal)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _damaged(archive: Archive, file: Path, why: str) -> DownloadFailed:
    """Deletes the file: kept, it would make every further attempt fail as well."""
    file.unlink()
    why = " ".join(why.split())[:200]
    return DownloadFailed(f"{archive.url}: what arrived is damaged ({why}); the same command downloads it anew")


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


def _safe(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or not path.parts:
        raise ValueError(f"refused: its member '{name[:80]}' would leave the folder")
    if len(path.parts) > DEEPEST:
        raise ValueError(f"refused: its member '{name[:80]}…' lies {len(path.parts):,} folders deep")
    return path
