"""The report of a session: written at its end, named in the output, and without effect on outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders.results import Page

from .projects import ALONE_OR_TWO

if TYPE_CHECKING:
    from .projects import Project

TESTS = """\
import pytest

@pytest.mark.load("mix")
def test_met(load): ...

@pytest.mark.load("missed")
def test_missed(load): ...
"""
WRONG = """\
import pytest

@pytest.mark.load("mix", drainTimeout="1s", slo={"endToEndLatency": {"p99.999": "1s"}})
def test_no_data(load): ...
"""


def report_line(out: str) -> str:
    """Return the line of the terminal that names the report: the last of the section."""
    lines = out.splitlines()
    (at,) = [
        number
        for number, line in enumerate(lines)
        if line.startswith(("report ", "WARNING: no report"))
    ]
    assert lines[at - 1].startswith("load tests: ")
    assert not lines[at + 1].startswith(" ")
    return lines[at]


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (
            ("-n2", "-q"),  # the project's own options have -v
            [
                "= load tests =",
                "✓ test_it.py::test_met · profile mix · MET",
                "✗ test_it.py::test_missed · profile missed · MISSED (",
                "load tests: 1 missed, 1 met",
            ],
        ),
        (
            ("-n0", "-qq"),
            [
                "✗ test_it.py::test_missed · profile missed · MISSED (",
                "load tests: 1 missed, 1 met",
            ],
        ),
    ],
    ids=["-n2 -q", "-n0 -qq"],
)
def test_a_session_writes_its_report_and_a_summary_as_long_as_the_verbosity_asks_for(
    project: Project, options: tuple[str, ...], lines: list[str]
) -> None:
    """The report is in the session's folder, with every run; the terminal and JUnit name it."""
    project.profile("mix")
    project.missed_profile()
    project.write("test_it.py", TESTS)
    run = project.run(*options, "-p", "no:cacheprovider")
    assert (run.outcomes["passed"], run.outcomes["failed"]) == (1, 1)
    (session,) = project.path.glob(".loadtest/*")
    file = session / "report.html"
    assert report_line(run.out) == f"report     {file}"
    assert run.report == str(file)
    page = Page(file.read_text(encoding="utf-8"))
    assert [row[:2] for row in page.rows[1:3]] == [
        ["test_missed", "missed"],
        ["test_met", "met"],
    ]
    assert page.charts["rates"]["series"]
    assert [path.name for path in session.glob(".*")] == []

    heads = ("load tests", "✓ ", "✗ ")
    found = [line for line in run.out.splitlines() if line.lstrip("= ").startswith(heads)]
    found = [line for line in found if not line.startswith("  ")]  # those of objectives
    assert all(part in line for part, line in zip(lines, found, strict=True))


def test_a_report_at_another_path_has_broken_runs_too(project: Project) -> None:
    """``--load-html`` sets the path; a broken run has its cause."""
    project.profile("mix")
    project.write("test_it.py", WRONG)
    run = project.run("-p", "no:cacheprovider", "--load-html", "out/mine.html")
    assert run.outcomes == {"error": 1}
    assert report_line(run.out) == f"report     {project.path / 'out' / 'mine.html'}"
    found = Page((project.path / "out" / "mine.html").read_text(encoding="utf-8"))
    assert found.rows[1][:2] == ["test_no_data", "no data"]
    assert "p99.999 needs" in found.rows[1][2]
    assert not list(project.path.glob(".loadtest/*/report.html"))


def test_a_report_that_cannot_be_written_is_a_warning(project: Project) -> None:
    """The outcomes of the tests stay; JUnit names no report."""
    project.profile("mix")
    project.write("test_it.py", TESTS.replace('"missed"', '"mix"'))
    project.write("file", "")
    run = project.run("-p", "no:cacheprovider", "-k", "met", "--load-html", "file/report.html")
    assert (run.ret, run.outcomes["passed"]) == (0, 1)
    assert report_line(run.out).startswith(
        f"WARNING: no report is written to {project.path / 'file' / 'report.html'}: "
    )
    assert run.report is None


ELSEWHERE = """\
import os
import pytest

@pytest.fixture(autouse=True)
def elsewhere(tmp_path):
    os.chdir(tmp_path)

@pytest.mark.load("mix")
def test_met(load): ...
"""


def test_files_of_options_are_relative_to_the_folder_where_pytest_was_started(
    project: Project,
) -> None:
    """Also if a test changes the current folder, here until the session ends."""
    project.profile("mix")
    project.write("driver.yaml", "name: loopback\n")
    project.write("test_it.py", ELSEWHERE)
    written = ("--load-html", "mine.html", "--load-gitlab-metrics", "metrics.txt")
    run = project.run(
        *("-n0", "-p", "no:cacheprovider", "--load-driver", "driver.yaml"),
        *written,
        *("--load-omb-json", "omb"),
    )
    assert run.outcomes == {"passed": 1}
    assert (project.path / "mine.html").is_file()
    assert (project.path / "metrics.txt").is_file()
    assert len(list(project.path.glob("omb/*.json"))) == 1


def test_without_load_there_is_no_report(project: Project) -> None:
    """The output does not mention it."""
    project.write("test_it.py", "def test_ordinary(): ...\n")
    run = project.run("-p", "no:cacheprovider", "--load-html", "mine.html")
    assert run.outcomes == {"passed": 1}
    assert "report" not in run.out
    assert not (project.path / "mine.html").exists()


DELETED = """\
import glob, shutil, pytest

@pytest.mark.load("missed")
def test_missed(load): ...

@pytest.mark.load("mix")
def test_met(load):
    (folder,) = glob.glob(".loadtest/*/*test_missed*")
    shutil.rmtree(folder)
"""


@pytest.mark.parametrize("workers", ALONE_OR_TWO)
def test_results_that_are_deleted_during_the_session_leave_their_verdict(
    project: Project, workers: str
) -> None:
    """In the summary, with the cause, and in the files for GitHub and GitLab."""
    project.profile("mix")
    project.missed_profile()
    project.write("test_it.py", DELETED)
    summary = project.path / "summary.md"
    project.environment |= {"GITHUB_STEP_SUMMARY": str(summary)}
    run = project.run(workers, "-p", "no:cacheprovider", "--load-gitlab-metrics", "metrics.txt")
    assert (run.outcomes["passed"], run.outcomes["failed"]) == (1, 1)
    (note,) = [
        line
        for line in run.out.splitlines()
        if line.startswith("  note       only the verdict is known, because ")
    ]
    assert note.endswith("/measure/results.json cannot be read: No such file or directory")
    assert "test_it.py::test_missed · profile missed · MISSED (1 of " in run.out
    assert "## Load tests: 1 missed, 1 met" in summary.read_text()
    assert (
        'loadtest_outcome{outcome="missed",profile="missed",'
        in (project.path / "metrics.txt").read_text()
    )
    assert report_line(run.out).startswith("report     ")
