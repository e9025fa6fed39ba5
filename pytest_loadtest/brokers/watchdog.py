"""A small process that owns one broker: ends it with its controller, however that one dies, and starts it again when it is told to.

It is the broker's parent and the controller's child: nothing has to be told after the broker is there, so no moment is uncovered.
Its standard input is the read end of a pipe that only the controller holds. ``stop`` ends the broker in order, ``restart SECONDS`` ends it
in order, with so much patience, and runs the same command again; an end of file means that the controller is gone (SIGKILL too) and ends
the broker at once. Its standard output reports the process id of each broker that it started and, last, the exit status, one JSON object
a line; standard error is the broker's log. It leads its own session, so Ctrl-C does not reach it.

``PR_SET_PDEATHSIG`` would not do: a broker that changes its user clears it, and it fires when the starting *thread* ends.

Run by its path, with nothing but the standard library, so that it starts in milliseconds and cannot be shadowed.
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

TICK = 0.25  # s between looks at a broker that runs
QUICK_TICK = 0.01  # s between looks at what is about to happen: it is part of how long a restart takes
PORTS_SECONDS = 10.0  # how long a restart waits for the broker's ports; then the broker says itself what is wrong with them


class _StoppedError(Exception):
    """The broker is to be ended in order: the controller says so, or somebody sent SIGTERM to the watchdog itself."""


class _GoneError(Exception):
    """The controller is gone."""


def main(argv: Sequence[str]) -> int:
    """Start the broker, watch it, restart it when told to, end it, remove its data folder; 0 always, what happened is in the report."""
    parser = argparse.ArgumentParser(prog="watchdog", description="Owns one broker and ends it with its controller.")
    parser.add_argument("--data", help="folder to remove at the end")
    parser.add_argument("--grace", type=float, default=2.0, help="seconds between SIGTERM and SIGKILL at the end")
    parser.add_argument("--ports", type=int, nargs="*", default=[], help="of 127.0.0.1, that must be free again before a restart")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(argv)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # what the broker inherits: a connection is an open file
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
            remove(options.data)
        _report(exit=status)
    return 0


class Watchdog:
    """The broker's parent.

    :param command: what runs the broker, the first time and every time.
    """

    def __init__(self, command: Sequence[str], ports: Sequence[int]) -> None:
        self._command, self._ports = command, ports
        self._parent, self._terminated = os.getppid(), False
        signal.signal(signal.SIGTERM, self._terminate)
        self._broker = self._start()

    def _terminate(self, _signal: int, _frame: FrameType | None) -> None:
        self._terminated = True  # noticed at the next look: an exception here could come while a broker is being started, and lose it

    def _start(self) -> subprocess.Popen[bytes]:
        broker = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=2, stderr=2, start_new_session=True)
        _report(pid=broker.pid)
        return broker

    def watch(self) -> None:
        """Until the broker ends by itself.

        :raises _StoppedError: it is to end. :raises _GoneError: the controller is gone.
        """
        while order := self._listen(self._ended, TICK):
            self._restart(grace=float(order[1]))

    def _ended(self) -> bool:
        return self._broker.poll() is not None

    def _restart(self, grace: float) -> None:
        if grace:
            _signal_group(self._broker.pid, signal.SIGTERM)
            self._listen(self._ended, QUICK_TICK, grace)
        kill_group(self._broker.pid)
        self._broker.wait()
        self._listen(lambda: all(map(free, self._ports)), QUICK_TICK, PORTS_SECONDS)
        self._broker = self._start()

    def _listen(self, until: Callable[[], bool], tick: float, seconds: float = math.inf) -> list[bytes]:
        """Wait for something, or for an order of the controller.

        :param until: looked at every ``tick`` s, for ``seconds`` at most. :returns: the order's words; none when the wait is over.
        :raises _StoppedError: the broker is to end. :raises _GoneError: the controller is gone.
        """
        end = time.monotonic() + seconds
        while not until() and time.monotonic() < end:
            readable, _, _ = select.select([0], [], [], tick)
            said = os.read(0, 4096) if readable else None
            if said == b"" or os.getppid() != self._parent:  # a forked child of the controller may still hold the pipe
                raise _GoneError
            if self._terminated or (said is not None and b"stop" in said):
                raise _StoppedError
            if said is not None:
                return said.split()
        return []

    def end(self, grace: float) -> int:
        """SIGTERM, after ``grace`` s SIGKILL to whatever is left of the broker's process group; its exit status."""
        if grace and not self._ended():
            _signal_group(self._broker.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._broker.wait(grace)
        kill_group(self._broker.pid)
        return self._broker.wait()


def free(port: int) -> bool:
    """Whether a broker can listen on this port of 127.0.0.1; connections that are winding up do not keep it from that."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def kill_group(group: int) -> None:
    """SIGKILL to a process group; nothing happens when it is gone."""
    _signal_group(group, signal.SIGKILL)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def remove(folder: str) -> None:
    """Remove a folder, or the one that it links to and the link; what is not there is no error."""
    shutil.rmtree(os.path.realpath(folder), ignore_errors=True)
    with contextlib.suppress(OSError):
        os.unlink(folder)  # noqa: PTH108  # pathlib would cost milliseconds


def _report(**facts: int | None) -> None:
    with contextlib.suppress(OSError):  # nobody is left to read it
        os.write(1, json.dumps(facts).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
