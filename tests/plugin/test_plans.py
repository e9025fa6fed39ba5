"""``--load-plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .projects import Project


def test_a_plan_runs_nothing(project: Project) -> None:
    """The plan of every selected load test for 16 workers is printed; no worker, broker or JVM is started."""
    project.profile("small", rate=10_000_000)
    project.write(
        "test_it.py",
        'import pytest\n@pytest.mark.load("small")\ndef test_it(load): raise AssertionError\ndef test_other(): raise AssertionError\n',
    )
    run = project.run("--load-plan", "-n16", "--load-scale", "0.5", "-p", "no:cacheprovider")
    assert run.ret == 0
    assert "16: 1p+0c" in run.out
    assert "5.00 M msg/s of 64 B mean" in run.out
    assert "BEYOND" in run.out
    assert "SCALED" in run.out
    assert "test_other" not in run.out
    assert "workers [" not in run.out
    assert not (project.path / ".loadtest").exists()


def test_a_test_without_a_plan_is_a_usage_error(project: Project) -> None:
    """All other plans are printed, and the reason in place of the missing one."""
    project.profile("good")
    project.profile("wrong", rate=10_000_000, duration="1000h", size="messageSize: 16")
    project.write(
        "test_it.py",
        "import pytest\n"
        + "".join(
            f'@pytest.mark.load("{name}")\ndef test_{name}(load): ...\n'
            for name in ("wrong", "good")
        ),
    )
    run = project.run("--load-plan", "-p", "no:cacheprovider")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "make the payloads 32 B or larger" in run.out
    assert "ERROR: no plan for test_it.py::test_wrong: see above" in run.out
    assert "500 msg/s of 64 B mean" in run.out
    assert "Traceback" not in run.out


def test_a_plan_needs_a_terminal(project: Project) -> None:
    project.profile("small")
    project.write(
        "test_it.py", 'import pytest\n@pytest.mark.load("small")\ndef test_it(load): ...\n'
    )
    project.without_verbose()
    run = project.run("-p", "no:terminal", "--load-plan", "-p", "no:cacheprovider")
    assert (run.ret, run.out) == (
        pytest.ExitCode.USAGE_ERROR,
        "ERROR: --load-plan prints plans: leave out -p no:terminal\n\n",
    )
