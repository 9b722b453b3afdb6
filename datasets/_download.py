"""Which part of an official dataset is here, and fetching the rest: behind `ttabench data status` and `data get`.

Archives are kept in `<data-root>/downloads` until they are unpacked; the same call goes on from where the last one
stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import filelock

from tta_bench.datasets._archives import Archive, unpack
from tta_bench.datasets._layout import Layout
from tta_bench.downloads import DataStatus
from tta_bench.errors import UsageError
from tta_bench.system.fetching import DownloadFailed, fetch, writable
from tta_bench.system.progress import Reporter


def examine(layout: Layout, root: Path) -> DataStatus:
    """What of the dataset is below `root`, without decoding an image or reading a large annotation file."""
    folder, parts = layout.search(root) or (None, {})
    found, images = len(parts) == len(layout.parts), layout.count(parts)
    how = layout.gaps if found and images and layout.gaps else layout.hint or layout.remedy
    return DataStatus(layout.name, found, str(folder or ""), images, layout.listed, how)


def get(layout: Layout, archives: Sequence[Archive], root: Path, reporter: Reporter) -> None:
    """Downloads, checks and unpacks what is not there yet.

    Raises:
        UsageError: the dataset can't be downloaded; the message says what to do instead.
        DownloadFailed: anything that the same command may overcome later.
    """
    if not archives:
        raise UsageError(layout.remedy)
    before = examine(layout, root)
    if before.complete:
        reporter.line(f"{layout.name} is in {before.where}, {before.images:,} images: nothing to do")
        return
    downloads = root / "downloads"
    with writable(downloads), _alone(downloads):
        for archive in archives:
            if archive.only and (root / archive.into / archive.only).is_file():
                continue
            file = fetch(archive, downloads, reporter)
            unpack(archive, file, root / archive.into, reporter)
            file.unlink()
    after = examine(layout, root)
    if not after.complete:
        raise DownloadFailed(
            f"{layout.name} is unpacked in {root}, but has {after.images:,} images instead of {after.expected:,}"
        )
    reporter.line(f"{layout.name} is in {after.where}, {after.images:,} images")


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
