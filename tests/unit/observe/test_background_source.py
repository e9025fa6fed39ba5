"""A source that is slow, and the others that do not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import pytest
from waiting_for import wait_until

from pytest_loadtest.errors import TargetError
from pytest_loadtest.observe.background_source import BackgroundSource


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
