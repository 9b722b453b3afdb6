"""What gives reason to doubt a run's numbers, gathered from all that takes part in it; alarms.py has the words.

Whatever is said here is in the record, and below every table that shows its number.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from tta_bench.features import packed_views
from tta_bench.features.source import PackSource, Source
from tta_bench.interfaces import BackboneExtras, DatasetExtras, Method, Task, TextEncoder
from tta_bench.runs import alarms
from tta_bench.runs.cost import CountedPrompts
from tta_bench.runs.guest_method import GuestMethod
from tta_bench.runs.hyperparameters import attributes_digest
from tta_bench.runs.presets import ProtocolPreset
from tta_bench.system.code import origin_of

if TYPE_CHECKING:
    from tta_bench.runs.cost import Weight
    from tta_bench.runs.replay import Adaptation
    from tta_bench.runs.run import Run

_changed: set[type] = set()  # classes of instances that a run in this process was seen to change
_touched: list[weakref.ref[Method]] = []  # instances that were seen to be changed though a copy of them ran


def of_the_data(run: Run) -> list[str]:
    """What its dataset or pack said when it was opened."""
    return list(DatasetExtras.of(run.source.dataset).warnings)


def forewarnings(run: Run) -> list[str]:
    """What is wrong with the numbers whatever the method does."""
    known_to = BackboneExtras.of(run.source.backbone).made_for
    return [
        *_one_draw(run),
        *_packed_views(run),
        *_weights_of_the_reward(run),
        *alarms.strangers(run.source.backbone_name, known_to, run.source.dataset_name),
        *alarms.nothing_absent(run.stream.labels),
        *alarms.one_class(run.stream.labels.shape[1]),
        *(note for source in _sources(run) for origin in source.origins.values() for note in alarms.altered(origin)),
    ]


def _sources(run: Run) -> list[Source]:
    return [run.source] + ([] if run.reward is None else [run.reward])


def _weights_of_the_reward(run: Run) -> list[str]:
    if run.reward is None or run.spec.weights is None or run.reward.backbone_name != run.source.backbone_name:
        return []
    return alarms.other_weights(run.reward.backbone_name)


def _one_draw(run: Run) -> list[str]:
    if not isinstance(run.source, PackSource):
        return []
    seeded = [recipe.name for recipe in run.recipes.values() if recipe.seeded]
    return alarms.one_draw(run.spec.seed, run.source.pack.provenance.get("seed"), seeded)


def _packed_views(run: Run) -> list[str]:
    if not isinstance(run.source, PackSource):
        return []
    pack = run.source.pack
    used = [source for recipe in run.recipes.values() if (source := pack.source_of(recipe)) is not None]
    return [*packed_views.oddities(pack, used), *packed_views.copies(pack, [run.source.prompts.name])]


def unlike_preset(run: Run) -> list[str]:
    """In what the run does not follow the protocol that it was meant to."""
    if run.spec.protocol_preset is None:
        return []
    preset = ProtocolPreset.named(run.spec.protocol_preset)
    values, single_label = run.configured.values, run.stream.single_label
    return preset.deviations(run.spec, run.source.dataset_name, run.recipes, values, single_label)


def after_the_stream(run: Run, task: Task, adaptation: Adaptation, weight: Weight) -> list[str]:
    """What the features and the method's last state give reason to say."""
    episodic = run.method.setting == "episodic"
    return [
        *alarms.no_spread(task.text, "the class texts"),
        *_cut_prompts(run),
        *_cut_texts(run, task),
        *alarms.logarithmic_scale(task.scale),
        *_changed_class(run),
        *alarms.uncopied(run.method.name, run.configured.uncopied),
        *alarms.one_slow_step(adaptation.slowest, adaptation.seconds, len(run.stream)),
        *alarms.unchanged_state(adaptation.first_state, weight.digest, len(run.stream), episodic),
    ]


def _cut_prompts(run: Run) -> list[str]:
    notes = []
    for source in _sources(run):
        cut = source.prompts.too_long(source.backbone)
        notes += alarms.cut_prompts(cut, source.prompts.count, source.backbone_name)
    return notes


def _cut_texts(run: Run, task: Task) -> list[str]:
    """Of those that the method has encoded itself."""
    encoder, prompts, backbone = task.encode_texts, task.prompts, run.source.backbone_name
    notes: list[str] = []
    if isinstance(encoder, TextEncoder):
        notes += alarms.cut_prompts(encoder.cut, encoder.count, backbone, "text")
    if isinstance(prompts, CountedPrompts):
        notes += alarms.cut_prompts(prompts.cut, prompts.texts, backbone, "tuned prompt")
    return notes


def _changed_class(run: Run) -> list[str]:
    """What an instance of somebody's own class has left in it, or found there."""
    if not run.in_callers_process:
        return []
    name, given = run.method.name, run.spec.method
    touched = any(before() is given for before in _touched)
    said = alarms.left_by_another(name) if touched or run.left.found or type(run.method) in _changed else []
    now = origin_of(run.method)
    run.left.nothing = now == run.origin
    if now != run.origin and now == origin_of(run.method):  # what can't be looked into is like nothing else each time
        if not run.left.leaves_something():  # it is where nobody can tell whether it is still there later on
            _changed.add(type(run.method))
        said += alarms.changed_class(name)
    elif isinstance(given, Method) and _is_touched(run, given):
        _touched.append(weakref.ref(given))
        said += alarms.changed_instance(name)
    return said


def _is_touched(run: Run, given: Method) -> bool:
    """Whether an instance no longer holds what it held when the run began. One that can't be copied has run itself, and
    of one that can't be looked into nothing is known."""
    now = attributes_digest(given)
    return not run.configured.uncopied and now != run.configured.carried and now == attributes_digest(given)


def unknown_code(run: Run) -> list[str]:
    method = run.method
    if isinstance(method, GuestMethod):
        return alarms.unknown(method.unknown_code, method.reached())
    return alarms.unknown([], run.watch.reached()) if run.in_callers_process else []


def unlike_published(run: Run, value: float) -> list[str]:
    """Of zero-shot CLIP on a complete dataset with trained weights: with anything else there is nothing to say."""
    source = run.source
    whole = len(run.stream) >= (DatasetExtras.of(source.dataset).full_size or len(source.dataset))
    frozen = run.origin.built_in and run.method.name == "clip"
    if not frozen or not whole or BackboneExtras.of(source.backbone).random_weights:
        return []
    return alarms.far_from_published(source.backbone_name, source.prompts.name, source.dataset_name, value)
