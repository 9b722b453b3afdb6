"""Whatever happens to the store's files, a read gives the right features or none."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from tta_bench.features.store import Entry, FeatureKey, FeatureStore

SHAPE = (7, 2, 4)
TRUTH = normalize(torch.randn(*SHAPE, generator=torch.Generator().manual_seed(0)), dim=-1)


def open_entry(root: Path) -> Entry:
    return FeatureStore(root).entry(FeatureKey("data", "model", "Plain(2)", 0, "float32"), SHAPE, batch_size=4)


def fill(entry: Entry, blocks: list[int]) -> None:
    with entry.writing() as writer:
        for block in blocks:
            if not writer.claim([block]):  # a line that was cut before its end is whole when the next one follows
                continue
            images = entry.images_of(block)
            writer.write(block, TRUTH[images.start : images.stop])
            writer.flush()


damages = st.tuples(
    st.sampled_from(["features.bin", "journal.txt", "meta.json"]), st.sampled_from(["cut", "flip"]), st.floats(0, 0.999)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), unique=True), st.lists(damages, max_size=3))
def test_damage_is_never_read(written: list[int], damage: list[tuple[str, str, float]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fill(open_entry(Path(folder)), written)
        for name, how, where in damage:
            file = open_entry(Path(folder)).folder / name
            content = bytearray(file.read_bytes()) if file.exists() else bytearray()
            if not content:
                continue
            position = int(where * len(content))
            if how == "cut":
                content = content[:position]
            else:
                content[position] ^= 1 << (position % 8)
            file.write_bytes(content)
        entry = open_entry(Path(folder))
        missing = entry.missing(range(SHAPE[0]))
        for i in range(SHAPE[0]):
            if i // entry.images_per_block not in missing:
                assert torch.allclose(entry.read(i), TRUTH[i], atol=1e-6)
        fill(entry, missing)
        healed = open_entry(Path(folder))
        assert healed.missing(range(SHAPE[0])) == []
        for i in range(SHAPE[0]):
            assert torch.allclose(healed.read(i), TRUTH[i], atol=1e-6)
