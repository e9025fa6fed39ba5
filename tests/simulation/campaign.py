"""Many worlds in worker processes: each process judges one world after the other, and is replaced if one takes too long."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
import yaml

from simulation.coverage import classes
from simulation.draw import draw
from simulation.world import World, world_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from simulation.judge_world import Judged
    from simulation.truth import Played
    from simulation.violation import Violation

HASH_SEED: Final = "0"
"""PYTHONHASHSEED of every process that plays worlds."""
LIMIT: Final = 300.0
"""Seconds of real time after which a world is a violation of its own: a hundred times what one needs, as other processes may run.

Half of it in CPU time is one too. A process that has had less, and goes on, gets the same time again: others have the CPU.
"""
MOVES: Final = 1.0
"""CPU seconds in this time of a process that goes on; one that waits for something that cannot happen has none."""
SHRINKING: Final = 60.0
"""Seconds of real time for making one document smaller."""
AGAIN: Final = 20
"""One world in so many is aggregated again by the code of Spark's workers, without Java."""
SPARK: Final = 500
"""One world in so many is aggregated again by Spark, if a campaign has it."""
IN_PROCESS: Final = "aggregation again"
JAVA: Final = "aggregation by Spark"
"""Laws that each process applies, as the table of laws names them."""
FROZEN: Final = 3
"""Worlds after which a collection of garbage no longer looks at what the process has loaded: that takes a quarter of a world's time."""
WARM: Final = 20
"""Worlds after which a process has loaded and cached everything: its memory and open files must not grow from then on."""
MOST_FILES: Final = 5
MOST_BLOCKS: Final = 500_000
"""Open files and blocks of memory by which a process may grow after that."""

Outcome = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Job:
    """A world to judge.

    :param rule: not empty: make the document smaller as long as this rule is violated. :param spark: its samples are aggregated by Spark too.
    """

    document: dict[str, Any]
    rule: str = ""
    spark: bool = False


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of a job.

    :param violations: ``(rule, text)``. :param verdicts: the verdicts as lines of text, side by side; only where something is violated.
    :param files: open files of the process. :param blocks: blocks of memory that its interpreter has allocated; resident memory says
            less, because it stays after one large world. :param margins: that explain something. :param tried: laws that were applied.
    :param smaller: the document that a job with a rule ended with.
    """

    job: Job
    outcome: str
    violations: tuple[Outcome, ...] = ()
    verdicts: tuple[str, ...] = ()
    cpu: float = 0.0
    seconds: float = 0.0
    files: int = 0
    blocks: int = 0
    margins: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    smaller: dict[str, Any] | None = None

    @property
    def world(self) -> World:
        return world_from(self.job.document)


# In a worker process.


def work(connection: Connection, folder: Path) -> None:
    """Do the jobs that come over a connection, until it is closed."""
    from simulation.judge_world import judge

    spark = Spark(folder)
    for done in itertools.count():
        try:
            job = connection.recv()
        except EOFError:
            spark.stop()
            return
        started = time.monotonic()
        world = world_from(job.document)
        if job.rule:
            connection.send(_shrunk(job, world, folder))
            continue
        judged = judge(world, folder)
        violations = list(judged.violations)
        again: tuple[str, ...] = ()
        if judged.played is not None:
            again = spark.selects(judged.played, with_java=job.spark)
            violations += spark.differing(judged.played, again)
        # What is left of a world is in cycles of references, so that memory counts only after a collection.
        gc.collect()
        if done == FROZEN:
            gc.freeze()
        connection.send(
            Report(
                job=job,
                outcome=judged.outcome,
                violations=tuple((violation.rule, violation.text) for violation in violations),
                verdicts=tuple(side_by_side(judged)) if violations else (),
                cpu=judged.seconds,
                seconds=time.monotonic() - started,
                files=open_files(),
                blocks=sys.getallocatedblocks(),
                margins=judged.margins,
                tried=(*judged.tried, *again),
            )
        )


class Spark:
    """Aggregates samples of worlds again: with the code of Spark's workers, or in one session of Spark for all worlds of a process.

    :param folder: of the process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.with_name(f"{folder.name}-spark")
        self._host: Any = None
        self._is_owed = False

    def selects(self, played: Played, *, with_java: bool) -> tuple[str, ...]:
        """Return how the samples of a world are aggregated again: by its seed, and with Java.

        A world without results leaves its turn with Java to the next one that has some.
        """
        self._is_owed = self._is_owed or with_java
        if played.results is None:
            return ()
        ways = []
        if played.world.seed % AGAIN == 0:
            ways.append(IN_PROCESS)
        if self._is_owed:
            ways.append(JAVA)
        self._is_owed = False
        return tuple(ways)

    def differing(self, played: Played, ways: tuple[str, ...]) -> Iterator[Violation]:
        """Yield the violations of a world whose samples are aggregated again in these ways."""
        from frames_in_process import InProcess

        from simulation.aggregated_again import differing

        if IN_PROCESS in ways:
            yield from differing(played, InProcess())
        if JAVA in ways:
            yield from differing(played, self._session())

    def _session(self) -> Any:
        from pytest_loadtest.pipeline.session import SparkHost
        from simulation.aggregated_again import CONFIGURATION

        if self._host is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._host = SparkHost(self._folder, CONFIGURATION)
        return self._host.session()

    def stop(self) -> None:
        """End the session, if there is one."""
        if self._host is not None:
            self._host.stop()


