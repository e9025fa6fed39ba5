"""Due times in the engine: passed to the driver, also after a rejection, and checked at arrivals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from engine_rig import drive
from null_driver import NullDriver

from pytest_loadtest.message.due import Delays
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.drivers.base import Burst

WALL = 1_700_000_000_123_456_789
DELAYS = Delays(seed=3, least=0, most=400)


@pytest.fixture
def bursts(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the columns of every burst that the driver gets."""
    found: list[dict[str, Any]] = []
    send = NullDriver.send

    def seen(driver: NullDriver, burst: Burst) -> Any:
        found.append(
            {
                name: None if (column := getattr(burst, name)) is None else column.copy()
                for name in ("stream", "seq", "intended", "due")
            }
        )
        return send(driver, burst)

    monkeypatch.setattr(NullDriver, "send", seen)
    return found


@pytest.mark.parametrize("window", [None, 3])
def test_each_message_is_offered_with_its_due_time(
    tmp_path: Path, bursts: list[dict[str, Any]], window: int | None
) -> None:
    """Also in the warm-up, and at every attempt."""
    latency = None if window is None else (lambda seq: np.full(len(seq), 20 * MILLISECOND))
    drive(
        tmp_path,
        rate=200,
        seconds=1,
        warm_up=0.2,
        delays=DELAYS,
        wall=WALL,
        window=window,
        latency=latency,
    )
    offered = [burst for burst in bursts if len(burst["seq"])]
    assert sum(len(burst["seq"]) for burst in offered) >= 240
    for burst in offered:
        phase = replace(DELAYS, wall=WALL)
        assert (
            burst["due"] == phase.on_the_wire(burst["stream"], burst["seq"], burst["intended"])
        ).all()


def test_a_burst_without_delays_has_no_column_of_due_times(
    tmp_path: Path, bursts: list[dict[str, Any]]
) -> None:
    drive(tmp_path, rate=100, seconds=0.2)
    assert {burst["due"] is None for burst in bursts} == {True}


@pytest.mark.parametrize(("tick", "expected"), [(0, True), (SECOND, False)])
def test_messages_out_of_due_order_are_flagged_beyond_a_tick(
    tmp_path: Path, tick: int, expected: bool
) -> None:
    """The driver delivers at once: due times have no order, but differ by less than a second."""
    found = drive(tmp_path, rate=200, seconds=1, delays=replace(DELAYS, tick=tick), wall=WALL)
    assert bool((found.received["flags"] & Flag.UNDUE).any()) is expected


def test_a_message_that_is_not_delayed_is_never_out_of_due_order(tmp_path: Path) -> None:
    """It is due when it is intended to leave, so any latency, here up to 90 ms, lets others
    overtake it.
    """
    found = drive(
        tmp_path,
        rate=200,
        seconds=1,
        delays=Delays(seed=0, at=0),
        wall=WALL,
        latency=lambda seq: (seq * 7 % 10) * 10 * MILLISECOND,
    )
    intended = found.received["intended"][np.argsort(found.received["received"], kind="stable")]
    assert (np.diff(intended) < 0).any()
    assert not (found.received["flags"] & Flag.UNDUE).any()
