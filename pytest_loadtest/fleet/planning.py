"""The plans of a test's workloads: whether this machine can carry them, and how they are shown."""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_loadtest.brokers.starting import ephemeral_range
from pytest_loadtest.drivers import planned_facts
from pytest_loadtest.errors import GeneratorLimited
from pytest_loadtest.fleet.targets import check_broker, check_security, here
from pytest_loadtest.kinds.costs import Cost
from pytest_loadtest.kinds.registry import kinds, shipped_costs
from pytest_loadtest.plan.plan import beyond, make_plan, profile_pool
from pytest_loadtest.plan.scaling import Machine, profile_cost
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


# This machine: what it has, what it is, and what a message costs on it.

_UNLIMITED = 1 << 30
_PACKAGES = ("pytest-loadtest", "pytest", "pytest-xdist", "numpy", "pyarrow", "pyspark")


@cache
def machine() -> Machine:
    """Cores that this process may use, memory, open files and ports."""
    low, high = ephemeral_range()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Machine(
        cores=len(os.sched_getaffinity(0)), memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        files=_UNLIMITED if most == resource.RLIM_INFINITY else most, ports=high - low + 1,
    )  # fmt: skip


def describe() -> dict[str, str | int | float]:
    """For results: which machine this was."""
    here = machine()
    return {
        "host": platform.node(), "system": f"{platform.system()} {platform.release()}", "processor": platform.machine(),
        "cores": here.cores, "memory": here.memory,
    }  # fmt: skip


def versions() -> dict[str, str]:
    """For results: what ran."""
    found = {"python": platform.python_version()}
    for package in dict.fromkeys((*_PACKAGES, *(package for kind in kinds().values() for package in (kind.package, *kind.packages)))):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def cache_folder() -> Path:
    """The user's cache folder of this package (XDG)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pytest-loadtest")


def costs_file() -> Path:
    """Where ``calibrate`` keeps what it measured on this machine, apart for each Python."""
    return cache_folder() / f"costs-{platform.node()}-{sys.version_info.major}.{sys.version_info.minor}.json"


def costs() -> dict[str, Cost]:
    """The shipped costs, with what was calibrated on this machine in their place."""
    shipped = shipped_costs()
    try:
        calibrated = json.loads(costs_file().read_text(encoding="utf-8"))
        return {**shipped, **{key: Cost.of(row, shipped[key].shared) for key, row in calibrated["costs"].items() if key in shipped}}
    except (OSError, ValueError, KeyError, TypeError):
        return shipped
