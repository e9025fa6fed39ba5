"""``--load-fleet spark``: Spark starts the workers, one in each of its slots.

First a plain job counts the free slots. Then a barrier stage takes them at once and keeps them for
the pytest session. One slot stays free for the aggregation (docs/decisions/028).
"""

from __future__ import annotations

import io
import re
import zipfile
from collections import Counter
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.errors import UsageError
from pytest_loadtest.fleet.host_process import MODULE, encode, join_command
from pytest_loadtest.fleet.hosts import HostFacts, differing_host, host_shares
from pytest_loadtest.fleet.outputs import session_folder
from pytest_loadtest.fleet.slot_service import JoinedSlot, SlotService, read_certificate
from pytest_loadtest.pipeline.session import SparkHost
from pytest_loadtest.pipeline.slot_task import CountedSlot, WorkerSlot
from pytest_loadtest.pipeline.slots import SlotJob, driver_host
from pytest_loadtest.profile.hosts import HostEntry
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence

    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.plan.hosts import HostShare

COUNT_SECONDS: Final = 50
"""s for free slots to be found: a cluster may have to start its executors first."""
FAILING_SECONDS: Final = 8
"""s more if there is no free slot: Spark may be trying tasks again that fail before they can
connect.
"""
WORKER_SECONDS: Final = 60
"""s for all tasks to report, in slots that are free."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.]+")
_COMMON: Final = "spark.cores.max, spark.executor.instances, spark.executor.cores, spark.task.cpus"


@record
class FleetOptions:
    """The values that describe a fleet on Spark.

    :param workers: their number.
    :param directory: of the tests on Spark's nodes.
    :param certificate: PEM file for TLS, if any.
    """

    workers: int
    directory: str
    certificate: Path | None = None


def package_archive() -> bytes:
    """Return this package as a zip file that Python imports it from.

    It has the metadata that make it a plugin and name its drivers.
    """
    folder = Path(__file__).parents[1]
    metadata = distribution("pytest-loadtest")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                archive.write(path, path.relative_to(folder.parent))
        for name in ("METADATA", "entry_points.txt"):
            archive.writestr(
                f"pytest_loadtest-{metadata.version}.dist-info/{name}",
                metadata.read_text(name) or "",
            )
    return content.getvalue()


class SparkFleet:
    """Workers in slots of Spark, and the session of Spark that they belong to.

    :ivar folder: of the pytest session's results.
    :ivar host: the session of Spark, which also aggregates.
    :ivar specs: ``--tx`` of pytest-xdist for each worker.
    :ivar hosts: name of the host of each command in them.
    :ivar shares: the hosts with their parts of the workers.
    """

    def __init__(
        self, options: Options, fleet: FleetOptions, announce: Callable[[str], None]
    ) -> None:
        self.folder = session_folder(options.results)
        self.host = SparkHost(
            self.folder / "spark", options.spark_conf, options.spark_master, options.spark_remote
        )
        self._remote = options.spark_remote
        self._fleet = fleet
        self._announce = announce
        self._service: SlotService | None = None
        self._job: SlotJob | None = None
        self.specs: Sequence[str] = ()
        self.hosts: Mapping[str, str] = {}
        self.shares: tuple[HostShare, ...] = ()

    def start(self) -> None:
        """Take the slots, and compare their hosts with this one.

        The workers start when xdist joins their connections.

        :raises UsageError: Spark cannot be used, has too few slots, or a host has no worker that
            could run the tests.
        """
        context: ssl.SSLContext | None = None
        certificate: str | None = None
        if self._fleet.certificate is not None:
            context, certificate = read_certificate(self._fleet.certificate)
        self._announce("waiting for Spark")
        session = self.host.session()
        address, listen = driver_host(session, self._remote)
        if self._remote is None:
            session = session.newSession()
        self._service = service = SlotService(listen, context)
        workers = self._fleet.workers
        place = (address, service.port)
        self._announce(f"waiting for {workers + 1} slots of Spark")
        self._job = job = SlotJob(
            session,
            CountedSlot(place, certificate, service.issue(workers + 1)),
            workers + 1,
            barrier=False,
        )
        free = len(service.wait(workers + 1, COUNT_SECONDS, lambda: job.ended))
        service.release()
        if free <= workers:
            raise self._too_few(free, job)
        job.join()
        directory = encode({"directory": self._fleet.directory, "sources": []})
        probe, serve = (("-u", "-m", MODULE, role, directory) for role in ("probe", "serve"))
        task = WorkerSlot(
            place, certificate, service.issue(workers), package_archive(), probe, serve
        )
        self._job = job = SlotJob(session, task, workers + 1, barrier=True)
        slots = service.wait(workers, WORKER_SECONDS, lambda: job.ended)
        if len(slots) < workers:
            cause = (
                job.cause or f"{len(slots)} of {workers} tasks reported within {WORKER_SECONDS} s"
            )
            raise UsageError(f"--load-fleet spark: Spark's workers could not start: {cause}")
        self._place(slots)

    def _too_few(self, free: int, job: SlotJob) -> UsageError:
        job.join(0 if free else FAILING_SECONDS)
        if job.ended and job.cause:
            return UsageError(f"--load-fleet spark: Spark's workers could not start: {job.cause}")
        job.cancel()
        workers = self._fleet.workers
        more = "give Spark more" if free else "see the logs of its executors, or give Spark more"
        remedy = f"write -n {free - 1}, or {more}" if free > 1 else more
        return UsageError(
            f"--load-fleet spark: {workers} workers need {workers + 1} slots of Spark, one of "
            f"them to aggregate samples, and {free} are free: {remedy} ({_COMMON})"
        )

    def _place(self, slots: Sequence[JoinedSlot]) -> None:
        """Name the hosts and describe their workers to xdist."""
        problems = set()
        for slot in slots:
            problem = self._problem(slot.hello)
            if problem:
                problems.add(f"host {slot.hello.get('node')}: {problem}")
        if problems:
            raise UsageError("--load-fleet spark: " + "\n".join(sorted(problems)))
        facts = [HostFacts(**slot.hello) for slot in slots]
        names = host_names(facts)
        counts = Counter(names)
        entries = [
            HostEntry(name=name, command="spark", workers=count) for name, count in counts.items()
        ]
        self.shares = host_shares(entries, dict(zip(names, facts, strict=True)), 0)
        commands = [join_command(slot.socket) for slot in slots]
        self.hosts = dict(zip(commands, names, strict=True))
        specs = []
        for index, (name, command) in enumerate(zip(names, commands, strict=True)):
            number = names[: index + 1].count(name)
            specs.append(f"popen//id={name}-{number}//python={command}")
        self.specs = specs

    def _problem(self, hello: Mapping[str, Any]) -> str | None:
        text = hello.get("problem")
        if text is None:
            return differing_host(HostFacts(**hello))
        if "FileNotFoundError" in text:
            directory = self._fleet.directory
            return (
                f"it has no directory {directory}: create it with the test files in it, "
                "or name another one: --load-fleet spark:DIRECTORY"
            )
        return str(text)

    def release(self) -> None:
        """End the workers and give the slots back. Safe to call twice."""
        service = self._service
        self._service = None
        if service is not None:
            service.close()
        if self._job is not None:
            self._job.join()
            self._job.cancel()

    def close(self) -> None:
        """End the workers, then the session of Spark if it was started here. Safe to call twice."""
        self.release()
        self.host.stop()


def host_names(facts: Sequence[HostFacts]) -> list[str]:
    """Return the name of each slot's host: its node.

    Nodes that share a name but not a clock are hosts of their own: ``node.2``.
    """
    clocks: dict[str, list[str]] = {}
    names = []
    for one in facts:
        name = _UNSAFE.sub("-", one.node).strip("-.") or "node"
        known = clocks.setdefault(name, [])
        if one.clock not in known:
            known.append(one.clock)
        number = known.index(one.clock) + 1
        names.append(name if number == 1 else f"{name}.{number}")
    return names
