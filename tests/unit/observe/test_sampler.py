"""The thread that asks: when, how often, and what becomes of a source that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from waiting_for import wait_until

from pytest_loadtest.errors import TargetError
from pytest_loadtest.observe import sampler
from pytest_loadtest.observe.sampler import BackgroundSource, Sampler


class Counting:
    """Counts how often it was asked, and says when that was often enough.

    :param fails_at: the question at which it raises ``error``. :param hangs: its end comes when ``may_end`` is set.
    """

    def __init__(
        self, enough: int, *, cost: float = 0.0, fails_at: int | None = None, error: Exception | None = None, hangs: bool = False
    ) -> None:
        self.missing: list[str] = ["something: for a reason"]
        self.used = 0.0
        self.asked, self.closed = 0, False
        self.enough = threading.Event()
        self._enough, self._cost, self._fails_at = enough, cost, fails_at
        self._error, self.may_end = error or TargetError("connection lost"), threading.Event()
        if not hangs:
            self.may_end.set()

    def read(self, now: int) -> Mapping[str, float]:
        self.asked += 1
        if self.asked == self._enough:
            self.enough.set()
        if self.asked == self._fails_at:
            self.enough.set()
            raise self._error
        end = time.thread_time() + self._cost
        while time.thread_time() < end:
            pass
        return {"asked": float(self.asked)}

    def close(self) -> Mapping[str, float]:
        self.may_end.wait(60)
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


def test_an_unexpected_error_ends_its_source_alone() -> None:
    """It is told with its kind, for the text of a KeyError says little, and the source is known to be lost."""
    failing, going = Counting(99, fails_at=3, error=KeyError("numBundles")), Counting(6)
    sampling = Sampler({"failing": lambda: failing, "going": lambda: going}, time.monotonic_ns(), broker="mosquitto")
    assert going.enough.wait(30)
    found = sampling.stop()
    (said,) = found.lost.values()
    assert said.startswith("failing: KeyError: 'numBundles', ")
    assert said in found.missing
    assert list(found.lost) == ["failing"]
    assert len(found) == going.asked


def test_a_source_that_never_told_anything_is_missing_and_not_lost() -> None:
    failing, going = Counting(99, fails_at=1), Counting(3)

    def never() -> Counting:
        raise KeyError("url")

    sampling = Sampler({"failing": lambda: failing, "never": never, "going": lambda: going}, time.monotonic_ns(), broker="mosquitto")
    assert going.enough.wait(30)
    found = sampling.stop()
    assert found.lost == {}
    assert found.missing[0] == "never: KeyError: 'url'"
    assert found.missing[1].startswith("failing: connection lost, ")


class Unclosable(Counting):
    """Fails at its end, and when it is asked what is missing."""

    def __init__(self, enough: int) -> None:
        super().__init__(enough)
        del self.missing

    def close(self) -> Mapping[str, float]:
        raise ValueError("no last answer")


def test_an_error_at_the_end_is_told_and_the_others_are_closed() -> None:
    unclosable, going = Unclosable(3), Counting(3)
    sampling = Sampler({"unclosable": lambda: unclosable, "going": lambda: going}, time.monotonic_ns(), broker="mosquitto")
    assert unclosable.enough.wait(30)
    assert going.enough.wait(30)
    found = sampling.stop()
    assert found.lost["unclosable"].startswith("unclosable: ValueError: no last answer, ")
    assert any("AttributeError" in said for said in found.missing)
    assert going.closed


def test_a_source_that_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sampled until then is there; what depends on the end of a source is not known."""
    monkeypatch.setattr(sampler, "LONGEST", 0.05)
    monkeypatch.setattr(sampler, "MARGIN", 0.0)
    hanging, after = Counting(3, hangs=True), Counting(3)
    sampling = Sampler({"hanging": lambda: hanging, "after": lambda: after}, time.monotonic_ns(), broker="mosquitto")
    assert hanging.enough.wait(30)
    assert after.enough.wait(30)
    found = sampling.stop()
    hanging.may_end.set()
    assert found.missing[0].startswith("sampling: hanging did not end within ")
    assert set(found.lost) == {"hanging", "after"}
    assert found.knows("asked")


def test_an_error_of_the_sampling_itself_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sources are lost with it."""
    source, kept = Counting(99), threading.Event()
    keep = Sampler._keep

    def broken(self: Sampler, now: int, row: dict[str, float]) -> None:
        if row["asked"] == 3:
            kept.set()
            raise MemoryError("no more rows")
        keep(self, now, row)

    monkeypatch.setattr(Sampler, "_keep", broken)
    sampling = Sampler({"a source": lambda: source}, time.monotonic_ns(), broker="mosquitto")
    assert kept.wait(30)
    found = sampling.stop()
    assert found.lost["a source"].startswith("a source: MemoryError: no more rows, ")
    assert source.closed


class Slow:
    """Answers a question when it may."""

    def __init__(self) -> None:
        self.missing, self.used = ["something: for a reason"], 0.0
        self.may, self.asked = threading.Event(), list[int]()

    def read(self, now: int) -> Mapping[str, float]:
        self.may.wait(60)
        self.asked.append(now)
        return {"at": float(now), f"at {now}": 1.0}

    def close(self) -> Mapping[str, float]:
        return {"last": 1.0}


SECOND = 1_000_000_000


def until(source: BackgroundSource, now: int, enough: Callable[[Mapping[str, float]], bool]) -> Mapping[str, float]:
    """Asks until the answer is as it shall be."""
    found: Mapping[str, float] = {}

    def ask() -> bool:
        nonlocal found
        found = source.read(now)
        return enough(found)

    wait_until(ask, "such an answer", 60)
    return found


def test_what_comes_late_is_of_the_next_sample() -> None:
    slow = Slow()
    source = BackgroundSource(lambda: slow)
    assert source.read(SECOND) == {}
    assert source.missing[0].startswith(("broker's own counters: no answer", "something"))
    assert source.read(100 * SECOND) == {}
    slow.may.set()
    found = until(source, 200 * SECOND, bool)
    assert found["at 1000000000"] == 1
    assert slow.asked[0] == SECOND
    until(source, 300 * SECOND, lambda found: found.get("at") == 300 * SECOND)
    assert list(source.missing) == ["something: for a reason"]
    assert source.used > 0
    assert source.close() == {"last": 1}


def test_what_it_raises_is_raised() -> None:
    def refused() -> Slow:
        raise TargetError("refused")

    source = BackgroundSource(refused)
    with pytest.raises(TargetError, match="refused"):
        until(source, SECOND, lambda _: False)
    assert source.close() == {}
