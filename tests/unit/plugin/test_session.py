"""Recorded properties pass through xdist's channel, with the same text in JUnit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import execnet
import numpy as np
import pytest

from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.spark_service import SparkService
from pytest_loadtest.fleet.xdist import GangController
from pytest_loadtest.plugin.early_runs import BROKEN, SET_UP
from pytest_loadtest.plugin.session import IN_CALL, LoadSession, plain, report_error
from pytest_loadtest.values.units import Rate, ms
from pytest_loadtest.verdict.slo import Outcome


@pytest.mark.parametrize(
    "value",
    [
        ms(5),
        Rate(500),
        np.float64(1.5),
        np.int64(3),
        Outcome.MET,
        {"p99": ms(5)},
        (ms(1), ms(2)),
        ["a"],
        True,
        None,
        3,
        2**70,
        1.5,
        "text",
    ],
    ids=repr,
)
def test_every_recorded_value_reaches_the_controller(value: object) -> None:
    """Numbers and texts as they are, anything else as the text that JUnit has."""
    ((name, sent),) = execnet.loads(execnet.dumps(plain([("own", value)])))
    assert (name, str(sent)) == ("own", str(value))
    if type(value) in (int, float, bool, str):
        assert sent == value and type(sent) is type(value)


def test_an_interrupt_gives_runs_up_before_it_kills_spark(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a run whose samples are being aggregated would end: Spark is gone."""
    calls: list[str] = []
    monkeypatch.setattr(
        GangController, "pytest_keyboard_interrupt", lambda self: calls.append("runs")
    )
    monkeypatch.setattr(SparkService, "interrupt", lambda self: calls.append("spark"))
    config = pytester.parseconfig()
    config.pluginmanager.register(object(), "dsession")  # as with xdist
    config.pluginmanager.register(LoadSession(config))
    config.hook.pytest_keyboard_interrupt(excinfo=None)  # type: ignore[arg-type]
    assert calls == ["runs", "spark"]


def skipped_in_setup() -> pytest.TestReport:
    """Return the report of a fixture that called ``pytest.skip()``."""
    return pytest.TestReport(
        nodeid="test_it.py::test_it",
        location=("test_it.py", 1, "test_it"),
        keywords={},
        outcome="skipped",
        longrepr=("test_it.py", 1, "Skipped: not today"),
        when="setup",
    )


@pytest.mark.parametrize(
    ("used_load", "outcome"), [(True, "failed"), (False, "skipped")], ids=["load", "load_target"]
)
def test_a_skip_does_not_hide_a_run_that_broke_under_load(used_load: bool, outcome: str) -> None:
    """A test whose run broke before its load has nothing to hide."""
    item: Any = SimpleNamespace(stash=pytest.Stash())
    item.stash[BROKEN] = NoData("worker gw1 died")
    if used_load:
        item.stash[SET_UP] = True
    report = skipped_in_setup()
    report_error(report, pytest.skip.Exception("not today"), item)
    assert report.outcome == outcome
    assert (report.longrepr == "worker gw1 died") is used_load
    assert report.when == "setup"


def test_a_skipped_subtest_does_not_end_its_test() -> None:
    """The load goes on, and is judged when the body has returned."""
    item: Any = SimpleNamespace(stash=pytest.Stash())
    item.stash[BROKEN] = NoData("worker gw1 died")
    item.stash[SET_UP] = True
    item.stash[IN_CALL] = True
    report = skipped_in_setup()
    report_error(report, pytest.skip.Exception("not today"), item)
    assert report.outcome == "skipped"
