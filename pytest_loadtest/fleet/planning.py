"""The plans of a test's workloads: whether this machine can carry them, and how they are shown."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from pytest_loadtest.drivers import planned_facts
from pytest_loadtest.errors import GeneratorLimited
from pytest_loadtest.fleet.machine import costs, machine
from pytest_loadtest.fleet.targets import check_broker, check_security, here
from pytest_loadtest.plan.plan import beyond, make_plan, profile_pool
from pytest_loadtest.plan.pricing import profile_cost
from pytest_loadtest.report.plan import plan_table
from pytest_loadtest.values.quantities import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.fleet.messages import Part, Request
    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.plan.plan import Plan


BESIDE = 16 << 20  # bytes beside the samples: results, logs, what Spark shuffles


def plans(request: Request, workers: int, options: Options) -> list[Plan]:
    """One of each workload.

    :raises UsageError: it cannot be planned.
    """
    return [_plan(request, part, workers, options) for part in request.parts]


def _plan(request: Request, part: Part, workers: int, options: Options) -> Plan:
    profile = part.profile
    check_security(request, profile, options)
    check_broker(request, profile, options)
    return make_plan(
        profile, profile_pool(profile, part.payload_file), workers=workers, cost=profile_cost(profile, costs()), machine=machine(),
        broker_here=here(request, profile, options), scale=options.scale, duration_cap=options.duration,
    )  # fmt: skip


def check_machine(request: Request, made: Sequence[Plan], options: Options) -> None:
    """:raises GeneratorLimited: this machine cannot carry the plans together, and nobody said to try it anyway."""
    reasons = _reasons(made, options)
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
    found = [line for plan in made for line in plan_table(plan, planned_facts(plan.profile), machine())]
    return found + [f"{'BEYOND':<12} {reason}" for reason in _reasons(made, options)]


def _reasons(made: Sequence[Plan], options: Options) -> tuple[str, ...]:
    """Why this machine cannot carry the plans; the folder of the results must have room for their samples."""
    needed = BESIDE + sum(plan.needs.disk for plan in made)
    there = next(folder for folder in (options.results, *options.results.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    room = f"samples and results need {format_size(needed)} below {options.results}, {format_size(free)} are free there"
    return (*beyond(made, machine()), *([f"{room} (load_results in pytest.ini)"] if needed > free else []))
