"""Laws and margins are counted; a law that was never applied is missing."""

from __future__ import annotations

from simulation.campaign import JAVA, Job, Report
from simulation.margins import TICK
from simulation.tally import TRIED, Tally


def report(*tried: str, margins: tuple[str, ...] = ()) -> Report:
    return Report(job=Job(document={}), outcome="met", tried=tried, margins=margins)


def test_a_law_that_was_never_applied_is_missing() -> None:
    tally = Tally()
    tally.add(report(*TRIED[1:]))
    assert tally.missing(spark=False) == [f"law: {TRIED[0]}"]
    tally.add(report(TRIED[0]))
    assert tally.missing(spark=False) == []
    assert tally.missing(spark=True) == [f"law: {JAVA}"]


def test_the_worlds_that_needed_a_margin_are_counted() -> None:
    tally = Tally()
    for _ in range(3):
        tally.add(report(margins=(TICK,)))
    assert f"{TICK} 3" in "\n".join(tally.lines())
