"""Objectives that can no longer be met, compared with the verdict at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders.measurements import Limits, made, spread
from builders.objectives import parse_slo
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.expected import WorkerEvidence
from pytest_loadtest.metrics.histogram import histogram
from pytest_loadtest.metrics.silent import Silent
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.verdict.early import (
    certainly_missed,
    evaluate_ended,
    exceeds,
    lost_target,
    lowest_rate,
)
from pytest_loadtest.verdict.objectives import Objective, chosen_share
from pytest_loadtest.verdict.observations import samples_needed
from pytest_loadtest.verdict.slo import Outcome, Verdict, evaluate


def objective(section: dict[str, object]) -> Objective:
    return parse_slo(section)[0]


P99 = objective({"endToEndLatency": {"p99": "100ms"}})


@given(
    seed=st.integers(0, 1 << 32),
    size=st.integers(1000, 1500),
    bound=st.integers(1, 4000),
    p=st.sampled_from([50, 90, 99]),
)
def test_a_percentile_is_unattainable_if_the_histogram_breaks_its_bound(
    seed: int, size: int, bound: int, p: int
) -> None:
    """Never if the bound is kept at the end, always if it is broken by more than the width of a bucket."""
    judged = Objective(
        metric="endToEndLatency", statistic=f"p{p}", minimum=None, maximum=float(bound), unit="ns"
    )
    values = np.random.default_rng(seed).integers(0, bound * 100 // p + 2, size)
    threshold, whole = exceeds(judged), histogram(values)
    assert threshold is not None and whole is not None
    unattainable = (
        certainly_missed([judged], size, {judged.name: int((values >= threshold).sum())})
        is not None
    )
    assert whole.percentile(p) > bound or not unattainable
    assert unattainable or whole.percentile(p) <= bound * 1.001 + 1


@given(value=st.integers(0, 1 << 50), bound=st.integers(1, 1 << 50))
def test_a_latency_that_counts_as_above_is_reported_above(value: int, bound: int) -> None:
    judged = Objective(
        metric="endToEndLatency", statistic="p50", minimum=None, maximum=float(bound), unit="ns"
    )
    threshold = exceeds(judged)
    assert threshold is not None and bound < threshold <= bound * 1.001 + 1
    surely = max(value, threshold)
    several = histogram(np.array([surely, surely, surely + (surely >> 12)], dtype=np.int64))
    assert several is not None and several.percentile(50) > bound


@given(planned=st.integers(1000, 10**7), less=st.integers(0, 500))
def test_fewer_deliveries_than_planned_do_not_make_an_objective_hold(
    planned: int, less: int
) -> None:
    count = next(
        n for n in range(planned // 100, planned) if certainly_missed([P99], planned, {P99.name: n})
    )
    assert certainly_missed([P99], max(planned - less, 1000), {P99.name: count}) == P99.name


def test_p99_breaks_with_the_first_message_beyond_one_in_a_hundred() -> None:
    """1 000 of 100 000 may be late."""
    assert certainly_missed([P99], 100_000, {"endToEndLatency.p99": 1000}) is None
    assert certainly_missed([P99], 100_000, {"endToEndLatency.p99": 1001}) == "endToEndLatency.p99"


def test_a_percentile_with_too_few_samples_is_left_to_the_verdict() -> None:
    """It will be no data, not a miss."""
    assert certainly_missed([P99], 999, {"endToEndLatency.p99": 999}) is None


@pytest.mark.parametrize(
    ("section", "holds", "breaks"),
    [
        ({"endToEndLatency": {"max": "2s"}}, 0, 1),
        ({"loss": 0}, 0, 1),
        ({"loss": 5}, 5, 6),
        ({"loss": "0.1%"}, 10, 11),
        ({"dropped": "1%"}, 100, 101),
        ({"failed": 3}, 3, 4),
    ],
)
def test_every_upper_bound_breaks_with_one_too_many(
    section: dict[str, object], holds: int, breaks: int
) -> None:
    """Of 10 000 planned."""
    judged = objective(section)
    assert certainly_missed([judged], 10_000, {judged.name: holds}) is None
    assert certainly_missed([judged], 10_000, {judged.name: breaks}) == judged.name


def test_the_first_broken_objective_is_named() -> None:
    """In the order of the section; without a count it is not judged."""
    objectives = parse_slo({"endToEndLatency": {"p50": "1ms", "max": "1s"}, "loss": 0})
    assert (
        certainly_missed(objectives, 10_000, {"endToEndLatency.max": 1, "loss": 3})
        == "endToEndLatency.max"
    )
    assert certainly_missed(objectives, 10_000, {"loss": 3}) == "loss"
    assert certainly_missed(objectives, 10_000, {}) is None


@pytest.mark.parametrize(
    "section",
    [
        {"throughput": "99%"},
        {"endToEndLatency": {"mean": "1ms"}},
        {"publishLatency": {"p99": {"min": "1ms"}}},
    ],
)
def test_lower_bounds_and_means_are_never_unattainable(section: dict[str, object]) -> None:
    """The rest of the hold may still meet them."""
    judged = objective(section)
    assert exceeds(judged) is None
    assert certainly_missed([judged], 10_000, {judged.name: 10_000}) is None


def test_the_largest_value_is_exact() -> None:
    """Without the width of a bucket."""
    assert exceeds(objective({"endToEndLatency": {"max": "100ms"}})) == 100 * MILLISECOND + 1


def test_the_lowest_rate_has_samples_enough_for_the_finest_percentile() -> None:
    """p99.9 needs 10 000 messages: 350 msg/s for 30 s."""
    objectives = parse_slo({"endToEndLatency": {"p50": "1ms", "p99.9": "1s"}})
    rate = lowest_rate(objectives, 30 * SECOND)
    assert rate == pytest.approx(350)
    assert rate * 30 >= samples_needed(99.9)
    assert lowest_rate(parse_slo({"loss": 0, "throughput": "100/s"}, implicit=()), 30 * SECOND) == 0


def test_the_lowest_rate_has_messages_enough_for_a_share_of_them() -> None:
    """Half a message is outside the window of throughput: more than 3 % of 16, less of 18; of 95 %, which is implicit, 10 and some."""
    assert lowest_rate(parse_slo({"throughput": "97%"}), 30 * SECOND) * 30 == pytest.approx(17.5)
    assert lowest_rate(parse_slo({"loss": 0}), 30 * SECOND) * 30 == pytest.approx(10.5)
    assert lowest_rate(parse_slo({"throughput": "100%"}), 30 * SECOND) == 0


def test_the_lowest_rate_has_samples_enough_for_each_window() -> None:
    """And for each tenth of a hold whose drift is bounded."""
    assert lowest_rate(
        parse_slo({"window": "10s", "endToEndLatency": {"p99.9": "1s"}}), 30 * SECOND
    ) == pytest.approx(1050)
    assert lowest_rate(
        parse_slo({"drift": {"endToEndLatency.p99.9": "20%", "throughput": "5%"}}), 30 * SECOND
    ) == pytest.approx(3500)


def test_an_objective_in_windows_is_never_unattainable() -> None:
    """Late messages do not decide how many windows miss."""
    windowed = parse_slo(
        {
            "window": "10s",
            "violations": "5%",
            "endToEndLatency": {"p99": "100ms", "max": "1s"},
            "drift": {"throughput": "1%"},
        }
    )
    assert [exceeds(one) for one in windowed[:3]] == [None] * 3
    assert (
        certainly_missed(windowed[:3], 10_000, {one.name: 10_000 for one in windowed[:3]}) is None
    )


def test_a_broadcast_has_a_sample_for_each_subscriber() -> None:
    """A message in three seconds to a thousand of them is enough for p99.9; who publishes has one sample a message."""
    objectives = parse_slo({"endToEndLatency": {"p99.9": "1s"}})
    assert lowest_rate(objectives, 30 * SECOND, deliveries=1000) == pytest.approx(0.35)
    assert lowest_rate(objectives, 30 * SECOND, deliveries=0) == lowest_rate(
        objectives, 30 * SECOND
    )
    assert lowest_rate(
        parse_slo({"publishLatency": {"p99": "1s"}}), 30 * SECOND, deliveries=1000
    ) == pytest.approx(35)


class TestEndedEarly:
    """A run that was ended because an objective could no longer be met."""

    def judged(self, section: dict[str, object], **changed: Any) -> Verdict:
        return evaluate_ended(parse_slo(section), made(**changed), Limits(), "endToEndLatency.p99")

    def test_too_few_samples_for_its_percentile_are_a_miss(self) -> None:
        """The whole hold would have had enough, and could not have held: not *no data*, which would end the search."""
        verdict = self.judged(
            {"endToEndLatency": {"p50": "1s", "p99": "10ms", "p99.9": "1s"}},
            end_to_end=spread(1, 20, 900),
        )
        assert verdict.outcome is Outcome.MISSED
        (missed,) = verdict.having(Outcome.MISSED)
        assert (
            missed.text
            == "endToEndLatency.p99: could no longer be met when the run was ended early (900 samples)"
        )
        assert [f.objective.name for f in verdict.having(Outcome.NO_DATA)] == [
            "endToEndLatency.p99.9"
        ]
        assert verdict.reasons == ()

    def test_windows_of_the_part_that_ran_are_left_open(self) -> None:
        """It was shorter than one of them, and had no tenths: the whole hold would have had both."""
        section: dict[str, object] = {
            "window": "30s",
            "endToEndLatency": {"p99": "10s"},
            "drift": {"throughput": "5%"},
        }
        verdict = evaluate_ended(
            parse_slo({**section, "whole": {"endToEndLatency": {"p99": "5ms"}}}),
            made(),
            Limits(),
            "whole.endToEndLatency.p99",
        )
        assert verdict.outcome is Outcome.MISSED
        assert [f.objective.name for f in verdict.having(Outcome.NO_DATA)] == [
            "endToEndLatency.p99",
            "drift.throughput",
        ]

    def test_the_share_and_the_silence_of_few_chosen_outputs_are_left_open(self) -> None:
        """The whole run would have had enough of them."""
        few = Silent(pairs=0, pairs_due=0, streams=0, streams_due=0)
        counts = {"lost": None, "acked": 1000, "received": 210, "failed": 400}
        verdict = evaluate_ended(
            parse_slo({"failed": "1%", "silent": 0}, [chosen_share(0.2, 0.01)]),
            made(counts=counts, answered=(210,), silent=few),
            Limits(),
            "",
        )
        assert verdict.outcome is Outcome.MISSED
        assert [finding.objective.name for finding in verdict.having(Outcome.NO_DATA)] == [
            "silent",
            "outputShare",
        ]

    def test_a_run_that_ended_early_is_never_met(self) -> None:
        """Whatever the part that ran says: the end was certain."""
        verdict = self.judged({"endToEndLatency": {"p99": "10s"}})
        assert verdict.outcome is Outcome.MISSED
        assert [f.objective.name for f in verdict.having(Outcome.MISSED)] == ["endToEndLatency.p99"]

    def test_a_miss_that_was_measured_stays_as_it_is(self) -> None:
        """With its number."""
        section: dict[str, object] = {"endToEndLatency": {"p99": "10ms"}}
        assert self.judged(section) == evaluate(parse_slo(section), made(), Limits())

    @pytest.mark.parametrize(
        ("changed", "outcome"),
        [
            (
                {
                    "workers": (
                        WorkerEvidence(worker="gw0", cpu=1.5, stalled=0, longest_stall=0, gc=0),
                    )
                },
                Outcome.GENERATOR_LIMITED,
            ),
            ({"own_send_delay": spread(1, 20, 900)}, Outcome.GENERATOR_LIMITED),
            ({"counts": {"received": 0, "received_in_time": 0, "lost": 900}}, Outcome.NO_DATA),
            ({"end_to_end": replace(spread(1, 20, 900), negative=3)}, Outcome.NO_DATA),
            ({"workers": ()}, Outcome.NO_DATA),
        ],
    )
    def test_what_spoils_any_run_spoils_it_too(
        self, changed: dict[str, Any], outcome: Outcome
    ) -> None:
        """A slow generator is not the target's miss, and what was not measured is no data."""
        verdict = self.judged(
            {"endToEndLatency": {"p99": "10ms"}}, **{"end_to_end": spread(1, 20, 900)} | changed
        )
        assert verdict.outcome is outcome
        assert verdict.reasons


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.MET, Outcome.MISSED),
        (Outcome.MISSED, Outcome.MISSED),
        (Outcome.NO_DATA, Outcome.NO_DATA),
        (Outcome.GENERATOR_LIMITED, Outcome.GENERATOR_LIMITED),
    ],
)
def test_a_run_whose_target_fell_silent_is_never_met(outcome: Outcome, expected: Outcome) -> None:
    """The reason comes first; a slow generator keeps its own, whose last is the remedy."""
    verdict = lost_target(
        Verdict(outcome=outcome, findings=(), reasons=("other",)), "the target went away"
    )
    assert verdict.outcome is expected
    assert verdict.reasons == (
        ("other",) if outcome is Outcome.GENERATOR_LIMITED else ("the target went away", "other")
    )
