"""A cluster of processes on this machine.

They are started and stopped together, and are ended and started again one by one.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_loadtest.brokers.starting import RESTART_GRACE, Progress, wait_ready
from pytest_loadtest.errors import TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_loadtest.brokers.base import BrokerFacts
    from pytest_loadtest.brokers.process import Child


class ClusterNode:
    """One process of a cluster; see :class:`~pytest_loadtest.brokers.base.Node`.

    :param name: role and number, ``bookie 2``; a role of which there is one has no number.
    :param ready: returns True when it can work.
    :param seconds: limit of the time that a start may take.
    """

    def __init__(
        self,
        name: str,
        child: Child,
        ready: Callable[[], bool],
        seconds: float,
        progress: Progress,
    ) -> None:
        self.name = name
        self._child = child
        self.ready = ready
        self._seconds = seconds
        self._progress = progress
        self._down = self._busy = False
        self._failure: str | None = None

    @property
    def pid(self) -> int | None:
        return None if self._down else self._child.pid

    def failure(self) -> str | None:
        """Return the reason for its end.

        None while it runs, and while a test ends or restarts it.
        """
        reason = None if self._busy or self._down else self._failure or self._child.failure()
        return reason and f"{self.name}: {reason}"

    def tail(self) -> str:
        return self._child.tail()

    def restart(self, *, kill: bool) -> None:
        self._check(down=False)
        self._change(lambda: self._child.restart(0.0 if kill else RESTART_GRACE), wait=True)

    def kill(self) -> None:
        self._check(down=False)
        self._change(lambda: self._child.end(0.0), wait=False)
        self._down = True

    def start(self) -> None:
        self._check(down=True)
        self._change(self._child.start, wait=True)

    def _check(self, *, down: bool) -> None:
        if self._down != down:
            if self._down:
                raise UsageError(f"{self.name} is already down: start it first")
            raise UsageError(f"{self.name} is running: end it first")

    def _change(self, change: Callable[[], None], *, wait: bool) -> None:
        self._busy = True
        try:
            change()
            self._down = False
            if wait:
                wait_ready(
                    self._child,
                    self.ready,
                    self.name,
                    self._seconds,
                    self._progress,
                )
        except TargetError as error:
            self._failure = f"after a restart: {error}"
            raise
        finally:
            self._busy = False

    def stop(self) -> None:
        self._child.stop()

    def abandon(self) -> None:
        self._child.abandon()


class StartedCluster:
    """A cluster that the run started; see :class:`~pytest_loadtest.brokers.base.Broker`.

    :param nodes: in the order of their start; they are stopped in the reverse order.
    :param folder: holds the folders of all processes.
    """

    def __init__(self, nodes: Sequence[ClusterNode], folder: Path) -> None:
        self._folder = folder
        self._nodes = {node.name: node for node in nodes}
        self._facts: BrokerFacts | None = None

    @property
    def facts(self) -> BrokerFacts:
        assert self._facts is not None
        return replace(self._facts, nodes={name: node.pid for name, node in self._nodes.items()})

    @facts.setter
    def facts(self, facts: BrokerFacts) -> None:
        self._facts = facts

    def ready(self) -> bool:
        """Return True when all of its processes can work."""
        return all(node.ready() for node in self._nodes.values())

    def failure(self) -> str | None:
        """Return the reason for the end of the first process that ended unrequested by a test."""
        return next((reason for node in self._nodes.values() if (reason := node.failure())), None)

    def tail(self) -> str:
        """Return the last lines of the log of the failed process, else of one that is not ready."""
        nodes = self._nodes.values()
        failed = next((node for node in nodes if node.failure()), None)
        if failed is None:
            failed = next((node for node in nodes if not node.ready()), None)
        return "" if failed is None else f"{failed.name}:\n{failed.tail()}"

    def restart(self, *, kill: bool = False) -> None:
        raise UsageError(
            "a cluster is not restarted as a whole: name one process, e.g."
            f" load.restart_broker(1); it has {self._names()}"
        )

    def node(self, role: str, number: int) -> ClusterNode:
        node = self._nodes.get(f"{role} {number}")
        if node is None:
            raise UsageError(f"there is no {role} {number}: the cluster has {self._names()}")
        return node

    def _names(self) -> str:
        return ", ".join(self._nodes)

    def stop(self) -> None:
        self._end(ClusterNode.stop)

    def abandon(self) -> None:
        """Stop all processes, but keep their logs."""
        self._end(ClusterNode.abandon)

    def _end(self, end: Callable[[ClusterNode], None]) -> None:
        for node in reversed(self._nodes.values()):
            end(node)
        with contextlib.suppress(OSError):  # logs of failed processes are kept
            self._folder.rmdir()
