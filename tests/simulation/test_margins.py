"""Only small differences of latencies, and single messages at the edges of a throughput, are within the margins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulation.margins import within_margins
from simulation.truth import Played, Truth
from simulation.world import MS, Fault, World


def played(**finding: Any) -> Played:
    """Return a world with one finding of a verdict."""
    usual = {
        "name": "p99", "metric": "endToEndLatency", "unit": "ns", "minimum": None, "maximum": 10 * MS, "outcome": "met", "observed": 9 * MS,
        "samples": 100, "windows": None,
    }  # fmt: skip
    results = {
        "verdict": {"findings": [{**usual, **finding}]},
        "measurements": {"subscriptions": 1},
    }
    return Played(
        world=World(seed=1, profile={}), truth=Truth(), outcome="met", results=results, run=None, error=None, folder=Path(), ended=0,
        events="", cpu=0,
    )  # fmt: skip


@pytest.mark.parametrize(("observed", "expected"), [(10.5, True), (12, False)])
def test_a_latency_may_differ_by_ticks(observed: float, expected: bool) -> None:
    missed = played(outcome="missed", observed=observed * MS)
    assert within_margins(missed, played()) is expected
    assert within_margins(played(), missed) is expected


@pytest.mark.parametrize(("samples", "expected"), [(98, True), (97, False)])
def test_a_throughput_may_differ_by_messages_at_its_edges(samples: int, expected: bool) -> None:
    share = {"name": "throughput", "metric": "throughput", "unit": "ratio"}
    missed = played(**share, outcome="missed", samples=samples)
    assert within_margins(missed, played(**share)) is expected


def test_a_loss_has_no_margin() -> None:
    loss = {"name": "loss", "metric": "loss", "unit": "count"}
    missed = played(**loss, outcome="missed", observed=1)
    assert not within_margins(missed, played(**loss, observed=0))


def test_what_a_fault_of_the_target_strikes_may_differ() -> None:
    """A pause moves messages into the time of a fault, or out of it; their counts are compared with the truth."""
    loss = {"name": "loss", "metric": "loss", "unit": "count"}
    world = World(seed=1, profile={}, faults=(Fault(kind="lose-acknowledged", at=0),))
    missed = replace(played(**loss, outcome="missed", observed=1), world=world)
    assert within_margins(missed, played(**loss, observed=0))


def test_an_objective_without_a_counterpart_has_none() -> None:
    assert not within_margins(played(outcome="missed"), played(name="p50"))
