"""Files and output for CI systems, of whole runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from .projects import ALONE_OR_TWO

if TYPE_CHECKING:
    from .projects import Project

TESTS = """\
import pytest

@pytest.mark.load("mix")
def test_met(load): ...

@pytest.mark.load("missed")
def test_missed(load): ...

@pytest.mark.load("missed", judge=False)
def test_only_seen(load): ...

@pytest.mark.load("rare")
def test_too_few_samples(load): ...
"""


@pytest.fixture
def project(project: Project) -> Project:
    project.profile("mix", rate=200)
    project.missed_profile(rate=200)
    project.profile("rare", rate=20, slo="{endToEndLatency: {p99.9: 1h}}")
    project.write("loads/test_it.py", TESTS)
    return project


@pytest.mark.parametrize("workers", ALONE_OR_TWO)
def test_github_and_gitlab_get_each_run_once(project: Project, workers: str) -> None:
    """With any number of workers; an earlier summary of the step is kept."""
    written = project.path / "summary.md"
    written.write_text("before\n")
    project.environment |= {
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(written),
        "GITHUB_WORKSPACE": str(project.path.parent),
    }
    done = project.run(workers, "--load-gitlab-metrics", "public/metrics.txt", "loads")
    assert done.ret == 1, done.out
    text = written.read_text()
    assert text.startswith("before\n## Load tests: 1 no data, 2 missed, 1 met\n"), text
    assert len(re.findall(r"^### ", text, re.MULTILINE)) == 4
    commands = [line for line in done.out.splitlines() if line.startswith("::")]
    place = f"file={project.path.name}/loads/test_it.py"
    assert [command.partition(",title=")[0] for command in sorted(commands)] == [
        f"::error {place},line=12", f"::error {place},line=6", f"::warning {place},line=9",
    ]  # fmt: skip
    assert "loads/test_it.py%3A%3Atest_missed%3A missed::endToEndLatency.p50" in done.out
    metrics = (project.path / "public" / "metrics.txt").read_text()
    assert len(re.findall(r"^loadtest_outcome\{.*} 1\.0$", metrics, re.MULTILINE)) == 4
    assert 'loadtest_outcome{outcome="no data",profile="rare",' in metrics


def test_a_file_that_cannot_be_written_is_a_warning(project: Project) -> None:
    """The exit status is that of the tests."""
    project.write("file", "")
    project.environment |= {"GITHUB_STEP_SUMMARY": str(project.path / "none" / "summary.md")}
    done = project.run("--load-gitlab-metrics", "file/metrics.txt", "loads", "-k", "test_met")
    assert done.ret == 0, done.out
    assert "WARNING: GITHUB_STEP_SUMMARY" in done.out
    assert "WARNING: --load-gitlab-metrics file/metrics.txt cannot be written: " in done.out
    assert "::" not in [line[:2] for line in done.out.splitlines()]
