"""CLIP with OpenAI's weights: rn50, rn101, vit-b32 and vit-b16.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from tta_bench import hookimpl
from tta_bench.backbones._hub import Published
from tta_bench.backbones._pretrained import Pretrained

FILES = "https://openaipublic.azureedge.net/clip/models/"


class OpenAI(Pretrained):
    """Trained with QuickGELU, x · sigmoid(1.702 x). With GELU the same weights give features that are slightly off."""

    @classmethod
    def check(cls, model: Any) -> None:
        from open_clip.transformer import QuickGELU

        kinds = {type(module) for module in model.modules()}
        if QuickGELU not in kinds or nn.GELU in kinds:
            raise RuntimeError(f"{cls.name} was built without QuickGELU")


class RN50(OpenAI):
    name: ClassVar[str] = "rn50"
    title: ClassVar[str] = "RN50"
    published: ClassVar[Published] = Published(
        "RN50-quickgelu",
        "openai",
        repository="timm/resnet50_clip.openai",
        url=FILES + "afeb0e10f9e5a86da6080e35cf09123aca3b358a0c3e3b6c78a7b63bc04b6762/RN50.pt",
    )


class RN101(OpenAI):
    name: ClassVar[str] = "rn101"
    title: ClassVar[str] = "RN101"
    published: ClassVar[Published] = Published(
        "RN101-quickgelu",
        "openai",
        repository="timm/resnet101_clip.openai",
        url=FILES + "8fa8567bab74a42d41c5915025a8e4538c3bdbe8804a470a72f30b0d94fab599/RN101.pt",
    )


class ViTB32(OpenAI):
    name: ClassVar[str] = "vit-b32"
    title: ClassVar[str] = "ViT-B/32"
    published: ClassVar[Published] = Published(
        "ViT-B-32-quickgelu",
        "openai",
        repository="timm/vit_base_patch32_clip_224.openai",
        url=FILES + "40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af/ViT-B-32.pt",
    )


class ViTB16(OpenAI):
    name: ClassVar[str] = "vit-b16"
    title: ClassVar[str] = "ViT-B/16"
    published: ClassVar[Published] = Published(
        "ViT-B-16-quickgelu",
        "openai",
        repository="timm/vit_base_patch16_clip_224.openai",
        url=FILES + "5806e77cd80f8b59890b7e101eabd078d9fb84e6937f9e85e4ecb61988df416f/ViT-B-16.pt",
    )


@hookimpl
def ttabench_backbones() -> list[type[Pretrained]]:
    return [RN50, RN101, ViTB32, ViTB16]
