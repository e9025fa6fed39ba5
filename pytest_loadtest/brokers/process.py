"""A broker as a process of this machine: started under a watchdog, stopped, its log kept when it failed."""

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


GRACE = 2.0  # s between SIGTERM and SIGKILL: the data is thrown away, so nothing needs longer


class Child:
    """One broker under its watchdog.

    ``folder`` holds ``broker.log``, the broker's own configuration and ``data/``, which is removed when the broker ends, in whatever way; a
    restart keeps it.

    :param ports: of 127.0.0.1, on which the broker listens: a restart waits until they are free again.
    :raises TargetError: the command could not be run.
    """

    def __init__(self, command: Sequence[str], *, folder: Path, ports: Sequence[int] = (), env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.log = folder / "broker.log"
        self._failure: str | None = None
        self._stopped = False
        self._keep = False
        options = ["--data", str(folder / "data"), "--grace", str(GRACE), "--ports", *map(str, ports)]
        environment = {**os.environ, **(env or {})}
        with self.log.open("wb") as log:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-I", "-S", watchdog.__file__, *options, "--", *command],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=folder, env=environment, start_new_session=True,
            )  # fmt: skip
        self._said = self._hear()
        if not self._said:
            self._watchdog.communicate()
            raise TargetError(f"could not run {command[0]}: {tail(self.log, 1)}")
        self.pid = self._said["pid"]

    def _hear(self) -> dict[str, int]:
        """The watchdog's next report, waited for; empty when it has ended and has no more."""
        assert self._watchdog.stdout is not None
        report: dict[str, int] = json.loads(self._watchdog.stdout.readline() or "{}")
        return report

    def _order(self, words: str) -> None:
        assert self._watchdog.stdin is not None
        with contextlib.suppress(OSError):  # it has ended already
            self._watchdog.stdin.write(f"{words}\n".encode())
            self._watchdog.stdin.flush()

    def failure(self) -> str | None:
        """Why the broker is not running any more; None while it runs and after an orderly stop."""
        if self._failure is None and not self._stopped and self._watchdog.poll() is not None:
            self._failure = f"{self._ending()}, log {self.log}"
        return self._failure

    def _ending(self) -> str:
        while said := self._hear():
            self._said = said
        if "exit" not in self._said:
            return f"its watchdog ended with status {self._watchdog.returncode}"
        status = self._said["exit"]
        return f"exited with status {status}" if status >= 0 else f"ended by {signal.Signals(-status).name} (status {status})"

    def restart(self, grace: float) -> None:
        """End the broker and run it again; returns when the new process is there, ready or not.

        :param grace: s between SIGTERM and SIGKILL; 0: SIGKILL at once.
        :raises TargetError: it had ended before, cannot be run again, or was stopped meanwhile.
        """
        self._order(f"restart {grace}")
        said = self._hear()
        if "pid" not in said:
            self._said = said or self._said
            self._watchdog.wait()
            raise TargetError(self.failure() or "it was stopped meanwhile")
        self._said, self.pid = said, said["pid"]

    def stop(self) -> None:
        """End the broker and wait; remove what it left, except after a failure. Safe to call twice."""
        failed = self.failure() is not None
        if self._stopped:
            return
        self._stopped = True
        self._close()
        if not failed and not self._keep:
            self._remove_files()

    def _close(self) -> None:
        self._order("stop")
        assert self._watchdog.stdin is not None
        with contextlib.suppress(OSError):
            self._watchdog.stdin.close()
        try:
            self._watchdog.wait(GRACE + 10)
        except subprocess.TimeoutExpired:
            self._watchdog.kill()
            self._watchdog.wait()
        if self._watchdog.returncode != 0:  # it was killed, and could not end the broker
            watchdog.kill_group(self.pid)
        assert self._watchdog.stdout is not None
        self._watchdog.stdout.close()

    def _remove_files(self) -> None:
        for path in self.folder.iterdir():
            if path.is_file():
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # something else lives there too
            self.folder.rmdir()

    def abandon(self) -> None:
        """Stop it, but keep log and configuration: it did not do what it should."""
        self._keep = True
        self.stop()

    def tail(self) -> str:
        """The last lines of its log."""
        return tail(self.log)


def tail(path: Path, lines: int = 20) -> str:
    """The last lines of a log without Java's stack frames, each cut at 300 characters; empty when there is none."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 65_536))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    told = [line[:300] for line in text.splitlines() if not line.lstrip().startswith(("at ", "... "))]
    return "\n".join(told[-lines:])


# Where a broker's data can lie: Pulsar's bookie asks Java which mount its folders are on, and ends where Java finds none.

MEMORY = Path("/dev/shm")


def mount_known(folder: Path, mounts: str) -> bool:
    """Whether Java finds the mount that a folder is on.

    Java goes up from the folder as long as the device stays the same, and looks for the last path in the list of mounts. Below a changed
    root (chroot) that is no mount point itself it finds none.

    :param mounts: the text of ``/proc/self/mounts``.
    """
    top = folder.resolve()
    while top != top.parent and top.parent.stat().st_dev == top.stat().st_dev:
        top = top.parent
    return str(top) in {line.split()[1] for line in mounts.splitlines()}


def data_folder(folder: Path, mounts: str) -> str:
    """Make ``folder``, or a link of that name to a folder in memory where its mount cannot be known; where the data lies then, or ""."""
    if folder.exists() or mount_known(folder.parent, mounts) or not mount_known(MEMORY, mounts):
        folder.mkdir(exist_ok=True)
        return str(MEMORY) if folder.is_symlink() else ""
    folder.symlink_to(tempfile.mkdtemp(prefix="pytest-loadtest-", dir=MEMORY), target_is_directory=True)
    return str(MEMORY)
