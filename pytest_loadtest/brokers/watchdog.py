"""A small process that owns one broker, or one service under test.

It ends the broker however the controller ends, and restarts it on request.

It is the broker's parent and the controller's child, so there is no moment at which the broker runs
without it. Its standard input is the read end of a pipe that only the controller holds. ``stop``
sends SIGTERM to the broker; ``end SECONDS`` does so too, and sends SIGKILL after so many seconds;
``start`` runs the same command again; ``restart SECONDS`` is both; an end of file means that the
controller died (SIGKILL too) and kills the broker at once. Its standard output reports the process
id of each broker that it started, each end on request, and, last, the exit status, one JSON object
a line; standard error is the broker's log. It leads its own session, so Ctrl-C does not reach it.

``PR_SET_PDEATHSIG`` is not sufficient: a broker that changes its user clears it, and it fires when
the starting *thread* ends.

Run by its path, with the standard library only, so that it starts in milliseconds and no module of
the user can shadow one of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

TICK = 0.25  # s between two checks of a running broker
QUICK_TICK = 0.01  # s between two checks during a restart, whose duration they prolong
# limit of a restart's wait for the broker's ports; after that the broker itself reports the problem
PORTS_SECONDS = 10.0


class _StoppedError(Exception):
    """A request to end the broker with SIGTERM.

    The controller sent ``stop``, or the watchdog received SIGTERM.
    """


class _GoneError(Exception):
    """The controller has ended."""


def main(argv: Sequence[str]) -> int:
    """Start the broker, restart it on request, end it, remove its data folder.

    :returns: 0; the report has the broker's exit status.
    """
    parser = argparse.ArgumentParser(
        prog="watchdog", description="Owns one broker and ends it with its controller."
    )
    parser.add_argument("--data", help="folder to remove at the end")
    parser.add_argument(
        "--grace", type=float, default=2.0, help="seconds between SIGTERM and SIGKILL at the end"
    )
    parser.add_argument(
        "--ports",
        type=int,
        nargs="*",
        default=[],
        help="ports of 127.0.0.1 that must be free again before a restart",
    )
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(argv)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (most, most)
    )  # the broker inherits it, and needs an open file for each connection
    watchdog = Watchdog(options.command, options.ports)
    grace = options.grace
    try:
        watchdog.watch()
    except _StoppedError:
        pass
    except _GoneError:
        grace = 0.0
    finally:
        status = watchdog.end(grace)
        if options.data:
            remove_folder(options.data)
        _report(exit=status)
    return 0


class Watchdog:
    """The broker's parent.

    :param command: runs the broker, at the first start and at each restart.
    """

    def __init__(self, command: Sequence[str], ports: Sequence[int]) -> None:
        self._command = command
        self._ports = ports
        self._parent = os.getppid()
        self._terminated = False
        signal.signal(signal.SIGTERM, self._terminate)
        self._broker = self._start()

    def _terminate(self, _signal: int, _frame: FrameType | None) -> None:
        # checked in _listen: an exception raised here could interrupt _start and lose the new
        # broker
        self._terminated = True

    def _start(self) -> subprocess.Popen[bytes]:
        broker = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=2, stderr=2, start_new_session=True
        )
        _report(pid=broker.pid)
        return broker

    def watch(self) -> None:
        """Restart the broker on request; return when it ends by itself.

        :raises _StoppedError: the broker must end. :raises _GoneError: the controller has ended.
        """
        while command := self._listen(self._ended, TICK):
            self._end_on_request(grace=float(command[1]))
            if command[0] == b"end":
                _report(ended=True)
                self._listen(lambda: False, TICK)  # until ``start``
            self._listen(lambda: all(map(free, self._ports)), QUICK_TICK, PORTS_SECONDS)
            self._broker = self._start()

    def _ended(self) -> bool:
        return self._broker.poll() is not None

    def _end_on_request(self, grace: float) -> None:
        if grace:
            _signal_group(self._broker.pid, signal.SIGTERM)
            self._listen(self._ended, QUICK_TICK, grace)
        kill_group(self._broker.pid)
        self._broker.wait()

    def _listen(
        self, until: Callable[[], bool], tick: float, seconds: float = math.inf
    ) -> list[bytes]:
        """Wait for a condition or a command of the controller.

        :param until: the condition, checked every ``tick`` s, for ``seconds`` at most.
        :returns: the command's words; empty if none came.
        :raises _StoppedError: the broker must end. :raises _GoneError: the controller has ended.
        """
        end = time.monotonic() + seconds
        while not until() and time.monotonic() < end:
            readable, _, _ = select.select([0], [], [], tick)
            command = os.read(0, 4096) if readable else None
            if (
                command == b"" or os.getppid() != self._parent
            ):  # a forked child of the controller may still hold the pipe
                raise _GoneError
            if self._terminated or (command is not None and b"stop" in command):
                raise _StoppedError
            if command is not None:
                return command.split()
        return []

    def end(self, grace: float) -> int:
        """Send SIGTERM, and after ``grace`` s SIGKILL to the rest of the broker's process group.

        :returns: its exit status.
        """
        if grace and not self._ended():
            _signal_group(self._broker.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._broker.wait(grace)
        kill_group(self._broker.pid)
        return self._broker.wait()


def free(port: int) -> bool:
    """Return True if a broker can listen on this port of 127.0.0.1.

    Old connections in TIME_WAIT are no obstacle.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def kill_group(group: int) -> None:
    """Send SIGKILL to a process group, if it exists."""
    _signal_group(group, signal.SIGKILL)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def remove_folder(folder: str) -> None:
    """Remove a folder, if it exists; for a link, the folder and the link."""
    shutil.rmtree(os.path.realpath(folder), ignore_errors=True)
    with contextlib.suppress(OSError):
        os.unlink(folder)  # noqa: PTH108  # pathlib would cost milliseconds


def _report(**facts: int | None) -> None:
    with contextlib.suppress(OSError):  # a dead controller does not read it
        os.write(1, json.dumps(facts).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
