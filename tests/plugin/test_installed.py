"""The installed wheel, in a virtual environment without this checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from .projects import INI, PROFILE, TIMEOUT

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
TEST = """\
import pytest

@pytest.mark.load("smoke")
def test_smoke(load):
    load.assert_slo()
"""
SAY = """\
import json
from importlib.metadata import distribution
import pytest_loadtest
print(json.dumps([pytest_loadtest.__file__, distribution("pytest-loadtest").requires]))
"""


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without the environment variables of this test run."""
    ours = ("PYTEST_", "COV_", "PYTHONPATH", "PYTHONWARNINGS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the wheel. Its dependencies (700 MB) are taken from here; a test checks their versions."""
    folder = tmp_path_factory.mktemp("installed")
    built = run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    if "No matching distribution found for hatchling" in built.stderr:
        pytest.skip("no package index answers: the wheel cannot be built")
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    made = run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    assert made.returncode == 0, made.stderr
    python = folder / "venv" / "bin" / "python"
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).stdout.strip())
    # a path file is read in a site folder alone, so that an editable install of this checkout is not found by this one
    (own / "dependencies.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}), encoding="utf-8")
    done = run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    return python


def test_the_wheel_requires_a_pandas_that_pyspark_supports(python: Path, tmp_path: Path) -> None:
    """A version below 3."""
    packaging = pytest.importorskip("packaging.requirements")
    told = run(python, "-c", SAY, cwd=tmp_path)
    file, requires = json.loads(told.stdout)
    assert str(python.parents[1]) in file
    demanded = {found.name: found.specifier for found in map(packaging.Requirement, requires) if found.marker is None}
    assert [demanded["pandas"].contains(version) for version in ("2.2.0", "2.3.3", "3.0.0", "3.1.2")] == [True, True, False, False]


def test_a_run_of_the_wheel_emits_no_warning(python: Path, tmp_path: Path) -> None:
    """In the test process, Spark's workers and the JVM, by this package or its dependencies."""
    (tmp_path / "profiles").mkdir()
    profile = PROFILE.format(name="smoke", rate=500, duration="1s", slo="{throughput: 1%, sent: 1%}", size="messageSize: 64", more="")
    (tmp_path / "profiles" / "smoke.yaml").write_text(profile, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(INI, encoding="utf-8")
    (tmp_path / "test_smoke.py").write_text(TEST, encoding="utf-8")
    done = run(python, "-m", "pytest", "-q", cwd=tmp_path)
    out = done.stdout + done.stderr
    assert done.returncode == 0, out
    assert "profile smoke · MET" in out, out
    assert [line for line in out.splitlines() if re.search(r"\bwarn", line, re.IGNORECASE)] == []
