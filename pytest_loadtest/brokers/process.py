"""A broker, or a service under test, as a process of this machine, under a watchdog; the log of a
failed one is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_loadtest.brokers import watchdog
from pytest_loadtest.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


GRACE = 2.0  # s between SIGTERM and SIGKILL: the data is deleted, so nothing needs longer


class Child:
    """One broker under its watchdog.

    ``folder`` holds ``broker.log``, the broker's own configuration and ``data/``. The watchdog
    removes ``data/`` however the broker ends; a restart keeps it.

    :param ports: the broker's ports on 127.0.0.1: a restart waits until they are free again.
    :param log: the name of the file with its output.
    :param cwd: the folder that it runs in; None: ``folder``.
    :param grace: s between SIGTERM and SIGKILL when it is stopped.
    :raises TargetError: the command could not be run.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        ports: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
        log: str = "broker.log",
        cwd: Path | None = None,
        grace: float = GRACE,
    ) -> None:
        self.folder = folder
        self._grace = grace
        self.log = folder / log
        self._failure: str | None = None
        self._stopped = False
        self._keep = False
        options = [
            "--data",
            str(folder / "data"),
            "--grace",
            str(grace),
            "--ports",
            *map(str, ports),
        ]
        with self.log.open("wb") as output:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-I", "-S", watchdog.__file__, *options, "--", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=cwd or folder,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        self._report = self._read_report()
        if not self._report:
            self._watchdog.communicate()
            raise TargetError(f"could not run {command[0]}: {tail(self.log, 1)}")
        self.pid = self._report["pid"]

    def _read_report(self) -> dict[str, int]:
        """Wait for the watchdog's next report and return it; empty after its last one."""
        assert self._watchdog.stdout is not None
        report: dict[str, int] = json.loads(self._watchdog.stdout.readline() or "{}")
        return report

    def _send(self, command: str) -> None:
        assert self._watchdog.stdin is not None
        with contextlib.suppress(OSError):  # the watchdog has ended already
            self._watchdog.stdin.write(f"{command}\n".encode())
            self._watchdog.stdin.flush()

    def failure(self) -> str | None:
        """Return the reason for the broker's end; None while it runs and after :meth:`stop`."""
        if self._failure is None and not self._stopped and self._watchdog.poll() is not None:
            self._failure = f"{self._ending()}, log {self.log}"
        return self._failure

    def ending(self) -> str | None:
        """Return how its process has just ended, ``exited with status 1``; None while it runs and
        after :meth:`stop`.

        Unlike :meth:`failure` it does not depend on when the watchdog looks for the process.
        """
        if self._stopped:
            return None
        if self._watchdog.poll() is None and not has_ended(self.pid):
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._watchdog.wait(GRACE + 10)
        return self._ending()

    def _ending(self) -> str:
        while report := self._read_report():
            self._report = report
        if "exit" not in self._report:
            return f"its watchdog ended with status {self._watchdog.returncode}"
        status = self._report["exit"]
        return (
            f"exited with status {status}"
            if status >= 0
            else f"ended by {signal.Signals(-status).name} (status {status})"
        )

    def restart(self, grace: float) -> None:
        """End the broker and run it again; returns when the new process exists, ready or not.

        :param grace: s between SIGTERM and SIGKILL; 0: SIGKILL at once.
        :raises TargetError: it had ended before, cannot be run again, or was stopped during the
            restart.
        """
        self.pid = self._request(f"restart {grace}", "pid")

    def end(self, grace: float) -> None:
        """End the broker, which is then no failure, and keep its data for :meth:`start`.

        :param grace: as for :meth:`restart`.

        :raises TargetError: it had ended before, or was stopped in the meantime.
        """
        self._request(f"end {grace}", "ended")

    def start(self) -> None:
        """Run the broker again after :meth:`end`.

        It returns when the new process exists, ready or not.

        :raises TargetError: it cannot be run again, or was stopped in the meantime.
        """
        self.pid = self._request("start", "pid")

    def _request(self, command: str, expected: str) -> int:
        """Send a command to the watchdog and return the value of its report."""
        self._send(command)
        report = self._read_report()
        if expected not in report:
            self._report = report or self._report
            self._watchdog.wait()
            raise TargetError(self.failure() or "it was stopped during the restart")
        self._report = report
        return report[expected]

    def stop(self) -> None:
        """End the broker, wait, and remove its files, except after a failure.

        Safe to call twice.
        """
        failed = self.failure() is not None
        if self._stopped:
            return
        self._stopped = True
        self._close()
        if not failed and not self._keep:
            self._remove_files()

    def _close(self) -> None:
        self._send("stop")
        assert self._watchdog.stdin is not None
        with contextlib.suppress(OSError):
            self._watchdog.stdin.close()
        try:
            self._watchdog.wait(self._grace + 10)
        except subprocess.TimeoutExpired:
            self._watchdog.kill()
            self._watchdog.wait()
        if self._watchdog.returncode != 0:  # the watchdog was killed before it could end the broker
            watchdog.kill_group(self.pid)
        assert self._watchdog.stdout is not None
        self._watchdog.stdout.close()

    def _remove_files(self) -> None:
        for path in self.folder.iterdir():
            if path.is_file():
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the folder has other contents too
            self.folder.rmdir()

    def abandon(self) -> None:
        """Stop a broker that did not work, and keep its log and configuration."""
        self._keep = True
        self.stop()

    def tail(self) -> str:
        """Return the last lines of its log."""
        return tail(self.log)


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or has ended and waits for its parent."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    # The name of the program, in parentheses, may contain anything.
    return stat.rpartition(")")[2].split()[0] in "ZX"


def tail(path: Path, lines: int = 20) -> str:
    """Return the last lines of a log without Java's stack frames, each cut at 300 characters.

    Empty if there is no log.
    """
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 65_536))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    kept = [
        line[:300] for line in text.splitlines() if not line.lstrip().startswith(("at ", "... "))
    ]
    return "\n".join(kept[-lines:])


# The folder for a broker's data: Pulsar's bookie asks Java for the mount of its folders, and ends
# if Java finds none.

MEMORY = Path("/dev/shm")


def mount_known(folder: Path, mounts: str) -> bool:
    """Return True if Java finds the mount of a folder.

    Java goes up from the folder as long as the device stays the same, and looks for the last path
    in the list of mounts. It finds none in a changed root (chroot) that is not a mount point
    itself.

    :param mounts: the text of ``/proc/self/mounts``.
    """
    top = folder.resolve()
    while top != top.parent and top.parent.stat().st_dev == top.stat().st_dev:
        top = top.parent
    return str(top) in {line.split()[1] for line in mounts.splitlines()}


def data_folder(folder: Path, mounts: str) -> str:
    """Make ``folder``, or a link of that name to a folder in memory if Java cannot find its mount.

    :returns: the file system that holds the data if it is not the folder's own; else "".
    """
    if folder.exists() or mount_known(folder.parent, mounts) or not mount_known(MEMORY, mounts):
        folder.mkdir(exist_ok=True)
        return str(MEMORY) if folder.is_symlink() else ""
    folder.symlink_to(
        tempfile.mkdtemp(prefix="pytest-loadtest-", dir=MEMORY), target_is_directory=True
    )
    return str(MEMORY)
