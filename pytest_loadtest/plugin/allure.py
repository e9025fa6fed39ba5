"""Load tests in Allure's report.

allure-pytest writes it in its own hooks: a file for each result.

It counts the body alone as a test's duration, and load runs in the setup. It reads the exception,
and not the report, which differ for a skip that would hide a miss (docs/decisions/044). A test
whose worker died has no result at all, since only workers write results. And ``allure.attach`` in a
fixture has no test to attach to on a member, where allure-pytest's hooks are silent.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pluggy
import pytest

from pytest_loadtest.plugin.silence import mute

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

LISTENER = "allure_listener"
_allure_hook = pluggy.HookimplMarker("allure")
_OF_FIXTURES = ("start_fixture", "stop_fixture")
"""Allure's hooks for the end of a fixture, which it calls only if it saw the fixture's setup."""


def writes_allure(config: pytest.Config) -> bool:
    """Return whether allure-pytest writes results in this session."""
    return config.pluginmanager.has_plugin(LISTENER)


class AllureCorrections:
    """A plugin of pytest and of Allure: a load test's duration begins with its setup.

    A skip does not hide its outcome. Ordinary tests keep Allure's results.
    """

    _setup: tuple[int, int] | None = None  # start and end, ms since the epoch
    _hidden: pytest.TestReport | None = None

    def register(self, config: pytest.Config) -> None:
        """Register this plugin with both until the session ends."""
        from allure_commons import plugin_manager

        config.pluginmanager.register(self, "loadtest-allure")
        plugin_manager.register(self)
        config.add_cleanup(lambda: plugin_manager.unregister(self))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure the setup."""
        self._setup = self._hidden = None
        start = _now()
        try:
            return (yield)
        finally:
            if item.get_closest_marker("load"):
                self._setup = start, _now()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report of an outcome that a skip would have hidden."""
        if hasattr(report, "hidden_by_skip"):
            self._hidden = report

    @_allure_hook(tryfirst=True)
    def report_result(self, result: Any) -> None:
        """Correct the status and extend the times of a result, before it is written."""
        if self._setup is not None:
            if self._hidden is not None:
                _set_status(result, self._hidden)
            start, end = self._setup
            result.start = min(result.start, start)
            result.stop = max(result.stop, end)
            self._setup = None


def silence_allure(config: pytest.Config, is_member: Callable[[], bool]) -> None:
    """Let calls such as ``allure.attach`` and ``allure.step`` do nothing on members."""
    from allure_commons import plugin_manager

    listener = config.pluginmanager.get_plugin(LISTENER)
    for caller in plugin_manager.get_hookcallers(listener) or ():
        for implementation in caller.get_hookimpls():
            if implementation.plugin is listener and caller.name not in _OF_FIXTURES:
                mute(implementation, is_member)


def allure_result(item: pytest.Item) -> Any:
    """Return a result of Allure that identifies the test.

    Its history, labels and name are those that its worker would write.

    :returns: an ``allure_commons.model2.TestResult``; None if this version of allure-pytest does
        not have the needed functions.
    """
    from allure_commons.model2 import Label, Parameter, TestResult
    from allure_commons.utils import md5, represent, uuid4

    try:
        from allure_pytest.utils import (
            allure_full_name,
            allure_labels,
            allure_suite_labels,
            allure_title,
        )
    except ImportError:
        return None
    full_name = allure_full_name(item)
    values: dict[str, Any] = {}
    if hasattr(item, "callspec"):
        values = item.callspec.params
    labels = [*allure_labels(item), *allure_suite_labels(item), ("framework", "pytest")]
    parameters = [Parameter(name=name, value=represent(value)) for name, value in values.items()]
    sorted_values = [values[name] for name in sorted(values)]
    return TestResult(
        uuid=uuid4(),
        name=allure_title(item) or item.name,
        fullName=full_name,
        testCaseId=md5(full_name),
        historyId=md5(full_name, *sorted_values),
        labels=[Label(name=name, value=value) for name, value in labels],
        parameters=parameters,
    )


def _set_status(result: Any, report: pytest.TestReport) -> None:
    from allure_commons.model2 import Status, StatusDetails

    text = str(report.longrepr)
    # The report of a broken run is one of the setup.
    result.status = Status.FAILED if report.when == "call" else Status.BROKEN
    result.statusDetails = StatusDetails(message=text.partition("\n")[0], trace=text)


def write_crashed(result: Any, report: pytest.TestReport) -> None:
    """Write the result of a test whose worker died.

    :param result: see :func:`allure_result`. :param report: pytest's, with its times.
    """
    from allure_commons import plugin_manager

    _set_status(result, report)
    result.start = round(report.start * 1000)
    result.stop = round(report.stop * 1000)
    plugin_manager.hook.report_result(result=result)


def _now() -> int:
    return round(time.time() * 1000)
