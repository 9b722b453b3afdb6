"""Writes docs/licences.md: under which licence each dependency comes, as the installed packages say it themselves.

    python docs/licences.py            rewrite the page (`make licences`)
    python docs/licences.py --check    fail when a package is missing in it or has another licence (`make lint`)

The packages are those of constraints.txt: what pyproject.toml asks for, and what that needs. A package that is not
installed here (an extra need not be) keeps the line that it has. Versions are in constraints.txt alone.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "licences.md"
UNKNOWN = "not looked up: not installed where this page was written"
LONGEST = 60  # characters; a longer field holds the licence's text instead of its name
HEAD = """# Licences of the dependencies

ttabench itself is under the MIT licence. It contains no code of these packages: pip fetches them. `make licences`
writes this page from what each installed package says of itself. On Linux, torch brings NVIDIA's CUDA libraries along,
which are under terms of their own (LicenseRef-NVIDIA-Proprietary). Versions are in constraints.txt.

| package | needed for | licence |
|---|---|---|
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    old = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    new = page(written(old))
    if new == old:
        return 0
    if check:
        sys.stdout.write(f"{PAGE.relative_to(ROOT)} is stale: `make licences` writes it anew\n")
        return 1
    PAGE.write_text(new, encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}: {len(packages())} packages\n")
    return 0


def page(known: dict[str, str]) -> str:
    """`known` are the licences of packages that may not be here."""
    uses = needed_for()
    rows = (
        f"| {name} | {uses.get(plain(name), 'another package')} | {licence(name) or known.get(name, UNKNOWN)} |"
        for name in packages()
    )
    return HEAD + "\n".join(rows) + "\n"


def written(text: str) -> dict[str, str]:
    """Package -> licence, as the page has them."""
    return dict(re.findall(r"^\| ([\w.-]+) \| [^|]* \| ([^|]*) \|$", text, re.MULTILINE))


def packages() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line.partition("==")[0] for line in lines if line and not line.startswith("#")]


def needed_for() -> dict[str, str]:
    """Package -> what pyproject.toml asks for it for: ttabench itself, or extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    uses: dict[str, list[str]] = {}
    for use, wanted in {"ttabench": project["dependencies"], **project["optional-dependencies"]}.items():
        for text in wanted:
            name = re.match(r"[\w.-]+", text)
            assert name is not None
            uses.setdefault(plain(name[0]), []).append(use if use == "ttabench" else f"`[{use}]`")
    return {name: ", ".join(found) for name, found in uses.items()}


def plain(name: str) -> str:
    """open_clip_torch and open-clip-torch are one package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(name: str) -> str:
    """In the package's own words; empty if it is not installed here."""
    try:
        said: Any = importlib.metadata.metadata(name)  # an email.Message, which its type does not say
    except importlib.metadata.PackageNotFoundError:
        return ""
    classifiers = [c.rpartition(" :: ")[2] for c in said.get_all("Classifier") or [] if c.startswith("License :: ")]
    field = said.get("License") or ""
    short = field if field and "\n" not in field and len(field) <= LONGEST else ""
    return said.get("License-Expression") or short or ", ".join(classifiers) or "not stated"


if __name__ == "__main__":
    sys.exit(main())