def _shrunk(job: Job, world: World, folder: Path) -> Report:
    from simulation.judge_world import judge
    from simulation.shrink import shrink

    def violates(smaller: World) -> bool:
        judged = judge(
            smaller, folder, lawful=job.rule.startswith("law"), twice=job.rule == "determinism"
        )
        return any(violation.rule == job.rule for violation in judged.violations)

    smallest = shrink(world, violates)
    judged = judge(smallest, folder, lawful=job.rule.startswith("law"))
    return Report(
        job=job,
        outcome=judged.outcome,
        violations=tuple((violation.rule, violation.text) for violation in judged.violations),
        verdicts=tuple(side_by_side(judged)),
        smaller=smallest.document(),
    )


def side_by_side(judged: Judged) -> Iterator[str]:
    """Yield the verdict of the product next to that of the same world with a perfect generator, one objective a line."""
    both = (judged.played, judged.calm)
    titles = [played.outcome if played else "–" for played in both]
    yield _row("", "verdict", "without the generator's faults")
    yield _row("outcome", *titles)
    found: dict[str, list[str]] = {}
    for column, played in enumerate(both):
        verdict = ((played.results if played else None) or {}).get("verdict", {})
        for finding in verdict.get("findings", ()):
            cells = found.setdefault(finding["name"], ["–", "–"])
            shown = finding["shown"]
            cells[column] = f"{finding['outcome']}: {shown['observed']} ({shown['bound']})"
    for name, cells in found.items():
        yield _row(name, *cells)
    for played in both:
        if played and played.error:
            yield f"error: {played.error}"


def _row(name: str, left: str, right: str) -> str:
    return f"{name:28.28}  {left:44}  {right}".rstrip()


def open_files() -> int:
    """Return the number of open files of this process; 0 where the system does not list them."""
    listing = Path("/proc/self/fd")
    return len(list(listing.iterdir())) if listing.is_dir() else 0


# In the process that starts them.


@dataclass
class Worker:
    """One worker process.

    :param begun: its CPU time when it got its job, seconds. :param used: the same when its deadline was last looked at.
    """

    process: BaseProcess
    connection: Connection
    job: Job | None = None
    deadline: float = 0.0
    begun: float = 0.0
    used: float = 0.0
    done: int = 0
    files: int = 0
    blocks: int = 0


