"""What Python source says about itself, read without running it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection
from pathlib import Path
from typing import Any


def parsed(file: Path | None) -> ast.Module:
    """The file's syntax tree; an empty one if there is no such file or it is not Python."""
    try:
        return _tree(file.read_text(encoding="utf-8") if file else "")
    except (OSError, SyntaxError, ValueError):
        return _tree("")


@functools.lru_cache(maxsize=256)  # a list asks each file for its summary, its title and more
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


def members(tree: ast.Module, name: str, wanted: Collection[str]) -> dict[str, Any]:
    """The values of class members that are written out, in the class whose own `name` is as given.

    A call stands for its arguments, and a property that chooses between two texts for both of them.
    """
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        written = dict(_written(cls))
        if "name" in written and _value(written["name"]) == name:
            values = {member: _value(node) for member, node in written.items() if member in wanted}
            return {member: value for member, value in values.items() if value is not None}
    return {}


def _written(cls: ast.ClassDef) -> list[tuple[str, ast.AST]]:
    found: list[tuple[str, ast.AST]] = []
    for statement in cls.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.AST() as value):
                found.append((name, value))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.append((name, value))
            case ast.FunctionDef(name=name, body=[*_, ast.Return(value=ast.AST() as value)]):
                found.append((name, value))
    return found


def _value(node: ast.AST) -> Any:
    """None where it is not written out."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Call(args=arguments):
            return tuple(str(_value(argument) or "") for argument in arguments)
        case ast.IfExp(body=ast.Constant(value=str(one)), orelse=ast.Constant(value=str(other))):
            return f"{one} or {other}"
    return None
