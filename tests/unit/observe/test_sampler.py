"""The sampling thread: its schedule, expensive sources, and sources that fail."""

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
    """A source that counts its samples and sets ``enough`` at the given number.

    :param fails_at: the sample at which it raises ``error``. :param hangs: it closes only when ``may_end`` is set.
    """

    def __init__(
        self,
        enough: int,
        *,
        cost: float = 0.0,
        fails_at: int | None = None,
        error: Exception | None = None,
        hangs: bool = False,
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
    """Take a sample every 10 ms."""
    monkeypatch.setattr(sampler, "EVERY", 10_000_000)


def test_the_first_sample_is_left_out() -> None:
    """It has no rates; the last values of a source are a sample of their own."""
    source, start = Counting(5), time.monotonic_ns()
    sampling = Sampler(
        {"a source": lambda: source}, start, broker="mosquitto", missing=["worker gw1: it is away"]
    )
    assert source.enough.wait(30)
    found = sampling.stop()
    assert found.column("asked").tolist()[:-1] == [float(i) for i in range(2, source.asked + 1)]
    assert np.flatnonzero(found.column("last") == 7).tolist() == [len(found) - 1]
    assert (found.time >= 10_000_000).all()
    assert found.missing == ("worker gw1: it is away", "something: for a reason")
    assert found.broker == "mosquitto"
    assert found.cost > 0
    assert source.closed


def test_a_failed_source_is_reported_and_the_others_continue() -> None:
    failing, going = Counting(99, fails_at=2), Counting(6)

    def never() -> Counting:
        raise TargetError("refused")

    sampling = Sampler(
        {"failing": lambda: failing, "never": never, "going": lambda: going},
        time.monotonic_ns(),
        broker="mosquitto",
    )
    assert going.enough.wait(30)
    found = sampling.stop()
    assert found.missing[0] == "never: refused"
    assert found.missing[1].startswith("failing: connection lost, ")
    assert found.missing[1].endswith(" s into the phase")
    assert failing.closed
    assert failing.asked == 2
    assert len(found) == going.asked  # all but the first, and the last values


def test_an_expensive_source_is_read_less_often() -> None:
    """A sample of 5 ms of CPU, at 2 % of a core, is due every quarter of a second."""
    costly, cheap = Counting(3, cost=0.005), Counting(99_999)
    sampling = Sampler(
        {"costly": lambda: costly, "cheap": lambda: cheap}, time.monotonic_ns(), broker="mosquitto"
    )
    assert costly.enough.wait(30)
    found = sampling.stop()
    assert found.time[-1] >= 2 * (250_000_000 - 5_000_000)
    assert cheap.asked > costly.asked


def test_an_unexpected_error_ends_its_source_only() -> None:
    """It is reported with its class, as the text of a KeyError is not enough, and the source counts as lost."""
    failing, going = Counting(99, fails_at=3, error=KeyError("numBundles")), Counting(6)
    sampling = Sampler(
        {"failing": lambda: failing, "going": lambda: going},
        time.monotonic_ns(),
        broker="mosquitto",
    )
    assert going.enough.wait(30)
    found = sampling.stop()
    (said,) = found.lost.values()
    assert said.startswith("failing: KeyError: 'numBundles', ")
    assert said in found.missing
    assert list(found.lost) == ["failing"]
    assert len(found) == going.asked


def test_a_source_that_never_returned_a_value_is_missing_and_not_lost() -> None:
    failing, going = Counting(99, fails_at=1), Counting(3)

    def never() -> Counting:
        raise KeyError("url")

    sampling = Sampler(
        {"failing": lambda: failing, "never": never, "going": lambda: going},
        time.monotonic_ns(),
        broker="mosquitto",
    )
    assert going.enough.wait(30)
    found = sampling.stop()
    assert found.lost == {}
    assert found.missing[0] == "never: KeyError: 'url'"
    assert found.missing[1].startswith("failing: connection lost, ")


class Unclosable(Counting):
    """A source whose close() and missing raise."""

    def __init__(self, enough: int) -> None:
        super().__init__(enough)
        del self.missing

    def close(self) -> Mapping[str, float]:
        raise ValueError("no last answer")


def test_an_error_at_the_end_is_reported_and_the_others_are_closed() -> None:
    unclosable, going = Unclosable(3), Counting(3)
    sampling = Sampler(
        {"unclosable": lambda: unclosable, "going": lambda: going},
        time.monotonic_ns(),
        broker="mosquitto",
    )
    assert unclosable.enough.wait(30)
    assert going.enough.wait(30)
    found = sampling.stop()
    assert found.lost["unclosable"].startswith("unclosable: ValueError: no last answer, ")
    assert any("AttributeError" in said for said in found.missing)
    assert going.closed


def test_a_source_that_does_not_end_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its earlier samples are kept; the sources after it are lost too, as they were not closed."""
    monkeypatch.setattr(sampler, "LONGEST", 0.05)
    monkeypatch.setattr(sampler, "MARGIN", 0.0)
    hanging, after = Counting(3, hangs=True), Counting(3)
    sampling = Sampler(
        {"hanging": lambda: hanging, "after": lambda: after},
        time.monotonic_ns(),
        broker="mosquitto",
    )
    assert hanging.enough.wait(30)
    assert after.enough.wait(30)
    found = sampling.stop()
    hanging.may_end.set()
    assert found.missing[0].startswith("sampling: hanging did not end within ")
    assert set(found.lost) == {"hanging", "after"}
    assert np.isfinite(found.column("asked")).any()


def test_an_error_of_the_sampling_itself_loses_all_sources(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """A source that answers when ``may`` is set."""

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


def until(
    source: BackgroundSource, now: int, enough: Callable[[Mapping[str, float]], bool]
) -> Mapping[str, float]:
    """Read the source until ``enough`` returns True."""
    found: Mapping[str, float] = {}

    def ask() -> bool:
        nonlocal found
        found = source.read(now)
        return enough(found)

    wait_until(ask, "a matching answer", 60)
    return found


def test_a_late_answer_is_part_of_the_next_sample() -> None:
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


def test_an_exception_of_a_slow_source_is_raised() -> None:
    def refused() -> Slow:
        raise TargetError("refused")

    source = BackgroundSource(refused)
    with pytest.raises(TargetError, match="refused"):
        until(source, SECOND, lambda _: False)
    assert source.close() == {}


def test_versions_are_kept_with_the_time_at_which_they_were_first_seen() -> None:
    """Also a version that comes with the last values, and none of a source that reports none."""

    class Versioned(Counting):
        @property
        def version(self) -> str:
            return "3" if self.closed else ["", "1", "2", "1"][min(self.asked, 3)]

    source, other = Versioned(4), Counting(1)
    sampling = Sampler(
        {"versioned": lambda: BackgroundSource(lambda: source), "other": lambda: other},
        time.monotonic_ns(),
        broker="b",
    )
    assert source.enough.wait(30)
    versions = sampling.stop().versions
    assert list(versions) == ["1", "2", "3"]
    assert list(versions.values()) == sorted(versions.values())
