"""SigLIP 2: siglip2-so400m14, trained with a sigmoid loss: it has a logit bias beside its scale.

Its texts are canonicalised (lower case, no punctuation) and padded to 64 tokens, its images squashed to a square.
Tschannen et al., "SigLIP 2: Multilingual Vision-Language Encoders", 2025.
"""

from __future__ import annotations

from typing import ClassVar

from tta_bench import hookimpl
from tta_bench.backbones._hub import Published
from tta_bench.backbones._pretrained import Pretrained


class SigLIP2(Pretrained):
    name: ClassVar[str] = "siglip2-so400m14"
    title: ClassVar[str] = "SigLIP 2 SO400M/14"
    published: ClassVar[Published] = Published(
        "ViT-SO400M-14-SigLIP2", "webli", repository="timm/ViT-SO400M-14-SigLIP2", hf_tokenizer=True
    )


@hookimpl
def ttabench_backbones() -> list[type[Pretrained]]:
    return [SigLIP2]
