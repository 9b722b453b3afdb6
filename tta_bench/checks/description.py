"""`ttabench list KIND NAME`: what one plugin can be told, what it needs, and where it comes from."""

from __future__ import annotations

import ast
import dataclasses
import io
import sys
import tempfile
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from tta_bench.checks.verdicts import blame
from tta_bench.errors import DataMissing, PluginError, TTABenchError
from tta_bench.interfaces import Backbone, BackboneExtras, Dataset, DatasetExtras, Method, PromptTunable
from tta_bench.plugins import Plugin, Registry
from tta_bench.system.fields import types_of
from tta_bench.system.text import counted


@dataclass(frozen=True)
class Field:
    """A hyper-parameter."""

    name: str
    default: Any  # None besides where there is no default: see `required`
    type: str
    doc: str
    choices: Sequence[str] = ()
    required: bool = False


@dataclass
class Description:
    kind: str
    name: str
    summary: str
    about: str  # the class's own docstring
    origin: str
    module: str
    fields: list[Field] = field(default_factory=list)
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    preset_recipes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    recipes: dict[str, str] = field(default_factory=dict)  # role -> recipe
    variants: list[str] = field(default_factory=list)  # the first is the default
    status: str = ""  # of a method, as `setting` and `paper`
    setting: str = ""
    paper: Mapping[str, str] | None = None
    needs: list[str] = field(default_factory=list)
    offers: list[str] = field(default_factory=list)  # what else can be asked of it


def describe(registry: Registry, plugin: Plugin, data_root: Path) -> Description:
    """Imports the plugin, opens a dataset below `data_root`, but loads no backbone: that may take minutes."""
    cls: Any
    match plugin.kind:
        case "methods":
            cls = registry.method(plugin.name)
        case "datasets":
            cls = registry.dataset(plugin.name)
        case "backbones":
            cls = registry.backbone(plugin.name)
    about = " ".join(str(vars(cls).get("__doc__") or "").split())
    if about.startswith(f"{cls.__name__}("):
        about = ""  # dataclass writes the signature where there is no docstring
    found = Description(plugin.kind, plugin.name, plugin.summary, about, plugin.origin, plugin.module)
    with _mending(cls, found):
        match plugin.kind:
            case "methods":
                _describe_method(cls, found)
            case "datasets":
                _describe_dataset(cls, found, data_root)
            case "backbones":
                _describe_backbone(cls, found)
    return found


