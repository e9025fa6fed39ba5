"""A foreign package registers a driver that cannot be loaded: only tests that need a driver are affected."""

from __future__ import annotations

import os

import pytest

from .projects import PROFILE, Project

TEST = """\
import pytest

@pytest.mark.load("smoke")
def test_load(load):
    load.assert_slo()
"""
SAID = (
    "driver 'kafka' of the package their-package (their_package:KIND) cannot be loaded: ModuleNotFoundError: No module named 'their_package'"
    ": upgrade it, or pip uninstall their-package"
)


@pytest.fixture
def broken(project: Project) -> Project:
    """Return a project in whose environment such a package is installed."""
    metadata = project.path / "installed" / "their_package-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[pytest_loadtest.drivers]\nkafka = their_package:KIND\n"
    )
    path = project.environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    project.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(metadata.parent), path]))
    profile = PROFILE.format(
        name="smoke",
        rate=100,
        duration="1s",
        slo="{throughput: 1%, sent: 1%}",
        size="messageSize: 64",
        more="",
        driver="{name: loopback}",
    )
    project.write("profiles/smoke.yaml", profile)
    project.write("test_load.py", TEST)
    project.write("test_ordinary.py", "def test_ordinary(): pass\n")
    return project


@pytest.mark.parametrize(
    "arguments", [("--help",), ("test_ordinary.py",)], ids=["help", "a test without load"]
)
def test_a_session_without_load_tests_is_not_affected(
    broken: Project, arguments: tuple[str, ...]
) -> None:
    """There is neither an error nor any output."""
    run = broken.run(*arguments)
    assert run.ret == 0
    assert "their-package" not in run.out


def test_a_load_test_is_a_usage_error_that_names_the_package(broken: Project) -> None:
    """With the remedy; for any driver of the profile, because the package may claim its name too."""
    run = broken.run()
    assert SAID in " ".join(run.out.split()), run.out
    assert run.ret == pytest.ExitCode.USAGE_ERROR
