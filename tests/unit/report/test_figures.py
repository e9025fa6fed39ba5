"""The figures of a run that are compared with another run's."""

from __future__ import annotations

import pytest
from builders.documents import FACTS, PEAK, document
from builders.measurements import spread
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.report.build import build_document
from pytest_loadtest.report.figures import figures, latency_percentiles, own_delay
from pytest_loadtest.verdict.slo import Outcome, Verdict


def test_a_broken_run_has_no_figures() -> None:
    assert (
        figures(
            build_document(
                FACTS, Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("gone",)), None
            )
        )
        == {}
    )


def test_objectives_come_first_and_are_not_repeated() -> None:
    names = list(figures(document({"endToEndLatency": {"p99": "15ms"}})))
    assert names[0] == "endToEndLatency.p99"
    assert len(names) == len(set(names))


def test_the_peak_of_a_search_is_a_figure_of_which_more_is_better() -> None:
    peak = figures(document(parts={"peak": PEAK}))["peak"]
    assert (peak.value, peak.unit, peak.more) == (19_843.0, "msg/s", True)


@given(st.floats(50, 99))
def test_any_percentile_lies_between_the_median_and_the_maximum(percentile: float) -> None:
    run = document(end_to_end=spread(1, 20))
    found = figures(run, (f"endToEndLatency.p{percentile}",))
    middle, asked, most = (
        found[f"endToEndLatency.{name}"].value or 0 for name in ("p50", f"p{percentile}", "max")
    )
    assert middle * 0.99 <= asked <= most


def test_only_percentiles_of_the_end_to_end_latency_need_noise() -> None:
    assert latency_percentiles(("throughput", "endToEndLatency.p99", "publishLatency.p99")) == (
        "endToEndLatency.p99",
    )


@pytest.mark.parametrize("name", ["endToEndLatency.p50", "endToEndLatency.p99"])
def test_the_generators_own_delay_is_below_the_latency(name: str) -> None:
    run = document()
    delay, latency = own_delay(run, name), figures(run)[name].value
    assert delay is None or latency is None or delay <= latency
