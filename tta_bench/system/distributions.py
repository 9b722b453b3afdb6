"""What is installed: which distribution a module among the libraries comes from, and what of it counts.

What ttabench needs itself (torch, numpy …) counts by its name, and records hold the versions. Everything else that is
installed may be a plugin's own, or what it rests on: it counts by all that was put there, data and compiled code
included, and by what it requires in turn.
"""

from __future__ import annotations

import base64
import importlib.metadata
import re
import sys
from collections.abc import Iterable
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, PackagePath
from pathlib import Path

from tta_bench.system.compiled import is_compiled
from tta_bench.system.files import digest, file_digest

OURS = "ttabench"
NEEDED = "cv2 numpy open_clip pandas PIL pluggy safetensors timm torch torchvision yaml"  # what most plugins import
EVERYBODYS = {*sys.stdlib_module_names, "tta_bench", *NEEDED.split()}  # no metadata need be read for them
LIBRARIES = {"site-packages", "dist-packages"}  # names of their folders
LARGE = 20e6  # bytes: beyond, reading all of it would be felt
ABOUT = (".dist-info", ".egg-info")  # how it was installed, and as which version, which may be the same code
_counted: set[Path] = set()  # files that are a part of some content


@cache
def content(package: str) -> str:
    """Digest of the distributions that bring a top-level package, and of those that they require; empty for one that
    ttabench needs itself, that is not there, or that is a checkout: its files count where they lie."""
    if package in EVERYBODYS:
        return ""
    if package not in _bringing():
        dropped = _dropped(package)
        return digest(dropped) if dropped else ""
    names = closure(_bringing()[package]) - needed()
    parts = {name: _content(_installed()[name]) for name in sorted(names)}
    if names and (dropped := _dropped(package)):
        parts["dropped"] = dropped
    return digest(parts) if any(parts.values()) else ""


@cache
def needed() -> frozenset[str]:
    """What ttabench requires, itself included."""
    return closure([OURS])


def is_common(package: str) -> bool:
    """Whether a top-level package is Python's, or of what ttabench needs: nobody's own."""
    return package in EVERYBODYS or not needed().isdisjoint(_bringing().get(package, ()))


@cache
def offering() -> frozenset[str]:
    """Top-level packages of others that offer plugins."""
    try:
        entries = importlib.metadata.entry_points(group=OURS)
    except Exception:  # some other distribution's file is malformed: the registry has said so
        return frozenset()
    return frozenset(entry.module.partition(".")[0] for entry in entries) - {"tta_bench"}


@cache
def plugins_own() -> frozenset[str]:
    """Top-level packages of all distributions that offer plugins."""
    return frozenset[str]().union(*map(beside, offering()))


def is_counted(file: Path, package: str) -> bool:
    """Whether a file in a top-level package is known here: by a content that was asked for, or as a part of what
    ttabench needs. What Python keeps of it follows from it."""
    theirs = needed() & set(_bringing().get(package, ()))
    return "__pycache__" in file.parts or file in _counted or any(file in _listed(name) for name in theirs)


@cache
def _listed(name: str) -> frozenset[Path]:
    folder = Path(str(_installed()[name].locate_file(""))).resolve()
    return frozenset(folder / file for file in _installed()[name].files or ())


@cache
def beside(package: str) -> frozenset[str]:
    """A package, and whatever else its distribution brings along if it offers plugins."""
    if package not in offering():
        return frozenset({package})
    brought = (name for name in _bringing().get(package, ()) if name not in needed())
    files = (file for name in brought for file in _installed()[name].files or ())
    return frozenset({package, *(file.parts[0].removesuffix(".py") for file in files if file.suffix == ".py")})


def closure(names: Iterable[str]) -> frozenset[str]:
    """With all that these distributions require, and that is installed; what an extra wants if that was asked for."""
    found: set[tuple[str, str]] = set()  # names, and each with every extra
    todo = [(name, "") for name in names]
    while todo:
        name, extra = todo.pop()
        if (name, extra) not in found and name in _installed():
            found.add((name, extra))
            lines = [line for line in _installed()[name].requires or () if extra in (_extras_of(line) or [""])]
            todo += [(_plain(line), asked) for line in lines for asked in ("", *_asked_for(line))]
    return frozenset(name for name, _ in found)


