"""The thread that asks: when, how often, and what becomes of a source that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import numpy as np
import pytest

from pytest_loadtest.errors import TargetError
from pytest_loadtest.observe import sampler
from pytest_loadtest.observe.sampler import Sampler


class Counting:
    """Counts how often it was asked, and says when that was often enough."""

    def __init__(self, enough: int, *, cost: float = 0.0, fails_at: int | None = None) -> None:
        self.missing: list[str] = ["something: for a reason"]
        self.used = 0.0
        self.asked, self.closed = 0, False
        self.enough = threading.Event()
        self._enough, self._cost, self._fails_at = enough, cost, fails_at

    def read(self, now: int) -> Mapping[str, float]:
        self.asked += 1
        if self.asked == self._enough:
            self.enough.set()
        if self.asked == self._fails_at:
            self.enough.set()
            raise TargetError("connection lost")
        end = time.thread_time() + self._cost
        while time.thread_time() < end:
            pass
        return {"asked": float(self.asked)}

    def close(self) -> Mapping[str, float]:
        self.closed = True
        return {"last": 7.0}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample each hundredth of a second."""
    monkeypatch.setattr(sampler, "EVERY", 10_000_000)


def test_samples_are_taken_from_the_start_on() -> None:
    """The first one, at the start, is what rates are reckoned from."""
    source, start = Counting(5), time.monotonic_ns()
    sampling = Sampler({"a source": lambda: source}, start, broker="mosquitto", missing=["worker gw1: it is away"])
    assert source.enough.wait(30)
    found = sampling.stop()
    assert found.column("asked").tolist()[:-1] == [float(i) for i in range(2, source.asked + 1)]
    assert np.flatnonzero(found.column("last") == 7).tolist() == [len(found) - 1]
    assert (found.time >= 10_000_000).all()
    assert found.missing == ("worker gw1: it is away", "something: for a reason")
    assert found.broker == "mosquitto"
    assert found.cost > 0
    assert source.closed


def test_one_that_fails_is_told_and_the_others_go_on() -> None:
    failing, going = Counting(99, fails_at=2), Counting(6)

    def never() -> Counting:
        raise TargetError("refused")

    sampling = Sampler({"failing": lambda: failing, "never": never, "going": lambda: going}, time.monotonic_ns(), broker="mosquitto")
    assert going.enough.wait(30)
    found = sampling.stop()
    assert found.missing[0] == "never: refused"
    assert found.missing[1].startswith("failing: connection lost, ")
    assert found.missing[1].endswith(" s into the phase")
    assert failing.closed
    assert failing.asked == 2
    assert len(found) == going.asked  # all but the first, and what it said at the end


def test_a_costly_one_is_asked_less_often() -> None:
    """5 ms of CPU at 2 % of a core are a quarter of a second."""
    costly, cheap = Counting(3, cost=0.005), Counting(99_999)
    sampling = Sampler({"costly": lambda: costly, "cheap": lambda: cheap}, time.monotonic_ns(), broker="mosquitto")
    assert costly.enough.wait(30)
    found = sampling.stop()
    assert found.time[-1] >= 2 * (250_000_000 - 5_000_000)
    assert cheap.asked > costly.asked
