"""The share of what an objective allows that was used."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from builders.documents import SLO, document

from pytest_loadtest.report.margins import (
    is_comfortable,
    margin_text,
    tightest_first,
    used_share,
)
from pytest_loadtest.report.verdict_section import (
    FindingEntry,
    ShownSection,
    TenthsSection,
    WindowsSection,
)
from pytest_loadtest.verdict.slo import Outcome

SHOWN = ShownSection(observed="", bound="", over="")


def finding(observed: float | None = None, **parts: object) -> FindingEntry:
    """Return a finding that was met."""
    made = FindingEntry(
        name="x", metric="x", statistic=None, bucket=None, unit="ns", minimum=None, maximum=None, implicit=False,
        outcome=Outcome.MET, observed=observed, samples=None, text="x: too few", shown=SHOWN,
    )  # fmt: skip
    return replace(made, **parts)


def drifted(last: float) -> TenthsSection:
    """Return a throughput that was all of what was offered, and then this share of it."""
    return TenthsSection(unit="ratio", first=1.0, last=last)


@pytest.mark.parametrize(
    ("made", "share"),
    [
        (finding(30.0, maximum=40.0), 0.75),
        (finding(80.0, maximum=40.0), 2),
        (finding(0.99, minimum=0.95, unit="ratio"), 0.2),
        (finding(1.0, minimum=1.0, unit="ratio"), 0),
        (finding(0.9, minimum=1.0, unit="ratio"), math.inf),
        (finding(10_000.0, minimum=8_000.0, unit="msg/s"), 0.8),
        (finding(0.0, minimum=8_000.0, unit="msg/s"), math.inf),
        (finding(0.0, maximum=0.0, unit="messages"), 0),
        (finding(3.0, maximum=0.0, unit="messages"), math.inf),
        (finding(-0.1, maximum=0.2, unit="ratio"), 0),
        (finding(-0.1, minimum=-0.2, unit="ratio", tenths=drifted(0.9)), 0.5),
        (finding(0.1, minimum=-0.2, unit="ratio", tenths=drifted(1.1)), 0),
        (finding(None, maximum=0.2), None),
        (finding(None, shown=replace(SHOWN, over="too many never came")), math.inf),
    ],
)
def test_the_share_is_one_at_the_bound(made: FindingEntry, share: float | None) -> None:
    """A minimum of 95 % allows 5 %; a bound of 0 allows nothing; an unknown value has no share."""
    assert used_share(made) == pytest.approx(share)


def test_windows_that_may_miss_are_what_is_used() -> None:
    windows = WindowsSection(
        width=1, violations=0.1, number=40, missed=3, generator_limited=0, no_data=0, listed=()
    )
    assert used_share(finding(9.0, maximum=1.0, windows=windows)) == pytest.approx(0.75)


def test_the_margin_is_what_is_left_or_the_excess_or_the_cause() -> None:
    assert margin_text(finding(30.0, maximum=40.0)) == "25 % to spare"
    assert margin_text(finding(0.0, maximum=0.0)) == ""
    assert margin_text(finding(1.0, minimum=0.95, unit="ratio")) == "100 % to spare"
    assert margin_text(finding(1.0, minimum=1.0, unit="ratio")) == ""
    assert margin_text(finding(1.0, shown=replace(SHOWN, over="over by 9 %"))) == "over by 9 %"
    assert margin_text(finding(None)) == "too few"


def test_the_tightest_objective_comes_first_and_misses_before_all() -> None:
    """Of two that cannot be met any more, the one with a number comes first."""
    counts = {"lost": 12, "received": 99_988}
    slo = {**SLO, "loss": 0, "endToEndLatency": {"p50": "11ms", "p99": "1s", "max": "1s"}}
    names = [found.name for _, found in tightest_first(document(slo, counts=counts))]
    assert names[:2] == ["loss", "endToEndLatency.max"]
    assert names.index("endToEndLatency.p50") < names.index("endToEndLatency.p99")


def test_an_objective_is_comfortable_far_from_its_bound_or_if_it_is_implicit() -> None:
    assert is_comfortable(finding(79.0, maximum=100.0))
    assert not is_comfortable(finding(81.0, maximum=100.0))
    assert is_comfortable(finding(81.0, maximum=100.0, implicit=True))
    assert not is_comfortable(finding(1.0, maximum=100.0, outcome=Outcome.MISSED))
