"""Where a pack is: a path, `hf:ORG/REPO/FILE[@REVISION]`, or `https://…#sha256=…`. All become a file on this machine.

A pack's sha256 is part of the protocol of every run on it, wherever it came from. Of an address on the web it must be
said beforehand, so that what is there today is what was meant; of the hub a revision can be.
"""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from tta_bench.errors import BadData, UsageError
from tta_bench.system.fetching import Checksum, fetch, writable
from tta_bench.system.files import expanded, file_digest
from tta_bench.system.locks import lock_on
from tta_bench.system.progress import Reporter

HUB = "hf:"
WEB = ("https:", "http:")
MARK = "#sha256="
SHA256 = re.compile("[0-9a-f]{64}")
HUB_EXAMPLE = "hf:ORG/REPO/FILE.safetensors, with @REVISION behind it for one state of the repository"


def locate(address: str | Path, home: Path, reporter: Reporter) -> Path:
    """The pack's file on this machine, downloaded if it is not here yet.

    Args:
        address: a path, or one of the addresses above.
        home: of ttabench; what comes from the web is kept in its `packs/`, what comes from the hub in the hub's cache.
        reporter: hears of downloads.

    Raises:
        UsageError: it is no address, or there is no such file.
        BadData: the file is not the one that the address means.
        DownloadFailed: anything that the same call may overcome later.
    """
    scheme = "" if isinstance(address, Path) else address.partition(":")[0].lower() + ":"
    if isinstance(address, Path) or scheme not in (HUB, *WEB):
        return expanded(address)
    address = scheme + address[len(scheme) :]
    place, mark, digest = address.partition(MARK)
    digest = digest.lower()
    if mark and not SHA256.fullmatch(digest):
        raise UsageError(f"{address}: behind {MARK} belong the 64 hexadecimal digits of the pack's sha256")
    if place.startswith(HUB):
        return _from_hub(HubFile.parse(place), digest)
    if not mark:
        raise UsageError(
            f"{address}: what is there may change, so say which file is meant: {place}{MARK}… (its publisher should "
            "name it; of a file that is here, `ttabench pack info FILE` shows it as fingerprint)"
        )
    return _from_web(WebFile(place, digest), home / "packs", reporter)


# ------------------------------------------------------------------------------------------------------------- the web


@dataclass(frozen=True)
class WebFile:
    """A pack at an address. It is kept under its sha256: the same pack from another host is the same file."""

    url: str
    sha256: str
    mirrors: tuple[str, ...] = ()
    size: int | None = None

    def __post_init__(self) -> None:
        try:
            parts = urllib.parse.urlsplit(self.url)
            sound = parts.hostname and parts.port != 0 and not (parts.username or parts.password)
        except ValueError:  # brackets that don't close, a port beyond all ports
            sound = False
        if not sound:
            raise UsageError(f"{self.url}: an address is https://HOST/PATH, without a name or password in it")

    @property
    def file_name(self) -> str:
        return f"{self.sha256}.safetensors"

    @property
    def checksum(self) -> Checksum:
        return Checksum("sha256", self.sha256)


def _from_web(remote: WebFile, folder: Path, reporter: Reporter) -> Path:
    with writable(folder), lock_on(folder / f".{remote.sha256}.lock"):  # a second process waits
        file = folder / remote.file_name
        if file.is_file() and file_digest(file) != remote.sha256:
            reporter.warn(f"{file} has been changed since it was downloaded: fetching it again")
            file.unlink()
        return fetch(remote, folder, reporter)


# ------------------------------------------------------------------------------------------------------------- the hub


@dataclass(frozen=True)
class HubFile:
    """A file of a dataset repository on the Hugging Face hub."""

    repository: str
    name: str
    revision: str | None

    @classmethod
    def parse(cls, text: str) -> HubFile:
        path, _, revision = text.removeprefix(HUB).partition("@")
        parts = path.split("/")
        if len(parts) < 3 or not all(parts) or ".." in parts or ("@" in text and not revision):
            raise UsageError(f"{text}: write {HUB_EXAMPLE}")
        return cls("/".join(parts[:2]), "/".join(parts[2:]), revision or None)

    def __str__(self) -> str:
        return f"{HUB}{self.repository}/{self.name}" + (f"@{self.revision}" if self.revision else "")


def _from_hub(wanted: HubFile, digest: str) -> Path:
    """Through the hub's own cache, which serves offline too; HF_ENDPOINT, HF_HUB_OFFLINE and tokens are its own."""
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        found = hf_hub_download(wanted.repository, wanted.name, repo_type="dataset", revision=wanted.revision)
    except LocalEntryNotFoundError as error:
        reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else _in_short(error.__cause__ or error)
        raise UsageError(
            f"{wanted} is not on this machine and can't be had from {constants.ENDPOINT} ({reason}): run the same "
            "command again once it can, or name a file that is here"
        ) from error
    except HFValidationError as error:
        raise UsageError(f"{wanted}: write {HUB_EXAMPLE}") from error
    except Exception as error:  # the hub's client raises those of three libraries; all mean that there is no file
        raise UsageError(f"{wanted}: {_in_short(error)}; the same command tries again") from error
    file = Path(found)
    _check(wanted, file, digest)
    return file


def _check(wanted: HubFile, file: Path, digest: str) -> None:
    """The client compares lengths only. The hub names large files by their sha256, and so does the client's cache."""
    named = file.resolve().name
    expected = [name for name in (digest, named) if SHA256.fullmatch(name)]
    if not expected:
        return
    found = file_digest(file)
    for name, who in ((digest, "the address"), (named, "the hub")):
        if name in expected and name != found:
            raise BadData(
                f"{wanted}: what is here is not the file that {who} means (its sha256 is {found}, not {name}); "
                f"delete {file.resolve()} to download it anew"
            )


def _in_short(error: BaseException) -> str:
    """The client writes paragraphs."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])[:200].rstrip(".") if lines else type(error).__name__
