"""Weights and tokenizers that are in a cache, on the net or nowhere: what is found, and what is said."""

from __future__ import annotations

import importlib.machinery
import os
import re
import ssl
import subprocess
import sys
import time
import types
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.download_fixtures import serve
from tests.unit.small_models import FAMILIES, TEXTS, cut_off, save
from tta_bench.backbones import _hub
from tta_bench.backbones._hub import unreachable
from tta_bench.backbones._pretrained import Pretrained, build_tokenizer, tokenizer_files
from tta_bench.backbones.clip import RN50, RN101, ViTB16, ViTB32
from tta_bench.backbones.eva02 import EVA02
from tta_bench.backbones.siglip2 import SigLIP2
from tta_bench.errors import UsageError, WeightsMissing
from tta_bench.system.files import file_digest


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cut_off(monkeypatch, tmp_path)


@pytest.fixture
def vit(monkeypatch: pytest.MonkeyPatch) -> type[Pretrained]:
    return FAMILIES["clip-vit"].shrink(monkeypatch)


# ------------------------------------------------------------------------------------------------------ no weights


def test_missing_weights_are_explained_with_three_ways_on() -> None:
    with pytest.raises(WeightsMissing) as caught:
        ViTB16.load("cpu")
    message = str(caught.value)
    for part in (
        "vit-b16 (ViT-B-16-quickgelu, openai)",
        "timm/vit_base_patch16_clip_224.openai",
        "no network: the tests have no network",
        "connect to the network",
        "--weights FILE",
        "--backbone tiny",
    ):
        assert part in message
    assert 3 <= len(message.splitlines()) <= 6
    assert caught.value.exit_code == 2


def test_a_host_that_never_answers_costs_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def silence(*_: Any, **__: Any) -> None:
        time.sleep(60)
        raise TimeoutError  # heard by nobody

    monkeypatch.setattr(_hub, "PATIENCE", 0.1)
    monkeypatch.setattr("urllib.request.urlopen", silence)
    started = time.monotonic()
    assert "does not answer" in str(unreachable("https://huggingface.co"))
    assert time.monotonic() - started < 5


def test_what_counts_as_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(*_: Any, **__: Any) -> None:
        raise urllib.error.HTTPError("https://x", 404, "Not Found", None, None)  # type: ignore[arg-type]

    monkeypatch.setattr("urllib.request.urlopen", not_found)
    assert unreachable("https://huggingface.co") is None  # it answered: what it lacks, the download will say
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert unreachable("https://huggingface.co") == "HF_HUB_OFFLINE is set"


