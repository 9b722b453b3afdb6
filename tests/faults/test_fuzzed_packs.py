"""Feature packs and caption corpora, damaged or edited at random: refused in one line, or sound all through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

from tests.faults.fuzzing import altered, damaged, few_and_many, for_all, outcome
from tta_bench.errors import TTABenchError
from tta_bench.features import pack as packs
from tta_bench.features.pack import Pack
from tta_bench.features.pack_source import PackBackbone, PackDataset, PackedPrompts, PackedViews
from tta_bench.interfaces import LARGEST_SCALE, Task
from tta_bench.prompts import captions
from tta_bench.views import Original, Plain


def header_of(content: bytes) -> tuple[dict[str, Any], bytes]:
    """A safetensors file's table of contents, with the JSON in its metadata read as well, and the tensors' bytes."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    metadata = header.get("__metadata__", {})
    header["__metadata__"] = {key: _read(value) for key, value in metadata.items()}
    return header, content[8 + length :]


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def with_header(header: Any, tensors: bytes) -> bytes:
    if isinstance(header, dict) and isinstance(metadata := header.get("__metadata__"), dict):
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
        header = header | {"__metadata__": texts}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + tensors


def use(file: Path) -> None:
    """All that a run takes from a pack is sound, or it is refused."""
    pack = Pack(file)
    packs.info(file)
    faults = packs.verify(file)
    assert all("\n" not in fault for fault in faults)
    dataset, backbone = PackDataset(pack), PackBackbone(pack)
    assert len(dataset) == len(set(pack.ids)) > 0
    assert len(set(pack.class_names)) == len(pack.class_names) == pack.labels.shape[1]
    assert all(set(dataset[i].labels.tolist()) <= {-1, 0, 1} for i in range(len(dataset)))
    assert 0 < backbone.logit_scale <= LARGEST_SCALE
    assert abs(backbone.logit_bias) <= LARGEST_SCALE
    for prompt in pack.prompts:
        bank, text = PackedPrompts.of(pack, prompt).encode(backbone)
        check_unit(bank)
        check_unit(text)
    for recipe in (Original(), Plain(3)):
        views = PackedViews(pack, recipe)
        for i in range(len(dataset)):
            assert views.read(i).shape == (recipe.count, pack.embed_dim)
            check_unit(views.read(i))


def check_unit(features: torch.Tensor) -> None:
    assert ((features.norm(dim=-1) - 1).abs() < 0.02).all()


@few_and_many
def test_a_damaged_pack_is_refused_or_sound(toy_pack: Path, examples: int) -> None:
    def check(content: bytes) -> None:
        toy_pack.write_bytes(content)
        outcome(lambda: use(toy_pack))

    use(toy_pack)
    for_all(examples, damaged(toy_pack.read_bytes()), check)


@few_and_many
def test_a_pack_with_another_table_of_contents_is_refused_or_sound(toy_pack: Path, examples: int) -> None:
    header, tensors = header_of(toy_pack.read_bytes())

    def check(other: Any) -> None:
        toy_pack.write_bytes(with_header(other, tensors))
        outcome(lambda: use(toy_pack))

    toy_pack.write_bytes(with_header(header, tensors))
    use(toy_pack)
    for_all(examples, altered(header), check)


# ----------------------------------------------------------------------------------------------------------- captions


class Encoder:
    """A backbone of eight features, as far as captions ask for one."""

    name, fingerprint = "some", "digest"

    def encode_texts(self, texts: Any) -> torch.Tensor:
        seeds = [sum(text.encode()) for text in texts]
        return normalize(
            torch.stack([torch.randn(8, generator=torch.Generator().manual_seed(s)) for s in seeds]), dim=-1
        )


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "corpus.safetensors"
    captions.build("template", ["dog", "cat"], Encoder(), file)  # type: ignore[arg-type]
    return file


def task() -> Task:
    text = Encoder().encode_texts(["dog", "cat"])
    return Task(["dog", "cat"], text, text[:, None], 100.0, encode_texts=Encoder().encode_texts)


def check_corpus(file: Path) -> None:
    loaded = outcome(lambda: captions.load(file, task()))
    if loaded is not None:
        embeddings, sizes = loaded
        check_unit(embeddings)
        assert embeddings.dtype == torch.float32
        assert not sizes.is_floating_point()
        assert (sizes > 0).all()


@few_and_many
def test_a_damaged_corpus_is_refused_or_sound(corpus: Path, examples: int) -> None:
    def check(content: bytes) -> None:
        corpus.write_bytes(content)
        check_corpus(corpus)

    captions.load(corpus, task())
    for_all(examples, damaged(corpus.read_bytes()), check)


@few_and_many
def test_a_corpus_with_another_table_of_contents_is_refused_or_sound(corpus: Path, examples: int) -> None:
    header, tensors = header_of(corpus.read_bytes())

    def check(other: Any) -> None:
        corpus.write_bytes(with_header(other, tensors))
        check_corpus(corpus)

    for_all(examples, altered(header), check)


@pytest.mark.parametrize("spoil", ["nan", "long", "whole numbers", "no label"])
def test_a_corpus_of_impossible_captions_is_refused(corpus: Path, spoil: str) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(corpus)
    if spoil == "nan":
        tensors["embeddings"][3, 3] = torch.nan
    elif spoil == "long":
        tensors["embeddings"][3] *= 3
    elif spoil == "whole numbers":
        tensors["embeddings"] = tensors["embeddings"].int()
    else:
        tensors["sizes"][3] = 0
    header, _ = header_of(corpus.read_bytes())
    save_file(tensors, corpus, {"about": json.dumps(header["__metadata__"]["about"])})
    with pytest.raises(TTABenchError, match="not a caption corpus"):
        captions.load(corpus, task())
