"""A service under test as a process of this machine, under a watchdog like a broker's.

The run controller starts and stops it; its log is kept with the results.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from pytest_loadtest.brokers.process import Child, tail
from pytest_loadtest.brokers.starting import serves, wait_ready
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

LOG = "service.log"
SHOWN = 3
"""The last lines of a log that the report of a death has."""


class ServiceProcess:
    """A running service.

    :param name: for messages.
    :param folder: for its log; it is made.
    :param cwd: the folder that it runs in.
    :raises UsageError: the command cannot be run.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        cwd: Path,
        env: Mapping[str, str],
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # A service in Python would otherwise keep its text in a buffer, because a file is no
        # terminal.
        environment = {"PYTHONUNBUFFERED": "1", **env}
        try:
            self._child = Child(command, folder=folder, env=environment, log=LOG, cwd=cwd)
        except TargetError as error:
            raise UsageError(f"load_service: {error}") from None
        self.name = name
        self.pid = self._child.pid
        self.log = self._child.log
        self._since = time.monotonic()
        self.noted_death: str | None = None
        """What :meth:`death` has found so far."""
        self._lock = threading.Lock()
        self._is_stopped = False

    def wait(self, ready: str | int, timeout: int, progress: Callable[[str], None]) -> None:
        """Wait until it is ready.

        :param ready: a text in its output, or a port on which it listens.
        :param timeout: ns.
        :raises TargetError: it ended, was stopped, or was not ready in time; with the end of its
            log.
        """
        output = _Output(self.log)

        def is_ready() -> bool:
            if self._is_stopped:
                raise TargetError(f"service {self.name} was stopped before it was ready")
            return serves([ready]) if isinstance(ready, int) else output.has(ready)

        missing = f"its output has no {ready!r}"
        if isinstance(ready, int):
            missing = f"nothing listens on port {ready}"
        missing += "; load_service(…, timeout=…) gives it more time"
        name = f"service {self.name}"
        wait_ready(self._child, is_ready, name, timeout / SECOND, progress, missing)

    def death(self) -> str | None:
        """Return how it ended by itself, with the last lines of its log; None while it runs and
        after :meth:`stop`.
        """
        with self._lock:
            if self.noted_death is None and not self._is_stopped:
                ending = self._child.ending()
                if ending is not None:
                    self.noted_death = self._describe(ending)
            return self.noted_death

    def _describe(self, ending: str) -> str:
        age = round(time.monotonic() - self._since)
        text = f"service {self.name} {ending}, {age} s after its start"
        lines = " | ".join(map(str.strip, tail(self.log, SHOWN).splitlines()))
        return f"{text}; its log ends with: {lines}" if lines else text

    def stop(self) -> None:
        """End it, wait, and keep its log. Safe to call twice, and from two threads."""
        self._is_stopped = True
        with self._lock:
            self._child.abandon()


class _Output:
    """The output of a process, searched as it grows."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._position = 0
        self._rest = b""

    def has(self, text: str) -> bool:
        """Return whether the text has appeared since the last call."""
        sought = text.encode()
        with self._log.open("rb") as stream:
            stream.seek(self._position)
            part = stream.read()
        self._position += len(part)
        searched = self._rest + part
        self._rest = searched[-len(sought) :]
        return sought in searched
