"""Source text: what of it can change a number, and which modules it imports.

A built-in counts in an identity by what it says and not by a version that somebody would have to raise. Comments,
docstrings and layout say nothing, and which Python reads the text must not matter: so tokens are compared, not trees.
"""

from __future__ import annotations

import ast
import functools
import io
import token
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tta_bench.system.compiled import is_compiled
from tta_bench.system.files import digest, file_digest

PACKAGE = Path(__file__).resolve().parent.parent
OURS = "tta_bench"
# Of our modules these are not followed. `views`: its digest counts for each recipe, and in the key of the store.
# `interfaces`: what is handed over, which contract tests hold; a field more would make every row another one. The rest
# is how files are read and errors said.
NOT_FOLLOWED = tuple(
    f"{OURS}.{name}." for name in ("views", "interfaces", "errors", "hookspecs", "downloads", "system")
)
# From Python 3.12 on an f-string is many tokens; before, it is one.
OPENS, CLOSES = ({getattr(token, f"FSTRING_{end}", None)} - {None} for end in ("START", "END"))
TITLE = "title : ClassVar [ str ] ="  # a name in print, which no number depends on
SILENT = (tokenize.ENCODING, tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER)


@functools.cache
def built_in_source(module: str) -> str:
    """Digest of a module of ours and of those that it uses, as they are when this is first asked for."""
    found, todo = {module}, [module]
    while todo:
        used = _imports_of_ours(todo.pop()) - found
        found |= used
        todo += used
    return digest({name: own_source(name) for name in sorted(found)})


def _imports_of_ours(module: str) -> set[str]:
    file = _file(module)
    names = imported(source_of(module), module, is_package=file is not None and file.name == "__init__.py")
    return set(filter(counts, names))


def counts(module: str) -> bool:
    """Whether it is a module of ours, and whoever uses it depends on what it says."""
    ours = module.startswith(f"{OURS}.") and not f"{module}.".startswith(NOT_FOLLOWED)
    return ours and _file(module) is not None


def _file(module: str) -> Path | None:
    """Where a module of ours is, found without importing anything."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    found = (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())
    return next(found, None)


@functools.cache
def source_of(module: str) -> bytes:
    file = _file(module)
    return b"" if file is None else file.read_bytes()


@functools.cache
def own_source(module: str) -> str:
    """Digest of a module of ours alone."""
    return digest(essence(source_of(module)))


def essence(content: bytes) -> str:
    """Python source without comments, docstrings, titles, blank lines and layout: a logical line per line, with its
    depth."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    source = io.StringIO(content.decode(encoding), newline=None).read()
    lines: list[str] = []
    words: list[str] = []
    depth, only_text = 0, True
    for kind, text in _tokens(source):
        if kind == tokenize.INDENT:
            depth += 1
        elif kind == tokenize.DEDENT:
            depth -= 1
        elif kind == tokenize.NEWLINE:
            line = " ".join(words)
            if not only_text and not line.startswith(TITLE):  # only text: a string that stands alone, as docstrings do
                lines.append(f"{depth} {line}")
            words, only_text = [], True
        else:
            words.append(text)
            only_text = only_text and kind == tokenize.STRING and "f" not in text.partition(text[-1])[0].lower()
    return "\n".join(lines)


def _tokens(source: str) -> Iterator[tuple[int, str]]:
    """Tokens that mean something, an f-string as one whatever is in it."""
    lines = source.splitlines(keepends=True)
    open_, start = 0, (0, 0)
    for found in tokenize.generate_tokens(io.StringIO(source).readline):
        if found.type in OPENS:
            start = start if open_ else found.start
            open_ += 1
        elif found.type in CLOSES:
            open_ -= 1
            if not open_:
                yield OPENED, _between(lines, start, found.end)
        elif not open_ and found.type not in SILENT:
            yield found.type, found.string


OPENED = tokenize.OP  # the kind of a whole f-string: anything but a plain string


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    (first, left), (last, right) = start, end
    if first == last:
        return lines[first - 1][left:right]
    return "".join([lines[first - 1][left:], *lines[first : last - 1], lines[last - 1][:right]])


# ------------------------------------------------------------------------------------------------------------ imports


class Source(NamedTuple):
    """A module's file, links followed, and what was in it when it was read."""

    file: Path
    content: bytes  # of an extension its digest: it may be large, and Python loads the file itself

    @classmethod
    def read(cls, file: Path) -> Source:
        return cls(file, file_digest(file).encode() if is_compiled(file) else file.read_bytes())

    @property
    def own_digest(self) -> str:
        """As `stamps.content` has it of a file."""
        return self.content.decode() if is_compiled(self.file) else digest(self.content)

    def imports(self, module: str) -> frozenset[str]:
        """What it imports as that module; what an extension does can't be seen."""
        if is_compiled(self.file):
            return frozenset()
        return imported(self.content, module, self.file.name == "__init__.py")


@functools.lru_cache(maxsize=1024)
def imported(content: bytes, module: str, is_package: bool) -> frozenset[str]:
    """Every name that the source imports anywhere, in functions too, with the packages above it. Some of them are no
    modules but what is in one."""
    package = module if is_package else module.rpartition(".")[0]
    named = {name for node in ast.walk(ast.parse(content)) for name in _named_by(node, package)}
    split = [name.split(".") for name in named]
    return frozenset(".".join(parts[: i + 1]) for parts in split for i in range(len(parts)))


def _named_by(node: ast.AST, package: str) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            base = absolute(node.level, node.module or "", package)
            return [base, *(f"{base}.{alias.name}" for alias in node.names)]
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            plain = name.lstrip(".")
            return [absolute(len(name) - len(plain), plain, package)]
        case _:
            return []


def absolute(level: int, name: str, package: str) -> str:
    """`name` as seen from `package`, `level` dots before it."""
    parts = package.split(".")
    above = parts[: len(parts) - level + 1] if level else []
    return ".".join([*above, *filter(None, [name])])
