"""Percentiles rank over all due messages: those that never came are later than any bound."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders.measurements import MS, Limits, histogram, made, made_bucket, spread
from builders.objectives import parse_slo
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.results.load import Load
from pytest_loadtest.values.units import ms
from pytest_loadtest.verdict.early import certainly_missed, exceeds
from pytest_loadtest.verdict.observations import latencies, observe_metric
from pytest_loadtest.verdict.slo import Finding, Outcome, evaluate

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Measurements

ABSENT = {"acked": 99_110, "unknown": 890, "received": 99_110, "received_in_time": 99_110}
"""0.89 % unanswered and never delivered: nothing is lost by definition, and fewer fail than the implicit 1 %."""


def finding(section: dict[str, Any], run: Measurements) -> Finding:
    return evaluate(parse_slo(section), run, Limits()).findings[0]


def test_unanswered_and_never_delivered_messages_break_a_percentile() -> None:
    """p99 leaves room for them, p99.9 and the largest value do not, and loss and smallest value know nothing of them."""
    run = made(counts=ABSENT, end_to_end=spread(1, 3, 99_110))
    section = {
        "loss": 0,
        "endToEndLatency": {
            "p99": "100ms",
            "p99.9": "100ms",
            "min": {"max": "100ms"},
            "max": "100ms",
        },
    }
    verdict = evaluate(parse_slo(section), run, Limits())
    assert [found.objective.name for found in verdict.having(Outcome.MISSED)] == [
        "endToEndLatency.p99.9",
        "endToEndLatency.max",
    ]
    missed = verdict.having(Outcome.MISSED)[0]
    assert (
        missed.text
        == "endToEndLatency.p99.9 never > 100 ms: too many never came (99 110 samples, 890 never came)"
    )
    assert missed.observed == math.inf
    assert (
        "(99 110 samples, 890 never came)"
        in finding({"endToEndLatency": {"min": {"max": "100ms"}}}, run).text
    )


def test_publish_latency_ranks_over_what_was_offered() -> None:
    """A missing answer is later than any bound; without acknowledgements there is no latency at all."""
    run = made(counts=ABSENT, publish=spread(1, 3, 99_110))
    assert finding({"publishLatency": {"p99.9": "100ms"}}, run).outcome is Outcome.MISSED
    assert (
        finding({"publishLatency": {"p99.9": "100ms"}}, made(counts=ABSENT, publish=None)).outcome
        is Outcome.NO_DATA
    )


def test_a_bucket_of_which_nothing_came_is_missed() -> None:
    """All its messages are later than any bound; with too few messages it is no data."""
    none = {"received": 0, "received_in_time": 0, "end_to_end": None}
    section = {"buckets": {"0-256": {"endToEndLatency": {"p99": "1s"}}}}
    assert finding(section, made(buckets=(made_bucket("0-256", **none),))).outcome is Outcome.MISSED
    few = made_bucket("0-256", offered=999, sent=999, acked=999, **none)
    assert finding(section, made(buckets=(few,))).outcome is Outcome.NO_DATA


def test_a_bucket_of_which_nothing_was_acknowledged_is_missed() -> None:
    """Other messages of the run were, so acknowledgement is applicable."""
    bucket = made_bucket("0-256", acked=0, publish=None)
    run = made(counts={"acked": 50_000, "unknown": 50_000}, buckets=(bucket,))
    found = finding({"buckets": {"0-256": {"publishLatency": {"p99": "1s"}}}}, run)
    assert (found.outcome, found.observed) == (Outcome.MISSED, math.inf)


def test_the_fixture_ranks_in_the_same_way() -> None:
    """``load.end_to_end.p999`` is later than any bound too, and says why."""
    run = made(counts=ABSENT, end_to_end=spread(1, 3, 99_110))
    load = Load(profile_name="p", observed=run, verdict=evaluate(parse_slo({}), run, Limits()))
    assert load.end_to_end.p99 <= ms(100)
    assert not load.end_to_end.p999 <= ms(1e9)
    assert repr(load.end_to_end.p999) == "never"
    assert load.end_to_end.never_came == 890
    with pytest.raises(AssertionError):
        assert load.publish.p999 < ms(1e9)
    assert (
        replace(load, observed=made(counts=ABSENT, publish=None)).publish.never_came == 0
    )  # nothing says that answers were due


def test_a_run_without_due_messages_misses_none() -> None:
    """A run that only consumes received 100 000 messages of others."""
    run = made(
        rate=0.0,
        end_to_end=None,
        counts=dict.fromkeys(("offered", "sent", "sent_in_time", "acked"), 0),
    )
    (objective, *_) = parse_slo({"endToEndLatency": {"p99": "100ms"}})
    assert latencies(objective, run).statistic(objective) is None
    assert observe_metric(objective, run).value is None
    assert "never came" not in observe_metric(objective, run).basis
    load = Load(profile_name="p", observed=run, verdict=evaluate(parse_slo({}), run, Limits()))
    assert load.end_to_end.never_came == 0


@given(
    st.lists(st.integers(0, 500), min_size=1, max_size=300),
    st.integers(0, 300),
    st.sampled_from([50.0, 90.0, 95.0, 99.0, 99.9]),
)
def test_the_rank_counts_all_due_messages(came: list[int], never: int, p: float) -> None:
    """As if the missing ones had come after all others; an early end agrees with the later verdict."""
    found = histogram(np.array(came) * MS).percentile_of_due(p, never)
    everything = [*sorted(came), *[math.inf] * never]
    wanted = everything[max(1, math.ceil(p / 100 * len(everything) - 1e-9)) - 1]
    assert (
        found == wanted if math.isinf(wanted) else abs(found - wanted * MS) <= 0.0005 * wanted * MS
    )
    (objective, *_) = parse_slo({"endToEndLatency": {f"p{p:g}": "250ms"}})
    beyond = sum(latency * MS >= (exceeds(objective) or 0) for latency in came) + never
    early = certainly_missed([objective], len(everything), {objective.name: beyond})
    assert early is None or found > 250 * MS
