"""Read a run folder and check that its plan, its manifests and its files are consistent.

The rule: every sample file must be listed in a manifest and have the number of rows listed there,
by its own footer. So a file that is short, cut off, missing or left over is an error that names it,
and Spark never skips one silently. Manifests and files may be stored elsewhere
(``--load-samples``); ``run.json`` then has the place.

:mod:`pytest_loadtest.pipeline.aggregate` and :mod:`pytest_loadtest.fleet` call it in the
controller's process when load is over; Spark's workers get its :class:`SampleFile` rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_loadtest.errors import NoData
from pytest_loadtest.message.due import Delays
from pytest_loadtest.message.samples import EVIDENCE, MANIFEST_SUFFIX, MANIFEST_VERSION
from pytest_loadtest.message.streams import stream_column, streams_of_document
from pytest_loadtest.metrics import histogram
from pytest_loadtest.metrics.catalogue import COUNTED_LATENCIES
from pytest_loadtest.metrics.clocks import Correction, HostTime
from pytest_loadtest.metrics.expected import Expected, Opening, Recorded, WorkerEvidence
from pytest_loadtest.metrics.measurements import Counts, Measurements, Series
from pytest_loadtest.metrics.pauses import Pauses
from pytest_loadtest.metrics.sizes import TASK_ROWS
from pytest_loadtest.metrics.strays import Stray, first_strays
from pytest_loadtest.pipeline.reconcile import open_store, reconcile
from pytest_loadtest.pipeline.run_file import RUN_FILE, Columns, RunFile, RunStage, what_is_wrong
from pytest_loadtest.plan.connecting import connected_in_time
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.engine.sample_store import SampleStore
    from pytest_loadtest.message.streams import Streams
    from pytest_loadtest.metrics.histogram import Histogram


# The most tasks, which then have more rows.
TASKS = 512
# The kinds of samples that are counted, and those that are compared with what a tap has received.
COUNTED = ("sent", "received", "broadcast")
TAPPED = ("received", "tap")


class SampleFile(NamedTuple):
    """A sample file as Spark's workers read it.

    :param path: of the file. :param worker: number of its worker.
    :param correction: of the times that its worker recorded; None if they stay as they are.
    :param host: number of its worker's host; None if all workers ran on the controller's host.
    """

    path: str
    worker: int
    correction: Correction | None
    host: int | None


class Offered(NamedTuple):
    """Numbers of measured sent rows, in columns of one length; a missing stream has none.

    :param stream: each once.
    :param rows: its sent rows.
    :param distinct: the distinct sequences among them.
    """

    stream: NDArray[np.int64]
    rows: NDArray[np.int64]
    distinct: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """A run folder whose files are consistent.

    :param stages: by name, the plan of each stage.
    :param files: rows by sample file, as ``kind/name``.
    :param senders: by worker, the streams that it had to send.
    :param store: the place of manifests and files.
    :param corrections: by worker on another host, the correction of its times.
    :param hosts: by worker, the number of its host; empty if all ran on the controller's.
    """

    path: Path
    run: Expected
    stages: Mapping[str, Expected]
    recorded: Recorded
    files: Mapping[str, int]
    senders: Mapping[str, Streams]
    corrections: Mapping[str, Correction]
    hosts: Mapping[str, int]
    store: SampleStore

    def check_offered(self, run: Expected, offered: Offered) -> None:
        """Compare the measured sent rows with the plan.

        :param run: the run, or a stage.
        :raises NoData: a stream has too few rows, or two of one message; names its workers.
        """
        planned = run.end - run.first
        counts = np.zeros((2, len(planned)), np.int64)
        counts[0, offered.stream] = offered.rows
        counts[1, offered.stream] = offered.distinct
        wrong = np.flatnonzero((counts != planned).any(axis=0))
        if not len(wrong):
            return
        stream = int(wrong[0])
        rows, distinct = counts[:, stream]
        workers = [worker for worker, streams in self.senders.items() if stream in streams]
        names = ", ".join(workers) or "no worker's manifest names it"
        raise NoData(
            f"{self.path}: stream {stream} ({names}) has {rows} sent rows of {distinct} messages,"
            f" the plan has {planned[stream]}"
        )


def load_run(path: Path) -> RunFolder:
    """Read the plan, and compare every worker's manifest with its files.

    :raises NoData: a file is missing, a worker did not end cleanly, or something is inconsistent;
        names the worker or the file.
    """
    described = RunFile.read(path)
    workers = described.workers
    columns = Columns(path, described.streams.file, described.streams.count)
    try:
        run = _run(described, columns)
        stages = _stages(described, run, columns)
    except (KeyError, TypeError, ValueError) as error:
        raise NoData(f"{path / RUN_FILE}: {what_is_wrong(error)}") from error

    store, sizes = open_store(described.samples or str(path.resolve()))
    manifests = {worker: _manifest(store, worker, described.nonce) for worker in workers}
    # A manifest of an unknown worker: its samples would be missing in the
    # counts, or the folder has files of two runs.
    there = {name for name in sizes if "/" not in name and name.endswith(MANIFEST_SUFFIX)}
    if strangers := there - {worker + MANIFEST_SUFFIX for worker in workers}:
        raise NoData(
            f"{store.location}/{min(strangers)}: its worker is not one of the run's"
            f" ({', '.join(workers)})"
        )
    files = reconcile(store, sizes, manifests)
    recorded = _recorded(store.location, manifests, described)
    senders = _senders(store.location, manifests)

    # Only a run with workers on other hosts has clocks: all others stamp in the clock in which
    # everything is compared. If each delivery is within one host, all its times are of one clock,
    # and a correction could only add its own error (decision 029).
    corrections = {}
    if not described.within_hosts:
        for clock in described.clocks:
            corrections[clock.worker] = Correction(used=clock.used, better=clock.fit.line)
    hosts = {}
    if described.clocks:
        names = list(dict.fromkeys(described.worker_hosts.values()))
        hosts = {worker: names.index(host) for worker, host in described.worker_hosts.items()}

    facts: dict[str, Any] = {}
    if described.streams.count:
        pauses = _pauses(store.location, manifests, corrections)
        if pauses:
            numbers = {worker: number for number, worker in enumerate(workers)}
            facts["pauses"] = pauses
            facts["stream_workers"] = _stream_numbers(senders, numbers, described)
        if hosts and described.subscriptions:
            facts["stream_hosts"] = _stream_numbers(senders, hosts, described)
            facts["within_hosts"] = described.within_hosts
    return RunFolder(
        path=path,
        run=replace(run, **facts),
        stages={name: replace(stage, **facts) for name, stage in stages.items()},
        recorded=recorded,
        files=files,
        senders=senders,
        corrections=corrections,
        hosts=hosts,
        store=store,
    )


def _stream_numbers(
    senders: Mapping[str, Streams], numbers: Mapping[str, int], described: RunFile
) -> NDArray[np.int64]:
    """Return for each stream the number of its producer's worker, or of that worker's host.

    It is -1 for a stream that no worker has.
    """
    column = np.full(described.streams.count, -1)
    for worker, streams in senders.items():
        own = stream_column(streams)
        # Rows of streams that the run does not have are not measured.
        own = own[(own >= 0) & (own < len(column))]
        column[own] = numbers[worker]
    return column


def tasks(
    folder: RunFolder, kinds: Collection[str] = COUNTED
) -> tuple[tuple[SampleFile, ...], ...]:
    """Return the sample files of these kinds in groups that one worker reads each.

    Groups have similar numbers of rows. A group is a time slice of the run: the rows of a message,
    and of its neighbours, are in the same group, so that thousands of slow streams do not shuffle a
    part of every word from every group.

    Few rows are one group, so that nothing is shuffled: planning stages would take longer than the
    work.
    """
    files = {path: rows for path, rows in folder.files.items() if path.split("/")[0] in kinds}
    total = sum(files.values())
    many = min(-(-total // TASK_ROWS), TASKS)
    numbers = {worker: number for number, worker in enumerate(folder.run.workers)}
    groups: list[list[SampleFile]] = [[] for _ in range(max(many, 1))]
    before = 0
    for file in _in_time(files):
        rows = files[file]
        number = 0
        if total:
            middle = before + rows // 2
            number = min(middle * many // total, many - 1)
        worker = file.rpartition("/")[2].rpartition("-")[0]
        groups[number].append(
            SampleFile(
                f"{folder.store.location}/{file}",
                numbers[worker],
                folder.corrections.get(worker),
                folder.hosts.get(worker),
            )
        )
        before += rows
    return tuple(tuple(group) for group in groups if group) or ((),)


def _in_time(files: Mapping[str, int]) -> list[str]:
    """Return the files in the order of writing.

    It is estimated by the share of its rows that a worker had written before each: each worker
    numbers its files itself, so numbers of two workers cannot be compared.
    """
    when = {}
    for _, of_worker in groupby(files, key=lambda file: file.rpartition("-")[0]):
        names = list(of_worker)
        written = [0, *accumulate(files[name] for name in names)]
        total = max(written[-1], 1)
        for name, before in zip(names, written, strict=False):
            when[name] = before / total
    return sorted(files, key=lambda file: (when[file], file))


def _run(described: RunFile, columns: Columns) -> Expected:
    first = columns.read("first")
    topics = described.topics
    if topics < 1:
        raise ValueError(f"topics must be at least 1, not {topics}")
    if described.subscriptions < 0:
        raise ValueError(f"subscriptions must be at least 0, not {described.subscriptions}")
    if described.outputs < 1:
        raise ValueError(f"outputs must be at least 1, not {described.outputs}")
    return Expected(
        start=described.start,
        duration=described.duration,
        rate=float(described.rate),
        topics=topics,
        subscriptions=described.subscriptions,
        outputs=described.outputs,
        selective=described.selective,
        tapped=described.tapped,
        ordered=described.ordered,
        publish_acks=described.publish_acks,
        buckets=described.buckets,
        stream_topics=np.arange(len(first)) % topics,
        first=first,
        end=columns.read("end"),
        broadcasts=described.broadcasts,
        delays=Delays.from_document(described.delays) if described.delays else None,
        window=_window(described),
        drift=described.drift,
        bounds_gaps=_bounds(described.profile, "deliveryGap"),
        bounds_throughput=_bounds(described.profile, "throughput"),
        workers=described.workers,
        planned=described.planned,
    )


def _bounds(profile: Mapping[str, Any], metric: str) -> bool:
    """Return whether a profile, or one of its stages, has an objective on a metric."""
    sections = [profile, *(profile.get("stages") or ()), profile.get("scaled") or {}]
    bounds: list[Any] = [section.get("slo") for section in sections]
    for section in bounds:  # grows by the sections within it: whole, drift, buckets and theirs
        if isinstance(section, Mapping):
            bounds += section.values()
    return any(isinstance(section, Mapping) and metric in section for section in bounds)


def _window(described: RunFile | RunStage) -> int | None:
    window = described.window
    if window is not None and (window < SECOND or window % SECOND):
        raise ValueError(f"window must be whole seconds, not {window} ns")
    return window


def _stages(described: RunFile, run: Expected, columns: Columns) -> dict[str, Expected]:
    """Return each stage as a run of its own, of some of the messages."""
    by_name = {}
    for number, stage in enumerate(described.stages):
        first = columns.read(f"first_{number}")
        end = columns.read(f"end_{number}")
        if stage.name in by_name:
            raise ValueError(f"stage {stage.name!r} is there twice")
        if ((first < end) & ((first < run.first) | (end > run.end))).any():
            raise ValueError(f"stage {stage.name!r} has messages that are not the run's")
        by_name[stage.name] = replace(
            run,
            start=stage.start,
            duration=stage.duration,
            rate=float(stage.rate),
            first=first,
            end=np.maximum(first, end),
            window=_window(stage),
            drift=stage.drift,
            planned=None,
        )
    return by_name


def _manifest(store: SampleStore, worker: str, nonce: int) -> Any:
    name = f"{worker}{MANIFEST_SUFFIX}"
    file = f"{store.location}/{name}"
    try:
        manifest = json.loads(store.read(name))
    except FileNotFoundError as error:
        raise NoData(
            f"{file} is missing: worker {worker} died or was killed before it had closed"
            " its samples"
        ) from error
    except (OSError, ValueError) as error:
        raise NoData(f"{file} is not whole: {error}") from error
    try:
        version = manifest["version"]
        if version != MANIFEST_VERSION:
            raise ValueError(
                f"version {version} is not {MANIFEST_VERSION}, the one this release reads"
            )
        # Older releases had no taps.
        manifest.setdefault("tap", {"rows": 0, "files": []})
        if manifest["clean"] is not True:
            raise ValueError(f"worker {worker} did not end cleanly")
        if manifest["worker"] != worker or manifest["nonce"] != nonce:
            raise ValueError(
                f"it belongs to worker {manifest['worker']} of run {manifest['nonce']},"
                f" not to {worker} of {nonce}"
            )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NoData(f"{file}: {what_is_wrong(error)}") from error
    return manifest


@contextmanager
def _reading(place: str, worker: str, section: str = "") -> Iterator[None]:
    """Report an error in a worker's manifest as NoData that names the manifest.

    :param section: of the manifest, for the message; it ends with a colon and a space.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise NoData(
            f"{place}/{worker}{MANIFEST_SUFFIX}: {section}{what_is_wrong(error)}"
        ) from error


