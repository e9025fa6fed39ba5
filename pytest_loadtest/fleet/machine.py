"""This machine: what it has, what it is, and what a message costs on it."""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pytest_loadtest.brokers.ports import ephemeral_range
from pytest_loadtest.kinds.costs import Cost
from pytest_loadtest.kinds.registry import kinds, shipped_costs
from pytest_loadtest.plan.scaling import Machine

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