def test_a_host_whose_certificate_is_refused_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    def distrust(*_: Any, **__: Any) -> None:
        raise urllib.error.URLError(ssl.SSLCertVerificationError("self-signed certificate in certificate chain"))

    monkeypatch.setattr("urllib.request.urlopen", distrust)
    assert unreachable("https://huggingface.co") is None


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:8080/hub", "https://mirror.example"])
def test_the_endpoint_is_asked_as_it_is_given(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    asked = []

    def refuse(request: urllib.request.Request, **_: Any) -> None:
        asked.append(request.full_url)
        raise urllib.error.URLError("refused")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
    with pytest.raises(WeightsMissing, match="refused"):
        EVA02.load("cpu")
    assert asked == [endpoint]


def test_a_plain_http_endpoint_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real network, but no farther than this machine
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve() as host:  # which knows no HEAD: an error is an answer, too
        assert unreachable(host.url) is None
    assert "no network" in str(unreachable(host.url))


def test_an_endpoint_that_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert unreachable("mirror.example") == "'mirror.example' is no address: it must begin with https:// or http://"


def test_a_failing_download_is_explained_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> None:
        raise OSError("the line went\ndead")

    monkeypatch.setattr(_hub, "unreachable", lambda _: None)
    monkeypatch.setattr(_hub, "_download", broken)
    with pytest.raises(WeightsMissing, match="the line went dead"):
        EVA02.load("cpu")


def cached_by_address(vit: type[Pretrained], backbone: Pretrained, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The weights where OpenAI's package keeps them, under an address that holds their sha256."""
    folder = home / ".cache" / "clip"
    folder.mkdir(parents=True)
    file = save(backbone, folder / "ViT-B-16.pt")
    url = f"https://openai.example/clip/models/{file_digest(file)}/ViT-B-16.pt"
    monkeypatch.setattr(vit, "published", replace(vit.published, url=url))
    return file


def test_a_truncated_file_in_the_cache_is_passed_over_with_a_line(
    vit: type[Pretrained], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = cached_by_address(vit, vit.random("cpu"), tmp_path, monkeypatch)
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(WeightsMissing, match="no network"):
        vit.load("cpu")
    (line,) = caplog.messages
    assert f"{file} is not the file of https://openai.example/clip/models/" in line
    assert "its sha256 differs" in line
    assert "\n" not in line


@pytest.mark.parametrize("backbone", [RN50, RN101, ViTB16, ViTB32])
def test_openais_addresses_hold_the_sha256(backbone: type[Pretrained]) -> None:
    assert re.fullmatch("[0-9a-f]{64}", backbone.published.url.split("/")[-2])


def test_weights_in_a_cache_are_found_without_asking_anybody(
    vit: type[Pretrained], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = vit.random("cpu")
    file = cached_by_address(vit, backbone, tmp_path, monkeypatch)
    assert torch.equal(vit.load("cpu").encode_texts(TEXTS), backbone.encode_texts(TEXTS))
    assert vit.load("cpu").sources == (file,)

    repository = tmp_path / "hub" / "models--timm--vit_base_patch16_clip_224.openai"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    (repository / "snapshots" / "abc").mkdir(parents=True)
    other = vit.random("cpu", seed=1)
    save(other, repository / "snapshots" / "abc" / "open_clip_model.safetensors")
    assert torch.equal(vit.load("cpu").encode_texts(TEXTS), other.encode_texts(TEXTS))


@pytest.mark.slow
def test_who_has_no_weights_does_not_wait_for_open_clip() -> None:
    """Importing it takes as long as importing torch: in all that would be more than the ten seconds to answer in."""
    program = """
import sys
sys.modules["open_clip"] = None
from tta_bench.backbones.clip import ViTB16
from tta_bench.errors import WeightsMissing
try:
    ViTB16.load("cpu")
except WeightsMissing as error:
    print(error)
"""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}  # and HOME is the test's own: nothing is cached there
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert "HF_HUB_OFFLINE is set" in done.stdout, done.stderr


# ------------------------------------------------------------------------------------------------------- tokenizers

SIGLIP_TEXT = {
    "hf_tokenizer_name": "timm/ViT-SO400M-14-SigLIP2",
    "context_length": 64,
    "tokenizer_kwargs": {"clean": "canonicalize"},
}


class FakeTokenizer:
    """One token per word, padded on the side that it is told: on the left by default, as a recent Gemma tokenizer."""

    def __init__(self) -> None:
        self.padding_side = "left"
        self.cleaned: list[str] = []

    def __call__(self, texts: list[str], max_length: int, **_: Any) -> Any:
        self.cleaned = texts
        rows = torch.zeros(len(texts), max_length, dtype=torch.long)
        for row, text in zip(rows, texts, strict=True):
            count = len(text.split())
            row[slice(0, count) if self.padding_side == "right" else slice(max_length - count, None)] = 7
        return types.SimpleNamespace(input_ids=rows)


class FakeTransformers(types.ModuleType):
    """The one call of `transformers` that open_clip makes; `sources` has files for these names only."""

    def __init__(self, *sources: str) -> None:
        super().__init__("transformers")
        self.__spec__ = importlib.machinery.ModuleSpec("transformers", None)
        self.asked: list[tuple[str, bool]] = []
        self.tokenizer = FakeTokenizer()

        def from_pretrained(name: str, cache_dir: str | None = None, local_files_only: bool = False) -> Any:
            self.asked.append((name, local_files_only))
            if name not in sources:
                raise OSError(f"{name} is not cached")
            return self.tokenizer

        self.AutoTokenizer = types.SimpleNamespace(from_pretrained=from_pretrained)


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)  # as if it were not installed
    with pytest.raises(UsageError, match=r'pip install "ttabench\[hf\]"'):
        build_tokenizer("siglip2-so400m14", SIGLIP_TEXT, None)
    with pytest.raises(WeightsMissing, match=r"ttabench\[hf\]"):
        SigLIP2.load("cpu")  # lacks both: one message tells both


def test_siglip_texts_are_canonicalised(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTransformers("timm/ViT-SO400M-14-SigLIP2")
    monkeypatch.setitem(sys.modules, "transformers", fake)
    tokenizer = build_tokenizer("siglip2-so400m14", SIGLIP_TEXT, None)
    assert tokenizer(["A Photo, of a cat."]).shape == (1, 64)
    assert fake.tokenizer.cleaned == ["a photo of a cat"]
    assert fake.asked == [("timm/ViT-SO400M-14-SigLIP2", True)]  # the cache was enough


@pytest.mark.parametrize("text", [SIGLIP_TEXT, {"hf_tokenizer_name": "timm/ViT-SO400M-14-SigLIP2"}])
def test_texts_are_padded_on_the_right_whatever_the_tokenizer_prefers(
    monkeypatch: pytest.MonkeyPatch, text: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", FakeTransformers("timm/ViT-SO400M-14-SigLIP2"))
    tokens = build_tokenizer("siglip2-so400m14", text, None)(["a photo of a cat"])
    assert tokens[0, :6].tolist() == [7, 7, 7, 7, 7, 0]
    assert not tokens[0, 5:].any()


def test_tokenizer_files_beside_the_checkpoint_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = FakeTransformers(str(tmp_path))
    monkeypatch.setitem(sys.modules, "transformers", fake)
    (tmp_path / "tokenizer.json").write_text("{}")
    build_tokenizer("siglip2-so400m14", SIGLIP_TEXT, tmp_path)
    assert fake.asked == [(str(tmp_path), True)]


def test_tokenizer_files_are_among_the_sources(tmp_path: Path) -> None:
    assert tokenizer_files({}, tmp_path) == []
    assert tokenizer_files(SIGLIP_TEXT, tmp_path) == []
    cached = tmp_path / "hub" / "models--timm--ViT-SO400M-14-SigLIP2"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("abc")
    (cached / "snapshots" / "abc").mkdir(parents=True)
    (cached / "snapshots" / "abc" / "tokenizer.json").write_text("{}")
    assert tokenizer_files(SIGLIP_TEXT, tmp_path) == [cached / "snapshots" / "abc" / "tokenizer.json"]
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert tokenizer_files(SIGLIP_TEXT, tmp_path) == [tmp_path / "tokenizer_config.json"]


def test_a_missing_tokenizer_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", FakeTransformers())
    with pytest.raises(
        WeightsMissing, match=r"tokenizer files of siglip2.*timm/ViT-SO400M-14-SigLIP2.*no network"
    ) as caught:
        build_tokenizer("siglip2-so400m14", SIGLIP_TEXT, tmp_path)
    message = str(caught.value)
    assert "put tokenizer.json and tokenizer_config.json" in message
    assert f"beside the weights, into {tmp_path}" in message
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(WeightsMissing, match=r"put tokenizer_config\.json \(and"):
        build_tokenizer("siglip2-so400m14", SIGLIP_TEXT, tmp_path)
    with pytest.raises(WeightsMissing, match="beside the weights, and name those with --weights FILE"):
        build_tokenizer("siglip2-so400m14", SIGLIP_TEXT, None)
