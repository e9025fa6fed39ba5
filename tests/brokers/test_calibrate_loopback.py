"""Calibration with real processes, on the loopback relay."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pytest_loadtest import brokers
from pytest_loadtest.brokers.base import BrokerRequest
from pytest_loadtest.commands import calibrate, cli
from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet import machine
from pytest_loadtest.fleet.pair import Pair


def test_a_calibration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Gives positive, finite costs, which plans read back from then on."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "PHASES", {"warmupDuration": "100ms", "testDuration": "300ms", "drainTimeout": "5s"})
    assert cli.main(["calibrate", "--driver", "loopback"]) == cli.OK
    cost = machine.costs()["loopback"]
    assert cost.document() == calibrate._kept(machine.costs_file())["loopback"]
    assert all(math.isfinite(value) and value >= 0 for value in cost.document().values())
    assert min(cost.produce, cost.consume) > 0
    assert f"kept in {machine.costs_file()}" in capsys.readouterr().out


def test_a_broker_that_goes_away(tmp_path: Path) -> None:
    """Ends the calibration with the reason; nobody waits for ever."""
    broker = brokers.start(BrokerRequest(kind="loopback", mode="process", folder=tmp_path / "broker"), lambda _: None)
    pair = Pair(broker, tmp_path, lambda: 0)
    broker.stop()
    try:
        with pytest.raises(NoData):
            pair.run(calibrate._plan("loopback", 64, 100))
    finally:
        pair.close()
