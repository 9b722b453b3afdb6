"""Reading and writing files: a crash, a full disk or a second process never leaves half of one."""

from __future__ import annotations

import codecs
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tta_bench.errors import BadData, StoreError, UsageError


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns what an operating system says about a full or read-only disk into one readable line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(f"no space left on the disk that holds {path}; nothing half-written was kept") from error
        if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.ELOOP):
            raise StoreError(
                f"can't write {path}: {error.filename} is a file or a broken link, not a folder"
            ) from error
        raise StoreError(f"can't write {path}: {error.strerror or error}") from error


def write_atomically(path: Path, content: bytes, durable: bool = True) -> None:
    """`path` holds the old content or the new, never a mixture. What is not `durable` may be lost or damaged if the
    machine goes down at once: for whatever is checked when it is read, and can be made again."""
    with disk_errors(path):
        path = Path(os.path.realpath(path)) if path.is_symlink() else path  # what a link leads to is meant
        if path.exists() and not path.is_file():
            what = "a folder: name a file in it" if path.is_dir() else "a pipe or a device"
            raise StoreError(f"can't write {path}: it is {what}")
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            os.fchmod(descriptor, 0o644)  # mkstemp's 0600 would lock colleagues out of a shared store
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.replace(name, path)  # noqa: PTH105  # the temporary name is a string from mkstemp
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def expanded(path: Path | str) -> Path:
    """With the user's folder in place of ~. A container or a cluster's job may be of a user whom nobody knows."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"{path}: no such user here, or one without a home: write the path in full") from None


def read_utf8(path: Path) -> str:
    """A file's text, with or without a byte order mark. Raises `BadData` that says where it is not UTF-8."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadData(f"{path}: can't be read: {error.strerror or error}") from error
    mark = len(codecs.BOM_UTF8) if content.startswith(codecs.BOM_UTF8) else 0
    try:
        return content[mark:].decode()
    except UnicodeDecodeError as error:
        wrong = mark + error.start
        line = content.count(b"\n", 0, wrong) + 1
        raise BadData(
            f"{path}, line {line}: not UTF-8 (byte {wrong:,} is 0x{content[wrong]:02x}); save the file as UTF-8"
        ) from error


def parse_json(text: str, keep: Callable[[dict[str, Any]], dict[str, Any]] = dict) -> Any:
    """What people write as JSON: raises a ValueError for whatever can't be read, and for a key that is there twice, of
    which `json.loads` forgets the first. `keep` says what to keep of an object while the rest is being parsed."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            raise ValueError(f"'{next(key for key in keys if keys.count(key) > 1)[:80]}' is in it twice")
        return keep(found)

    try:
        return json.loads(text, object_pairs_hook=once)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def canonical_json(value: Any) -> str:
    """One text for one value, whatever the order of its keys: what digests are made of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any) -> str:
    """sha256 of a JSON-like value, a string or bytes."""
    if not isinstance(value, bytes):
        text = value if isinstance(value, str) else canonical_json(value)
        value = text.encode(errors="surrogatepass")  # of a path that is not UTF-8
    return hashlib.sha256(value).hexdigest()


def file_digest(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))  # opening a FIFO would wait for ever
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def bytes_on_disk(folder: Path) -> int:
    """What a folder's files take: one with holes (features that are not all encoded) takes less than its length."""
    found = 0
    for file in folder.rglob("*"):
        try:
            found += file.lstat().st_blocks * 512
        except OSError:  # gone meanwhile
            continue
    return found
