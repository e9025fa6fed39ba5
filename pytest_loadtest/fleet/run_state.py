"""What the conductor knows of one run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_loadtest.fleet.observing import Observing

if TYPE_CHECKING:
    from pytest_loadtest.fleet.messages import Request
    from pytest_loadtest.fleet.scripts import Script
    from pytest_loadtest.fleet.watches import Watch
    from pytest_loadtest.fleet.workload_run import WorkloadRun


@dataclass(slots=True)
class RunState:
    """One run: what was asked, its workloads, and what goes on beside them."""

    request: Request
    workloads: list[WorkloadRun]
    scripts: list[Script]
    watches: dict[str, Watch] = field(default_factory=dict)
    observing: Observing = field(default_factory=Observing)

    def workload(self, name: str) -> WorkloadRun:
        """The workload of that name."""
        return next(workload for workload in self.workloads if workload.name == name)
