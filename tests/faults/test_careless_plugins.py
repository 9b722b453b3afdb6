"""Datasets and backbones of others, which run in the runner's process: what they hand over is looked at."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image

from tests.toy_plugin import Toy, ToyCLIP
from tta_bench.errors import BadData, PluginError
from tta_bench.features.pack_export import export
from tta_bench.features.stream import Stream
from tta_bench.interfaces import Method, Observation, Preprocess, Sample, Task
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.runs.needs import Needs
from tta_bench.views import Plain


def opened(dataset: type[Toy]) -> Any:
    return dataset("default")


class OneBuffer(Toy):
    """Fills the same array for every image."""

    buffer = np.zeros(4, dtype=np.int8)

    def __getitem__(self, i: int) -> Sample:
        sample = super().__getitem__(i)
        self.buffer[:] = sample.labels
        return Sample(sample.id, sample.load, self.buffer)


def test_a_dataset_may_use_one_buffer_for_all_labels() -> None:
    honest, careless = (Stream.of(opened(cls), "sequential", 0, None) for cls in (Toy, OneBuffer))
    assert np.array_equal(honest.labels, careless.labels)


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (("a", "b", "c", "a"), "has two classes of one name, 'a' and 'a'"),
        (("dog", "cat", "Dog", "a"), "has two classes of one name, 'dog' and 'Dog'"),
        (("hot_dog", "cat", "a", "Hot  dog"), "has two classes of one name, 'hot_dog' and 'Hot  dog'"),
        (("caf\u00e9", "cat", "a", "Cafe\u0301"), "has two classes of one name, 'caf\u00e9' and 'Cafe\u0301'"),
        (("fish", "cat", "a", "\ufb01sh"), "has two classes of one name, 'fish' and '\ufb01sh'"),
        (("hot\u00a0dog", "cat", "a", "hot dog"), "has two classes of one name"),
        (("dog", "cat", "a", "do\u200bg"), r"has two classes of one name, 'dog' and 'do\\u200bg'"),
        (("caf\u00e9", "cat", "a", "cafe\ufeff\u0301"), "has two classes of one name"),
        ({"a", "b", "c", "d"}, "class_names must be a list or tuple of texts"),
        ("abcd", "class_names must be a list or tuple of texts"),
        ((1, 2, 3, 4), "class_names must be a list or tuple of texts"),
    ],
)
def test_class_names_must_be_what_labels_are_in_the_order_of(names: Any, complaint: str) -> None:
    dataset: Any = Toy("default")
    dataset.class_names = names
    with pytest.raises(BadData, match=complaint):
        Stream.of(dataset, "sequential", 0, None)


def test_class_names_are_looked_at_before_prompts_are_made_of_them(toy_bench: Bench) -> None:
    class Numbered(Toy):
        class_names: Any = ("a", "b", "c", 4)

    with pytest.raises(BadData, match="dataset toy: class_names must be a list or tuple of texts"):
        toy_bench.run(RunSpec("clip", Numbered("default"), "toyclip"))


class Masked(Toy):
    """Hides what is not annotated as numpy does."""

    def __getitem__(self, i: int) -> Sample:
        sample = super().__getitem__(i)
        return Sample(sample.id, sample.load, np.ma.masked_array(sample.labels, mask=[i == 3, False, False, False]))


def test_labels_behind_a_mask_are_refused(toy_bench: Bench, tmp_path: Path) -> None:
    said = "dataset toy, image toy-003: .* write -1 where a class is not annotated"
    with pytest.raises(BadData, match=said):
        Stream.of(opened(Masked), "sequential", 0, None)
    with pytest.raises(BadData, match=said):
        export(
            tmp_path / "masked.safetensors",
            dataset=opened(Masked),
            backbone=toy_bench.backbone("toyclip"),
            recipes=[],
            prompts=[],
            store=toy_bench.store,
            encoding=toy_bench.encoding,
            reporter=toy_bench.reporter,
        )


@pytest.mark.parametrize("labels", [np.full(4, 0.5), np.full(4, 255, np.uint8), np.zeros(3, np.int8), np.full(4, 7)])
def test_labels_that_are_none_are_refused(labels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Toy("default")[0]
    monkeypatch.setattr(Toy, "__getitem__", lambda self, i: Sample(f"{i}", one.load, labels))
    with pytest.raises(BadData, match="labels"):
        Stream.of(opened(Toy), "sequential", 0, None)


class IgnoresWhatIsAbsent(Toy):
    """Spells "absent" as VOC's files do."""

    def __getitem__(self, i: int) -> Sample:
        sample = super().__getitem__(i)
        return Sample(sample.id, sample.load, sample.labels * 2 - 1)


