"""The small faults that a mutation check plants: every place of a source where one edit gives another program.

A mutant is an edit of the text, so that what is listed is what was run. Annotations, decorators, docstrings, f-strings
and the arguments of an exception change no number and are left alone.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

Place: TypeAlias = ast.stmt | ast.expr

OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Lt: (ast.LtE, ast.GtE),  # the edge, and the opposite
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_PAIRS = (
    "min max, amin amax, minimum maximum, argmin argmax, clamp_min clamp_max, clamp_min_ clamp_max_, lowest highest,"
    "any all, floor ceil, sum mean, add sub, add_ sub_, mul_ div_, exp log, exp_ log_,"
    "zeros ones, zeros_like ones_like, new_zeros new_ones"
)
NAMES = {a: b for pair in _PAIRS.split(",") for one, other in [pair.split()] for a, b in ((one, other), (other, one))}


@dataclass(frozen=True)
class Mutant:
    """One edit of one file."""

    file: str  # relative to the repository
    function: str  # the outermost function or method around it, "" for what runs at import
    line: int
    start: int  # of the replaced bytes in the file
    end: int
    replacement: str
    was: str  # the lines around the edit, as one
    became: str

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.replacement.encode() + source[self.end :]

    @property
    def place(self) -> str:
        return f"{self.file}::{self.function}"

    @property
    def change(self) -> str:
        return f"{self.was} → {self.became}"


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    """Every mutant of a source, in the order of its text."""
    tree = ast.parse(source)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    found = []
    for function, node in _nodes(tree):
        for replaced, replacement in dict.fromkeys(_replacements(node)):  # 1.0 + 1.0 is 1.0 * 2
            start = starts[replaced.lineno - 1] + replaced.col_offset
            end = starts[(replaced.end_lineno or 0) - 1] + (replaced.end_col_offset or 0)
            before, after = source[starts[replaced.lineno - 1] : start], source[end : starts[replaced.end_lineno or 0]]
            was, became = (_one_line(before + text + after) for text in (source[start:end], replacement.encode()))
            found.append(Mutant(file, function, replaced.lineno, start, end, replacement, was, became))
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end, mutant.replacement))


# ---------------------------------------------------------------------------------------------- where a fault may be


def _nodes(node: ast.AST, function: str = "", in_function: bool = False) -> Iterator[tuple[str, Place]]:
    """Statements and expressions that a fault may be in, each with the outermost function around it."""
    for child in _inside(node):
        inner, inner_is_function = function, in_function
        if isinstance(child, (ast.ClassDef, ast.FunctionDef)) and not in_function:
            inner = f"{function}.{child.name}" if function else child.name
            inner_is_function = isinstance(child, ast.FunctionDef)
        if isinstance(child, Place):
            yield (function if in_function else ""), child
        yield from _nodes(child, inner, inner_is_function)


def _inside(node: ast.AST) -> Iterable[ast.AST]:
    match node:
        case ast.JoinedStr() | ast.Raise() | ast.Import() | ast.ImportFrom():
            return []
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return []
        case ast.AnnAssign():
            return [node.value] if node.value else []
        case ast.arg():
            return []
        case ast.FunctionDef():
            return [node.args, *node.body]
        case ast.ClassDef():
            return node.body
        case ast.Expr(value=ast.Constant(value=str())):  # a docstring
            return []
        case ast.Subscript(value=ast.Name(id="Callable")) | ast.Call(func=ast.Name(id="TypeVar")):
            return []  # a name for a type
        case _:
            return ast.iter_child_nodes(node)


# ------------------------------------------------------------------------------------------------- what a fault may be


def _replacements(node: Place) -> Iterator[tuple[Place, str]]:
    """What is replaced, the node or a part of it, and by what."""
    match node:
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield node, "return None"
        case ast.Raise() | ast.AugAssign():
            yield node, "pass"
        case ast.Expr() if not isinstance(node.value, ast.Constant):
            yield node, "pass"
        case ast.Assign() if _can_be_dropped(node):
            yield node, "pass"
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call()):
            yield node.test, f"not {ast.unparse(node.test)}"
        case ast.expr():
            for other in _expressions(node):
                text = ast.unparse(other)
                stands_alone = isinstance(other, ast.Slice | ast.Constant | ast.Name | ast.Attribute | ast.Call)
                yield node, text if stands_alone else f"({text})"


def _can_be_dropped(node: ast.Assign) -> bool:
    """Whether what it assigns to may be there already: otherwise every use of it would fail, which shows nothing."""
    targets = [part for target in node.targets for part in ast.walk(target)]
    if any(isinstance(part, ast.Attribute | ast.Subscript) for part in targets):
        return True
    read = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
    return all(part.id in read for part in targets if isinstance(part, ast.Name))


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.BinOp() | ast.BoolOp():
            for operator in OPERATORS.get(type(node.op), ()):
                yield _with(node, op=operator())
        case ast.Compare(ops=[only]):
            for operator in OPERATORS[type(only)]:
                yield _with(node, ops=[operator()])
        case ast.Compare(ops=several):
            for i, one in enumerate(several):
                for operator in OPERATORS[type(one)]:
                    yield _with(node, ops=[*several[:i], operator(), *several[i + 1 :]])
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
            yield node.operand
        case ast.Constant(value=value):
            yield from (ast.Constant(other) for other in _constants(value))
        case ast.IfExp():
            yield node.body
            yield node.orelse
        case ast.Slice():
            for bound in ("lower", "upper", "step"):
                if getattr(node, bound) is not None:
                    yield _with(node, **{bound: None})
        case ast.Attribute(attr=name, value=owner) if name in NAMES and not _is_self(owner):  # no field of that name
            yield _with(node, attr=NAMES[name])
        case ast.Call():
            if isinstance(node.func, ast.Name) and node.func.id in NAMES:
                yield _with(node, func=ast.Name(NAMES[node.func.id]))
            for i in range(len(node.keywords)):
                yield _with(node, keywords=node.keywords[:i] + node.keywords[i + 1 :])


def _constants(value: object) -> Iterator[bool | int | float | str]:
    match value:
        case bool():
            yield not value
        case int():
            yield value + 1
            yield value - 1
        case float():
            yield value + 1.0
            if value:
                yield value * 2
        case str():
            yield f"?{value}"


def _with(node: ast.expr, **parts: object) -> ast.expr:
    changed = copy.copy(node)
    for name, part in parts.items():
        setattr(changed, name, part)
    return changed


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _one_line(lines: bytes) -> str:
    """Without the comments, which may change."""
    return " ".join(" ".join(line.partition("  # ")[0] for line in lines.decode().splitlines()).split())