@dataclass
class Campaign:
    """Judges worlds on several cores.

    :param folder: for the files of the worlds that are played; each worker has one below it.
    """

    folder: Path
    jobs: int = 1
    limit: float = LIMIT
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _workers: list[Worker] = field(default_factory=list)

    def run(self, jobs: Iterable[Job]) -> Iterator[Report]:
        """Yield the report of each job as it ends; reports of several workers come in any order."""
        waiting = iter(jobs)
        try:
            self._workers = [self._start() for _ in range(self.jobs)]
            for worker in self._workers:
                self._give(worker, waiting)
            while any(worker.job for worker in self._workers):
                yield from self._ended(waiting)
        finally:
            for worker in self._workers:
                self._stop(worker)
            self._workers = []

    def _ended(self, waiting: Iterator[Job]) -> Iterator[Report]:
        busy = [worker for worker in self._workers if worker.job]
        earliest = min(worker.deadline for worker in busy)
        ready = wait([worker.connection for worker in busy], max(earliest - time.monotonic(), 0))
        for number, worker in enumerate(self._workers):
            if worker.job is None:
                continue
            if worker.connection in ready:
                yield self._received(worker)
            elif time.monotonic() < worker.deadline or self._goes_on(worker):
                continue
            else:
                yield self._failed(
                    worker, "time", f"not judged within {self.limit:g} s of real time"
                )
            if not worker.process.is_alive():
                self._workers[number] = self._start()
            self._give(self._workers[number], waiting)

    def _goes_on(self, worker: Worker) -> bool:
        """Give the process of a job more time if others had the CPU."""
        used = cpu_seconds(worker.process.pid)
        before, worker.used = worker.used, used
        if not is_starved(used - worker.begun, used - before, self.limit):
            return False
        worker.deadline = time.monotonic() + self.limit
        return True

    def _received(self, worker: Worker) -> Report:
        try:
            report: Report = worker.connection.recv()
        except EOFError:
            worker.process.join()
            return self._failed(
                worker, "crash", f"the process ended with status {worker.process.exitcode}"
            )
        worker.job = None
        worker.done += 1
        if worker.done == WARM:
            worker.files, worker.blocks = report.files, report.blocks
        growth = tuple(grown(worker, report))
        if growth:
            # Another world would repeat the same violation.
            self._stop(worker)
            return replace(report, violations=report.violations + growth)
        return report

    def _failed(self, worker: Worker, rule: str, text: str) -> Report:
        assert worker.job is not None
        job = worker.job
        self._stop(worker)
        return Report(job=job, outcome=rule, violations=((rule, text),), seconds=self.limit)

    def _start(self) -> Worker:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        folder = self.folder / f"worker-{next(self._numbers)}"
        process = context.Process(target=work, args=(theirs, folder), daemon=True)
        process.start()
        theirs.close()
        return Worker(process=process, connection=ours)

    def _give(self, worker: Worker, waiting: Iterator[Job]) -> None:
        worker.job = next(waiting, None)
        if worker.job is not None:
            allowed = SHRINKING if worker.job.rule else 0
            worker.deadline = time.monotonic() + self.limit + allowed
            worker.begun = worker.used = cpu_seconds(worker.process.pid)
            worker.connection.send(worker.job)

    def _stop(self, worker: Worker) -> None:
        worker.job = None
        worker.connection.close()
        if worker.process.is_alive():
            worker.process.kill()
        worker.process.join()


def cpu_seconds(process: int | None) -> float:
    """Return the CPU time that a process has used; 0 if it is gone."""
    try:
        times = psutil.Process(process).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def is_starved(used: float, lately: float, limit: float) -> bool:
    """Return whether a job goes on, and has had too little of the CPU to be judged by its time.

    :param used: CPU seconds of the job. :param lately: the same since its deadline was last looked at. :param limit: seconds of real time.
    """
    return lately >= MOVES and used < limit / 2


def grown(worker: Worker, report: Report) -> Iterator[Outcome]:
    """Yield violations if a process holds more files or memory than when it was warm."""
    if worker.done <= WARM:
        return
    if report.files > worker.files + MOST_FILES:
        yield (
            "open files",
            f"{report.files} open files after {worker.done} worlds, {worker.files} after {WARM}",
        )
    if report.blocks > worker.blocks + MOST_BLOCKS:
        yield (
            "memory",
            f"{report.blocks} blocks after {worker.done} worlds, {worker.blocks} after {WARM}",
        )


# Which worlds.


def drawn(
    seed: int, worlds: int, only: str = "", without: Iterable[str] = (), *, spark: bool = False
) -> Iterator[Job]:
    """Yield so many worlds from a seed on.

    :param only: a class as the table of coverage names it, with or without its group: ``calm``, ``fault: stall``.
    :param spark: one world in :data:`SPARK`, by its seed, is also aggregated by Spark.
    """
    left_out = frozenset(without)
    chosen = 0
    for number in itertools.count(seed):
        if chosen == worlds:
            return
        world = draw(number, left_out)
        if not only or belongs(world, only):
            chosen += 1
            yield Job(document=world.document(), spark=spark and number % SPARK == 0)


def belongs(world: World, name: str) -> bool:
    """Return whether a world belongs to a class."""
    return any(name in (one, one.partition(": ")[2]) for one in classes(world))


def text_of(document: dict[str, Any]) -> str:
    """Return a document as YAML."""
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
