"""What a process of this machine uses, of all its threads: from /proc, whose ``schedstat`` also tells how long a thread waited for a core.

A thread that wanted a core all the time is saturated, whether it had one or others of a busy machine did.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator


_LOOK_FOR_CHILDREN: Final = 10  # samples between two looks: it reads the whole of /proc
_NO_LIMIT: Final = 1 << 60  # what version 1 of cgroups says where there is none is somewhere above


class ProcessSource:
    """Samples one process.

    :param column: what its columns begin with. :param pid: asked at each sample, for a broker may be restarted; None while there is none.
    :param broker: with its children, and with what only of a broker is looked at: disk, limits, whether it is stopped.
    """

    def __init__(self, column: str, pid: Callable[[], int | None], *, broker: bool = False) -> None:
        self._column, self._pid, self._broker = column, pid, broker
        self._processes: list[psutil.Process] = []
        self._before: dict[str, float] = {}
        self._threads: dict[tuple[int, str], tuple[float, float]] = {}
        self._at = self._looks = 0
        self.used = 0.0
        self.missing: list[str] = []

    def read(self, now: int) -> dict[str, float]:
        """This sample's numbers; rates since the last one, so the first has none."""
        pid = self._pid()
        known = self._processes and self._processes[0].pid == pid
        try:
            if pid is None:
                return {}
            if not known:
                self._begin(pid)
            elif self._broker and self._looks % _LOOK_FOR_CHILDREN == 0:
                self._processes[1:] = self._processes[0].children(recursive=True)
            self._looks += 1
            return self._sample(now, new=not known)
        except psutil.NoSuchProcess:  # it just ended, or is being restarted
            self._processes = []
            return {}
        except psutil.AccessDenied as error:
            raise PermissionError(f"process {pid} belongs to another user") from error

    def _begin(self, pid: int) -> None:
        process = psutil.Process(pid)
        self._processes, self._threads, self._looks = [process], {}, 0
        if self._broker:
            self._processes += process.children(recursive=True)

    def _sample(self, now: int, *, new: bool) -> dict[str, float]:
        found = {"memory": float(sum(process.memory_info().rss for process in self._processes))}
        counted, seconds = {"switches": 0.0}, (now - self._at) / SECOND
        threads = {}
        for process in self._processes:
            for tid, used, waited, switches in _threads(process.pid):
                threads[process.pid, tid] = (used, waited)
                counted["switches"] += switches
        if self._broker:
            counted |= self._disk()
            found |= {"stopped": float(self._processes[0].status() == psutil.STATUS_STOPPED)} | self._limit()
        if not new:
            found |= {name: max(total - self._before[name], 0.0) / seconds for name, total in counted.items() if name in self._before}
            found |= self._cores(threads, seconds)
        self._at, self._before, self._threads = now, counted, threads
        return {f"{self._column}.{name}": value for name, value in found.items()}

    def _cores(self, threads: dict[tuple[int, str], tuple[float, float]], seconds: float) -> dict[str, float]:
        """Of the processes that were there at the last sample; a thread of theirs that is new since then has run in it alone."""
        if not threads:
            return self._lacking("no /proc/PID/task/TID/schedstat on this system, so its CPU is not known")
        spent, known = [], {process for process, _ in self._threads}
        for thread, (used, waited) in threads.items():
            if thread[0] not in known:
                continue
            used_before, waited_before = self._threads.get(thread, (0.0, 0.0))
            spent.append(((used - used_before) / seconds, (waited - waited_before) / seconds))
        busiest = max(spent, key=sum, default=(0.0, 0.0))
        return {
            "cpu": sum(used for used, _ in spent), "wanted": sum(map(sum, spent)),
            "busiest": min(busiest[0], 1.0), "busiestWanted": min(sum(busiest), 1.0),  # two clocks: a spinning thread may seem to have more
        }  # fmt: skip

    def _disk(self) -> dict[str, float]:
        try:
            counters = [process.io_counters() for process in self._processes]
        except psutil.AccessDenied:
            return self._lacking("its process belongs to another user, so its use of the disk is not known")
        return {"read": float(sum(one.read_bytes for one in counters)), "written": float(sum(one.write_bytes for one in counters))}

    def _limit(self) -> dict[str, float]:
        limit = memory_limit(self._processes[0].pid)
        return {} if limit is None else {"memoryLimit": float(limit)}

    def _lacking(self, why: str) -> dict[str, float]:
        said = f"{self._column}: {why}"
        if said not in self.missing:
            self.missing.append(said)
        return {}

    def close(self) -> dict[str, float]:
        """Nothing is held, and nothing left to say."""
        return {}


def _threads(pid: int) -> Iterator[tuple[str, float, float, float]]:
    """Of each thread: its id, seconds on a core, seconds that it waited for one, how often it got one."""
    with contextlib.suppress(FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                used, waited, switches = (task / "schedstat").read_bytes().split()
                yield task.name, int(used) / SECOND, int(waited) / SECOND, float(switches)


def memory_limit(pid: int, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that the process's control group may have, by either version of cgroups; None: no limit, or nobody tells."""
    with contextlib.suppress(OSError, ValueError):
        for line in (proc / str(pid) / "cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "memory":
                file = groups / "memory" / path.strip("/") / "memory.limit_in_bytes"
            elif not controllers:
                file = groups / path.strip("/") / "memory.max"
            else:
                continue
            text = file.read_text(encoding="utf-8").strip() if file.exists() else "max"
            if text != "max" and int(text) < _NO_LIMIT:
                return int(text)
    return None


# How much of the time a process sleeps for the disk. A source of its own: a look at hundreds of threads costs more than a second may.

_LOOKS: Final = 10  # within a sample: a wait for the disk is over in milliseconds
_APART: Final = 0.004  # s


class DiskWaitSource:
    """Samples a broker with its children.

    :param pid: asked at each sample, for a broker may be restarted; None while there is none.
    """

    def __init__(self, pid: Callable[[], int | None]) -> None:
        self._pid, self.used = pid, 0.0
        self.missing: list[str] = []

    def read(self, now: int) -> dict[str, float]:
        """The share of the looks in which a thread slept for the disk; nothing where there is no such process."""
        pid = self._pid()
        try:
            pids = [] if pid is None else [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
        except psutil.NoSuchProcess:
            return {}
        if not pids:
            return {}
        waits = 0
        for number in range(_LOOKS):
            time.sleep(_APART if number else 0)
            waits += any(state == "D" for one in pids for state in _states(one))
        return {"broker.diskWait": waits / _LOOKS}

    def close(self) -> dict[str, float]:
        """Nothing is held, and nothing left to say."""
        return {}


def _states(pid: int) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield (task / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