def _recorded(place: str, manifests: Mapping[str, Any], described: RunFile) -> Recorded:
    foreign = 0
    corrupt = 0
    workers = []
    opening: dict[str, list[Histogram]] = {}
    strays = []
    for worker, manifest in manifests.items():
        with _reading(place, worker):
            workers.append(_evidence(worker, manifest["evidence"]))
            foreign += int(manifest["foreign"])
            corrupt += int(manifest["corrupt"])
            for kind, document in manifest["opening"].items():
                opening.setdefault(kind, []).append(histogram.of_document(document))
            for document in manifest.get("strays", ()):
                stray = Stray(**document)
                strays.append(replace(stray, at=stray.at - described.start))

    times = {}
    for kind, parts in opening.items():
        merged = histogram.merge(parts)
        if merged is not None:
            times[kind] = merged
    fits = {clock.host: clock.fit for clock in described.clocks}
    clocks = [
        HostTime(host=host, error=fit.error, round_trip=fit.round_trip, holds=fit.holds)
        for host, fit in sorted(fits.items())
    ]
    return Recorded(
        foreign=foreign,
        corrupt=corrupt,
        workers=tuple(workers),
        latencies={kind: times[kind] for kind in times if kind in COUNTED_LATENCIES},
        opening=opening_of(place, described, manifests, times),
        clocks=tuple(clocks),
        strays=first_strays(strays),
    )