@contextmanager
def _mending(cls: type, found: Description) -> Iterator[None]:
    """What a plugin refuses in its own words, or does wrong, is one of its needs: all else about it is shown."""
    try:
        yield
    except TTABenchError as error:
        found.needs.append(str(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        found.needs.append(f"mending: {blame(error, cls)}")


# -------------------------------------------------------------------------------------------------------- methods


def _describe_method(cls: type[Method], found: Description) -> None:
    found.fields = fields_of(cls)
    with _mending(cls, found):
        found.presets, found.preset_recipes = (_by_name(cls, name) for name in ("presets", "preset_recipes"))
    found.paper = cls.paper._asdict() if cls.paper else None
    if cls.tunes_prompts:
        found.needs.append("a backbone whose prompts can be tuned")
    if any(f.required for f in found.fields):
        return  # without values nothing more can be asked
    method = cls()
    found.status, found.setting = method.status, method.setting
    found.recipes = {str(role): str(recipe.name) for role, recipe in method.recipes.items()}
    second = method.second_backbone()
    if second:
        found.needs.append(f"a second backbone: {second}")
    found.needs += _files(method)
    method.validate()
    found.needs = found.needs or ["nothing but features"]


def _by_name(cls: type[Method], attribute: str) -> dict[str, dict[str, Any]]:
    """`presets` or `preset_recipes`, which may be anything that its author wrote."""
    value = getattr(cls, attribute)
    try:
        return {str(name): {str(key): entry for key, entry in inner.items()} for name, inner in value.items()}
    except AttributeError:
        raise PluginError(f"mending: `{attribute}` maps each name to a mapping, and is {value!r}") from None


def _files(method: Method) -> list[str]:
    try:
        fields = list(method.digests())
    except TTABenchError:
        return []  # there is no file yet, and `validate` says so
    named = {name: getattr(method, name, "") for name in fields}
    return [f"what `{name}` names, {value} by default" for name, value in named.items() if value]


def fields_of(cls: type) -> list[Field]:
    """A dataclass's fields with what their comments say."""
    docs, hints = field_docs(cls), types_of(cls)
    found = []
    for f in dataclasses.fields(cls):
        if not f.init:
            continue
        missing = dataclasses.MISSING
        default = f.default if f.default_factory is missing else f.default_factory()
        choices = [str(word) for word in get_args(hints[f.name])] if get_origin(hints[f.name]) is Literal else []
        kind = f.type if isinstance(f.type, str) else getattr(f.type, "__name__", str(f.type))
        required = default is missing
        found.append(Field(f.name, None if required else default, kind, docs.get(f.name, ""), choices, required))
    return found


def field_docs(cls: type) -> dict[str, str]:
    """Field -> the comment behind it, the one above it or the string below it, read from the source; a class's own
    before inherited."""
    docs: dict[str, str] = {}
    for ancestor in cls.__mro__:
        file = getattr(sys.modules.get(ancestor.__module__), "__file__", None)
        if file and Path(file).suffix == ".py":
            for name, doc in _docs_in(Path(file), ancestor.__name__).items():
                docs.setdefault(name, doc)
    return docs


def _docs_in(file: Path, class_name: str) -> dict[str, str]:
    try:
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (OSError, SyntaxError, ValueError, tokenize.TokenError):
        return {}
    comments = {t.start[0]: t.string.lstrip("#: ").rstrip() for t in tokens if t.type == tokenize.COMMENT}
    docs: dict[str, str] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or node.name != class_name:
            continue
        for statement, below in zip(node.body, [*node.body[1:], None], strict=True):
            if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
                continue
            doc = comments.get(statement.end_lineno or statement.lineno, "")
            if not doc and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                doc = " ".join(str(below.value.value).split())
            if not doc and source.splitlines()[statement.lineno - 2].lstrip().startswith("#"):
                doc = comments[statement.lineno - 1]
            docs[statement.target.id] = doc
    return docs


# ----------------------------------------------------------------------------------------- datasets and backbones


def _describe_dataset(cls: type[Dataset], found: Description, root: Path) -> None:
    if isinstance(getattr(cls, "variants", None), tuple | list):  # a property needs the opened dataset
        found.variants = list(map(str, DatasetExtras.of(cls).variants))
    dataset = cls.open(root)
    found.variants = list(map(str, DatasetExtras.of(dataset).variants))
    found.offers.append(f"{counted(len(dataset), 'image')}, {counted(len(dataset.class_names), 'class')}")
    found.needs.append(f"files below {root}, which are there" if _needs_files(cls) else "no files")


def _needs_files(cls: type[Dataset]) -> bool:
    with tempfile.TemporaryDirectory() as nothing:
        try:
            cls.open(Path(nothing))
        except DataMissing:
            return True
    return False


def _describe_backbone(cls: type[Backbone], found: Description) -> None:
    extras = BackboneExtras.of(cls)
    found.needs.append("its weights: a run says within seconds if they are not here, and how to get them")
    found.offers.append("--weights FILE: other weights for it")
    if extras.random is not None:
        found.offers.append("--random-weights: the architecture untrained, to try a pipeline")
    if extras.named is not None:
        found.offers.append(f"--backbone {cls.name}:ARGUMENT: one of several, by the argument")
    if isinstance(cls, PromptTunable):
        found.offers.append("prompt tuning")
    if extras.made_for:
        found.offers.append(f"made for {', '.join(extras.made_for)} alone")
