"""`ttabench data status` and `ttabench data get NAME`: which datasets are here, and fetching the others.

Archives are kept in `<data-root>/downloads` until they are unpacked; the same command goes on from where the last one
stopped.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import filelock

from tta_bench.datasets._archives import AGAIN, Archive, DownloadFailed, fetch, unpack
from tta_bench.datasets._layout import LAYOUTS
from tta_bench.errors import UnknownName, UsageError
from tta_bench.system.progress import Reporter


def _coco(year: str) -> tuple[Archive, ...]:
    host = "http://images.cocodataset.org"
    return (
        Archive(
            f"{host}/annotations/annotations_trainval{year}.zip",
            "coco",
            only=f"annotations/instances_val{year}.json",
        ),
        Archive(f"{host}/zips/val{year}.zip", "coco"),
    )


_VOC = "http://host.robots.ox.ac.uk/pascal/VOC"
ARCHIVES: Mapping[str, tuple[Archive, ...]] = {
    "voc2007": (Archive(f"{_VOC}/voc2007/VOCtest_06-Nov-2007.tar", md5="b6e924de25625d8de591ea690078ad9f"),),
    "voc2012": (Archive(f"{_VOC}/voc2012/VOCtrainval_11-May-2012.tar", md5="6cd6e144f989b92b3379bac3b3de84fd"),),
    "coco2014": _coco("2014"),
    "coco2017": _coco("2017"),
}


# ---------------------------------------------------------------------------------------------------------- status


@dataclass(frozen=True)
class Row:
    """What is known of one dataset."""

    dataset: str
    found: bool  # everything that the loader needs is there
    where: str
    images: int  # of the official list, on disk
    expected: int | None  # None: every copy differs
    how: str  # what to do if it is not complete

    @property
    def complete(self) -> bool:
        return self.found and self.images > 0 and self.expected in (None, self.images)


def status(root: Path) -> list[Row]:
    """A row for each dataset that lives on disk, and for each folder with a labels.csv."""
    rows = [examine(name, root) for name in LAYOUTS]
    for file in sorted(root.glob("*/labels.csv")):
        rows.append(Row(f"folder:{file.parent.name}", True, str(file.parent), _csv_lines(file), None, ""))
    return rows


def examine(name: str, root: Path) -> Row:
    layout = LAYOUTS[name]
    found = layout.search(root)
    folder, parts = found or (None, {})
    return Row(
        name,
        len(parts) == len(layout.parts),
        str(folder or ""),
        layout.count(parts),
        layout.listed,
        layout.remedy,
    )


def _csv_lines(file: Path) -> int:
    with file.open("rb") as lines:
        return max(0, sum(bool(line.strip()) for line in lines) - 1)


def show_status(root: Path, as_json: bool) -> None:
    rows = status(root)
    if as_json:
        print(json.dumps([{**asdict(row), "complete": row.complete} for row in rows], indent=1))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("dataset", "images", "where", "to do")
    for row in rows:
        images = f"{row.images:,}" + (f" of {row.expected:,}" if row.expected else "")
        remedy = "" if row.complete else row.how
        table.add_row(row.dataset, images if row.found else "not found", escape(row.where), escape(remedy))
    console = Console()
    console.print(f"data root: {root}", markup=False, highlight=False, soft_wrap=True)
    console.print(table)


# ------------------------------------------------------------------------------------------------------------- get


def get(name: str, root: Path, reporter: Reporter, archives: Mapping[str, tuple[Archive, ...]] = ARCHIVES) -> None:
    """Downloads, checks and unpacks what is not there yet.

    Raises:
        UsageError: the dataset can't be downloaded; the message says what to do instead.
        DownloadFailed: anything that the same command may overcome later.
    """
    if name not in archives:
        if name in LAYOUTS:
            raise UsageError(LAYOUTS[name].remedy)
        raise UnknownName("dataset to download", name, archives, f"There are: {', '.join(archives)}.")
    row = examine(name, root)
    if row.complete:
        reporter.line(f"{name} is in {row.where}, {row.images:,} images: nothing to do")
        return
    downloads = root / "downloads"
    with _disk(downloads), _alone(downloads):
        for archive in archives[name]:
            if archive.only and (root / archive.into / archive.only).is_file():
                continue
            file = fetch(archive, downloads, reporter)
            unpack(archive, file, root / archive.into, reporter)
            file.unlink()
    row = examine(name, root)
    if not row.complete:
        raise DownloadFailed(f"{name} is unpacked in {root}, but has {row.images:,} images instead of {row.expected:,}")
    reporter.line(f"{name} is in {row.where}, {row.images:,} images")


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    """A full or read-only disk in one line. Nothing that was downloaded is lost by it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DownloadFailed(f"no space left on the disk that holds {folder}; make room and {AGAIN}") from error
        raise DownloadFailed(f"can't write {error.filename or folder}: {error.strerror or error}") from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two commands must not write the same file."""
    lock = filelock.FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise DownloadFailed(f"another `ttabench data get` is busy in {folder}") from None
    try:
        yield
    finally:
        lock.release()
