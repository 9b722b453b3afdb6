"""Views that were made elsewhere: images that a diffusion model drew of each test image, read from a folder."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image
from torch import Tensor

from tta_bench.errors import BadData, UsageError
from tta_bench.interfaces import Preprocess
from tta_bench.pixels.decode import decode, readable_names
from tta_bench.pixels.resize import resize_centre_crop, to_pixels
from tta_bench.system import contents
from tta_bench.system.files import digest
from tta_bench.system.stamps import stamp
from tta_bench.system.text import counted

NO_IMAGES = "difftpt needs generated images: --set generated=DIR names their folder (docs/prompts.md shows its layout)"
SUFFIXES = {".png", ".jpg", ".jpeg", ".webp"}


@dataclass(frozen=True)
class Generated:
    """The first `n` generated images of a test image: `<folder>/<image id>/<k>.png` or `<folder>/<image id>_<k>.png`.

    Where there is nothing under the whole id, its extension is left out. `content` stands for the folder in the
    recipe's `repr`, so that a moved folder keeps its features and another one never inherits them.
    """

    n: int = 63
    folder: str = field(default="", repr=False)
    content: str = field(default="", init=False)
    _beside: frozenset[str] = field(default=frozenset(), init=False, repr=False, compare=False)  # ids of <id>_<k>
    _looks: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)  # of files, when listed

    def __post_init__(self) -> None:
        if self.n < 1:
            raise UsageError(f"at least one generated image per test image is needed, not {self.n}")
        if self.folder:
            content, looks = _listing(Path(self.folder))
            object.__setattr__(self, "content", content)
            object.__setattr__(self, "_looks", looks)
            numbered = (re.fullmatch(r"(.+)_[0-9]+\.[^.]*", file) for file in looks)
            object.__setattr__(self, "_beside", frozenset(found[1] for found in numbered if found))

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
        for file in files:
            if stamp(file) != self._looks.get(str(file)):  # or others' features would be kept under this folder's name
                raise BadData(f"{file} was changed while the run read it: run it again")
        return to_pixels((resize_centre_crop(decode(f), preprocess) for f in files), self.n, preprocess.size)

    def files(self, image_id: str) -> list[Path]:
        """The image's files in the order of their numbers."""
        stem = PurePosixPath(image_id)
        if stem.suffix.lower() in SUFFIXES:
            stem = stem.with_suffix("")
        found = self._numbered(PurePosixPath(image_id)) or self._numbered(stem)
        if len(found) < self.n:
            wanted = f"{self.n} {'is' if self.n == 1 else 'are'} wanted"
            raise BadData(
                f"{self.folder}: {counted(len(found), 'generated image')} of '{image_id}', but {wanted} "
                f"({stem}/<k>.png or {stem}_<k>.png; --set generated_count={len(found) or 'N'} takes fewer)"
            )
        return [found[number] for number in sorted(found)[: self.n]]

    def _numbered(self, name: PurePosixPath) -> dict[int, Path]:
        """The pictures under a name by their numbers. In a folder of their own there may be no others."""
        folder, prefix = Path(self.folder, name), ""
        alone, beside = folder.is_dir(), str(folder) in self._beside
        if alone and beside:
            raise BadData(f"{folder} is there, and {folder}_<k> too: they are of two runs; take one of them away")
        if not alone:
            folder, prefix = Path(self.folder, name.parent), f"{name.name}_"
        found: dict[int, Path] = {}
        for file in sorted(f for f in folder.iterdir() if f.name.startswith(prefix)) if folder.is_dir() else []:
            number = re.fullmatch("[0-9]+", file.stem.removeprefix(prefix))
            if file.suffix.lower() not in readable_names() or not (number or alone):
                continue
            if number is None:
                raise BadData(f"{file}: its name is not a number, so it is no generated image; take it away")
            if file.suffix.lower() not in SUFFIXES:
                *others, last = sorted(SUFFIXES)
                raise BadData(f"{file}: no format of generated images; save it as {', '.join(others)} or {last}")
            if int(number[0]) in found:
                raise BadData(f"{file}: has the number of {found[int(number[0])].name}; take one of them away")
            found[int(number[0])] = file
        return found


def _listing(folder: Path) -> tuple[str, dict[str, Any]]:
    """Digest of the names of all files and of what is in them, as datasets of photographs have it; behind links, too.
    And what each looked like before it was read.

    A folder that was met before, as where a link leads back, is an entry that names it: so there is an end.
    """
    if not folder.is_dir():
        raise UsageError(f"generated={folder}: no such folder")
    entries: list[list[str]] = []
    pictures: list[Path] = []
    met: dict[str, str] = {}  # the folder itself -> its first name here
    for here, folders, names in os.walk(folder, followlinks=True):
        folders.sort()  # which name is the first must not depend on the disk
        name = Path(here).relative_to(folder).as_posix()
        first = met.setdefault(os.path.realpath(here), name)
        if first != name:
            folders.clear()
            entries.append([name, first])
            continue
        pictures += [file for file in (Path(here, entry) for entry in names) if file.suffix.lower() in SUFFIXES]
    looks = {str(file): stamp(file) for file in pictures}
    read = zip(pictures, contents.digests(pictures), strict=True)
    entries += [[file.relative_to(folder).as_posix(), content] for file, content in read]
    if not entries:
        raise UsageError(f"generated={folder}: no images in it ({', '.join(sorted(SUFFIXES))})")
    return digest(sorted(entries)), looks
