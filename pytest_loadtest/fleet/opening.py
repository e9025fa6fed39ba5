"""When paced connections are begun: all workers count from one instant that the controller names."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pytest_loadtest.plan.connecting import opened_consumers
from pytest_loadtest.profile.choice import choose_client
from pytest_loadtest.values.quantities import SECOND, format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.fleet.run_state import RunState

_BEGIN_IN: Final = 200_000_000  # ns until all workers have heard of it
_LONG: Final = 5 * SECOND


def begin(state: RunState, meeting: str, workers: int, announce: Callable[[str], None]) -> int:
    """The instant of the first connection, ns. What takes long is announced.

    :param meeting: ``connect consumers``, ``connect producers``, and the workload's name where there are several.
    """
    who, _, name = meeting.removeprefix("connect ").partition(" ")
    plan = state.workload(name).plan
    count, rate = plan.topology.streams if who == "producers" else opened_consumers(plan), plan.profile.connect_rate
    assert rate is not None
    took = round(count / rate * SECOND)
    if took > _LONG:
        announce(f"{state.request.nodeid}: connecting {format_count(count)} {who} at {rate:g}/s, which takes {format_duration(took)}")
    client = plan.profile.driver.kind.clients[choose_client(plan.profile).client]
    return time.monotonic_ns() + _BEGIN_IN + count // workers * client.setup_time
