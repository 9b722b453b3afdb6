"""Writes the table of cases in docs/reliability.md from the tests themselves.

    python docs/reliability.py            rewrite the table (`make readme`)
    python docs/reliability.py --check    fail when it is not what the tests are (`make lint`)

A file of tests is a part of the table, under the sentence that the file begins with. A test's name says what happens
and what comes of it; the numbers beside it are in how many cases that is tried.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reliability.md"
TESTS = ("tests/faults", "tests/property/test_store.py", "tests/e2e/test_kill.py")
TABLE = re.compile(r"(?<=<!-- cases -->\n).*?(?=<!-- end of cases -->)", re.DOTALL)


class Collection:
    """What pytest would run."""

    items: list[pytest.Item]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = session.items


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    old = PAGE.read_text(encoding="utf-8")
    table = "\n".join(lines(collected())) + "\n"
    new = TABLE.sub(lambda _: table, old)
    if new == old:
        return 0
    if check:
        sys.stdout.write(f"{PAGE.relative_to(ROOT)} is stale: `make readme` writes its table of cases anew\n")
        return 1
    PAGE.write_text(new, encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}: {len(table.splitlines())} lines of cases\n")
    return 0


def collected() -> list[pytest.Item]:
    collection, said = Collection(), io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-q", f"--rootdir={ROOT}", *(str(ROOT / t) for t in TESTS)], [collection])
    if code:
        raise SystemExit(f"the tests can't be collected:\n{said.getvalue()}")
    return collection.items


def lines(items: list[pytest.Item]) -> Iterator[str]:
    slow = sum(is_slow(item) for item in items)
    yield f"{len(items)} cases: {len(items) - slow} in `make test` and {slow} in `make test-slow`."
    files: dict[Path, dict[str, list[pytest.Item]]] = {}
    for item in items:
        files.setdefault(item.path, {}).setdefault(words(item), []).append(item)
    for file, tests in sorted(files.items(), key=lambda pair: pair[0].name):
        yield ""
        yield f"**{first_sentence(file)}** ([{file.name}](../{file.relative_to(ROOT)}))"
        yield ""
        yield "| what happens, and what comes of it | `make test` | `make test-slow` |"
        yield "|---|--:|--:|"
        for name, cases in tests.items():
            later = sum(map(is_slow, cases))
            yield f"| {name} | {len(cases) - later or ''} | {later or ''} |"


def is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def words(item: pytest.Item) -> str:
    name: str = getattr(item, "originalname", item.name)
    return name.removeprefix("test_").replace("_", " ")


def first_sentence(file: Path) -> str:
    text = re.match(r'"""(.*?)(?:\n\n|""")', file.read_text(encoding="utf-8"), re.DOTALL)
    if text is None:
        raise SystemExit(f"{file.relative_to(ROOT)} does not begin by saying what it is about")
    return " ".join(text[1].split())


if __name__ == "__main__":
    sys.exit(main())
