"""The outages that the body of a live test makes: a target or one of its processes is restarted.

The run controller carries them out, one after another, each in a thread of its own. A phase keeps
its outages, so that its report can name what was down and when.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_loadtest.brokers.base import Broker, Restart
from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from pytest_loadtest.fleet.wall_clock import WallClock


@record
class Disturbance:
    """A request of the test's body to end, start or restart the target.

    :param action: ``kill``, ``start`` or ``restart``.
    :param role, number: one process of a cluster; number None: the whole target.
    :param kill: restart with SIGKILL.
    """

    action: str
    role: str = "broker"
    number: int | None = None
    kill: bool = False

    @property
    def text(self) -> str:
        """``restarting``, or ``killing broker 2 of``: the target's description follows."""
        verb = {"kill": "killing", "start": "starting", "restart": "restarting"}[self.action]
        return verb if self.number is None else f"{verb} {self.role} {self.number} of"


class Outages:
    """The outages of one phase.

    :param start: the phase's start, ns of the clock.
    """

    def __init__(self, start: int) -> None:
        self._start = start
        self._restarts: list[Restart] = []

    def make(self, broker: Broker, disturbance: Disturbance) -> tuple[int, int | None]:
        """Carry out a request of the body; return from when to when it was down.

        The phase may end in between.

        :raises UsageError: it is impossible.
        :raises TargetError: the target did not come up again.
        """
        role = disturbance.role
        number = disturbance.number
        node = "" if number is None else f"{role} {number}"
        down = [entry for entry in self._restarts if entry.node == node and entry.ready is None]
        if down:
            outage = down[0]
        else:
            outage = Restart(down=self._now(), ready=None, node=node)
            self._restarts.append(outage)
        try:
            _carry_out(broker, disturbance)
        except UsageError:
            if not down:
                self._restarts.remove(outage)
            raise
        if disturbance.action == "kill":
            return outage.down, None
        ready = self._now()
        self._restarts[self._restarts.index(outage)] = replace(outage, ready=ready)
        return outage.down, ready

    def document(self, clock: WallClock) -> list[dict[str, Any]]:
        """Return the outages for the run's file."""
        return [
            {
                "node": outage.node,
                "down": outage.down,
                "ready": outage.ready,
                "downAt": clock.at(outage.down),
                "readyAt": clock.at(outage.ready),
            }
            for outage in list(self._restarts)  # a copy: another thread may be ending the target
        ]

    def _now(self) -> int:
        return time.monotonic_ns() - self._start


def _carry_out(broker: Broker, disturbance: Disturbance) -> None:
    if disturbance.number is None:
        if disturbance.action != "restart":
            raise UsageError(
                f"cannot {disturbance.action} {broker.facts.name} as a whole: name one process of "
                "a cluster, e.g. "
                f"load.{disturbance.action}_{disturbance.role}(1)"
            )
        return broker.restart(kill=disturbance.kill)
    node = broker.node(disturbance.role, disturbance.number)
    if disturbance.action == "restart":
        return node.restart(kill=disturbance.kill)
    return node.kill() if disturbance.action == "kill" else node.start()