def test_labels_without_a_zero_are_said(toy_bench: Bench) -> None:
    record = toy_bench.run(RunSpec("clip", opened(IgnoresWhatIsAbsent), "toyclip")).record
    assert record.metrics["mAP"] == 100.0
    assert "never 0 (absent)" in record.notes[0]
    assert not any("absent" in note for note in toy_bench.run(RunSpec("clip", "toy", "toyclip")).record.notes)


class Extras(Toy):
    """With members of other types than the interface says."""

    warnings: Any = "three photos are missing"
    domains: Any = np.array(["day", "night"] * 12)


def test_members_that_a_dataset_has_besides_may_be_of_other_types(toy_bench: Bench) -> None:
    record = toy_bench.run(RunSpec("clip", opened(Extras), "toyclip", order="domains")).record
    assert list(record.notes).count("three photos are missing") == 1
    assert not any(len(note) == 1 for note in record.notes)


def test_members_may_be_of_numpy_or_nothing(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Extras, "warnings", None)
    monkeypatch.setattr(Extras, "full_size", np.int64(30), raising=False)
    assert toy_bench.run(RunSpec("clip", opened(Extras), "toyclip")).record.dataset_size == 30


def test_a_size_that_is_no_number_is_named(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toy, "full_size", "24", raising=False)
    with pytest.raises(PluginError, match="dataset 'toy': full_size is no whole number: '24'"):
        toy_bench.run(RunSpec("clip", opened(Toy), "toyclip"))


class Careless(ToyCLIP):
    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def encode_images(self, pixels: torch.Tensor) -> torch.Tensor:
        changed: torch.Tensor = self.change(super().encode_images(pixels))
        return changed


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda f: f * 1e-6, "gave features that are not of length 1"),
        (lambda f: f * 3, "gave features that are not of length 1"),
        (lambda f: f * torch.nan, "gave features that are not finite"),
        (lambda f: f[:-1], "encode_images must return "),
        (lambda f: f[:, :-1], "encode_images must return "),
    ],
)
def test_a_backbone_that_gives_something_else_is_named(change: Any, complaint: str, toy_bench: Bench) -> None:
    with pytest.raises(PluginError, match=re.escape(complaint)):
        toy_bench.run(RunSpec("clip", "toy", Careless(change)))
    assert not list(toy_bench.runs.glob("*/run.json"))


@pytest.mark.parametrize(
    "change",
    [lambda f: f - f.mean(0) * (len(f) > 1), lambda f: f - f.mean(0), lambda f: f + torch.randn_like(f)],
    ids=["batch", "batch, and nothing is left of one alone", "chance"],
)
def test_a_backbone_that_depends_on_the_batch_or_on_chance_is_named(change: Any, toy_bench: Bench) -> None:
    """As one that was not switched to evaluation: what is read later depends on what it was encoded with."""

    def of_length_1(f: torch.Tensor) -> torch.Tensor:
        changed: torch.Tensor = change(f)
        length: torch.Tensor = changed.norm(dim=-1, keepdim=True)
        return changed / length

    careless = Careless(of_length_1)
    with pytest.raises(PluginError, match=r"gives (a|the same) picture other features"):
        toy_bench.run(RunSpec("clip", "toy", careless))
    assert not list(toy_bench.runs.glob("*/run.json"))