def _evidence(worker: str, facts: Any) -> WorkerEvidence:
    columns = [facts["seconds"][name] for name in EVIDENCE]
    return WorkerEvidence(
        worker=worker,
        cpu=float(facts["cpu"]),
        stalled=int(facts["stalled"]),
        longest_stall=int(facts["longest_stall"]),
        gc=int(facts["gc"]),
        seconds=np.array(columns, np.int64).reshape(len(EVIDENCE), -1).T,
    )


def _pauses(
    place: str, manifests: Mapping[str, Any], corrections: Mapping[str, Correction]
) -> tuple[Pauses, ...]:
    """Return the pauses of each worker.

    It is empty if some worker, of an older release, did not record them.
    """
    pauses = []
    for worker, manifest in manifests.items():
        with _reading(place, worker, "pauses: "):
            if "pauses" not in manifest["evidence"]:
                return ()
            document = manifest["evidence"]["pauses"]
            pauses.append(Pauses.of_document(document, corrections.get(worker)))
    return tuple(pauses)


def _senders(place: str, manifests: Mapping[str, Any]) -> dict[str, Streams]:
    senders = {}
    for worker, manifest in manifests.items():
        with _reading(place, worker, "streams of sent: "):
            senders[worker] = streams_of_document(manifest["sent"]["streams"])
    return senders


