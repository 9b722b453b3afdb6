"""MetaCLIP 2 worldwide: metaclip2-h14, a CLIP with a multilingual vocabulary.

Chuang et al., "MetaCLIP 2: A Worldwide Scaling Recipe", 2025.
"""

from __future__ import annotations

from typing import ClassVar

from tta_bench import hookimpl
from tta_bench.backbones._hub import Published
from tta_bench.backbones._pretrained import Pretrained


class MetaCLIP2(Pretrained):
    name: ClassVar[str] = "metaclip2-h14"
    title: ClassVar[str] = "MetaCLIP 2 H/14"
    published: ClassVar[Published] = Published(
        "ViT-H-14-worldwide-quickgelu",
        "metaclip2_worldwide",
        repository="timm/vit_huge_patch14_clip_224.metaclip2_worldwide",
        hf_tokenizer=True,
    )


@hookimpl
def ttabench_backbones() -> list[type[Pretrained]]:
    return [MetaCLIP2]
