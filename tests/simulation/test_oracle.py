"""The oracle: a true result violates nothing, and each rule finds the result that it is about when it is changed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from simulation.oracle import check_truth
from simulation.player import play
from simulation.world import CONTROLLER, MS, SECOND, Fault, Host, World

if TYPE_CHECKING:
    from pathlib import Path

    from simulation.truth import Played
    from simulation.violation import Violation

PROFILE: dict[str, Any] = {
    "name": "World",
    "topics": 2,
    "producersPerTopic": 1,
    "producerRate": 100,
    "testDuration": "10s",
    "warmupDuration": "1s",
    "messageSizeDistribution": {"50-100": 1, "100-200": 1},
    "driver": {"name": "simulated"},
    "stages": [
        {"name": "low", "duration": "4s", "rate": 50},
        {"name": "high", "duration": "6s", "slo": {"endToEndLatency": {"p50": "10ms"}}},
    ],
    "slo": {
        "window": "2s",
        "endToEndLatency": {"p50": "10ms"},
        "publishLatency": {"p90": "20ms"},
        "throughput": "90%",
        "whole": {
            "endToEndLatency": {"max": "1s", "p99.9": "1s"},
            "buckets": {"50-100": {"endToEndLatency": {"p50": "10ms"}}},
        },
        "drift": {"endToEndLatency.p50": "5000%"},
        "loss": 100,
    },
}
PROFILE.pop("testDuration")
LOSSES = Fault(kind="lose-acknowledged", at=SECOND, duration=8 * SECOND, values={"share": 0.02})
DOUBLES = Fault(kind="double", at=SECOND, duration=8 * SECOND, values={"share": 0.05, "after": MS})
REORDERED = Fault(kind="reorder", at=SECOND, duration=8 * SECOND, values={"share": 0.02})


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    world = World(
        seed=3,
        workers=(CONTROLLER, CONTROLLER),
        profile=PROFILE,
        faults=(LOSSES, DOUBLES, REORDERED),
    )
    return play(world, tmp_path_factory.mktemp("world"))


def simple(**keys: Any) -> dict[str, Any]:
    base = {key: PROFILE[key] for key in ("name", "topics", "producersPerTopic", "driver")}
    return {**base, "producerRate": 100, "messageSize": "100B", "testDuration": "2s", **keys}


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A run through a service that sends two outputs, loses and doubles some, and is slow at times."""
    profile = simple(
        route={"input": "in/{topic}", "output": ["a/{topic}", "b/{topic}"], "outputs": 2, "tap": True},
        subscriptionsPerTopic=2, drainTimeout="7s", slo={"endToEndLatency": {"p50": "20ms"}, "loss": 100},
    )  # fmt: skip
    faults = (
        Fault(kind="service-lose", at=0, duration=None, values={"nth": 20}),
        Fault(kind="service-double", at=0, duration=None, values={"nth": 15}),
        Fault(kind="service-slow", at=0, duration=None, values={"nth": 10, "by": 50 * MS}),
        Fault(kind="lose-copy", at=0, duration=None, values={"share": 0.05, "subscription": 1}),
        REORDERED,
    )
    return play(World(seed=5, profile=profile, faults=faults), tmp_path_factory.mktemp("routed"))


def test_a_true_result_of_a_service_violates_nothing(routed: Played) -> None:
    assert rules(check_truth(routed)) == set()
    assert routed.results is not None
    counts = routed.results["measurements"]["counts"]
    assert min(counts[name] for name in ("lost", "duplicates", "outOfOrder")) > 0


@pytest.mark.parametrize("name", ["received", "lost", "duplicates", "outOfOrder"])
def test_a_wrong_count_of_outputs_is_found(routed: Played, name: str) -> None:
    assert routed.results is not None
    value = routed.results["measurements"]["counts"][name] + 1
    wrong = changed(routed, "measurements", "counts", name, value=value)
    assert f"counts.{name}" in rules(check_truth(wrong))


