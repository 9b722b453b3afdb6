"""Encoders and methods may be on different devices."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.conftest import Invoke
from tta_bench import records
from tta_bench.errors import UsageError
from tta_bench.interfaces import TextEncoder
from tta_bench.runs import devices

ON_FEATURES: Any = SimpleNamespace(name="tda", tunes_prompts=False)
TUNING: Any = SimpleNamespace(name="tpt", tunes_prompts=True)


def test_methods_on_features_adapt_on_the_cpu_and_those_that_tune_prompts_at_the_text_tower() -> None:
    assert devices.of_adaptation("auto", "cuda:1", ON_FEATURES) == "cpu"
    assert devices.of_adaptation("auto", "cuda:1", TUNING) == "cuda:1"


def test_a_choice_is_kept_unless_the_text_tower_is_elsewhere() -> None:
    assert devices.of_adaptation("meta", "cpu", ON_FEATURES) == "meta"
    with pytest.raises(UsageError, match=r"--adapt-device cpu: tpt tunes prompts .* which is on cuda"):
        devices.of_adaptation("cpu", "cuda", TUNING)
    with pytest.raises(UsageError, match="--adapt-device warp can't be used here"):
        devices.of_adaptation("warp", "cpu", ON_FEATURES)


def test_texts_arrive_where_the_method_is() -> None:
    encode = TextEncoder(lambda texts: torch.ones(len(texts), 2), "meta")
    assert encode(["a dog", "a cat"]).device.type == "meta"
    assert encode.count == 2


def test_the_record_says_which_device_adapted(toy_run: Invoke, home: Path) -> None:
    assert toy_run("secondeyes", "--adapt-device", "cpu").code == 0
    (run,) = records.load_all(home / "runs")[0]
    assert (run.hardware["device"], run.hardware["adapt_device"]) == ("cpu", "cpu")
