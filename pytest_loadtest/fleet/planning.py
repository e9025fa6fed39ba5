"""The plans of a test's workloads: whether this machine can carry them, and how they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.drivers import planned_facts
from pytest_loadtest.errors import GeneratorLimited
from pytest_loadtest.fleet.machine import costs, machine
from pytest_loadtest.fleet.targets import here
from pytest_loadtest.plan import beyond, make_plan, profile_cost_key, profile_pool
from pytest_loadtest.report.plan import lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.fleet.orders import Part, Request
    from pytest_loadtest.plan import Plan


def plans(request: Request, workers: int, options: Options) -> list[Plan]:
    """One of each workload.

    :raises UsageError: it cannot be planned.
    """
    return [_plan(request, part, workers, options) for part in request.parts]


def _plan(request: Request, part: Part, workers: int, options: Options) -> Plan:
    profile = part.profile
    return make_plan(
        profile, profile_pool(profile, part.payload_file), workers=workers, cost=costs()[profile_cost_key(profile)], machine=machine(),
        broker_here=here(request, profile, options), scale=options.scale, duration_cap=options.duration,
    )  # fmt: skip


def gate(request: Request, made: Sequence[Plan], options: Options) -> None:
    """:raises GeneratorLimited: this machine cannot carry the plans together, and nobody said to try it anyway."""
    reasons = beyond(made, machine())
    if reasons and not options.force:
        text = "\n".join(f"  {reason}" for reason in reasons)
        raise GeneratorLimited(
            f"load run of profile {request.profile.name}: generator-limited before any load: this machine cannot carry the plan\n"
            f"{text}\n"
            "  use --load-scale auto (--load-plan shows the whole plan), more workers or machines, or --load-force to try it anyway"
        )


def plan_lines(request: Request, workers: int, options: Options) -> list[str]:
    """The plan of one test as lines, workload by workload.

    :raises UsageError: it cannot be planned.
    """
    made = plans(request, workers, options)
    found = [line for plan in made for line in lines(plan, planned_facts(plan.profile.driver), machine())]
    return found + [f"{'BEYOND':<12} {reason}" for reason in beyond(made, machine())]