def test_latencies_of_first_outputs_alone_are_found(routed: Played) -> None:
    assert routed.results is not None
    samples = routed.results["measurements"]["latencies"]["endToEnd"]["samples"]
    wrong = changed(routed, "measurements", "latencies", "endToEnd", "samples", value=samples // 2)
    assert "endToEndLatency.samples" in rules(check_truth(wrong))


@pytest.mark.parametrize("part", ["toTap", "afterTap", "pastTap"])
def test_a_wrong_part_of_the_way_past_a_tap_is_found(routed: Played, part: str) -> None:
    assert routed.results is not None
    total = routed.results["measurements"]["latencies"][part]["total"]
    wrong = changed(routed, "measurements", "latencies", part, "total", value=total + 1)
    assert rules(check_truth(wrong)) == {f"{part}.total"}


def test_the_way_past_a_tap_that_received_something_too_late_is_open(routed: Played) -> None:
    tapped = deepcopy(routed.truth.tapped)
    late = next(copy for copy in tapped if copy.seq > 100 // 2)
    late.taken = 1 << 62
    truth = replace(routed.truth, tapped=tapped)
    wrong = changed(routed, "measurements", "latencies", "toTap", "total", value=0)
    assert rules(check_truth(replace(wrong, truth=truth))) == set()


def test_a_throughput_of_half_of_the_outputs_is_found(routed: Played) -> None:
    assert routed.results is not None
    findings = routed.results["verdict"]["findings"]
    share = next(one["observed"] for one in findings if one["metric"] == "throughput")
    wrong = with_finding(routed, "throughput", observed=share / 2)
    assert "observed" in rules(check_truth(wrong))


def test_foreign_messages_on_topics_of_others_need_no_bound(routed: Played, played: Played) -> None:
    for run, rule in ((routed, set()), (played, {"objectives"})):
        assert run.results is not None
        findings = run.results["verdict"]["findings"]
        kept = [one for one in findings if one["metric"] != "foreign"]
        assert rules(check_truth(changed(run, "verdict", "findings", value=kept))) == rule


def rules(*found: list[Violation]) -> set[str]:
    """Return the rules that are violated beyond all margins."""
    every = [violation for violations in found for violation in violations]
    return {violation.rule for violation in every if not violation.margin}


def changed(played: Played, *path: str | int, value: Any) -> Played:
    """Return the same world with other results."""
    results: Any = deepcopy(played.results)
    place = results
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return replace(played, results=results)


def with_finding(played: Played, name: str, **values: Any) -> Played:
    """Return the same world with other values of the finding of this name."""
    assert played.results is not None
    findings = played.results["verdict"]["findings"]
    place = next(number for number, finding in enumerate(findings) if finding["name"] == name)
    for key, value in values.items():
        played = changed(played, "verdict", "findings", place, key, value=value)
    return played


def test_a_true_result_violates_nothing(played: Played) -> None:
    assert rules(check_truth(played)) == set()
    assert played.results is not None
    counts = played.results["measurements"]["counts"]
    assert counts["lost"] > 0
    assert counts["duplicates"] > 0
    assert counts["outOfOrder"] > 0
    kinds = {
        (bool(one["windows"]), bool(one["tenths"]), bool(one["bucket"]))
        for one in played.results["verdict"]["findings"]
    }
    assert len(kinds) == 4


# The load.


def test_a_load_that_was_not_offered_is_found(played: Played) -> None:
    wrong = changed(played, "measurements", "counts", "offered", value=150)
    assert "offered" in rules(check_truth(wrong))


def test_a_load_that_was_planned_too_short_is_found(played: Played) -> None:
    """The due messages come from the profile, and not from the duration that the product planned."""
    stages = [PROFILE["stages"][0], {**PROFILE["stages"][1], "duration": "8s"}]
    longer = replace(played.world, profile={**PROFILE, "stages": stages})
    assert "offered" in rules(check_truth(replace(played, world=longer)))


@pytest.mark.parametrize("number", [199, 201])
def test_a_number_of_messages_is_offered_exactly(number: int, tmp_path: Any) -> None:
    profile = simple(messages=200)
    del profile["testDuration"]
    played = play(World(seed=1, profile=profile), tmp_path)
    assert rules(check_truth(played)) == set()
    counted = replace(played.world, profile={**profile, "messages": number})
    assert "offered" in rules(check_truth(replace(played, world=counted)))


def test_messages_that_are_intended_late_are_found(played: Played) -> None:
    truth = deepcopy(played.truth)
    for sent in truth.sent:
        sent.intended += 5 * MS
    assert "due" in rules(check_truth(replace(played, truth=truth)))


def test_bytes_that_are_offered_at_once_are_found(tmp_path: Any) -> None:
    sizes = {"messageSizeDistribution": {"50-100": 1, "1000-2000": 1}, "producerRate": "50000B/s"}
    profile = simple(**sizes)
    del profile["messageSize"]
    played = play(World(seed=1, profile=profile), tmp_path)
    assert rules(check_truth(played)) == set()
    truth = deepcopy(played.truth)
    start = truth.phases[0].start
    for sent in truth.sent:
        sent.intended = start + (sent.intended - start) // 2
    assert "due" in rules(check_truth(replace(played, truth=truth)))


def test_a_topic_with_too_many_messages_is_found(played: Played) -> None:
    wrong = changed(played, "measurements", "topics", 0, "offered", value=700)
    assert "topics" in rules(check_truth(wrong))


# Counts and latencies.


@pytest.mark.parametrize(
    "count",
    ["sent", "acked", "failed", "unknown", "resent", "received", "lost", "duplicates", "outOfOrder", "corrupt", "corruptHeads", "foreign"],
)  # fmt: skip
def test_a_wrong_count_is_found(played: Played, count: str) -> None:
    wrong = changed(played, "measurements", "counts", count, value=7)
    assert f"counts.{count}" in rules(check_truth(wrong))


def test_a_silent_stream_that_is_not_counted_is_found(played: Played) -> None:
    wrong = changed(played, "measurements", "silent", "streams", value=1)
    assert "silent" in rules(check_truth(wrong))


@pytest.mark.parametrize("name", ["samples", "minimum", "largest", "total"])
@pytest.mark.parametrize(
    ("metric", "key"),
    [
        ("endToEndLatency", "endToEnd"),
        ("publishLatency", "publish"),
        ("sendDelay", "sendDelay"),
        ("deliveryGap", "deliveryGap"),
    ],
)
def test_a_wrong_latency_is_found(played: Played, metric: str, key: str, name: str) -> None:
    wrong = changed(played, "measurements", "latencies", key, name, value=1)
    assert f"{metric}.{name}" in rules(check_truth(wrong))


def test_a_wrong_percentile_is_found(played: Played) -> None:
    wrong = changed(played, "measurements", "latencies", "endToEnd", "percentiles", "p50", value=1)
    assert "endToEndLatency.percentile" in rules(check_truth(wrong))


def test_a_latency_of_another_size_bucket_is_found(played: Played) -> None:
    assert played.results is not None
    other = played.results["measurements"]["buckets"][1]["endToEnd"]
    wrong = changed(played, "measurements", "buckets", 0, "endToEnd", value=other)
    assert {"endToEndLatency.samples", "endToEndLatency.total"} & rules(check_truth(wrong))


# Objectives.


def test_a_false_pass_is_found(played: Played) -> None:
    wrong = with_finding(played, "loss", maximum=1, outcome="met")
    assert "false pass" in rules(check_truth(wrong))


def test_a_false_miss_is_found(played: Played) -> None:
    wrong = with_finding(played, "loss", outcome="missed")
    assert "false miss" in rules(check_truth(wrong))


def test_a_maximum_of_what_came_is_a_false_pass(played: Played) -> None:
    """Losses are more than the profile allows now, so that the largest latency is *never*."""
    profile = {**PROFILE, "slo": {**PROFILE["slo"], "loss": 1}}
    wrong = replace(played, world=replace(played.world, profile=profile))
    assert "false pass" in rules(check_truth(wrong))


def test_a_window_that_missed_is_found(played: Played) -> None:
    wrong = with_finding(played, "endToEndLatency.p50", maximum=1)
    assert "false pass" in rules(check_truth(wrong))


def test_another_drift_is_found(played: Played) -> None:
    wrong = with_finding(played, "drift.endToEndLatency.p50", observed=7.5)
    assert "observed" in rules(check_truth(wrong))


def test_a_bucket_that_missed_is_found(played: Played) -> None:
    assert played.results is not None
    name = next(one["name"] for one in played.results["verdict"]["findings"] if one["bucket"])
    assert "false pass" in rules(check_truth(with_finding(played, name, maximum=1_000)))


def test_a_stage_that_was_not_judged_is_found(played: Played) -> None:
    wrong = changed(played, "stages", 1, "verdict", "findings", value=[])
    assert "objectives" in rules(check_truth(wrong))


def test_a_stage_that_missed_is_found(played: Played) -> None:
    wrong = changed(played, "stages", 1, "verdict", "findings", 0, "maximum", value=1_000)
    assert "false pass" in rules(check_truth(wrong))


def test_an_implicit_objective_that_was_left_out_is_found(played: Played) -> None:
    assert played.results is not None
    findings = [one for one in played.results["verdict"]["findings"] if one["metric"] != "silent"]
    wrong = changed(played, "verdict", "findings", value=findings)
    assert "objectives" in rules(check_truth(wrong))


def test_no_data_without_a_reason_is_found(played: Played) -> None:
    assert "no data" in rules(check_truth(with_finding(played, "loss", outcome="no data")))


def test_a_percentile_of_too_few_samples_is_found(played: Played) -> None:
    assert played.results is not None
    name = "whole.endToEndLatency.p99.9"
    names = [one["name"] for one in played.results["verdict"]["findings"]]
    wrong = with_finding(
        played, next(one for one in names if "p99.9" in one or one == name), outcome="met"
    )
    assert "too few samples" in rules(check_truth(wrong))


def test_a_pass_with_an_objective_that_is_not_met_is_found(played: Played) -> None:
    wrong = changed(played, "verdict", "outcome", value="met")
    assert "verdict" in rules(check_truth(with_finding(wrong, "loss", outcome="missed")))


# How a run ends.


def test_a_drain_that_ended_early_is_found(played: Played) -> None:
    truth = deepcopy(played.truth)
    phase = truth.phases[-1]
    assert phase.ended is not None
    keys = [(copy.stream, copy.seq) for copy in truth.copies]
    single = [copy for copy in truth.copies if keys.count((copy.stream, copy.seq)) == 1]
    last = max(single, key=lambda copy: copy.arrived)
    answer = max(sent.answered or 0 for sent in truth.sent)
    phase.ended = answer + MS
    last.arrived = answer + 2 * SECOND
    last.taken = None
    found = check_truth(replace(played, truth=truth))
    assert "drain" in rules(found)


def test_a_lost_worker_is_no_data(played: Played) -> None:
    truth = deepcopy(played.truth)
    truth.killed.append((0, truth.phases[-1].start + SECOND))
    assert "lost worker" in rules(check_truth(replace(played, truth=truth, outcome="missed")))


def test_no_results_without_a_reason_are_found(played: Played) -> None:
    wrong = replace(
        played, results=None, documents=(), outcome="no data", error="target unreachable"
    )
    assert rules(check_truth(wrong)) == {"no data"}


def test_a_clock_that_is_wrong_by_more_than_stated_is_found(tmp_path: Any) -> None:
    host = Host(name="h", offset=5 * SECOND, drift=1e-5)
    world = World(seed=1, workers=(CONTROLLER, "h"), hosts=(host,), profile=simple())
    played = play(world, tmp_path)
    assert rules(check_truth(played)) == set()
    run = deepcopy(played.run)
    assert run is not None
    run["clocks"][0]["fit"]["line"]["offset"] += 2 * MS
    assert "clock" in rules(check_truth(replace(played, run=run)))


SEARCH: dict[str, Any] = {
    "search": {
        "start": 50,
        "max": 200,
        "hold": "1s",
        "confirm": "1s",
        "warmup": "100ms",
        "precision": "50%",
    },
    "producerRate": 0,
}


def test_a_peak_that_was_missed_is_found(tmp_path: Any) -> None:
    profile = simple(**SEARCH)
    del profile["testDuration"]
    limit = Fault(kind="throttle", at=0, duration=None, values={"rate": 120})
    played = play(World(seed=1, profile=profile, faults=(limit,)), tmp_path)
    assert rules(check_truth(played)) == set()
    assert played.results is not None
    wrong = changed(played, "peak", "rate", value=played.results["peak"]["high"])
    assert "peak" in rules(check_truth(wrong))


def peak(*steps: tuple[int, str, str]) -> dict[str, Any]:
    """Return a peak of 20/s. :param steps: rate, purpose, outcome."""
    return {
        "rate": 20,
        "steps": [
            {"rate": rate, "purpose": purpose, "outcome": outcome}
            for rate, purpose, outcome in steps
        ],
    }


CONFIRMED = (20, "confirm", "met")


@pytest.mark.parametrize(
    ("votes", "found"),
    [
        (["met", "missed", "met"], False),
        (["missed", "met"], True),
        (["missed", "met", "missed"], True),
    ],
)
def test_a_peak_above_a_rate_that_did_not_hold_is_found(
    played: Played, votes: list[str], found: bool
) -> None:
    below = [(10, "repeat", vote) for vote in votes]
    wrong = changed(played, "peak", value=peak(*below, CONFIRMED))
    assert ("peak" in rules(check_truth(wrong))) is found


def test_the_last_confirmation_decides_whether_a_rate_held(played: Played) -> None:
    held = changed(played, "peak", value=peak((20, "bisect", "missed"), CONFIRMED))
    assert "peak" not in rules(check_truth(held))
    broken = changed(played, "peak", value=peak((20, "bisect", "met"), (20, "confirm", "missed")))
    assert "peak" in rules(check_truth(broken))


def test_a_search_with_too_low_a_rate_for_its_percentiles_does_not_begin(tmp_path: Any) -> None:
    profile = simple(**SEARCH, slo={"endToEndLatency": {"p99.5": "1s"}})
    del profile["testDuration"]
    played = play(World(seed=1, profile=profile), tmp_path)
    assert (played.outcome, played.truth.phases) == ("no data", [])
    assert rules(check_truth(played)) == set()
    search = {**profile["search"], "max": 3_000}
    higher = replace(played.world, profile={**profile, "search": search})
    assert rules(check_truth(replace(played, world=higher))) == {"no data"}


def test_foreign_messages_count_in_their_own_step_of_a_search(tmp_path: Any) -> None:
    profile = simple(**SEARCH, slo={"foreign": "90%"})
    del profile["testDuration"]
    foreign = Fault(kind="foreign", at=0, duration=500 * MS, values={"every": 50 * MS})
    played = play(World(seed=1, profile=profile, faults=(foreign,)), tmp_path)
    counts = [one["measurements"]["counts"]["foreign"] for one, _ in played.documents]
    assert sum(count > 0 for count in counts) == 1
    assert rules(check_truth(played)) == set()


def test_an_abort_without_a_reason_is_found(played: Played) -> None:
    profile = {**PROFILE, "abort": {"endToEndLatency.p90": "1s", "for": "2s"}}
    assert played.run is not None
    wrong = replace(
        played,
        world=replace(played.world, profile=profile),
        run={**played.run, "aborted": {"reason": "endToEndLatency.p90"}},
    )
    assert "abort" in rules(check_truth(wrong))


def test_a_load_that_is_aborted_within_its_first_window_has_no_data_in_windows(
    tmp_path: Path,
) -> None:
    profile = simple(
        testDuration="10s",
        slo={"window": "8s", "endToEndLatency": {"p50": "10ms"}, "whole": {"sendDelay": {"max": "1s"}}},
        abort={"endToEndLatency.p50": "100us", "for": "1s"},
    )  # fmt: skip
    aborted = play(World(seed=5, profile=profile), tmp_path)
    assert rules(check_truth(aborted)) == set()
    wrong = with_finding(aborted, "whole.sendDelay.max", outcome="no data")
    assert rules(check_truth(wrong)) == {"no data"}
    assert aborted.outcome == "missed"
