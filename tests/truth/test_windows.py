"""A stall of known length makes exactly those windows miss that it is in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest import profile as profiles
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict import slo
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from pytest_loadtest.verdict.slo import Verdict

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


@pytest.fixture(scope="module")
def judged(bench: Bench) -> Judged:
    """Return the run that both tests judge."""
    text = PROFILE.replace("VIOLATIONS", "0")
    return bench.quiet(lambda: bench.run(text), SECOND // 4, print)


def missed(verdict: Verdict, name: str) -> list[int]:
    """Return the numbers of the windows that missed an objective."""
    (finding,) = (one for one in verdict.findings if one.objective.name == name)
    assert [window.end - window.start for window in finding.windows] == [SECOND] * 10
    assert {window.outcome for window in finding.windows} <= {Outcome.MET, Outcome.MISSED}
    return [at for at, window in enumerate(finding.windows) if window.outcome is Outcome.MISSED]


def test_the_windows_of_a_stall_miss_and_no_others(
    judged: Judged, report: Callable[[str, object], None]
) -> None:
    """It lasts from 3 s after the first message until 7.5 s: what is due at t takes 7.5 s − t, so that most of seconds 3 and 4 take longer
    than 2.5 s, half of second 5 and none of the others; and nothing that is due in seconds 4 to 6 comes before its second ends."""
    verdict = judged.load.verdict
    for name, text in judged.missed().items():
        report(name, text)
    windows = judged.measurements.windows
    assert windows is not None
    assert windows.offered.tolist() == windows.received.tolist() == [500] * 10
    assert windows.in_time[4:7].tolist() == [0] * 3
    assert missed(verdict, "endToEndLatency.p50") == [3, 4]
    assert missed(verdict, "throughput") == [3, 4, 5, 6]
    assert judged.missed().keys() == {"endToEndLatency.p50", "throughput"}
    text = judged.missed()["endToEndLatency.p50"]
    assert "missed in 2 of 10 windows, and none may; worst 4." in text
    assert text.endswith(" s at 0:00:03")


def test_an_error_budget_forgives_as_many_windows_as_it_has(judged: Judged) -> None:
    """Two of ten windows miss the latency and four the throughput, and two are allowed."""
    profile = profiles.loads(PROFILE.replace("VIOLATIONS", "20%"), "truth.yaml")
    verdict = slo.evaluate(profile.objectives, judged.measurements, profile.generator)
    assert missed(verdict, "endToEndLatency.p50") == [3, 4]
    assert missed(verdict, "throughput") == [3, 4, 5, 6]
    assert [finding.objective.name for finding in verdict.having(Outcome.MISSED)] == ["throughput"]
