"""Whether a pack's features are what their names say, as far as they show it.

Views of our recipes are drawn from their image: none is the whole of it, no two are alike, and together they are more
like it than like another one. No two images, and no two classes, have the very same features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.nn.functional import normalize

from tta_bench.features.pack import Pack, of_ours

LOOKED_AT = 8  # images
RELATED = 0.4  # cosine, of any two photos; of random numbers nothing is told
ALIKE = 0.01  # distance of two features; that of another crop is some tenths


def oddities(pack: Pack, recipes: Sequence[str]) -> Iterator[str]:
    """A sentence for each of these packed recipes whose views are not drawn, or not from their image. Of plugins'
    nothing is known."""
    places = sorted({len(pack) * k // LOOKED_AT for k in range(LOOKED_AT)})
    if len(places) < 2:
        return
    image = torch.stack([pack.image(index) for index in places])  # [I, 1, D]
    if _alike(image[0], image[1:]).all():
        return  # then nothing is told by what is alike
    for recipe in recipes:
        if (ours := of_ours(recipe)) is None:
            continue
        views = torch.stack([pack.views(recipe, index) for index in places])  # [I, V, D]
        if ours.seeded:
            yield from _not_drawn(recipe, views, image)
        similar = normalize(views.mean(1), dim=-1) @ image[:, 0].T  # [I, I]
        at_home = int((similar.argmax(dim=1) == torch.arange(len(places))).sum())
        related = similar.max(dim=1).values.median() > RELATED
        if related and 2 * at_home < len(places):
            yield (
                f"views of {recipe} are like other images' more than like their own, for {len(places) - at_home} of "
                f"{len(places)} images: they may be in another order"
            )


def _not_drawn(recipe: str, views: torch.Tensor, image: torch.Tensor) -> Iterator[str]:
    whole = _alike(views, image)  # [V]
    if whole.any():
        yield f"view {int(whole.int().argmax())} of {recipe} is the whole image, which that recipe never shows"
    same = (torch.cdist(views, views) < ALIKE).all(dim=0).triu(diagonal=1).nonzero()  # pairs
    if len(same):
        one, other = same[0].tolist()
        yield f"views {one} and {other} of {recipe} are the same, where each should be drawn for itself"


def copies(pack: Pack, prompts: Sequence[str]) -> Iterator[str]:
    """A sentence if images, or classes by one of these prompts, have the same features, bit by bit."""
    twice = len(pack) - len(set(_rows("image", pack)))
    if twice:
        yield f"of {len(pack):,} images {twice:,} have the very features of another one"
    for prompt in prompts:
        rows = _rows(f"text/{prompt}", pack)
        if (twice := len(rows) - len(set(rows))) and len(rows) > 1:
            yield f"of {len(rows):,} classes {twice:,} have the very texts' features of another one (prompt {prompt})"


def _rows(name: str, pack: Pack) -> list[int]:
    """A number for each, which is the same where the bytes are."""
    found: list[int] = []
    for chunk in pack.chunks(name):
        content = chunk.reshape(len(chunk), -1).contiguous().view(torch.uint8).numpy()
        found += [hash(row.tobytes()) for row in content]
    return found


def _alike(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Whether features are so in all images: [I, …, D] -> […]."""
    close: torch.Tensor = (one - other).norm(dim=-1) < ALIKE
    return close.all(dim=0)