def measure_arrivals(run_dir: Path) -> Measurements:
    """Measure a run that sends nothing: the arrivals that workers counted by second.

    Envelopes are not read, so latency, loss, second copies, order and damage are unknown.

    :raises NoData: the folder is incomplete; names worker or file.
    """
    folder = load_run(run_dir)
    seconds = -(-folder.run.duration // SECOND)
    received = np.zeros(seconds, np.int64)
    for worker in folder.senders:
        name = f"{worker}{MANIFEST_SUFFIX}"
        try:
            for second, count in json.loads(folder.store.read(name))["arrivals"].items():
                received[int(second)] += count
        except (AttributeError, KeyError, IndexError, OSError, TypeError, ValueError) as error:
            raise NoData(
                f"{folder.store.location}/{name} has no valid arrivals: {error}"
            ) from error

    total = int(received.sum())
    none = np.zeros(seconds, np.int64)
    unknown = np.full(seconds, np.nan)
    return Measurements(
        duration=folder.run.duration,
        rate=0.0,
        subscriptions=folder.run.subscriptions,
        counts=Counts(
            offered=0,
            sent=0,
            sent_in_time=0,
            acked=0,
            failed=0,
            dropped=0,
            unknown=0,
            received=total,
            received_in_time=total,
            lost=None,
            duplicates=None,
            out_of_order=None,
            foreign=None,
            corrupt=None,
            corrupt_heads=None,
        ),
        bytes_sent=0,
        blocked=0,
        series=Series(
            offered=none,
            sent=none,
            acked=none,
            received=received,
            end_to_end_p50=unknown,
            end_to_end_p99=unknown,
            end_to_end_max=unknown,
        ),
        workers=folder.recorded.workers,
        latencies=folder.recorded.latencies,
        opening=folder.recorded.opening,
        clocks=folder.recorded.clocks,
    )


def opening_of(
    path: Path | str,
    described: RunFile,
    manifests: Mapping[str, Any],
    times: Mapping[str, Histogram | None],
) -> Opening | None:
    """Return the opening of connections; None if it was not paced and the run has messages too.

    :param manifests: by worker.
    :param times: ``connect`` and ``dial``, of all workers.
    :raises NoData: not all connections came up, or manifests lack their times.
    """
    rate = described.connect_rate
    if not described.connects_only and rate is None:
        return None
    took = 0
    in_time = None if rate is None else 0
    try:
        connecting = {
            worker: dict(manifest["connecting"]) for worker, manifest in manifests.items()
        }
        # Consumers connect first, then producers; the wait between the two is not counted.
        for side in ("consumers", "producers"):
            spans = [times_of[side] for times_of in connecting.values() if side in times_of]
            if not spans:
                continue
            began = min(began for began, *_ in spans)
            ended = max(ended for _, ended, *_ in spans)
            took += ended - began
            if in_time is not None:
                in_time += connected_in_time(record for *_, record in spans)
        cpu = {worker: _cores(times_of.values()) for worker, times_of in connecting.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise NoData(
            f"{path}: its manifests have no valid times of opened connections: {error}"
        ) from error

    connect = times.get("connect")
    dial = times.get("dial")
    # A connection that no manifest has may not have come up.
    opened = connect.n if connect else 0
    requested = described.connections
    if opened < requested:
        raise NoData(
            f"{path}: {requested} connections were to be opened, the workers' manifests have"
            f" {opened}"
        )
    busiest = max(cpu, key=cpu.__getitem__)
    return Opening(
        alone=described.connects_only,
        connections=requested,
        rate=rate,
        took=took,
        busiest=busiest,
        cpu=cpu[busiest],
        begun_late=dial.percentile(99) if dial else None,
        in_time=in_time,
    )


def _cores(spans: Collection[Sequence[int]]) -> float:
    """Return the cores that a worker used to open its connections.

    :param spans: they begin with begin, end and CPU time, ns.
    """
    cpu = sum(cpu for _, _, cpu, *_ in spans)
    took = sum(ended - began for began, ended, *_ in spans)
    return cpu / max(took, 1)
