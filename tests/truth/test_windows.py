"""A stall of known length makes exactly those windows miss that it is in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from .conftest import Bench, Judged

PROFILE = """
name: truth
messageSize: 128
producerRate: 500
testDuration: 10s
drainTimeout: 10s
maxSendDelay: 60s
driver: {name: loopback, stall: {at: 3s, duration: 4500ms}, maxPendingMessages: 10000}
slo:
  window: 1s
  violations: VIOLATIONS
  sent: 1%
  throughput: 50%
  endToEndLatency: {p50: 2500ms}
  whole: {throughput: 10%, endToEndLatency: {max: 60s}}
generator: {sendDelayP99: 5s, receiveLagP99: 5s, stalled: 1, cpu: 5}
"""


def missed(judged: Judged, name: str) -> list[int]:
    """Return the numbers of the windows that missed an objective."""
    (finding,) = (one for one in judged.load.verdict.findings if one.objective.name == name)
    assert [window.end - window.start for window in finding.windows] == [SECOND] * 10
    assert {window.outcome for window in finding.windows} <= {Outcome.MET, Outcome.MISSED}
    return [at for at, window in enumerate(finding.windows) if window.outcome is Outcome.MISSED]


def test_the_windows_of_a_stall_miss_and_no_others(
    bench: Bench, report: Callable[[str, object], None]
) -> None:
    """It lasts from 3 s after the first message until 7.5 s: what is due at t takes 7.5 s − t, so that most of seconds 3 and 4 take longer
    than 2.5 s, half of second 5 and none of the others; and nothing that is due in seconds 4 to 6 comes before its second ends."""
    judged = bench.quiet(lambda: bench.run(PROFILE.replace("VIOLATIONS", "0")), SECOND // 4, report)
    for name, text in judged.missed().items():
        report(name, text)
    windows = judged.measurements.windows
    assert windows is not None
    assert windows.offered.tolist() == windows.received.tolist() == [500] * 10
    assert windows.in_time[4:7].tolist() == [0] * 3
    assert missed(judged, "endToEndLatency.p50") == [3, 4]
    assert missed(judged, "throughput") == [3, 4, 5, 6]
    assert judged.missed().keys() == {"endToEndLatency.p50", "throughput"}
    text = judged.missed()["endToEndLatency.p50"]
    assert "missed in 2 of 10 windows, and none may; worst 4." in text
    assert text.endswith(" s at 0:00:03")


def test_an_error_budget_forgives_as_many_windows_as_it_has(
    bench: Bench, report: Callable[[str, object], None]
) -> None:
    """Two of ten windows miss the latency and four the throughput, and two are allowed."""
    judged = bench.quiet(
        lambda: bench.run(PROFILE.replace("VIOLATIONS", "20%")), SECOND // 4, report
    )
    assert (missed(judged, "endToEndLatency.p50"), missed(judged, "throughput")) == (
        [3, 4],
        [3, 4, 5, 6],
    )
    assert judged.missed().keys() == {"throughput"}
