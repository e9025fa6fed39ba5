"""Recorded properties pass through xdist's channel, with the same text in JUnit."""

from __future__ import annotations

import execnet
import numpy as np
import pytest

from pytest_loadtest.fleet.spark_service import SparkService
from pytest_loadtest.fleet.xdist import GangController
from pytest_loadtest.plugin.session import LoadSession, plain
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
