"""`ttabench preview` writes pictures that can be opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from tests.conftest import TOY, Invoke


def test_sheets_of_images_and_recipes(invoke: Invoke, tmp_path: Path) -> None:
    common = ("--dataset", "toy", "--plugin", str(TOY), "--images", "10", "--size", "32", "-o", str(tmp_path))
    result = invoke("preview", *common, "--recipe", "augmix3", "--recipe", "crops2")
    assert result.code == 0, result.err
    names = [Path(line).name for line in result.out.split()]
    assert names == ["preview-toy.png", "preview-toy-augmix3.png", "preview-toy-crops2.png"]
    sheets = [Image.open(tmp_path / name) for name in names]
    assert sheets[0].width == 8 * 36 + 4
    assert sheets[1].size == (4 * 36 + 8, 8 * 36 + 4)
    assert sheets[2].size == (3 * 36 + 8, 8 * 36 + 4)
    for sheet in sheets:
        assert np.asarray(sheet).std() > 20  # not blank


def test_an_unknown_recipe(invoke: Invoke) -> None:
    result = invoke("preview", "--recipe", "crop50")
    assert result.code == 2
    assert "Did you mean crops" in result.err