class Normalised(Careless):
    """With a layer behind it that changes little, and takes its statistics from the batch unless it is told not to."""

    def __init__(self, *, training: bool) -> None:
        self.norm = torch.nn.BatchNorm1d(ToyCLIP.embed_dim).train(training)
        super().__init__(lambda f: torch.nn.functional.normalize(f + 0.002 * self._normed(f), dim=-1))

    def _normed(self, features: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.norm(features[:, :, None].repeat(1, 1, 2))  # of a single value it would complain
        return normed[:, :, 0]


@torch.no_grad()
def test_a_backbone_that_was_left_in_training_is_named_however_little_it_changes(toy_bench: Bench) -> None:
    with pytest.raises(PluginError, match=r"when it is encoded alone.*call eval\(\) in load"):
        toy_bench.run(RunSpec("clip", "toy", Normalised(training=True)))
    assert toy_bench.run(RunSpec("clip", "toy", Normalised(training=False))).record.n


class Drifting(Careless):
    """Takes off the mean of what it has seen so far, as a layer that was left in training."""

    def __init__(self) -> None:
        super().__init__(lambda f: f)
        self._mean: Any = 0.0

    def encode_images(self, pixels: torch.Tensor) -> torch.Tensor:
        features = super().encode_images(pixels)
        kept = 0.98 ** len(features)
        self._mean = kept * self._mean + (1 - kept) * features.mean(0)
        return torch.nn.functional.normalize(features - self._mean, dim=-1)


def test_a_backbone_that_remembers_is_named_and_its_features_are_forgotten(toy_bench: Bench) -> None:
    """What it gave depended on what it had encoded before, in whatever command."""
    for _ in range(2):
        with pytest.raises(PluginError, match="gives the same picture other features later on"):
            toy_bench.run(RunSpec("clip", "toy", Drifting()))
    assert not list(toy_bench.runs.glob("*/run.json"))


class Noisy(Careless):
    def encode_texts(self, texts: Sequence[str]) -> torch.Tensor:
        features = super().encode_texts(texts)
        return torch.nn.functional.normalize(features + 0.05 * torch.randn_like(features), dim=-1)


def test_texts_that_depend_on_chance_are_named(toy_bench: Bench) -> None:
    """Every run was another row, and no word said why."""
    with pytest.raises(PluginError, match="gives the same text other features later on"):
        toy_bench.run(RunSpec("clip", "toy", Noisy(lambda f: f)))


class Layered(Careless):
    def __init__(self, layers: Any) -> None:
        super().__init__(lambda f: f)
        self._layers = layers

    def encode_images(self, pixels: torch.Tensor) -> torch.Tensor:
        features = super().encode_images(pixels)
        for layer in self._layers.values() if isinstance(self._layers, dict) else self._layers:
            features = layer(features)
        return torch.nn.functional.normalize(features, dim=-1).detach()


def layer(change: float) -> torch.nn.Module:
    made = torch.nn.Linear(Careless(lambda f: f).embed_dim, Careless(lambda f: f).embed_dim, bias=False)
    torch.nn.init.eye_(made.weight)
    made.weight.data[0, 1] = change
    return made


@pytest.mark.parametrize("held", [list, tuple, lambda layers: dict(enumerate(layers))], ids=["list", "tuple", "dict"])
def test_layers_in_a_list_count_by_their_weights(held: Any, toy_bench: Bench) -> None:
    """A change too small for what is made of one picture, and no attribute of its own."""
    found = [toy_bench.run(RunSpec("clip", "toy", Layered(held([layer(change)])))) for change in (1e-4, 2e-4)]
    assert found[0].record.run_id != found[1].record.run_id


class Degraded(Toy):
    """Whoever wrote it has forgotten the level in the fingerprint."""

    def __init__(self, level: float) -> None:
        super().__init__("default")
        self._level = level

    def __getitem__(self, i: int) -> Sample:
        sample = super().__getitem__(i)
        return Sample(sample.id, lambda: sample.load().point(lambda value: value * (1 - self._level)), sample.labels)


def test_instances_with_other_parameters_are_not_taken_for_one_another(toy_bench: Bench) -> None:
    found = [toy_bench.run(RunSpec("clip", Degraded(level), "toyclip")) for level in (0.0, 0.9, 0.0)]
    assert [outcome.already for outcome in found] == [False, False, True]
    assert not np.array_equal(found[0].record.scores(), found[1].record.scores())
    turned = [toy_bench.run(RunSpec("clip", "toy", Careless(lambda f, k=k: f.roll(k, -1)))) for k in (0, 1)]
    assert not np.array_equal(turned[0].record.scores(), turned[1].record.scores())


class Mirrored(ToyCLIP):
    """Of the same weights, whose digest is its fingerprint."""

    name: ClassVar[str] = "mirrored"

    def encode_images(self, pixels: torch.Tensor) -> torch.Tensor:
        return super().encode_images(pixels.flip(-1))


def test_two_backbones_of_the_same_weights_are_not_taken_for_one_another(toy_bench: Bench) -> None:
    """51.11 stood for 54.94: the second had the features of the first."""
    plain, mirrored = ToyCLIP(), Mirrored()
    assert plain.fingerprint == "toyclip-1"
    mirrored.fingerprint = plain.fingerprint
    found = [toy_bench.run(RunSpec("clip", "toy", backbone)).record for backbone in (plain, mirrored)]
    assert not np.array_equal(found[0].scores(), found[1].scores())


@pytest.mark.parametrize(
    "change",
    [
        *(lambda p: p.flip(-1), lambda p: p.flip(-2), lambda p: p.flip(1), lambda p: p.transpose(-1, -2)),
        lambda p: torch.nn.functional.avg_pool2d(p, 3, 1, 1),
    ],
    ids=["mirrored", "upside down", "other colours", "turned", "blurred"],
)
def test_what_a_variable_makes_of_pictures_counts(
    change: Any, toy_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but its answers tells: neither a parameter nor the code is another one."""

    class Varied(ToyCLIP):
        def encode_images(self, pixels: torch.Tensor) -> torch.Tensor:
            return super().encode_images(change(pixels) if os.environ.get("VARIED") else pixels)

    before = toy_bench.run(RunSpec("clip", "toy", Varied())).record
    monkeypatch.setenv("VARIED", "1")
    after = toy_bench.run(RunSpec("clip", "toy", Varied())).record
    assert before.protocol.digest != after.protocol.digest
    assert not np.array_equal(before.scores(), after.scores())


def test_a_recipe_that_draws_anew_each_time_is_named(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features would depend on what was asked of the store before."""
    spec = RunSpec("regions", "toy", "toyclip", recipes={"regions": Drawn(2)})
    with pytest.raises(PluginError, match="recipe 'drawn2' makes other views of the same image each time"):
        toy_bench.run(spec)


class Jittered(Toy):
    """As one that was written for training. Most pictures come out as they are, by chance the first as well."""

    asked: ClassVar[int] = 0

    def __getitem__(self, i: int) -> Sample:
        sample = super().__getitem__(i)
        Jittered.asked += i == 5
        shift = Jittered.asked % 200
        return Sample(
            sample.id, lambda: sample.load().point(lambda value: (value + shift * (i == 5)) % 256), sample.labels
        )


def test_a_dataset_that_draws_its_pictures_anew_is_named(toy_bench: Bench) -> None:
    with pytest.raises(PluginError, match=r"dataset 'toy' gives another picture for .* each time"):
        toy_bench.run(RunSpec("clip", Jittered("default"), "toyclip"))
    assert not list(toy_bench.runs.glob("*/run.json"))


def test_a_dataset_that_draws_its_labels_anew_is_named(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """60.05 in place of 87.99, and another number each time."""
    sound = Toy.__getitem__

    def noisy(self: Toy, i: int) -> Sample:
        sample = sound(self, i)
        return Sample(sample.id, sample.load, np.random.default_rng().integers(0, 2, 4).astype(np.int8))

    monkeypatch.setattr(Extras, "__getitem__", noisy)
    with pytest.raises(PluginError, match=r"dataset 'toy' gives other labels for toy-0.* each time"):
        toy_bench.run(RunSpec("clip", opened(Extras), "toyclip"))


@dataclasses.dataclass(frozen=True)
class Drawn(Plain):
    """Views from random numbers that nobody can repeat."""

    @property
    def name(self) -> str:
        return f"drawn{self.n}"

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> torch.Tensor:
        return super().render(image, image_id, int(np.random.default_rng().integers(9**9)), preprocess)


@dataclasses.dataclass(frozen=True)
class Other(Plain):
    """Pixels of some kind, which encoders may not take."""

    kind: str = "levels as floats"

    @property
    def name(self) -> str:
        return f"other{self.n}"

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> torch.Tensor:
        levels = super().render(image, image_id, seed, preprocess)
        return KINDS[self.kind](levels)  # type: ignore[no-any-return]


KINDS: dict[str, Any] = {
    "levels as floats": lambda levels: levels.float(),
    "normalised": lambda levels: (levels / 255 - 0.48) / 0.27,
    "whole numbers": lambda levels: levels.long(),
    "not a number": lambda levels: levels / 255 * torch.nan,
    "floats": lambda levels: levels / 255,
    "half": lambda levels: (levels / 255).half(),
    "overshoot": lambda levels: levels / 255 * 1.2 - 0.1,  # as bicubic interpolation leaves it at an edge
    "levels": lambda levels: levels,
}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("levels as floats", "floats from .* to"),
        ("normalised", "floats from -.* to"),
        ("whole numbers", "torch.int64"),
        ("not a number", "floats from nan to nan"),
    ],
)
def test_pixels_that_are_neither_levels_nor_shares_are_refused(kind: str, words: str, toy_bench: Bench) -> None:
    wanted = rf"recipe other2, image toy-\d+: uint8 levels or floats from 0 to 1 are wanted, not {words}"
    with pytest.raises(PluginError, match=wanted) as caught:
        toy_bench.run(RunSpec("regions", "toy", "toyclip", recipes={"regions": Other(2, kind)}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["floats", "half", "overshoot", "levels"])
def test_levels_and_shares_are_taken(kind: str, toy_bench: Bench) -> None:
    assert toy_bench.run(RunSpec("regions", "toy", "toyclip", recipes={"regions": Other(2, kind)})).record.n == 24


@dataclasses.dataclass
class Roles(Method):
    """Has views of any role, and may ask for a second backbone."""

    name: ClassVar[str] = "roles"
    role: str = "views"
    second: str = ""

    @property
    def recipes(self) -> Any:  # type: ignore[override]
        return {self.role: Plain(2)}

    def second_backbone(self) -> str | None:
        return self.second or None

    def start(self, task: Task) -> None:
        self.task = task

    def step(self, x: Observation) -> torch.Tensor:
        return self.task.text @ x.image


@pytest.mark.parametrize("role", ["image", "reward"])
def test_a_role_that_an_observation_has_already_is_refused(role: str, toy_bench: Bench) -> None:
    with pytest.raises(PluginError, match=f"method 'roles' calls views '{role}', which every observation may have"):
        toy_bench.run(RunSpec(Roles(role), "toy", "toyclip"))


def test_a_second_backbone_without_views_is_refused(toy_bench: Bench) -> None:
    spec = RunSpec(Roles("regions", "toyreward"), "toy", "toyclip")
    with pytest.raises(PluginError, match="method 'roles' has a second backbone and no views of the role 'views'"):
        toy_bench.run(spec)
    assert Needs(toy_bench).of(spec) == []


@pytest.mark.parametrize("given", [np.zeros((8, 8, 3), np.uint8), None, torch.zeros(3, 8, 8), "a.jpg"])
def test_a_dataset_that_loads_no_picture_is_named(given: Any, toy_bench: Bench) -> None:
    class Arrays(Toy):
        def __getitem__(self, i: int) -> Sample:
            sample = super().__getitem__(i)
            return Sample(sample.id, lambda: given, sample.labels)

    wanted = rf"dataset 'toy', image toy-\d+: load\(\) must give a PIL image, not .*{type(given).__name__}"
    with pytest.raises(PluginError, match=wanted):
        toy_bench.run(RunSpec("clip", Arrays("default"), "toyclip"))


@dataclasses.dataclass(frozen=True)
class Painted(Plain):
    """Blackens what it is given."""

    @property
    def name(self) -> str:
        return f"painted{self.n}"

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> torch.Tensor:
        image.paste((0, 0, 0), (0, 0, *image.size))
        return super().render(image, image_id, seed, preprocess)


class Kept(Toy):
    """Has its pictures in memory, and hands them out."""

    def __init__(self) -> None:
        super().__init__("default")
        self.pictures = [super(Kept, self).__getitem__(i).load() for i in range(len(self))]

    def __getitem__(self, i: int) -> Sample:
        sample = super().__getitem__(i)
        return Sample(sample.id, lambda: self.pictures[i], sample.labels)


class Buffered(Plain):
    """Renders into memory that it has once."""

    buffer: ClassVar[torch.Tensor] = torch.empty(0)

    @property
    def name(self) -> str:
        return f"buffered{self.n}"

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> torch.Tensor:
        views = super().render(image, image_id, seed, preprocess)
        if Buffered.buffer.shape != views.shape:
            Buffered.buffer = torch.empty_like(views)
        return Buffered.buffer.copy_(views)


def test_a_recipe_may_use_one_buffer_for_all_images(toy_bench: Bench) -> None:
    runs = [
        toy_bench.run(RunSpec("regions", "toy", "toyclip", recipes={"regions": recipe})).record
        for recipe in (Plain(2), Buffered(2))
    ]
    assert np.array_equal(runs[0].scores(), runs[1].scores())


def test_a_recipe_that_paints_on_its_picture_changes_no_other_view(toy_bench: Bench) -> None:
    dataset = Kept()
    before = dataset[0].load().tobytes()
    toy_bench.run(RunSpec("regions", dataset, "toyclip", recipes={"regions": Painted(2)}))
    assert dataset[0].load().tobytes() == before
