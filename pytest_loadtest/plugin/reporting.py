"""The reports of a session, and texts for errors about marks.

Reports are HTML, and files and annotations for CI systems.

Called on the controller at the end of the session. A report that cannot be written is a warning and
changes no outcome.
"""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.junitxml import xml_key
from _pytest.skipping import xfailed_key

from pytest_loadtest.errors import LoadtestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.fleet.run_controller import RunController
    from pytest_loadtest.report.ci import Location
    from pytest_loadtest.report.ended_runs import EndedRuns


FILE = "report.html"


def xfail_names(item: pytest.Item, error: BaseException) -> bool:
    """Return whether the mark that made the item's error an expected one names its class.

    A base of the class in this package counts too.

    ``xfail(raises=NoData)`` does, also as ``RaisesExc(NoData, match=…)``; ``raises=Exception``
    would hide whatever goes wrong.
    """
    expected: Any = item.stash.get(xfailed_key, None)
    if expected is None:
        return False
    named = getattr(expected.raises, "expected_exceptions", expected.raises)
    if not isinstance(named, tuple):
        named = (named,)
    return any(
        isinstance(name, type) and issubclass(name, LoadtestError) and isinstance(error, name)
        for name in named
    )


def whose_load(item: pytest.Item) -> str:
    """Return the source of a test's argument ``load``, as text.

    It is a fixture with its file and line, or ``parametrize``.
    """
    info: Any = getattr(item, "_fixtureinfo", None)
    function: Any = None
    if info is not None and info.name2fixturedefs.get("load"):
        function = inspect.unwrap(info.name2fixturedefs["load"][-1].func)
    # pytest passes a parameter by a fixture of its own.
    if function is None or function.__module__.startswith("_pytest."):
        return "a parameter of `parametrize`"
    code = getattr(function, "__code__", None)
    if code is None:
        return f"the fixture {function!r}"
    file = os.path.relpath(code.co_filename, item.config.rootpath)
    return f"the fixture at {file}:{code.co_firstlineno}"


def write_report(config: pytest.Config, controller: RunController) -> str:
    """Write the HTML report of the session, and its path into JUnit's file.

    Never raises: the tests have their outcomes already.

    :returns: a line with the report's path, or with the reason why there is none; empty if no load
        test has run.
    """
    if not controller.documents:
        return ""
    # A test may have changed the current folder.
    path = config.invocation_params.dir / (config.option.load_html or controller.folder / FILE)
    file = Path(os.path.normpath(path))
    try:
        from pytest_loadtest.fleet.options import Options
        from pytest_loadtest.report.html import page

        page.write_page([controller.folder], file, Options.of(config).history)
    except Exception as error:
        return f"WARNING: no report is written to {file}: {error or type(error).__name__}"
    junit = config.stash.get(xml_key, None)
    if junit is not None:
        junit.add_global_property("load.report", str(file))
    return f"report     {file}"


class CiReports:
    """A plugin that writes the files and annotations of GitHub and GitLab.

    :param ended: returns the runs that have ended.
    """

    def __init__(self, config: pytest.Config, ended: Callable[[], EndedRuns]) -> None:
        self._config = config
        self._ended = ended
        self._places: dict[str, Location] = {}
        self._warnings: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the location of the test, and whether its last attempt failed."""
        if os.environ.get("GITHUB_ACTIONS") != "true":
            return
        from pytest_loadtest.report.ci import Location

        file, line, _ = report.location
        failed = report.failed
        if report.when != "setup" and report.nodeid in self._places:
            failed = failed or self._places[report.nodeid].failed
        self._places[report.nodeid] = Location(
            file=self._in_repository(file), line=(line or 0) + 1, failed=failed
        )

    def _in_repository(self, file: str) -> str:
        """Return the path relative to the repository, as GitHub needs it.

        Pytest's is relative to its own root folder.
        """
        path = Path(os.path.normpath(self._config.rootpath / file))
        root = os.environ.get("GITHUB_WORKSPACE")
        if root and path.is_relative_to(root):
            return path.relative_to(root).as_posix()
        return file

    def pytest_sessionfinish(self) -> None:
        """Write the files, when all runs are over."""
        if not self._ended():
            return
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        metrics = self._config.option.load_gitlab_metrics
        for name, path, write in (
            ("GITHUB_STEP_SUMMARY", summary, self._summary),
            ("--load-gitlab-metrics", metrics, self._metrics),
        ):
            try:
                if path:
                    write(self._config.invocation_params.dir / path)
            except OSError as error:
                self._warnings.append(f"WARNING: {name} {path} cannot be written: {error.strerror}")

    def _summary(self, path: Path) -> None:
        from pytest_loadtest.report.ci import LIMIT, github_summary

        with path.open("a", encoding="utf-8") as file:  # the step may have written a summary before
            file.write(github_summary(self._ended(), LIMIT - file.tell()))

    def _metrics(self, path: Path) -> None:
        from pytest_loadtest.report.ci import gitlab_metrics

        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(gitlab_metrics(self._ended()), encoding="utf-8")

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print annotations after the summary of the runs; GitHub reads them from the output."""
        lines = list(self._warnings)
        if os.environ.get("GITHUB_ACTIONS") == "true" and self._ended():
            from pytest_loadtest.report.ci import workflow_commands

            lines += workflow_commands(self._ended(), self._places)
        for line in lines:
            terminalreporter.write_line(line)
