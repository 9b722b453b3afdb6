"""Hooks of mkdocs.yml, so that pages that are written for a repository read as a site as well.

Links that leave docs/ lead to copies of the files, below source/. Folders of pages fill their section of the
navigation. Pages that another branch brings may be named in the navigation before they are there.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = {"Method pages": "methods", "Decisions": "adr"}
LINK = re.compile(r"(?<=\]\()(?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
PAGES = {"README.md": "index.md"}  # whose substance is a page of the site already


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    docs = Path(config.docs_dir)
    found: list[Any] = []
    for section in config.nav or []:
        ((title, entries),) = section.items()
        if title in SECTIONS:
            folder = SECTIONS[title]
            entries = [f"{folder}/{file.name}" for file in sorted(docs.joinpath(folder).glob("*.md"))]
        found.append({title: [entry for entry in entries if docs.joinpath(entry).is_file()]})
    config.nav = found
    return config


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return LINK.sub(lambda link: inside(link, page, config, files), markdown)


def inside(link: re.Match[str], page: Page, config: MkDocsConfig, files: Files) -> str:
    """The link as it is, or to the copy of a file of the repository; a folder's is to its README.md."""
    here = posixpath.dirname(f"docs/{page.file.src_uri}")
    target = posixpath.normpath(posixpath.join(here, link["target"]))  # below the repository
    if target.startswith("docs/") or target in (".", "docs"):
        return link[0]
    if target in PAGES:
        return posixpath.relpath(f"docs/{PAGES[target]}", here)
    file = ROOT / target
    if file.is_dir():
        file, target = file / "README.md", f"{target}/README.md"
    if not file.is_file() or ROOT not in file.resolve().parents:
        return link[0]  # mkdocs says that it is broken
    # Shown by any browser as it is, and not made into a page.
    copy = f"source/{target}.txt"
    if files.get_file_from_path(copy) is None:
        files.append(File.generated(config, copy, content=file.read_bytes()))
    return posixpath.relpath(f"docs/{copy}", here) + (link["anchor"] or "")
