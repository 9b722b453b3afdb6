"""Protocols of other suites: what they set, what wins over them, and what a record says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args, get_type_hints

import pytest

from tta_bench import metrics
from tta_bench.errors import UnknownName
from tta_bench.plugins import Registry
from tta_bench.runs import presets
from tta_bench.runs.hyperparameters import Offer, build
from tta_bench.runs.presets import OTHERS, ProtocolPreset
from tta_bench.runs.spec import RunOptions, RunSpec
from tta_bench.views import parse_recipe


def offer(method: str) -> Offer:
    return Offer.of(Registry().method(method))


def adjusted(suite: str, method: str, dataset: str, **given: Any) -> RunSpec:
    return ProtocolPreset.named(suite).adjust(RunSpec(method, dataset, **given), dataset, offer(method))


@pytest.mark.parametrize("name", presets.names())
def test_every_value_is_one_that_runs_take(name: str) -> None:
    preset = ProtocolPreset.named(name)
    words = get_type_hints(ProtocolPreset, localns={"metrics": metrics})
    for field in ("score", "metric", "hyper_parameters", "empty_classes", "ties"):
        assert getattr(preset, field) in get_args(words[field])
    for recipe in (*preset.views.values(), preset.imagenet_views or "image"):
        parse_recipe(recipe)
    registry = Registry()
    for method in (*preset.settings, *preset.tabled, *(m for m in preset.views if m != OTHERS)):
        registry.find("methods", method)
    for method, settings in preset.settings.items():
        build(registry.method(method), settings)


def test_an_unknown_preset() -> None:
    with pytest.raises(UnknownName, match=r"unknown protocol preset 'ttabcd'\. Did you mean ttabc\?"):
        ProtocolPreset.named("ttabcd")


def test_a_users_own_options_win() -> None:
    preset = ProtocolPreset.named("mltta")
    filled = preset.fill(RunOptions(ties="threshold", prompt="ensemble"), ["prompt"])
    assert (filled.prompt, filled.ties, filled.empty_classes, filled.precision) == (
        "ensemble",
        "dataset",
        "zero",
        "fp16",
    )
    spec = adjusted("ttabc", "boostadapter", "scenes", settings={"delta": "2"}, recipes={"views": "plain15"})
    assert spec.recipes == {"views": "plain15"}
    assert spec.settings == {"alpha": 2.0, "beta": 5.0, "delta": "2", "predict_from": "original"}
    own = adjusted("ttabc", "boostadapter", "scenes", preset="dtd")
    assert own.preset == "dtd"
    assert "delta" not in own.settings  # or it would overrule the user's preset


@pytest.mark.parametrize(
    ("preset", "method", "dataset", "views"),
    [
        ("tta-vlm-episodic", "zero", "folder:dtd", "augmix63"),
        ("tta-vlm-episodic", "zero", "folder:/data/imagenet-a", "plain63"),
        ("tta-vlm-online", "tda", "folder:dtd", "image"),
        ("tta-vlm-online", "dpe", "folder:dtd", "augmix63"),
        ("ttabc", "zero", "folder:imagenet-a", "augmix63"),
    ],
)
def test_views_by_method_and_dataset(preset: str, method: str, dataset: str, views: str) -> None:
    assert adjusted(preset, method, dataset).recipes == {"views": views}
    assert adjusted(preset, "clip", dataset).recipes == {}


def test_published_values_by_dataset() -> None:
    assert adjusted("tta-vlm-online", "tda", "folder:/data/imagenet-a").preset == "imagenet-a"
    assert adjusted("tta-vlm-online", "tda", "scenes").preset is None
    assert adjusted("tta-vlm-online", "dota", "folder:dtd").preset is None  # the suite has no table for it
    assert adjusted("ttabc", "tda", "folder:dtd").preset is None


def test_the_official_output_is_ranked_where_there_is_a_choice() -> None:
    assert adjusted("tta-vlm-online", "dmn", "scenes").settings == {"score": "native"}
    assert adjusted("purf", "dmn", "scenes").settings == {"score": "logits"}
    assert adjusted("tta-vlm-online", "tda", "scenes").settings == {}


def test_a_suites_own_setting_is_not_tuned() -> None:
    suite = ProtocolPreset.named("ttabc")
    method = Registry().method("boostadapter")
    assert suite.tagged(build(method, {"delta": 0, "predict_from": "original"})).tag == "paper"
    assert suite.tagged(build(method, {"delta": 1, "predict_from": "original"})).tag == "tuned"
    assert suite.tagged(build(method, {})).tag == "default"


def left_of(spec: RunSpec, dataset: str, single_label: bool = True) -> list[str]:
    configured = build(Registry().method(spec.method_name), spec.settings, spec.preset)
    recipes = {role: parse_recipe(str(name)) for role, name in spec.recipes.items()}
    preset = ProtocolPreset.named("tta-vlm-online")
    found = preset.deviations(spec, dataset, recipes, configured.values, single_label)
    return [line.removeprefix("not the protocol tta-vlm-online in full: ") for line in found]


def test_what_differs_is_said_from_the_run_itself() -> None:
    spec = adjusted("tta-vlm-online", "tda", "folder:dtd")
    assert left_of(spec, "folder:dtd") == []
    assert left_of(replace(spec, seed=3, prompt="ensemble"), "folder:dtd") == [
        "seed is 3 and not 0",
        "prompt is ensemble and not photo",
    ]
    assert left_of(replace(spec, recipes={"views": "plain15"}), "folder:dtd") == ["views is plain15 and not image"]
    assert left_of(replace(spec, preset="eurosat"), "folder:dtd") == ["its hyper-parameters are of eurosat"]
    assert "its defaults" in left_of(replace(spec, preset=None), "folder:dtd")[0]
    assert "exactly one label" in left_of(spec, "folder:dtd", single_label=False)[0]
    dmn = adjusted("tta-vlm-online", "dmn", "folder:dtd", settings={"score": "logits"})
    assert left_of(dmn, "folder:dtd") == ["score is logits and not native"]
