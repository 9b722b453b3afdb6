"""Sound files made unsound at random, and what a loader may do with them: load, or refuse in one line, and soon.

Every search is the same in every run: what fails here fails everywhere. `make test` tries few cases of each loader,
`make test-slow` many.
"""

from __future__ import annotations

import copy
import json
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tta_bench.errors import TTABenchError

T = TypeVar("T")

SECONDS = 5.0  # of the processor, that one small file may take
MEMORY = 500_000_000  # bytes, that one small file may take
LONGEST = 1500  # characters of a refusal, the file's own name included

few_and_many = pytest.mark.parametrize(
    "examples", [20, pytest.param(1500, marks=pytest.mark.slow)], ids=["few", "many"]
)


def for_all(examples: int, cases: st.SearchStrategy[T], check: Callable[[T], object]) -> None:
    """Tries `check` on that many cases and shows the first that fails."""
    calm = settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,  # `outcome` looks at the processor's time, which a busy machine does not stretch
        phases=(Phase.generate,),  # to make a failing case smaller would take minutes
        suppress_health_check=list(HealthCheck),
    )

    def try_it(case: T) -> None:
        check(case)

    calm(given(cases)(try_it))()


def outcome(load: Callable[[], T]) -> T | None:
    """What was loaded, or None if it was refused as it should be. Whatever else the loader raises fails the test."""
    began = time.process_time()
    loaded, refusal = None, ""
    with limited_memory():
        try:
            loaded = load()
        except TTABenchError as error:
            refusal = str(error)
    assert time.process_time() - began < SECONDS
    assert "\n" not in refusal
    assert len(refusal) < LONGEST
    return loaded


@contextmanager
def limited_memory() -> Iterator[None]:
    """Whoever asks for more than `MEMORY` beyond what is in use gets a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


# -------------------------------------------------------------------------------------------------------------- bytes

DAMAGES = ("flip", "byte", "cut", "drop", "insert", "repeat", "zero")


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """The content after up to three accidents: flipped bits, other bytes, parts that are lost, doubled or strange."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        how = draw(st.sampled_from(DAMAGES))
        at = draw(st.integers(0, max(len(changed) - 1, 0)))
        end = at + draw(st.integers(1, 64))
        if how == "flip" and changed:
            changed[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "byte" and changed:
            changed[at] = draw(st.sampled_from(b"\0\n\r\t \"',.-0129:[]{}\\\x7f\xc3\xff"))
        elif how == "cut":
            del changed[at:]
        elif how == "drop":
            del changed[at:end]
        elif how == "insert":
            changed[at:at] = draw(st.binary(max_size=16)) + draw(WILD_TEXT).encode(errors="surrogatepass")
        elif how == "repeat":
            changed[at:at] = changed[at:end]
        else:
            changed[at:end] = bytes(len(changed[at:end]))
    return bytes(changed)


# --------------------------------------------------------------------------------------------------------- structures

DEEP: Any = json.loads("[" * 500 + "]" * 500)
CHARACTERS = ("", " ", "\0", "\n", "\r", "\x1b[31m", "\u202e", "\ud800", "\ufeff", "\x85", "\u2028", "é", "²", "٣")
WORDS = ("nan", "inf", "-0", "1e999", "1_0", "..", "/", "\\", "~nobody", "{}", "{0.__class__}", "=1+1", "a" * 5000)
WILD_TEXT = st.one_of(st.text(max_size=8), st.sampled_from((*CHARACTERS, *WORDS)))
WILD_NUMBER = st.one_of(
    st.integers(-3, 300),
    st.floats(),
    st.sampled_from([2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, -1e308, 5e-324, 100.0000001]),
)
WILD = st.one_of(
    st.none(),
    st.booleans(),
    WILD_NUMBER,
    WILD_TEXT,
    st.sampled_from([[], {}, [[]], [None], {"": None}, [{}], DEEP]),
    st.lists(st.one_of(WILD_NUMBER, WILD_TEXT), max_size=3),
    st.dictionaries(WILD_TEXT, st.one_of(WILD_NUMBER, WILD_TEXT), max_size=3),
)


@st.composite
def altered(draw: st.DrawFn, value: Any) -> Any:
    """The value, of dictionaries and lists, with up to three places in it replaced, deleted, renamed or doubled."""
    changed = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(changed))
        if not places:
            return draw(WILD)
        container, key = places[draw(st.integers(0, len(places) - 1))]
        how = draw(st.sampled_from(["replace", "replace", "delete", "rename", "double"]))
        if how == "replace":
            container[key] = copy.deepcopy(draw(WILD))  # one and the same list may be drawn again
        elif how == "delete":
            del container[key]
        elif isinstance(container, list):
            container.insert(draw(st.integers(0, len(container))), copy.deepcopy(container[key]))
        else:
            container[draw(WILD_TEXT)] = container.pop(key) if how == "rename" else copy.deepcopy(container[key])
    return changed


def _places(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    if depth > 6:  # deep enough for every file that we write
        return
    found = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(found):
        yield value, key
        yield from _places(inner, depth + 1)
