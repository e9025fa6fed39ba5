"""The plans of a test's workloads, the check that this machine can carry them, and the facts about
this machine.

Called by the run controller at the start of each run and by ``--load-plan``, in the controller's
process. A plan beyond the machine is rejected before any broker is started, unless ``--load-force``
is given.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import sys
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_loadtest.brokers.java import cache_root
from pytest_loadtest.drivers import planned_facts
from pytest_loadtest.errors import GeneratorLimited, UsageError
from pytest_loadtest.fleet.host_process import host_facts
from pytest_loadtest.fleet.hosts import HostFacts, machine_of
from pytest_loadtest.fleet.targets import (
    check_addresses,
    check_broker,
    check_cluster,
    check_security,
    has_admin,
    unused_address,
    uses_this_machine,
)
from pytest_loadtest.kinds.costs import Cost
from pytest_loadtest.kinds.registry import kinds, shipped_costs
from pytest_loadtest.plan.aggregation import aggregation_reasons
from pytest_loadtest.plan.hosts import CONTROLLER, host_overload_reasons, joint_machine
from pytest_loadtest.plan.plan import Plan, make_plan, overload_reasons, profile_pool
from pytest_loadtest.plan.scaling import Machine, profile_cost
from pytest_loadtest.profile.model import choose_client
from pytest_loadtest.report.plan import plan_table
from pytest_loadtest.schedule.pairing import topic_shares
from pytest_loadtest.values.quantities import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.fleet.messages import Part, Request
    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.profile import Profile


OTHER_FILES = (
    16 << 20
)  # bytes needed in addition to the samples: results, logs, Spark's temporary files


def make_plans(request: Request, hosts: Sequence[str], options: Options) -> list[Plan]:
    """Return a plan for each workload.

    :param hosts: of each worker, by rank.
    :raises UsageError: one cannot be planned.
    """
    return [_make_plan(request, part, hosts, options) for part in request.parts]


def _make_plan(request: Request, part: Part, hosts: Sequence[str], options: Options) -> Plan:
    profile = part.profile
    check_addresses(request, profile, options)
    check_security(request, profile, options)
    check_broker(request, profile, options)
    check_cluster(request, profile, options)
    _check_sources(profile, options)
    available = machine()
    if options.hosts:
        shares = topic_shares(profile.topics, hosts) if profile.pair_consumers else {}
        available = joint_machine(options.hosts, shares)
    pool = profile_pool(profile, part.files)
    unused = unused_address(request, profile, options)
    return make_plan(
        profile.model_copy(update={"not_applied": unused | profile.not_applied}),
        pool,
        workers=len(hosts),
        cost=profile_cost(profile, costs()),
        machine=replace(available, workloads=len(request.parts)),
        broker_here=uses_this_machine(request, profile, options) and not options.hosts,
        scale=options.scale,
        duration_cap=options.duration,
        hosts=hosts,
    )


def _check_sources(profile: Profile, options: Options) -> None:
    """Check that the client can connect from the hosts' own choice of addresses.

    :raises UsageError: it cannot.
    """
    hosts = [host.name for host in options.hosts if host.sources]
    kind = profile.driver.kind
    client = choose_client(profile).client
    if not hosts or kind.clients[client].source_addresses:
        return
    able = [name for name, other in kind.clients.items() if other.source_addresses]
    remedy = f"write driver: {{client: {able[0]}}}, or " if able else ""
    raise UsageError(
        f"profile {profile.name}: sourceAddresses of {', '.join(hosts)}: the {client} client "
        f"of {kind.label} cannot choose its source address: {remedy}leave sourceAddresses out"
    )


def check_capacity(request: Request, plans: Sequence[Plan], options: Options) -> None:
    """Check this machine.

    :raises UsageError: the results cannot be written.
    :raises GeneratorLimited: it cannot carry the plans together, and ``--load-force`` is not given.
    """
    existing = _existing_folder(options)
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        problem = "is not writable" if existing.is_dir() else "is not a folder"
        raise UsageError(
            f"load_results {options.results}: {existing} {problem}: name a folder that can be "
            "written (pytest.ini, -o)"
        )
    reasons = _reasons(plans, options)
    if reasons and not options.force:
        text = "\n".join(f"  {reason}" for reason in reasons)
        carrier = "the hosts" if options.hosts else "this machine"
        raise GeneratorLimited(
            f"load run of profile {request.profile.name}: generator-limited before any load: "
            f"{carrier} cannot carry the plan\n"
            f"{text}\n"
            "  use --load-scale auto (--load-plan shows the whole plan), more workers or "
            "machines, or --load-force to try it anyway"
        )


def plan_lines(request: Request, workers: int, options: Options) -> list[str]:
    """Return the file of one test's profile and its plan as lines, workload by workload.

    :raises UsageError: it cannot be planned.
    """
    hosts = [CONTROLLER] * workers
    if options.hosts:
        hosts = []
        for host in options.hosts:
            hosts += [host.name] * host.workers
    plans = make_plans(request, hosts, options)
    lines = [f"{'file':<12} {request.source}"]
    for plan in plans:
        facts = planned_facts(plan.profile, admin=has_admin(request, plan.profile, options))
        lines += plan_table(plan, facts, machine(), options.hosts)
    for reason in _reasons(plans, options):
        lines.append(f"{'BEYOND':<12} {reason}")
    return lines


def _reasons(plans: Sequence[Plan], options: Options) -> tuple[str, ...]:
    """Return the reasons why this machine cannot carry the plans.

    The disk must have room for their samples.
    """
    here = machine()
    if options.hosts:
        needs = [(plan.needs, plan.host_shares) for plan in plans]
        reasons = list(host_overload_reasons(needs, options.hosts))
    else:
        reasons = list(overload_reasons(plans, here))
    aggregations = [plan.needs.aggregation for plan in plans]
    reasons += aggregation_reasons(
        aggregations, here.cores, here.memory, spark_here=options.spark_here
    )

    samples = math.ceil(_share_here(options) * sum(plan.needs.disk for plan in plans))
    needed = OTHER_FILES + samples + sum(aggregation.disk for aggregation in aggregations)
    free = shutil.disk_usage(_existing_folder(options)).free
    if needed > free:
        reasons.append(
            f"samples and results need {format_size(needed)} below {options.results}, "
            f"{format_size(free)} are free (load_results in pytest.ini)"
        )
    return tuple(reasons)


def _existing_folder(options: Options) -> Path:
    """Return the folder for results, or the closest one above it that exists."""
    return next(folder for folder in (options.results, *options.results.parents) if folder.exists())


def _share_here(options: Options) -> float:
    """Return the share of the samples that need this machine's disk.

    All of them do, unless other hosts store theirs elsewhere.
    """
    if options.samples is None or not options.hosts:
        return 1
    return sum(host.share for host in options.hosts if host.name == CONTROLLER)


_PACKAGES = ("pytest-loadtest", "pytest", "pytest-xdist", "numpy", "pyarrow", "pyspark")


@cache
def machine() -> Machine:
    """Return the resources of this machine, as :func:`~pytest_loadtest.fleet.hosts.machine_of`."""
    return machine_of(HostFacts(**host_facts()))


def machine_document() -> dict[str, str | int | float]:
    """Return the description of this machine for results."""
    return {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": platform.machine(),
        "cores": machine().cores,
        "memory": machine().memory,
    }


def installed_versions() -> dict[str, str]:
    """Return the versions of Python, this package and the libraries that it uses, for results;
    without those not installed.
    """
    versions = {"python": platform.python_version()}
    packages = list(_PACKAGES)
    for kind in kinds().values():
        packages += (kind.package, *kind.packages)
    for package in dict.fromkeys(packages):
        installed = _installed_version(package)
        if installed is not None:
            versions[package] = installed
    return versions


@cache
def _installed_version(package: str) -> str | None:
    """Return the version of a package, or None.

    Each look parses the package's metadata, and every phase asks for all of them.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def costs_file() -> Path:
    """Return the file in which ``calibrate`` keeps the costs measured on this machine, one for each
    Python version.
    """
    name = f"costs-{platform.node()}-{sys.version_info.major}.{sys.version_info.minor}.json"
    return cache_root() / name


def costs() -> dict[str, Cost]:
    """Return the shipped costs, replaced by the calibrated ones of this machine."""
    return shipped_costs() | calibrated_costs()


def calibrated_costs() -> dict[str, Cost]:
    """Return the calibrated costs of this machine."""
    shipped = shipped_costs()
    try:
        rows = json.loads(costs_file().read_text(encoding="utf-8"))["costs"]
        return {
            key: Cost.of(row, shipped[key].shared) for key, row in rows.items() if key in shipped
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
