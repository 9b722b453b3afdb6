"""In what order a stream shows its images. Features are stored by image, so another order encodes nothing again.

An order may use labels: it is a property of the stream, like the choice of the images, and no method is told which it
is. No library's random numbers are in it: whatever is random is a sort by hash(seed, id), the same everywhere and for
ever. docs/protocol.md has the definitions.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tta_bench.errors import BadData, UsageError
from tta_bench.system.names import SHUFFLED, order_name
from tta_bench.system.text import counted

Labels = np.ndarray[Any, np.dtype[np.int8]]

NO_LABEL = -1  # in place of an image's rarest label


def stream_order(
    ids: Sequence[str], order: str, seed: int, labels: Labels | None = None, domains: Sequence[str] | None = None
) -> list[int]:
    """The dataset's indices in stream order.

    Args:
        ids: of all images, in the dataset's order.
        order: one of `names.CHOICES`.
        seed: of the run; `shuffled:K` is the permutation of seed K whatever the run's (other orders of the same views).
        labels: [N, C], for the orders that look at them.
        domains: of each image, where the dataset declares them.
    """
    kind, _, number = order_name(order, seed).partition(":")
    if kind == "sequential":
        return list(range(len(ids)))
    salt = f"order/{number if kind == SHUFFLED and number else seed}/"
    shuffled = list(_shuffled(tuple(ids), salt))
    if kind == SHUFFLED:
        return shuffled
    if kind == "domains":
        domain_of = _checked(domains, len(ids))
        in_turn = list(dict.fromkeys(domain_of))  # as the dataset first names them
        return sorted(shuffled, key=lambda i: in_turn.index(domain_of[i]))  # stable: shuffled within a domain
    if labels is None:
        raise ValueError(f"order {order} is made from labels")
    rarest, place = _rarest_labels(labels)
    by_label = sorted(shuffled, key=lambda i: place[rarest[i]])
    if kind == "rarest":
        return by_label
    bursts = _cut([rarest[i] for i in by_label], int(number))
    bursts.sort(key=lambda burst: _hash(f"bursts/{seed}/", ids[by_label[burst.start]]))
    return [by_label[position] for burst in bursts for position in burst]


@functools.lru_cache(maxsize=8)  # the methods of a grid share their streams
def _shuffled(ids: tuple[str, ...], salt: str) -> tuple[int, ...]:
    return tuple(sorted(range(len(ids)), key=lambda i: _hash(salt, ids[i])))


def _hash(salt: str, name: str) -> bytes:
    return hashlib.sha256((salt + name).encode()).digest()


def _checked(domains: Sequence[str] | None, size: int) -> Sequence[str]:
    if domains is None:
        raise UsageError("--order domains: the dataset (or pack) does not say which domain each image is of")
    if len(domains) != size:
        raise BadData(f"the dataset has {counted(len(domains), 'domain')} for {counted(size, 'image')}")
    return domains


def _rarest_labels(labels: Labels) -> tuple[list[int], dict[int, int]]:
    """The rarest label of each image, and the classes' places from the rarest to the most frequent.

    A class is as frequent as it has positive images in the whole dataset; of equal ones the first in the class list is
    the rarer. Ignored labels count nowhere. Images without a label are a group of their own, behind all others.
    """
    positives = (labels == 1).sum(axis=0)  # [C]
    rare_first = np.argsort(positives, kind="stable").tolist()
    place = {c: p for p, c in enumerate(rare_first)} | {NO_LABEL: len(rare_first)}
    found = [min(np.flatnonzero(row == 1).tolist(), key=place.__getitem__, default=NO_LABEL) for row in labels]
    return found, place


def _cut(groups: Sequence[int], length: int) -> list[range]:
    """Positions of runs of at most `length` neighbours of one group; the last run of a group may be shorter."""
    runs: list[range] = []
    for position, group in enumerate(groups):
        last = runs[-1] if runs else range(0)
        if 0 < len(last) < length and groups[last.start] == group:
            runs[-1] = range(last.start, position + 1)
        else:
            runs.append(range(position, position + 1))
    return runs
