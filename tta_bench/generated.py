"""Views that were made elsewhere: images that a diffusion model drew of each test image, read from a folder."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from PIL import Image
from torch import Tensor

from tta_bench.errors import BadData, UsageError
from tta_bench.interfaces import Preprocess
from tta_bench.pixels.decode import decode
from tta_bench.pixels.resize import resize_centre_crop, to_pixels
from tta_bench.system.files import digest
from tta_bench.system.text import counted

NO_IMAGES = "difftpt needs generated images: --set generated=DIR names their folder (docs/prompts.md shows its layout)"
SUFFIXES = {".png", ".jpg", ".jpeg", ".webp"}


@dataclass(frozen=True)
class Generated:
    """The first `n` generated images of a test image: `<folder>/<image id>/<k>.png` or `<folder>/<image id>_<k>.png`.

    An extension of the image id is left out. `content` stands for the folder in the recipe's `repr`, so that a moved
    folder keeps its features and another one never inherits them.
    """

    n: int = 63
    folder: str = field(default="", repr=False)
    content: str = field(default="", init=False)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise UsageError(f"at least one generated image per test image is needed, not {self.n}")
        if self.folder:
            object.__setattr__(self, "content", _listing(Path(self.folder)))

    @property
    def name(self) -> str:
        return f"generated{self.n}"

    @property
    def count(self) -> int:
        return self.n

    @property
    def seeded(self) -> bool:
        return False

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> Tensor:
        if not self.folder:
            raise UsageError(NO_IMAGES)
        files = self.files(image_id)
        return to_pixels((resize_centre_crop(decode(f), preprocess) for f in files), self.n, preprocess.size)

    def files(self, image_id: str) -> list[Path]:
        """The image's files in the order of their numbers."""
        stem = PurePosixPath(image_id)
        if stem.suffix.lower() in SUFFIXES:
            stem = stem.with_suffix("")
        own_folder, beside = Path(self.folder, stem), Path(self.folder, stem.parent)
        found: list[Path] = []
        if own_folder.is_dir():
            found = [f for f in own_folder.iterdir() if f.suffix.lower() in SUFFIXES]
        elif beside.is_dir():
            mine = re.compile(re.escape(stem.name) + r"_\d+")
            found = [f for f in beside.iterdir() if f.suffix.lower() in SUFFIXES and mine.fullmatch(f.stem)]
        if len(found) < self.n:
            wanted = f"{self.n} {'is' if self.n == 1 else 'are'} wanted"
            raise BadData(
                f"{self.folder}: {counted(len(found), 'generated image')} of '{image_id}', but {wanted} "
                f"({stem}/<k>.png or {stem}_<k>.png; --set generated_count={len(found) or 'N'} takes fewer)"
            )
        return sorted(found, key=_number)[: self.n]


def _number(file: Path) -> tuple[int, str]:
    digits = re.findall(r"\d+", file.stem)
    return int(digits[-1]) if digits else -1, file.name


def _listing(folder: Path) -> str:
    """Digest of the names and sizes of all files, as datasets of photographs have it."""
    if not folder.is_dir():
        raise UsageError(f"generated={folder}: no such folder")
    entries = []
    for here, _, names in os.walk(folder):
        for name in names:
            file = Path(here, name)
            if file.suffix.lower() in SUFFIXES:
                entries.append([file.relative_to(folder).as_posix(), file.stat().st_size])
    if not entries:
        raise UsageError(f"generated={folder}: no images in it ({', '.join(sorted(SUFFIXES))})")
    return digest(sorted(entries))
