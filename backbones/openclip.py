"""Any other model that open_clip publishes, by its own names: openclip:MODEL/TAG."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from open_clip import list_pretrained
from open_clip.factory import get_model_config
from open_clip.pretrained import get_pretrained_cfg

from tta_bench import hookimpl
from tta_bench.backbones._hub import Published
from tta_bench.backbones._pretrained import Pretrained
from tta_bench.errors import UnknownName, UsageError

HOW = "write openclip:MODEL/TAG, for example openclip:ViT-L-14/openai"


class OpenClipModel(Pretrained):
    """One of open_clip's models; which one stands behind the colon."""

    name: ClassVar[str] = "openclip"

    @classmethod
    def load(cls, device: str, weights: Path | None = None, precision: str = "fp32") -> Self:
        cls._require_name()
        return super().load(device, weights, precision)

    @classmethod
    def random(cls, device: str, precision: str = "fp32", seed: int = 0) -> Self:
        cls._require_name()
        return super().random(device, precision, seed)

    @classmethod
    def _require_name(cls) -> None:
        if cls is OpenClipModel:
            raise UsageError(f"--backbone openclip: {HOW}")

    @classmethod
    def named(cls, spec: str) -> type[Pretrained]:
        """The backbone of "MODEL/TAG"."""
        architecture, slash, tag = spec.rpartition("/")
        if not slash:
            raise UsageError(f"--backbone openclip:{spec}: {HOW}")
        architecture = architecture.replace("/", "-")  # open_clip takes ViT-B/32 for ViT-B-32 too
        tags: dict[str, list[str]] = {}
        for model, weights in list_pretrained():
            tags.setdefault(model, []).append(weights)
        if architecture not in tags:
            raise UnknownName("open_clip model", architecture, tags, "open_clip.list_pretrained() shows all of them.")
        if tag not in tags[architecture]:
            there = ", ".join(tags[architecture])
            raise UnknownName(f"weights of {architecture}", tag, tags[architecture], f"There are: {there}.")
        return type("Named", (cls,), {"name": f"openclip:{spec}", "published": _published(architecture, tag)})


def _published(architecture: str, tag: str) -> Published:
    weights = get_pretrained_cfg(architecture, tag)
    repository, _, file = weights["hf_hub"].rpartition("/")
    of_hub = "hf_tokenizer_name" in get_model_config(architecture)["text_cfg"]
    return Published(architecture, tag, repository, file, weights["url"], of_hub)


@hookimpl
def ttabench_backbones() -> list[type[Pretrained]]:
    return [OpenClipModel]
