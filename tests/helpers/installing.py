"""Wheels of projects in a virtual environment without this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

TIMEOUT = 280  # s; a command that hangs ends here


def run(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command without the environment variables of this test run. :param variables: those to add."""
    ours = ("PYTEST_", "COV_", "PYTHONPATH", "PYTHONWARNINGS")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(ours)
    } | variables
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def installed(folder: Path, *projects: Path) -> Path:
    """Return the Python of an environment with these projects' wheels. Dependencies (700 MB) are taken from the environment of this test run."""
    built = run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        folder,
        *projects,
        cwd=folder,
    )
    if "No matching distribution found for hatchling" in built.stderr:
        pytest.skip("no package index answers: the wheels cannot be built")
    assert built.returncode == 0, built.stderr
    made = run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    assert made.returncode == 0, made.stderr
    python = folder / "venv" / "bin" / "python"
    own = Path(
        run(
            python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder
        ).stdout.strip()
    )
    # a path file is read in a site folder alone, so that an editable install of this checkout is not found by this one
    (own / "dependencies.pth").write_text(
        "\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}), encoding="utf-8"
    )
    wheels = sorted(folder.glob("*.whl"))
    assert len(wheels) == len(projects)
    done = run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        *wheels,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return python
