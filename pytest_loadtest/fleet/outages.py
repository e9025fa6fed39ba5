"""The outages that the body of a live test makes: the whole target, or one process of a cluster, ended, started or restarted."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from pytest_loadtest.brokers.base import Broker
    from pytest_loadtest.fleet.messages import Disturbance
    from pytest_loadtest.fleet.wall_clock import WallClock


@dataclass
class Outage:
    """The time from ``down`` to ``ready``, both in ns after the phase's start; ``ready`` is None while it is down.

    :param node: the process of a cluster, ``bookie 2``; empty: the whole target.
    """

    node: str
    down: int
    ready: int | None = None


class Outages:
    """The outages of one phase. :param start: the phase's start, ns of the clock."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._outages: list[Outage] = []

    def make(self, broker: Broker, disturbance: Disturbance) -> tuple[int, int | None]:
        """Carry out a request of the body; return from when to when it was down. The phase may end in between.

        :raises UsageError: it is impossible. :raises TargetError: the target did not come up again.
        """
        role, number = disturbance.role, disturbance.number
        node = "" if number is None else f"{role} {number}"
        earlier = next(
            (one for one in reversed(self._outages) if one.node == node and one.ready is None), None
        )
        outage = earlier or Outage(node, self._now())
        self._outages += [] if earlier else [outage]
        try:
            _carry_out(broker, disturbance)
        except UsageError:
            if not earlier:
                self._outages.remove(outage)
            raise
        if disturbance.action != "kill":
            outage.ready = self._now()
        return outage.down, outage.ready

    def document(self, clock: WallClock) -> list[dict[str, Any]]:
        """Return the outages for the run's file."""
        return [
            {
                "node": one.node,
                "down": one.down,
                "ready": one.ready,
                "downAt": clock.at(one.down),
                "readyAt": clock.at(one.ready),
            }
            for one in list(self._outages)  # a copy: another thread may be ending the target
        ]

    def _now(self) -> int:
        return time.monotonic_ns() - self._start


def _carry_out(broker: Broker, disturbance: Disturbance) -> None:
    if disturbance.number is None:
        if disturbance.action != "restart":
            raise UsageError(
                f"{broker.facts.name}: name one process of a cluster, e.g. load.{disturbance.action}_{disturbance.role}(1)"
            )
        return broker.restart(kill=disturbance.kill)
    node = broker.node(disturbance.role, disturbance.number)
    if disturbance.action == "restart":
        return node.restart(kill=disturbance.kill)
    return node.kill() if disturbance.action == "kill" else node.start()
