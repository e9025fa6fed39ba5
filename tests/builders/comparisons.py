"""Pairs of runs, in every relation that two runs of a test can have."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from builders.documents import changed
from builders.report import broken
from builders.runs import run_of, wandering
from pytest_loadtest.report.compared import compare_pair
from pytest_loadtest.report.document import ScaleSection
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from pytest_loadtest.report.compared import Compared
    from pytest_loadtest.report.document import RunDocument

SLO = {"endToEndLatency": {"p99": "100ms"}}
STRICT = {"endToEndLatency": {"p99": "80ms"}}
GATES = {"endToEndLatency.p99": "10%", "throughput": "5%"}
LATE = "worker gw1 sent late: p99 of its own send delay is 21.0 ms, at most 5.00 ms are allowed"
REMEDY = "use more workers (-n)"


def named(run: RunDocument, name: str, gates: dict[str, str] | None = None) -> RunDocument:
    """Return the run as one of another test. :param gates: its bounds on regression."""
    document: dict[str, Any] = dict(run.profile.document)
    if gates:
        document["slo"] = {"regression": gates}
    return replace(
        run,
        test=f"loadtests/test_orders.py::test_orders[{name}]",
        profile=replace(run.profile, document=document),
        results=f".loadtest/1/{name}/1/smoke/measure",
    )


def with_outcome(run: RunDocument, outcome: Outcome, *reasons: str) -> RunDocument:
    return replace(run, verdict=replace(run.verdict, outcome=outcome, reasons=reasons))


@cache
def pairs() -> dict[str, tuple[RunDocument | None, RunDocument | None]]:
    """Return baseline and later run by the name of their relation."""
    calm = run_of(wandering(1), SLO)
    again = run_of(wandering(2), SLO)
    slower = run_of(wandering(3, factor=1.3), STRICT)
    faster = run_of(wandering(4, factor=0.7), SLO)
    noisy = run_of(wandering(5, factor=1.08, noise=0.2), SLO)
    short = run_of(wandering(1, seconds=10), SLO)
    scaled = replace(again, scale=ScaleSection(factor=0.01, changes={"rate": "20 k → 200 msg/s"}))
    other_machine = replace(slower, machine={**slower.machine, "cores": 64})
    facts = {f"setting{number}": str(number) for number in range(12)}
    other_broker = replace(slower, broker={**slower.broker, "settings": facts})
    late = with_outcome(slower, Outcome.GENERATOR_LIMITED, LATE, REMEDY)
    losses = changed(again, "measurements/counts/lost", 7)
    return {
        "same": (named(calm, "same"), named(again, "same", GATES)),
        "slower": (named(calm, "slower"), named(slower, "slower", GATES)),
        "slower, not bounded": (named(calm, "free"), named(slower, "free")),
        "faster": (named(slower, "faster"), named(faster, "faster", GATES)),
        "noisy": (named(calm, "noisy"), named(noisy, "noisy", GATES)),
        "short": (named(short, "short"), named(short, "short", GATES)),
        "scaled": (named(scaled, "scaled"), named(scaled, "scaled")),
        "scaled now": (named(calm, "less"), named(scaled, "less", GATES)),
        "machine": (named(calm, "machine"), named(other_machine, "machine", GATES)),
        "broker": (named(calm, "broker"), named(other_broker, "broker")),
        "late": (named(calm, "late"), named(late, "late", GATES)),
        "was late": (named(late, "was-late"), named(calm, "was-late")),
        "broken": (named(calm, "broken"), named(broken(), "broken")),
        "losses": (named(calm, "losses"), named(losses, "losses")),
        "gone": (named(calm, "gone", GATES), None),
        "new": (None, named(calm, "new")),
        "odd|name": (named(calm, "a|b *c* <d> @e #1"), named(slower, "a|b *c* <d> @e #1")),
    }


@cache
def comparisons(*, force: bool = False) -> dict[str, Compared]:
    """Return the comparison of every pair."""
    return {name: compare_pair(was, now, force=force) for name, (was, now) in pairs().items()}
