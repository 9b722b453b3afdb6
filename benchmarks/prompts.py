"""How much the exact short cuts of prompt tuning save: TPT on 80 classes with a text tower of ViT-B/16's size.

    python benchmarks/prompts.py [images]

Plain: every image runs all prompts at their full 77 tokens forth and back, and forth again with the tuned context.
Here: prompts end with the longest text, [start, context] is computed once for all classes, and the first forward once
for all images. Weights are random; the logits of both must agree.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import torch
from open_clip.model import CLIP
from open_clip.tokenizer import SimpleTokenizer
from torch import Tensor
from torch.nn.functional import normalize

from tta_bench.backbones._open_clip import OpenClip
from tta_bench.functional import select_confident
from tta_bench.functional.prompt_tuning import WORDS, marginal_entropy
from tta_bench.interfaces import Observation, Preprocess, Task
from tta_bench.methods.tpt import TPT

NAMES = (  # COCO's
    "person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,stop sign,parking meter,"
    "bench,bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,backpack,umbrella,handbag,tie,suitcase,frisbee,"
    "skis,snowboard,sports ball,kite,baseball bat,baseball glove,skateboard,surfboard,tennis racket,bottle,wine glass,"
    "cup,fork,knife,spoon,bowl,banana,apple,sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake,chair,couch,"
    "potted plant,bed,dining table,toilet,tv,laptop,mouse,remote,keyboard,cell phone,microwave,oven,toaster,sink,"
    "refrigerator,book,clock,vase,scissors,teddy bear,hair drier,toothbrush"
)
COCO = NAMES.split(",")
VIEWS = 64


def make_backbone() -> OpenClip:
    torch.manual_seed(0)
    vision = {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16}  # not used here
    text = {"context_length": 77, "vocab_size": 49408, "width": 512, "heads": 8, "layers": 12}
    model = CLIP(512, vision, text, quick_gelu=True)
    return OpenClip(model, SimpleTokenizer(), Preprocess(32), [0.5] * 3, [0.5] * 3, "random", "cpu", "fp32")


class Plain:
    """TPT as one would write it first."""

    def __init__(self, backbone: OpenClip, class_names: Sequence[str], scale: float, method: TPT) -> None:
        self.backbone, self.scale, self.method = backbone, scale, method
        self.tokens = backbone.tokenizer([f"{WORDS} {name}." for name in class_names])  # [C, 77]
        self.initial = backbone.init_context(WORDS)

    def text(self, context: Tensor) -> Tensor:
        model = self.backbone.model
        x = model.token_embedding(self.tokens)
        x = torch.cat([x[:, :1], context.expand(len(x), -1, -1), x[:, 1 + len(context) :]], dim=1)
        return self.backbone.text.features(x, self.tokens.argmax(dim=1))

    def step(self, views: Tensor) -> Tensor:
        context = self.initial.clone().requires_grad_()
        optimizer = torch.optim.AdamW([context], lr=self.method.lr, weight_decay=self.method.weight_decay)
        logits = self.scale * views @ self.text(context).T
        marginal_entropy(logits[select_confident(logits.detach(), self.method.keep)]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            return self.scale * self.text(context) @ views[0]


def main(images: int) -> None:
    backbone, scale, method = make_backbone(), 100.0, TPT()
    text = backbone.encode_texts([f"{WORDS} {name}." for name in COCO])
    plain = Plain(backbone, COCO, scale, method)
    method.start(Task(COCO, text, text[:, None], scale, prompts=backbone))
    noise = torch.randn(images, VIEWS, 512, generator=torch.Generator().manual_seed(1))
    views = normalize(normalize(noise, dim=-1) + text[torch.arange(images) % len(text)][:, None], dim=-1)

    began = time.perf_counter()
    expected = torch.stack([plain.step(v) for v in views])
    plain_seconds = (time.perf_counter() - began) / images
    method.step(Observation(0, views[0, 0], {"views": views[0, 1:]}))  # warm, as the plain one's first is one of many
    began = time.perf_counter()
    with torch.no_grad():
        actual = torch.stack([method.step(Observation(i, v[0], {"views": v[1:]})) for i, v in enumerate(views)])
    seconds = (time.perf_counter() - began) / images

    threads = torch.get_num_threads()
    print(f"{len(COCO)} classes, {VIEWS} views, {images} images, {threads} threads, torch {torch.__version__}")
    print(f"plain       {1 / plain_seconds:8.2f} images/s")
    print(f"short cuts  {1 / seconds:8.2f} images/s   {plain_seconds / seconds:.1f} times as fast")
    print(f"largest difference of the logits {float((actual - expected).abs().max()):.1e} (scale {scale:.0f})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
