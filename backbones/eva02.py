"""EVA-02-CLIP: eva02-b16, a CLIP with an EVA-02 image tower.

Sun et al., "EVA-CLIP: Improved Training Techniques for CLIP at Scale", 2023.
"""

from __future__ import annotations

from typing import ClassVar

from tta_bench import hookimpl
from tta_bench.backbones._hub import Published
from tta_bench.backbones._pretrained import Pretrained


class EVA02(Pretrained):
    name: ClassVar[str] = "eva02-b16"
    title: ClassVar[str] = "EVA02-B/16"
    published: ClassVar[Published] = Published(
        "EVA02-B-16", "merged2b_s8b_b131k", repository="timm/eva02_base_patch16_clip_224.merged2b_s8b_b131k"
    )


@hookimpl
def ttabench_backbones() -> list[type[Pretrained]]:
    return [EVA02]
