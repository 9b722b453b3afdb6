"""Writes docs/python.md: what a script or a plugin may import, with signatures and docstrings.

python -m docs.api            write the page (`make readme`)
python -m docs.api --check    fail when it is not what the code says (`make lint`)
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import tta_bench
from docs.generated import write_or_check
from tta_bench import errors, interfaces, views

ABOVE = """# From Python

Everything that a script or a notebook needs is in `tta_bench`; what plugins are written with is in
`tta_bench.interfaces`, `tta_bench.views` and `tta_bench.errors`. Signatures and words below are those of the code
(`make readme` writes this page), and the examples are tests. Whatever is not on this page may change without notice.

```python
import tta_bench

results = tta_bench.grid(["clip", "purf"], seeds=range(3), limit=100)
results.to_frame()  # pandas, one row per run
results.leaderboard()  # the same table as on the command line
results.compare("clip")  # paired differences with intervals
```

"""
PLUGINS = ["Method", "Observation", "Task", "Paper", "Dataset", "Sample", "DatasetExtras", "Downloadable"]
PLUGINS += ["Backbone", "PromptTunable", "BackboneExtras", "Preprocess", "ViewRecipe"]
SECTIONS: list[tuple[ModuleType, str, list[str]]] = [
    (tta_bench, "Running and reading", ["run", "grid", "load_results", "Results", "RunRecord", "Bench"]),
    (interfaces, "Writing plugins", PLUGINS),
    (views, "Views", ["Original", "AugMix", "Plain", "Holistic", "RandomCrops", "parse_recipe"]),
    (errors, "Errors", ["TTABenchError", "UsageError", "DataMissing", "WeightsMissing", "BadData", "PluginError"]),
]
ONLY = {  # what others than the suite itself have a use for
    "Bench": ("__init__", "backbone", "dataset"),
    "Results": ("filter", "to_frame", "leaderboard", "compare", "orders", "along", "diagnostics"),
    "Dataset": ("open", "__len__", "__getitem__"),
    "Observation": ("__getitem__", "pixels"),
    "ViewRecipe": ("name", "count", "seeded", "render"),
    **dict.fromkeys(("DatasetExtras", "BackboneExtras", "Original", "AugMix", "Plain", "Holistic", "RandomCrops"), ()),
}
LONGEST_LINE = 100
HEADING = re.compile(r"^(Args|Returns|Raises|Example):$", re.MULTILINE)


def page() -> str:
    parts = [ABOVE]
    for module, title, names in SECTIONS:
        parts.append(f"## {title}: `{module.__name__}`\n\n")
        for name in names:
            parts += entry(getattr(module, name), name)
    return "".join(parts).rstrip() + "\n"


def entry(thing: Any, name: str) -> Iterator[str]:
    """A function, or a class with its fields and those of its methods that say what they do."""
    yield f"### `{name}`\n\n"
    if inspect.isfunction(thing):
        yield f"```python\n{signature(definition(thing))}\n```\n\n{prose(docstring(thing))}"
        return
    yield prose(docstring(thing))
    tree, source = definition(thing), textwrap.dedent(inspect.getsource(thing)).splitlines()
    members = [node for node in tree.body if isinstance(node, ast.AnnAssign)]
    if lines := [line for field in members for line in field_lines(field, source)]:
        yield "```python\n" + "\n".join([f"class {name}:", *lines]) + "\n```\n\n"
    for member in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        if shown(name, member):
            yield f"```python\n{signature(member)}\n```\n\n{prose(ast.get_docstring(member) or '')}"


def docstring(thing: Any) -> str:
    """Its own, in full; dataclasses without one write a signature there."""
    own = str(vars(thing).get("__doc__") or "") if isinstance(thing, type) else thing.__doc__
    return "" if own.startswith(f"{thing.__name__}(") else inspect.cleandoc(own)


def definition(thing: Any) -> Any:
    """Its code, in which named constants that are defaults are written out."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    names = vars(sys.modules[thing.__module__])
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.arguments)):
        for defaults in (node.defaults, node.kw_defaults):
            defaults[:] = [written_out(default, names) for default in defaults]
    return tree.body[0]


def written_out(default: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(default, ast.Name):
        return ast.Constant(names[default.id])
    if isinstance(default, ast.Attribute) and isinstance(default.value, ast.Name):
        return ast.Constant(getattr(names[default.value.id], default.attr))
    return default


def shown(owner: str, member: ast.FunctionDef) -> bool:
    if owner in ONLY:
        return member.name in ONLY[owner]
    return member.name == "__init__" or (not member.name.startswith("_") and ast.get_docstring(member) is not None)


def field_lines(field: ast.AnnAssign, source: list[str]) -> Iterator[str]:
    """A field as it is written, comment included; private ones are left out."""
    if isinstance(field.target, ast.Name) and not field.target.id.startswith("_"):
        yield from source[field.lineno - 1 : field.end_lineno]


def signature(tree: ast.FunctionDef) -> str:
    """As in the code; over several lines where it is long."""
    decorators = [ast.unparse(decorator) for decorator in tree.decorator_list]
    kind = "".join(f"@{name}\n" for name in ("classmethod", "property") if name in decorators)
    returns = f" -> {ast.unparse(tree.returns)}" if tree.returns else ""
    arguments = re.sub(r"(?<=[\w\]])=", " = ", ast.unparse(tree.args))
    line = f"def {tree.name}({arguments}){returns}"
    if len(line) > LONGEST_LINE:
        parts = re.split(r", (?=\*|\w+\b[:=,]|\w+$)", arguments)
        line = f"def {tree.name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"
    return f"{kind}{line}"


def prose(text: str) -> str:
    """A docstring as Markdown: arguments as a list, examples as code, pages of these docs as links."""
    if not text:
        return ""
    first, *pieces = HEADING.split(text)
    done = [examples(first)]
    for heading, indented in zip(pieces[::2], pieces[1::2], strict=True):
        body = textwrap.dedent(indented.strip("\n"))
        done.append(examples(body) if heading == "Example" else listed(body))
    linked = re.sub(r"\bdocs/([\w-]+)\.md\b", r"[\1](\1.md)", "\n\n".join(part.strip("\n") for part in done))
    return f"{linked.strip()}\n\n"


def listed(body: str) -> str:
    """`name: what it is` as a list; a line further in belongs to the one before."""
    return "\n".join(
        re.sub(r"^(\w+):", r"- `\1`:", line) if not line.startswith(" ") else f"  {line.strip()}"
        for line in body.splitlines()
    )


def examples(text: str) -> str:
    """Lines from >>> to the next empty one become a block."""
    return re.sub(r"(?m)^>>> (?:.+\n?)+", lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)


if __name__ == "__main__":
    sys.exit(write_or_check(__doc__, lambda: {"python.md": page()}))
