"""Finding published weights: in a cache of this machine, or on the net after one short question to its host.

Who has no weights must be told so within seconds. So this module does without open_clip, whose import takes as long as
torch's, until there is something to download.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import constants, try_to_load_from_cache

from tta_bench.errors import UsageError, WeightsMissing
from tta_bench.system import paths
from tta_bench.system.files import file_digest

log = logging.getLogger(__name__)

PATIENCE = 3.0  # seconds for the host of the weights to answer
HF_EXTRA = 'pip install "ttabench[hf]"'
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
HUB_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")  # open_clip's names where none is given


@dataclass(frozen=True)
class Published:
    """Weights that open_clip publishes. All but its two names is what open_clip says of them (a test compares)."""

    architecture: str  # open_clip's name of the model config
    tag: str  # and of the weights
    repository: str = ""  # on the Hugging Face hub
    file: str = ""  # in that repository, if it has a name of its own
    url: str = ""  # elsewhere: OpenAI's own files, which many have from its package
    hf_tokenizer: bool = False  # its tokenizer is on the hub and needs transformers

    @property
    def source(self) -> str:
        return f"{host(constants.ENDPOINT)}/{self.repository}" if self.repository else self.url

    @property
    def cached(self) -> Path | None:
        """In the Hugging Face cache, or where open_clip and OpenAI's package keep what has an address."""
        names = (f"{Path(self.file).stem}.safetensors", self.file) if self.file else HUB_FILES
        found = [cached_file(self.repository, name) for name in names] if self.repository else []
        return next((file for file in found if file is not None), None) or self._cached_by_address()

    def _cached_by_address(self) -> Path | None:
        file = Path(paths.user(), ".cache/clip") / self.url.rpartition("/")[2]
        if not self.url or not file.is_file():
            return None
        expected = self.url.split("/")[-2]  # OpenAI's addresses hold the sha256 of what is behind them
        if re.fullmatch("[0-9a-f]{64}", expected) and file_digest(file) != expected:
            log.warning(
                "ttabench: warning: %s is not the file of %s (its sha256 differs; a download may have been cut short): "
                "passed over, better delete it",
                file,
                self.url,
            )
            return None
        return file


def cached_file(repository: str, name: str) -> Path | None:
    """A file of a repository in the Hugging Face cache."""
    found = try_to_load_from_cache(repository, name)
    return Path(found) if isinstance(found, str) and Path(found).is_file() else None


def revisions_of(files: Iterable[Path]) -> list[Path]:
    """The folders of the hub's cache that say which snapshot of a repository is the present one."""
    snapshots = {folder for file in files for folder in file.parents if folder.name == "snapshots"}
    return sorted(folder.with_name("refs") for folder in snapshots)


def find_weights(backbone: str, published: Published) -> Path:
    """The file with the weights, downloaded if no cache of this machine has it."""
    cached = published.cached
    if cached is not None:
        return cached
    what = f"the weights of {backbone} ({published.architecture}, {published.tag})"
    needs_extra = published.hf_tokenizer and not has_transformers()
    note = f"\nIts tokenizer will need transformers besides: {HF_EXTRA}" if needs_extra else ""
    reason = unreachable(constants.ENDPOINT if published.repository else published.url)
    if reason is not None:
        raise missing(what, published.source, reason, note)
    try:
        return _download(published)
    except Exception as error:  # any failure of a download has the same ways on
        raise missing(what, published.source, str(error), note) from error


def _download(published: Published) -> Path:
    from open_clip.pretrained import download_pretrained, get_pretrained_cfg

    return Path(download_pretrained(get_pretrained_cfg(published.architecture, published.tag)))


def unreachable(address: str) -> str | None:
    """Why the host can't be reached, or None if it answers anything at all. Takes `PATIENCE` at most."""
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    answer: list[str | None] = []

    def ask() -> None:
        try:
            with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PATIENCE):
                answer.append(None)
        except urllib.error.HTTPError:
            answer.append(None)
        except ValueError:
            answer.append(f"'{address}' is no address: it must begin with https:// or http://")
        except OSError as error:
            reason = getattr(error, "reason", error)
            distrusted = isinstance(reason, ssl.SSLCertVerificationError)  # so it answers; the download will say more
            answer.append(None if distrusted else f"no network: {reason}")

    asking = threading.Thread(target=ask, daemon=True)  # looking up a name knows no timeout, so it is left behind
    asking.start()
    asking.join(PATIENCE + 0.2)
    return answer[0] if answer else f"no network: {host(address)} does not answer within {PATIENCE:.0f} s"


def host(address: str) -> str:
    return urllib.parse.urlsplit(address).netloc


def missing(what: str, source: str, reason: str, note: str = "") -> WeightsMissing:
    reason = " ".join(reason.split())
    return WeightsMissing(
        f"{what} from {source} are not on this machine and can't be downloaded ({reason}).{note}\n"
        "Three ways on:\n"
        "  1. connect to the network and run the same command again\n"
        "  2. --weights FILE with these weights (.safetensors or .pt)\n"
        "  3. --backbone tiny: embedded, no download"
    )


def tokenizer_missing(backbone: str, source: str, folder: Path | None, reason: str) -> WeightsMissing:
    """`folder`: where the weights are, if they are in a file."""
    reason = " ".join(reason.split())
    lacking = [name for name in TOKENIZER_FILES if folder is None or not (folder / name).is_file()]
    place = "the weights, and name those with --weights FILE" if folder is None else f"the weights, into {folder}"
    return WeightsMissing(
        f"the tokenizer files of {backbone} from {source} are not on this machine and can't be downloaded ({reason}).\n"
        "Three ways on:\n"
        "  1. connect to the network and run the same command again\n"
        f"  2. put {' and '.join(lacking or TOKENIZER_FILES)} (and special_tokens_map.json and *.model, where the "
        f"repository has them) beside {place}\n"
        "  3. --backbone tiny: embedded, no download"
    )


def has_transformers() -> bool:
    return importlib.util.find_spec("transformers") is not None


def require_transformers(what: str) -> None:
    if not has_transformers():
        raise UsageError(f"{what} needs the package transformers: {HF_EXTRA}")
