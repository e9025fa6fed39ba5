"""The installed wheel, in a virtual environment without this checkout."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from installing import installed, run

from .projects import INI, PROFILE

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


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the wheel; a test checks the versions of its dependencies."""
    return installed(tmp_path_factory.mktemp("installed"), ROOT)


def test_the_wheel_requires_a_pandas_that_pyspark_supports(python: Path, tmp_path: Path) -> None:
    """A version below 3."""
    packaging = pytest.importorskip("packaging.requirements")
    told = run(python, "-c", SAY, cwd=tmp_path)
    file, requires = json.loads(told.stdout)
    assert str(python.parents[1]) in file
    demanded = {
        found.name: found.specifier
        for found in map(packaging.Requirement, requires)
        if found.marker is None
    }
    assert [
        demanded["pandas"].contains(version) for version in ("2.2.0", "2.3.3", "3.0.0", "3.1.2")
    ] == [True, True, False, False]


def test_a_run_of_the_wheel_emits_no_warning(python: Path, tmp_path: Path) -> None:
    """In the test process, Spark's workers and the JVM, by this package or its dependencies."""
    (tmp_path / "profiles").mkdir()
    profile = PROFILE.format(
        name="smoke",
        rate=500,
        duration="1s",
        slo="{throughput: 1%, sent: 1%}",
        size="messageSize: 64",
        more="",
        driver="{name: loopback}",
    )
    (tmp_path / "profiles" / "smoke.yaml").write_text(profile, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(INI, encoding="utf-8")
    (tmp_path / "test_smoke.py").write_text(TEST, encoding="utf-8")
    done = run(python, "-m", "pytest", "-q", cwd=tmp_path)
    out = done.stdout + done.stderr
    assert done.returncode == 0, out
    assert "profile smoke · MET" in out, out
    assert [line for line in out.splitlines() if re.search(r"\bwarn", line, re.IGNORECASE)] == []
