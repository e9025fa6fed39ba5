"""Which sample of the index of delayed messages is judged."""

from __future__ import annotations

from dataclasses import replace

from pytest_loadtest.metrics.delayed_index import DelayedIndex
from pytest_loadtest.observe.delayed import fullest
from pytest_loadtest.observe.telemetry import COUNTERS, Telemetry


def sampled(*rows: tuple[float, float] | None) -> Telemetry:
    found = [{} if row is None else {"sys.delayed": row[0], "sys.delayedIndex": row[1]} for row in rows]
    return Telemetry.of_rows(list(range(len(rows))), found)


def test_the_fullest() -> None:
    """Not the largest: what stays allocated after messages left is no cost of theirs."""
    found = fullest(sampled((10, 300), None, (100, 250), (5, 900), (0, 900)))
    assert found == DelayedIndex(bytes=250, messages=100)
    assert found.bytes_per_message == 2.5


def test_none() -> None:
    """Nothing sampled, nothing known, nothing delayed: no number."""
    assert fullest(None) is None
    assert fullest(sampled()) is None
    assert fullest(sampled(None, (0, 100))) is None


def test_the_fullest_is_unknown_once_the_source_was_lost() -> None:
    """There may have been more delayed afterwards."""
    assert fullest(replace(sampled((10, 300)), lost={COUNTERS: "why"})) is None
    assert fullest(replace(sampled((10, 300)), lost={"worker gw0": "why"})) is not None