def _extras_of(requirement: str) -> list[str]:
    """Those that it is for."""
    return [_plain(name) for name in re.findall(r"""extra\s*==\s*['"]([^'"]+)""", requirement)]


def _asked_for(requirement: str) -> list[str]:
    """The extras of `name[these, and_these]`."""
    found = re.match(r"[\w.-]+\s*\[([^]]*)", requirement)
    return [_plain(name.strip()) for name in found[1].split(",")] if found else []


def _plain(requirement: str) -> str:
    """The name in a requirement, in one spelling."""
    found = re.match(r"[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0] if found else "").lower()


@cache
def _installed() -> dict[str, Distribution]:
    found: dict[str, Distribution] = {}
    for distribution in importlib.metadata.distributions():
        try:
            found.setdefault(_plain(distribution.name), distribution)  # the first on the path is what is imported
        except Exception:  # its metadata can't be read: the registry has said so
            continue
    return found


@cache
def _bringing() -> dict[str, list[str]]:
    """Top-level package -> the distributions that it comes from."""
    try:
        found = importlib.metadata.packages_distributions()
    except Exception:  # as above
        return {}
    return {package: sorted(set(map(_plain, names)) & _installed().keys()) for package, names in found.items()}


def _dropped(package: str) -> list[list[str]]:
    """Of what lies among the libraries though no distribution lists it: its digests, of a package that one has brought
    those of its code. What else lies there may be a cache."""
    spec = PathFinder.find_spec(package)
    places = [] if spec is None else [*(spec.submodule_search_locations or [spec.origin or ""])]
    brought = _bringing().get(package, ())
    listed = frozenset[Path]().union(*map(_listed, brought))
    parts = []
    for place in (Path(place).resolve() for place in places if not LIBRARIES.isdisjoint(Path(place).parts)):
        found = place.rglob("*") if place.is_dir() else [place]
        files = sorted(file for file in found if file.is_file() and "__pycache__" not in file.parts)
        files = [file for file in files if file not in listed and (not brought or _is_code(file))]
        parts += [[str(file.relative_to(place.parent)), file_digest(file)] for file in files]
        _counted.update(files)
    return parts


def _is_code(file: Path) -> bool:
    return file.suffix == ".py" or is_compiled(file)


def _content(distribution: Distribution) -> list[list[str]]:
    """Its files with their digests: as they are, or if it is large and offers no plugin as they were installed, but
    for those that look as if they had changed since."""
    files = [file for file in distribution.files or () if _counts(file)]
    _counted.update(Path(str(file.locate())).resolve() for file in files)
    by_bytes = any(entry.group == OURS for entry in distribution.entry_points)
    by_bytes = by_bytes or sum(file.size or 0 for file in files) < LARGE
    installed = 0.0 if by_bytes else _installed_at(distribution)
    return sorted([str(file), _digest(file, installed)] for file in files)


def _installed_at(distribution: Distribution) -> float:
    """When its list of files was written, which is done last."""
    folder = next((file.parts[0] for file in distribution.files or () if file.parts[0].endswith(ABOUT)), "")
    try:
        return Path(str(distribution.locate_file(f"{folder}/RECORD"))).stat().st_mtime
    except OSError:  # it has another list
        return 0.0


def _counts(file: PackagePath) -> bool:
    """Not what Python or pip write for themselves, nor how a checkout is found: that is another path elsewhere."""
    written = file.parts[0].endswith(ABOUT) or "__pycache__" in file.parts or ".." in file.parts
    return not written and not file.parts[0].startswith("__editable__") and file.suffix != ".pth"


def _digest(file: PackagePath, installed: float) -> str:
    """Of its bytes, which may be the recorded ones; of what was not touched since then the recorded one."""
    recorded = "" if file.hash is None or file.hash.mode != "sha256" else file.hash.value
    place = Path(str(file.locate()))
    try:
        seen = place.stat()
        if recorded and installed and seen.st_size == file.size and seen.st_mtime <= installed:
            return recorded
        found = file_digest(place)
    except OSError:
        return "gone"
    as_recorded = base64.urlsafe_b64encode(bytes.fromhex(found)).rstrip(b"=").decode()
    return recorded if installed and as_recorded == recorded else found
