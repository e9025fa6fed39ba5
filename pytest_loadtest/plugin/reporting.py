"""The reports of a session: HTML, files and annotations for CI systems; and texts for errors about marks.

Called on the controller at the end of the session. A report that cannot be written is a warning and changes no outcome.
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
    """Return whether the mark that made the item's error an expected one names its class, or a base of it in this package.

    ``xfail(raises=NoData)`` does, also as ``RaisesExc(NoData, match=…)``; ``raises=Exception`` would hide whatever goes wrong.
    """
    expected: Any = item.stash.get(xfailed_key, None)
    raises = (
        None
        if expected is None
        else getattr(expected.raises, "expected_exceptions", expected.raises)
    )
    named = raises if isinstance(raises, tuple) else (raises,)
    return any(
        isinstance(one, type) and issubclass(one, LoadtestError) and isinstance(error, one)
        for one in named
    )


def whose_load(item: pytest.Item) -> str:
    """Return the source of a test's argument ``load``, as text: a fixture with its file and line, or ``parametrize``."""
    info: Any = getattr(item, "_fixtureinfo", None)
    definitions = () if info is None else info.name2fixturedefs.get("load", ())
    function = inspect.unwrap(definitions[-1].func) if definitions else None
    if function is None or function.__module__.startswith(
        "_pytest."
    ):  # pytest passes a parameter by a fixture of its own
        return "a parameter of `parametrize`"
    code = getattr(function, "__code__", None)
    if code is None:
        return f"the fixture {function!r}"
    return f"the fixture at {os.path.relpath(code.co_filename, item.config.rootpath)}:{code.co_firstlineno}"


def write_report(config: pytest.Config, controller: RunController) -> str:
    """Write the HTML report of the session, and its path into JUnit's file. Never raises: the tests have their outcomes already.

    :returns: a line with the report's path, or with the reason why there is none; empty if no load test has run.
    """
    if not controller.documents:
        return ""
    file = Path(os.path.abspath(config.option.load_html or controller.folder / FILE))  # noqa: PTH100  # symbolic links left as they are
    try:
        from pytest_loadtest.fleet.options import Options
        from pytest_loadtest.report.html import page

        page.write_page([controller.folder], file, Options.of(config).history)
    except Exception as error:
        return f"WARNING: no report is written to {file}: {error or type(error).__name__}"
    if (junit := config.stash.get(xml_key, None)) is not None:
        junit.add_global_property("load.report", str(file))
    return f"report     {file}"


class CiReports:
    """A plugin that writes the files and annotations of GitHub and GitLab. :param ended: returns the runs that have ended."""

    def __init__(self, config: pytest.Config, ended: Callable[[], EndedRuns]) -> None:
        self._config, self._ended = config, ended
        self._places: dict[str, Location] = {}
        self._warnings: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the location of the test, and whether its last attempt failed."""
        if os.environ.get("GITHUB_ACTIONS") != "true":
            return
        from pytest_loadtest.report.ci import Location

        before = None if report.when == "setup" else self._places.get(report.nodeid)
        file, line, _ = report.location
        failed = report.failed or (before is not None and before.failed)
        self._places[report.nodeid] = Location(
            file=self._in_repository(file), line=(line or 0) + 1, failed=failed
        )

    def _in_repository(self, file: str) -> str:
        """Return the path relative to the repository, as GitHub needs it; pytest's is relative to its own root folder."""
        path, root = (
            Path(os.path.normpath(self._config.rootpath / file)),
            os.environ.get("GITHUB_WORKSPACE"),
        )
        return path.relative_to(root).as_posix() if root and path.is_relative_to(root) else file

    def pytest_sessionfinish(self) -> None:
        """Write the files, when all runs are over."""
        if not self._ended():
            return
        summary, metrics = (
            os.environ.get("GITHUB_STEP_SUMMARY"),
            self._config.option.load_gitlab_metrics,
        )
        for name, path, write in (
            ("GITHUB_STEP_SUMMARY", summary, self._summary),
            ("--load-gitlab-metrics", metrics, self._metrics),
        ):
            try:
                if path:
                    write(Path(path))
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
