"""The files of a new plugin: a package that can be installed and tested as it is, or one loose file.

Templates lie beside this module. What they make is run by the tests: an author begins with something that works.
"""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from tta_bench.errors import UsageError
from tta_bench.system.files import write_atomically
from tta_bench.system.text import visible

if TYPE_CHECKING:
    from tta_bench.plugins import Kind, Registry

LONGEST = 64  # characters of a name, which becomes that of a file
NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
ALL = "all"  # behind --method
# How the new plugin is examined and run, by its kind.
CHECK = {
    "methods": "ttabench check {target}",
    "datasets": "ttabench check {target} --data-root DIR",
    "backbones": "ttabench check {target} --random-weights",
}
RUN = {
    "methods": "ttabench run --method clip,regions,{name}{plugin} --limit 300",  # as the demo: they share a table
    "datasets": "ttabench run --method clip,regions --dataset {name} --backbone vit-b16 --data-root DIR{plugin}",
    "backbones": "ttabench run --method clip --backbone {name} --random-weights{plugin}",
}


@dataclass(frozen=True)
class Scaffold:
    """A plugin that is about to be written."""

    kind: Kind
    name: str

    @classmethod
    def of(cls, kind: Kind, name: str, registry: Registry) -> Scaffold:
        """Raises `UsageError` for a name that could not be installed, imported or told from another."""
        check_spelling(name)
        found = cls(kind, name)
        taken = next((p.origin for p in registry.plugins(kind) if p.name == name), "")
        reasons = {
            f"is a {kind[:-1]} of {taken} already": bool(taken),
            "stands for every method": name == ALL,
            "is a word of Python": keyword.iskeyword(found.module),
            "is a Python module already": found.module in sys.stdlib_module_names or _importable(found.module),
        }
        for reason, holds in reasons.items():
            if holds:
                raise UsageError(f"'{name}' {reason}: call yours my-{name}, for example")
        return found

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")

    @property
    def class_name(self) -> str:
        """MyMethod; with its kind behind it where the template has that word for something else: `Task`, `Path`."""
        plain = "".join(part.capitalize() for part in self.module.split("_"))
        taken = re.search(rf"\b{plain}\b", _template(f"{self.kind[:-1]}.py") + _template(f"{self.kind[:-1]}_test.py"))
        return plain + self.kind[:-1].capitalize() if taken else plain

    def package(self) -> dict[str, str]:
        """Path below the package's folder -> content."""
        singular = self.kind[:-1]
        templates = {
            f"{self.module}.py": f"{singular}.py",
            f"test_{self.module}.py": f"{singular}_test.py",
            "pyproject.toml": "pyproject.toml",
            "README.md": "README.md",
            ".gitignore": "gitignore",
        }
        return {path: self._rendered(template) for path, template in templates.items()}

    def loose_file(self) -> str:
        return self._rendered(f"{self.kind[:-1]}.py")

    def check_command(self, file: Path | None = None) -> str:
        return CHECK[self.kind].format(target=file or self.name)

    def run_command(self, file: Path | None = None) -> str:
        return RUN[self.kind].format(name=self.name, plugin=f" --plugin {file}" if file else "")

    def _rendered(self, template: str) -> str:
        from jinja2 import Environment, StrictUndefined

        environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
        return environment.from_string(_template(template)).render(
            kind=self.kind[:-1],
            name=self.name,
            module=self.module,
            class_name=self.class_name,
            check=self.check_command(),
            run=self.run_command(),
        )


def check_spelling(name: str) -> None:
    """Raises `UsageError` for what is no name of a distribution, a module and an entry point at once."""
    if not NAME.fullmatch(name) or len(name) > LONGEST:
        proposed = _proposed(name)
        rule = f"write up to {LONGEST} small letters, digits and single hyphens, a letter first"
        hint = f". Did you mean {proposed}?" if proposed else ""
        raise UsageError(visible(f"'{name}' can't be a plugin's name: {rule}{hint}"))


def write(files: Mapping[Path, str]) -> None:
    for file, content in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content.encode())


def _template(name: str) -> str:
    return resources.files(__package__).joinpath("templates", f"{name}.jinja").read_text(encoding="utf-8")


def _proposed(name: str) -> str:
    """MyMethod, my.method and My Method -> my-method."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    plain = re.sub(r"[^a-z0-9]+", "-", spaced.casefold()).strip("-")
    return plain if NAME.fullmatch(plain) and len(plain) <= LONGEST else ""


def _importable(module: str) -> bool:
    """Whether it would be shadowed. A plain folder in the working folder has no origin, and shadows nothing."""
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.origin is not None
