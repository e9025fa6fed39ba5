"""Only small differences of latencies, and single messages at an edge, are within the margins."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulation.margins import (
    DRAIN,
    EDGE,
    FATE,
    REJECTS,
    SHIFT,
    TICK,
    _is_a_tick_beyond_own_part,
    at_an_edge,
    held_up,
    margin_between,
    margin_of_drains,
)
from simulation.player import play
from simulation.truth import Played, PlayedPhase, Truth
from simulation.world import MS, SECOND, Fault, World, load_world


def played(**finding: Any) -> Played:
    """Return a world with one finding of a verdict."""
    usual = {
        "name": "p99", "metric": "endToEndLatency", "unit": "ns", "minimum": None, "maximum": 10 * MS, "outcome": "met", "observed": 9 * MS,
        "samples": 100, "windows": None, "bucket": "", "tenths": None,
    }  # fmt: skip
    results = {
        "verdict": {"findings": [{**usual, **finding}]},
        "measurements": {"subscriptions": 1},
        "workload": None,
    }
    return Played(
        world=World(seed=1, profile={}), truth=Truth(), outcome="met", results=results, run=None, error=None, folder=Path(), ended=0,
        events="", cpu=0,
    )  # fmt: skip


@pytest.mark.parametrize(("observed", "margin"), [(10.5, TICK), (12, "")])
def test_a_latency_may_differ_by_ticks(observed: float, margin: str) -> None:
    missed = played(outcome="missed", observed=observed * MS)
    assert margin_between(missed, played()) == margin
    assert margin_between(played(), missed) == margin


def tenths(first: float, last: float) -> dict[str, Any]:
    """Return the values of a drift, ms."""
    values = {"unit": "ns", "first": first * MS, "last": last * MS}
    return {"unit": "ratio", "observed": last / first - 1, "tenths": values}


@pytest.mark.parametrize(("first", "last", "margin"), [(2, 3, TICK), (2, 8, ""), (8, 3, "")])
def test_a_tick_explains_a_drift_if_it_explains_both_tenths(
    first: float, last: float, margin: str
) -> None:
    missed = played(outcome="missed", **tenths(first, last))
    assert margin_between(missed, played(**tenths(2, 2))) == margin


def windows(*observed: tuple[str, float]) -> dict[str, Any]:
    """Return the windows of an objective. :param observed: outcome and value, ms, of each."""
    listed = [
        {"start": number, "outcome": outcome, "observed": value * MS}
        for number, (outcome, value) in enumerate(observed)
    ]
    return {"windows": {"listed": listed}}


@pytest.mark.parametrize(("observed", "margin"), [(10.5, TICK), (12, "")])
def test_a_tick_explains_windows_if_it_explains_each_that_differs(
    observed: float, margin: str
) -> None:
    missed = played(outcome="missed", **windows(("missed", 50), ("missed", observed)))
    assert margin_between(missed, played(**windows(("missed", 80), ("met", 9)))) == margin
    assert margin_between(missed, played(**windows(("met", 9), ("met", 9)))) == ""


REGRESSIONS = Path(__file__).parent / "regressions"


def test_what_comes_at_the_end_of_a_drain_is_open_between_two_plays(tmp_path: Path) -> None:
    world = load_world(REGRESSIONS / "answers-at-the-end-of-a-drain.yaml")
    at_the_end = play(world, tmp_path / "end")
    before = play(replace(world, faults=()), tmp_path / "before")
    assert margin_of_drains(at_the_end, before) == margin_of_drains(before, at_the_end) == DRAIN
    assert margin_of_drains(before, before) == ""


def test_what_waits_behind_a_message_at_an_edge_is_left_out_with_it(tmp_path: Path) -> None:
    """The first message of a throttle is not late itself: it delays the next one, and that one those behind it."""
    world = load_world(REGRESSIONS / "edge-of-a-throttle.yaml")
    struck = play(world, tmp_path / "struck")
    spared = play(world.without_generator_faults(), tmp_path / "spared")
    edge = at_an_edge(struck, spared)
    assert len(edge) == 1
    assert len(held_up(struck, edge)) > 5
    assert held_up(spared, edge) == edge
    assert margin_between(struck, spared) == FATE


def test_what_a_late_client_rejects_is_no_fault_of_the_target(tmp_path: Path) -> None:
    """Unless other messages failed too."""
    world = load_world(REGRESSIONS / "rejected-by-a-late-client.yaml")
    late = play(world, tmp_path / "late")
    calm = play(world.without_generator_faults(), tmp_path / "calm")
    assert margin_between(late, calm) == REJECTS
    for sent in late.truth.sent:
        if sent.failed:
            sent.answered = sent.at + MS
    assert margin_between(late, calm) == ""


def test_plays_whose_phases_begin_at_other_times_prove_nothing() -> None:
    """Times of faults count from the first phase."""
    early, late = (
        replace(played(), truth=Truth(phases=[phase("warm-up", 0), phase("measure", start)]))
        for start in (2 * SECOND, 5 * SECOND)
    )
    missed = played(outcome="missed", observed=50 * MS)
    assert margin_between(replace(missed, truth=late.truth), early) == SHIFT
    assert margin_between(replace(missed, truth=early.truth), early) == ""


@pytest.mark.parametrize(("observed", "margin"), [(35, SHIFT), (50, "")])
def test_a_fault_strikes_longer_where_a_phase_began_a_little_earlier(
    observed: float, margin: str
) -> None:
    early, late = (
        Truth(phases=[phase("warm-up", 0), phase("measure", start * MS)]) for start in (500, 530)
    )
    missed = replace(played(outcome="missed", observed=observed * MS), truth=early)
    assert margin_between(missed, replace(played(), truth=late)) == margin


def phase(name: str, start: int) -> PlayedPhase:
    return PlayedPhase(name, start, SECOND, recorded=name == "measure")


@pytest.mark.parametrize(("samples", "margin"), [(98, EDGE), (97, "")])
def test_a_throughput_may_differ_by_messages_at_its_edges(samples: int, margin: str) -> None:
    share = {"name": "throughput", "metric": "throughput", "unit": "ratio", "observed": None}
    missed = played(**share, outcome="missed", samples=samples)
    assert margin_between(missed, played(**share)) == margin


def test_a_loss_has_no_margin() -> None:
    loss = {"name": "loss", "metric": "loss", "unit": "count"}
    missed = played(**loss, outcome="missed", observed=1)
    assert margin_between(missed, played(**loss, observed=0)) == ""


def test_an_objective_without_a_counterpart_has_none() -> None:
    assert margin_between(played(outcome="missed"), played(name="p50")) == ""


def test_a_difference_without_an_objective_has_none() -> None:
    """Then something else decided, such as a target that went away."""
    assert margin_between(played(), replace(played(), outcome="missed")) == ""


# A message at the edge of a fault. The cut begins while one message is on its way, or just before it is sent.

PROFILE: dict[str, Any] = {
    "name": "World",
    "topics": 1,
    "producersPerTopic": 1,
    "producerRate": 100,
    "messageSize": "100B",
    "testDuration": "2s",
    "driver": {"name": "simulated"},
    "slo": {"failed": 0},
}


def cut(at: int) -> World:
    fault = Fault(kind="cut-lose", at=at, duration=5 * MS)
    return World(seed=1, profile=PROFILE, faults=(fault,))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Played, Played]:
    """Return a play that loses a message, and one in which the cut begins a little later."""
    lost = play(cut(SECOND + MS // 4), tmp_path_factory.mktemp("lost"))
    kept = play(cut(SECOND + 3 * MS), tmp_path_factory.mktemp("kept"))
    assert (lost.outcome, kept.outcome) == ("missed", "met")
    return lost, kept


def test_a_message_at_the_edge_of_a_fault_may_decide(both: tuple[Played, Played]) -> None:
    assert len(at_an_edge(*both)) == 1
    assert margin_between(*both) == FATE


def test_a_message_that_was_sent_later_is_not_at_an_edge(
    both: tuple[Played, Played],
) -> None:
    lost, kept = both
    truth = deepcopy(kept.truth)
    for sent in truth.sent:
        sent.at += 3 * MS
    assert margin_between(lost, replace(kept, truth=truth)) == ""


def test_a_miss_that_other_messages_cause_too_is_not_explained(
    both: tuple[Played, Played],
) -> None:
    """Without the message at the edge the truth still misses in one play alone."""
    lost, kept = both
    truth = deepcopy(lost.truth)
    truth.sent[3].failed = True
    truth.sent[3].at += 5 * MS
    assert margin_between(replace(lost, truth=truth), kept) == ""


def test_many_messages_at_an_edge_are_no_coincidence(both: tuple[Played, Played]) -> None:
    lost, kept = both
    truth = deepcopy(lost.truth)
    for sent in truth.sent[:2]:
        sent.failed = True
    assert margin_between(replace(lost, truth=truth), kept) == ""


def test_answers_that_wait_for_one_another_are_a_tick_beyond_the_own_part(tmp_path: Path) -> None:
    """A message 2.1 ms late is answered after 4.5 ms: within a tick of 2 ms beyond the bound once its own part is subtracted."""
    world = load_world(Path(__file__).parent / "regressions/answers-of-a-late-burst.yaml")
    run = play(world, tmp_path)
    assert run.results is not None
    findings = run.results["verdict"]["findings"]
    missed = next(one for one in findings if one["outcome"] == "missed")
    bounds = {2 * MS: True, 3 * MS: False, 0.3 * MS: False}
    for bound, is_explained in bounds.items():
        assert _is_a_tick_beyond_own_part(None, missed | {"maximum": bound}, run) is is_explained


def test_a_damaged_head_at_the_edge_of_a_fault_may_decide(tmp_path: Path) -> None:
    """It belongs to no message for the product, but the truth knows whose it is."""
    world = load_world(REGRESSIONS / "head-at-the-edge-of-a-fault.yaml")
    spared = play(world, tmp_path / "spared")
    struck = play(world.without_generator_faults(), tmp_path / "struck")
    assert (spared.outcome, struck.outcome) == ("met", "missed")
    assert margin_between(spared, struck) == FATE
