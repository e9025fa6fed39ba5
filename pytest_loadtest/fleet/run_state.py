"""The state of one run at the controller."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_loadtest.fleet.observing import Observing
from pytest_loadtest.values.quantities import SECOND, format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

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


# When paced connections are begun: all workers count from one instant that the controller names.

_BEGIN_IN: Final = 200_000_000  # ns until all workers have heard of it
_LONG: Final = 5 * SECOND


def begin(state: RunState, meeting: str, workers: int, announce: Callable[[str], None]) -> int:
    """The instant of the first connection, ns. What takes long is announced.

    :param meeting: ``connect consumers``, ``connect producers``, and the workload's name where there are several.
    """
    from pytest_loadtest.plan.connecting import opened_consumers  # on use: sessions without load tests load no numpy and pydantic
    from pytest_loadtest.profile.model import choose_client

    who, _, name = meeting.removeprefix("connect ").partition(" ")
    plan = state.workload(name).plan
    count, rate = plan.topology.streams if who == "producers" else opened_consumers(plan), plan.profile.connect_rate
    assert rate is not None
    took = round(count / rate * SECOND)
    if took > _LONG:
        announce(f"{state.request.nodeid}: connecting {format_count(count)} {who} at {rate:g}/s, which takes {format_duration(took)}")
    client = plan.profile.driver.kind.clients[choose_client(plan.profile).client]
    return time.monotonic_ns() + _BEGIN_IN + count // workers * client.setup_time
