"""The wall clock beside the run's."""

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


@pytest.mark.parametrize(("by", "way"), [(11 * MILLISECOND, "forward by 11.0 ms"), (-SECOND, "back by 1.00 s")])
def test_a_clock_that_was_set(monkeypatch: pytest.MonkeyPatch, by: int, way: str) -> None:
    """While messages were delayed: when they were due is not known. Without delays it does not matter."""
    clock = WallClock()
    monkeypatch.setattr(wall_clock, "_offset", lambda: clock.offset + by)
    clock.check(profile())
    assert clock.drift == by
    with pytest.raises(NoData, match=way):
        clock.check(profile("deliverAfter: 1s\n"))


def test_a_clock_that_went_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten milliseconds are allowed; what came of it is in the run's document."""
    clock = WallClock(5 * SECOND)
    monkeypatch.setattr(wall_clock, "_offset", lambda: clock.offset - 10 * MILLISECOND)
    clock.check(profile("deliverAfter: 1s\n"))
    found = clock.delays(profile("deliverAfter: 1s\n"))
    assert found is not None
    assert (found["wall"], found["start"], found["least"], found["drift"]) == (clock.offset, 5 * SECOND, 1000, -10 * MILLISECOND)
    assert clock.delays(profile()) is None


def test_moments_on_it() -> None:
    """ISO 8601, in UTC."""
    now = time.monotonic_ns()
    clock = WallClock(now)
    assert abs(clock.started - time.time()) < 60
    assert str(clock.at(0)).endswith("+00:00")
    assert clock.at(None) is None
