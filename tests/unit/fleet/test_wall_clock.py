"""The wall clock and the run's clock."""

from __future__ import annotations

import time

import pytest

from pytest_loadtest import profile as profiles
from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet import wall_clock
from pytest_loadtest.fleet.wall_clock import WallClock
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

BASE = "name: p\nproducerRate: 100\nmessageSize: 100\ntestDuration: 1s\ndriver: {name: loopback}\n"


def profile(more: str = "") -> profiles.Profile:
    return profiles.loads(BASE + more, "p.yaml")


@pytest.mark.parametrize(
    ("by", "way"), [(11 * MILLISECOND, "forward by 11.0 ms"), (-SECOND, "back by 1.00 s")]
)
def test_setting_the_clock_while_messages_are_delayed_is_no_data(
    monkeypatch: pytest.MonkeyPatch, by: int, way: str
) -> None:
    """Their due times are unknown. Without delays it does not matter."""
    clock = WallClock()
    monkeypatch.setattr(wall_clock, "_offset", lambda: clock.offset + by)
    clock.check(profile())
    assert clock.drift == by
    with pytest.raises(NoData, match=way):
        clock.check(profile("deliverAfter: 1s\n"))


def test_a_drift_of_ten_milliseconds_is_allowed_and_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = WallClock(5 * SECOND)
    monkeypatch.setattr(wall_clock, "_offset", lambda: clock.offset - 10 * MILLISECOND)
    clock.check(profile("deliverAfter: 1s\n"))
    found = clock.delays(profile("deliverAfter: 1s\n"))
    assert found is not None
    assert (found["wall"], found["start"], found["least"], found["drift"]) == (
        clock.offset,
        5 * SECOND,
        1000,
        -10 * MILLISECOND,
    )
    assert clock.delays(profile()) is None


def test_moments_are_written_in_iso_8601_and_utc() -> None:
    now = time.monotonic_ns()
    clock = WallClock(now)
    assert abs(clock.started - time.time()) < 60
    assert str(clock.at(0)).endswith("+00:00")
    assert clock.at(None) is None
