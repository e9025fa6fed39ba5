"""The CPU, memory and disk use of a process on this machine, from /proc.

``schedstat`` has the time for which a thread waited for a core, too. A thread that ran or waited
all the time is saturated, also if other programs of a busy machine got the core.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

from pytest_loadtest.values.quantities import SECOND

_CHILDREN_EVERY: Final = 10  # samples between two searches for children: each reads all of /proc
_NO_LIMIT: Final = 1 << 60  # version 1 of cgroups has a number above this if there is no limit


class ProcessSource:
    """Samples one process, or all processes of a cluster together.

    :param column: first part of its columns' names.
    :param pids: called for each sample, as a broker may restart; empty while there is no process.
    :param broker: include its children, and the columns that only brokers have: disk, limits,
        stopped.
    """

    def __init__(
        self, column: str, pids: Callable[[], Sequence[int]], *, broker: bool = False
    ) -> None:
        self._column = column
        self._pids = pids
        self._broker = broker
        self._roots: Sequence[int] = ()
        self._processes: list[psutil.Process] = []
        self._before: dict[str, float] = {}
        self._threads: dict[tuple[int, str], tuple[float, float]] = {}
        self._of_ended = 0.0
        self._at = self._samples = 0
        self.used = 0.0
        self.missing: list[str] = []

    def read(self, now: int) -> dict[str, float]:
        """Return one sample; its rates count from the last one, so the first sample has none."""
        pids = self._pids()
        new = not self._processes or pids != self._roots
        try:
            if not pids:
                return {}
            if new:
                self._begin(pids)
            if self._broker and self._samples % _CHILDREN_EVERY == 0:
                self._add_children()
            self._samples += 1
            return self._sample_living(now, new=new)
        except psutil.NoSuchProcess as error:  # it just ended, or is restarting
            self._processes = []
            if self._at:
                return {}
            return self._missing(f"process {error.pid} is not in /proc, so its use is unknown")
        except psutil.AccessDenied as error:
            raise PermissionError(f"process {error.pid} belongs to another user") from error

    def _begin(self, pids: Sequence[int]) -> None:
        self._processes = list(map(psutil.Process, pids))
        self._roots = pids
        self._threads = {}
        self._samples = 0

    def _add_children(self) -> None:
        roots = self._processes[: len(self._roots)]
        self._processes[len(roots) :] = [
            child for process in roots for child in process.children(recursive=True)
        ]

    def _sample_living(self, now: int, *, new: bool) -> dict[str, float]:
        while True:
            try:
                return self._sample(now, new=new)
            except psutil.NoSuchProcess as error:
                if error.pid in self._roots:
                    raise
                # A child has ended since children were searched for: the others are sampled. The
                # totals so far are no longer known without it.
                self._processes = [
                    process for process in self._processes if process.pid != error.pid
                ]
                self._before = {}

    def _sample(self, now: int, *, new: bool) -> dict[str, float]:
        memory = sum(process.memory_info().rss for process in self._processes)
        # 0: it has ended, and its parent has not waited for it yet. The memory that it had is
        # unknown.
        sample = {}
        if memory:
            sample["memory"] = float(memory)
        totals = {"switches": 0.0}
        seconds = (now - self._at) / SECOND
        threads = {}
        for process in self._processes:
            for tid, text in _task_files(
                process.pid, "schedstat"
            ):  # ns on a core, ns of waiting for one, number of times that it got one
                used, waited, switches = map(int, text.split())
                threads[process.pid, tid] = (used / SECOND, waited / SECOND)
                totals["switches"] += switches
        of_ended = 0.0  # CPU of children that ended, which parents have once they waited for them
        if self._broker:
            for process in self._processes:
                _, _, user, system, *_ = process.cpu_times()
                of_ended += user + system
            totals |= self._disk()
            main = self._processes[0]
            sample["stopped"] = float(main.status() == psutil.STATUS_STOPPED)
            limit = memory_limit(main.pid)
            if limit is not None:
                sample["memoryLimit"] = float(limit)
        if not new:
            for name, total in totals.items():
                before = self._before.get(name)
                # A sum falls when a thread or a child ends, with its counters: its rate is unknown.
                if before is not None and total >= before:
                    sample[name] = (total - before) / seconds
            # A child that has ended may have begun since the last sample: its share is unknown.
            if of_ended == self._of_ended:
                sample |= self._cores(threads, seconds)
        self._at = now
        self._before = totals
        self._of_ended = of_ended
        self._threads = threads
        return {f"{self._column}.{name}": value for name, value in sample.items()}

    def _cores(
        self, threads: dict[tuple[int, str], tuple[float, float]], seconds: float
    ) -> dict[str, float]:
        """Return the cores used since the last sample by the processes seen then.

        Their new threads count from zero.
        """
        if not threads:
            return self._missing(
                "no /proc/PID/task/TID/schedstat on this system, so its CPU use is unknown"
            )
        spent = []
        earlier = {process for process, _ in self._threads}
        for thread, (used, waited) in threads.items():
            if thread[0] not in earlier:
                continue
            used_before, waited_before = self._threads.get(thread, (0.0, 0.0))
            spent.append(((used - used_before) / seconds, (waited - waited_before) / seconds))
        busiest = max(spent, key=sum, default=(0.0, 0.0))
        return {
            "cpu": sum(used for used, _ in spent),
            "wanted": sum(map(sum, spent)),
            # two clocks: a spinning thread may exceed 1
            "busiest": min(busiest[0], 1.0),
            "busiestWanted": min(sum(busiest), 1.0),
        }

    def _disk(self) -> dict[str, float]:
        try:
            counters = [process.io_counters() for process in self._processes]
        except psutil.AccessDenied:
            return self._missing("its process belongs to another user, so its disk use is unknown")
        read = sum(io.read_bytes for io in counters)
        written = sum(io.write_bytes for io in counters)
        return {"read": float(read), "written": float(written)}

    def _missing(self, reason: str) -> dict[str, float]:
        text = f"{self._column}: {reason}"
        if text not in self.missing:
            self.missing.append(text)
        return {}

    def close(self) -> dict[str, float]:
        """Return nothing: this source has no last values and no resources."""
        return {}


def worker_sources(processes: Mapping[str, int]) -> dict[str, Callable[[], ProcessSource]]:
    """Return the source of each worker.

    :param processes: process ids by worker, as in this /proc.
    """

    def source(name: str, pid: int) -> Callable[[], ProcessSource]:
        return lambda: ProcessSource(name, lambda: (pid,))

    return {
        f"worker {worker}": source(f"worker {worker}", pid) for worker, pid in processes.items()
    }


def process_start() -> float:
    """Return the time since which this process has run, s of the system's clock."""
    return psutil.Process().create_time()


