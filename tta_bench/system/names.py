"""The one name of what may be asked for under several: in records, tables and files it has that one."""

from __future__ import annotations

from tta_bench.errors import UsageError

SHUFFLED = "shuffled"
CHOICES = "shuffled, shuffled:K, sequential, rarest, bursts:B (B from 2) or domains"
NUMBERED = {SHUFFLED: 0, "bursts": 2}  # kinds that take a number -> the least that makes sense


def order_name(order: str, seed: int) -> str:
    """The same stream must not count as a second replicate. Refuses what is no order."""
    kind, colon, number = order.partition(":") if isinstance(order, str) else ("", "", "")
    if order in (SHUFFLED, "sequential", "rarest", "domains"):
        return order
    whole = number.isascii() and number.isdecimal() and len(number) < 16
    if not colon or kind not in NUMBERED or not whole or int(number) < NUMBERED[kind]:
        raise UsageError(f"--order {order}: choose {CHOICES}")
    return SHUFFLED if (kind, int(number)) == (SHUFFLED, seed) else f"{kind}:{int(number)}"


def kind_of(order: str) -> str:
    """What orders may be averaged: all shuffles are of one kind, every other order is its own."""
    return SHUFFLED if order.startswith(f"{SHUFFLED}:") else order


def dataset_name(dataset: str) -> str:
    """NAME or NAME:VARIANT. One variant must not stand in tables under three names."""
    name, _, variant = dataset.partition(":")
    return name if variant in ("", "default") else dataset


def same_setting(one: str, other: str) -> bool:
    """Whether two keys mean a field of one method: `shots` is everybody's, `tda.shots` one method's."""
    (method, _, field), (another, _, name) = one.rpartition("."), other.rpartition(".")
    return field == name and (method == another or not method or not another)
