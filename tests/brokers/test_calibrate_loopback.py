"""A calibration on the loopback relay, by its own load tests."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.commands import calibrate, cli
from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet import planning

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_plans_use_the_costs_of_a_calibration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are positive and finite."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        calibrate, "PHASES", {"warmupDuration": "100ms", "testDuration": "2s", "drainTimeout": "5s"}
    )
    # The rates are those of an idle core; a busy machine is far from it.
    monkeypatch.setattr(calibrate, "AUTO_LOAD", calibrate.AUTO_LOAD / 50)
    assert cli.main(["calibrate", "--driver", "loopback"]) == cli.OK
    cost = planning.costs()["loopback"]
    assert cost.document() == planning.calibrated_costs()["loopback"].document()
    assert all(math.isfinite(value) and value >= 0 for value in cost.document().values())
    assert min(cost.produce, cost.consume) > 0
    assert f"kept in {planning.costs_file()}" in capsys.readouterr().out


def test_the_error_for_a_run_without_results_has_pytests_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calibrate, "_TEST", "syntax error {0}\n")
    with pytest.raises(
        NoData,
        match="(?s)the runs slow, large, fast have no results; output of pytest:.*syntax error",
    ):
        calibrate.calibrate("loopback", lambda _: None)