def with_children(roots: Iterable[int]) -> list[int]:
    """Return the process ids of processes and of all that they have started.

    A process that has ended is left out.
    """
    pids = list[int]()
    for root in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(root).children(recursive=True)
            pids += [root, *(child.pid for child in children)]
    return pids


def _task_files(pid: int, name: str) -> Iterator[tuple[str, str]]:
    """Yield the id of each thread and the contents of its file of this name.

    Threads and processes that end are left out.
    """
    with contextlib.suppress(FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield task.name, (task / name).read_text(errors="replace")


def memory_limit(
    pid: int, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Return the memory limit of the process's control group in bytes.

    Both versions of cgroups are read. None: no limit, or unknown.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in (proc / str(pid) / "cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "memory":
                file = groups / "memory" / path.strip("/") / "memory.limit_in_bytes"
            elif not controllers:
                file = groups / path.strip("/") / "memory.max"
            else:
                continue
            if not file.exists():
                continue
            text = file.read_text(encoding="utf-8").strip()
            if text != "max" and int(text) < _NO_LIMIT:
                return int(text)
    return None


# The share of the time for which a process waits for the disk. This source is separate, as one
# check of hundreds of threads costs too much CPU for every second: the sampler reads expensive
# sources less often.

_CHECKS: Final = 10  # in a sample: a wait for the disk is over in milliseconds
_PAUSE: Final = 0.004  # s between two checks


class DiskWaitSource:
    """Samples a broker with its children.

    :param pids: called for each sample, as a broker may restart; returns nothing while there is no
        process.
    """

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        self._pids = pids
        self.used = 0.0
        self.missing: list[str] = []

    def read(self, now: int) -> dict[str, float]:
        """Return the share of the checks in which a thread waited for the disk.

        Nothing if there is no process.
        """
        pids = with_children(self._pids())
        if not pids:
            return {}
        waits = 0
        for number in range(_CHECKS):
            if number:
                time.sleep(_PAUSE)
            texts = (text for process in pids for _, text in _task_files(process, "stat"))
            # D is uninterruptible sleep, see proc_pid_stat(5).
            waits += any(text.rpartition(")")[2].split()[0] == "D" for text in texts)
        return {"broker.diskWait": waits / _CHECKS}

    def close(self) -> dict[str, float]:
        """Return nothing: this source has no last values and no resources."""
        return {}
