"""A small process that owns one broker and ends it with its controller, however that one dies.

It is the broker's parent and the controller's child: nothing has to be told after the broker is there, so no moment is uncovered.
Its standard input is the read end of a pipe that only the controller holds: a ``stop`` ends the broker in order, an end of
file means that the controller is gone (SIGKILL too) and ends it at once. Its standard output reports the broker's process id and, last,
its exit status, one JSON object a line; standard error is the broker's log. It leads its own session, so Ctrl-C does not reach it.

``PR_SET_PDEATHSIG`` would not do: a broker that changes its user clears it, and it fires when the starting *thread* ends.

Run by its path, with nothing but the standard library, so that it starts in milliseconds and cannot be shadowed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

TICK = 0.25  # s between looks at the broker


class _StoppedError(Exception):
    """SIGTERM to the watchdog itself: end the broker, do not leave it behind."""


def main(argv: Sequence[str]) -> int:
    """Start the broker, watch, end it, remove its data folder; 0 always, what happened is in the report."""
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _on_terminate)
    parent = os.getppid()
    broker = subprocess.Popen(options.command, stdin=subprocess.DEVNULL, stdout=2, stderr=2, start_new_session=True)
    in_order = False
    try:
        _report(pid=broker.pid)
        in_order = _watch(broker, parent)
    except (_StoppedError, OSError):
        in_order = True
    finally:
        _end(broker, options.grace if in_order else 0.0)
        if options.data:
            remove(options.data)
        _report(exit=broker.returncode)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="watchdog", description="Owns one broker and ends it with its controller.")
    parser.add_argument("--data", help="folder to remove at the end")
    parser.add_argument("--grace", type=float, default=2.0, help="seconds between SIGTERM and SIGKILL")
    parser.add_argument("command", nargs="+")
    return parser


def _on_terminate(_signal: int, _frame: FrameType | None) -> None:
    raise _StoppedError


def _watch(broker: subprocess.Popen[bytes], parent: int) -> bool:
    """Until the broker ends by itself (True), a stop is asked (True) or the controller is gone (False)."""
    while broker.poll() is None:
        readable, _, _ = select.select([0], [], [], TICK)
        if readable:
            return bool(os.read(0, 64))
        if os.getppid() != parent:  # a forked child of the controller may still hold the pipe
            return False
    return True


def _end(broker: subprocess.Popen[bytes], grace: float) -> None:
    """SIGTERM, then SIGKILL to whatever is left of the broker's process group."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if grace and broker.poll() is None:
        _signal_group(broker.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            broker.wait(grace)
    kill_group(broker.pid)
    broker.wait()


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
