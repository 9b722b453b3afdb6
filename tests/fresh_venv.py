"""A virtual environment of its own that sees this one's packages, without network: for what is installed by pip."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FreshVenv:
    """Scripts and imports as a user has them who installed something with pip."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, *importable: Path) -> FreshVenv:
        """Libraries come from this environment, behind the new one's own. Its `.pth` files are not followed, so that
        the checkout is not among them unless it is named."""
        venv.create(folder, symlinks=True)
        made = cls(folder)
        paths = [*importable, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        (made.site_packages / "libraries.pth").write_text("".join(f"{path}\n" for path in dict.fromkeys(paths)))
        return made

    @property
    def site_packages(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def pip_install(self, *arguments: str) -> None:
        offline = ("--no-deps", "--no-build-isolation", "--no-index")
        quiet = ("--quiet", "--disable-pip-version-check")
        python = str(self.folder / "bin" / "python")
        command = [sys.executable, "-m", "pip", "--python", python, "install", *quiet, *offline, *arguments]
        subprocess.run(command, env=_plain_environment(), check=True, timeout=300)

    def call(self, script: str, *arguments: str, cwd: Path, **variables: str) -> str:
        """What a script of the environment prints, or a module behind `python`; a failure shows all it said."""
        done = subprocess.run(
            [str(self.folder / "bin" / script), *arguments],
            cwd=cwd,
            env=_plain_environment() | variables,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{script} {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout


def _plain_environment() -> dict[str, str]:
    """Without PYTHONPATH: the checkout would be seen by way of it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
