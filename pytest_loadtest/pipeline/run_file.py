"""The description of a run, as two files of its folder.

The rule: whatever a later process needs to judge a run is in these files. ``run.json`` is
:class:`RunFile`: :mod:`pytest_loadtest.fleet` writes it from there in the controller's thread, and
every reader, in the same process or a later one, gets it parsed. ``streams.npz`` has one number for
each stream, in columns: ``first`` and ``end`` of the run, ``first_0``,
``end_0``, ``first_1`` … of its stages: int64, by stream, the first measured sequence
and one past the last. ``numpy.load`` reads them.
"""

from __future__ import annotations

import dataclasses
import json
import types
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, is_dataclass
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints

import numpy as np

from pytest_loadtest.errors import NoData

# get_type_hints looks these classes up when a file is read.
from pytest_loadtest.metrics.clocks import ClockFit, ClockLine  # noqa: TC001
from pytest_loadtest.metrics.offering import PlannedLoad  # noqa: TC001
from pytest_loadtest.plan.hosts import CONTROLLER
from pytest_loadtest.schedule.changes import Aborted  # noqa: TC001
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

RUN_FILE: Final = "run.json"
RUN_VERSION: Final = 3
STREAMS_FILE: Final = "streams.npz"


@record
class RunStreams:
    """The number of streams, and the file of their columns."""

    count: int
    file: str


@record
class RunStage:
    """A stage that has begun.

    :param start: ns on the samples' clock.
    :param slo: its section; None without one.
    """

    name: str
    start: int
    duration: int
    slo: Mapping[str, Any] | None
    rate: float
    window: int | None = None
    drift: bool = False


@record
class RunChange:
    """A change of a running load; None leaves a thing as it is.

    :param at: ns after the phase's start.
    :param rate: per second, in bytes if ``bytes``.
    :param distribution: the payload mix changed.
    :param unattainable: the objective that could no longer be met.
    :param aborted: why the run was aborted.
    """

    at: int
    rate: float | None
    bytes: bool
    distribution: bool
    paused: bool | None
    consumers: int | None
    end: bool
    unattainable: str | None
    aborted: str | None = None


@record
class RunCircumstances:
    """The circumstances of a run, as documents of the modules that record them."""

    plan: Mapping[str, Any]
    scaling: Mapping[str, Any]
    broker: Mapping[str, Any]
    driver: Mapping[str, Any]
    versions: Mapping[str, Any]
    machine: Mapping[str, Any]
    source: str = ""


@record
class RunClock:
    """The clock of a worker on another host.

    :param used: the line by which it stamped.
    :param fit: the better line, which is known when load is over.
    """

    worker: str
    host: str
    used: ClockLine
    fit: ClockFit


@record
class RunFile:
    """The content of ``run.json``.

    Its keys are these names; those with a default can be missing in folders of older releases.

    :param run: id of the run.
    :param workload: its name if several ran together.
    :param sole_user: no other workload of the run uses its target; false in older releases.
    :param nonce: in every envelope.
    :param start: of the measured phase on the samples' clock, ns.
    :param duration: ns, 0 before the phase has begun.
    :param rate: offered, msg/s.
    :param topics: their number.
    :param subscriptions: of each topic.
    :param outputs: the deliveries due for each message on each of them.
    :param selective: a service chooses which messages have an output.
    :param tapped: messages are also recorded on their way to a service.
    :param ordered: order is judged.
    :param connections: to be opened by all workers.
    :param connects_only: the run has connections and no messages.
    :param connect_rate: per second; None: as fast as they come.
    :param delays: document of :class:`~pytest_loadtest.message.due.Delays`.
    :param publish_acks: an acknowledgement means that the target has the message.
    :param buckets: names of the size buckets.
    :param window: ns, for objectives on windows.
    :param drift: the first and the last tenth are compared.
    :param unattainable: the objective that could no longer be met, so that the load was ended.
    :param started: wall clock at the start, seconds since the epoch; None before it.
    :param scale: factor of ``--load-scale``; None: as written.
    :param pace: the factor for rates.
    :param share: the factor for numbers of messages.
    :param test: node id.
    :param profile: the profile's document.
    :param clocks: of workers on other hosts.
    :param within_hosts: each delivery is within one host, and times stay as they were stamped.
    :param samples: the place of manifests and sample files if it
        is not this folder: a path, or a URI.
    :param planned: the requested load, with which the offered one is
        compared; None if the run sends nothing.
    :param ended_services: how services under test that the run started ended by themselves.
    :param ended: the load came to its end.
    """

    version: int = RUN_VERSION
    run: str
    workload: str | None = None
    sole_user: bool = False
    nonce: int
    workers: tuple[str, ...]
    start: int
    duration: int
    rate: float
    topics: int
    subscriptions: int
    outputs: int = 1
    selective: bool = False
    tapped: bool = False
    broadcasts: bool
    ordered: bool
    connections: int = 0
    connects_only: bool = False
    connect_rate: float | None = None
    delays: Mapping[str, Any] | None = None
    publish_acks: bool
    buckets: tuple[str, ...]
    streams: RunStreams
    stages: tuple[RunStage, ...] = ()
    changes: tuple[RunChange, ...] = ()
    window: int | None = None
    drift: bool = False
    unattainable: str | None = None
    aborted: Aborted | None = None
    went_away: str | None = None
    ended_services: tuple[str, ...] = ()
    started: float | None
    seed: int
    scale: float | None
    pace: float | None = None
    share: float | None = None
    test: str
    profile: Mapping[str, Any]
    facts: RunCircumstances
    clocks: tuple[RunClock, ...] = ()
    within_hosts: bool = False
    samples: str | None = None
    planned: PlannedLoad | None = None
    ended: bool = False

    @property
    def worker_hosts(self) -> dict[str, str]:
        """The name of each worker's host."""
        others = {clock.worker: clock.host for clock in self.clocks}
        return {worker: others.get(worker, CONTROLLER) for worker in self.workers}

    def write(self, folder: Path) -> None:
        """Write ``run.json`` to a temporary name and rename it: a reader never gets half of it."""
        document = dataclasses.asdict(self)
        unusual = ("ended", "clocks", "within_hosts", "ended_services", "selective", "tapped")
        for key in (*unusual, "samples", "sole_user"):
            if not document[key]:
                del document[key]
        if self.outputs == 1:
            del document["outputs"]
        temporary = folder / f".{RUN_FILE}.tmp"
        temporary.write_text(json.dumps(document, indent=1), encoding="utf-8")
        temporary.replace(folder / RUN_FILE)

    @classmethod
    def read(cls, folder: Path) -> RunFile:
        """Parse ``run.json``.

        :raises NoData: the file is missing, not whole or of another version, or a key is missing or
            has a value of another type; names file and key.
        """
        path = folder / RUN_FILE
        document = read_json(path, "the run was never planned here, or its controller died")
        try:
            version = document["version"]
            if version != RUN_VERSION:
                raise ValueError(
                    f"version {version} is not {RUN_VERSION}, the one this release reads"
                )
            found: RunFile = _parsed(cls, document, "")
        except (KeyError, TypeError, ValueError) as error:
            raise NoData(f"{path}: {what_is_wrong(error)}") from error
        return found


_TYPES: Final[Mapping[Any, tuple[tuple[type, ...], str]]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
    str: ((str,), "a text"),
    Mapping: ((dict,), "an object"),
    tuple: ((list,), "a list"),
}
"""The Python types of a JSON value, and the words for them, by the type of a field."""

_FORMER_KEYS: Final = {"foregone": "unattainable"}
"""Keys of fields in folders of older releases → their names today."""


def _parsed(kind: Any, value: Any, key: str) -> Any:
    """Return a JSON value as the type of a field.

    :param key: its place, for messages.
    :raises KeyError: a key is missing.
    :raises TypeError: a value has another type.
    """
    if isinstance(kind, types.UnionType):
        kind = next(part for part in get_args(kind) if part is not types.NoneType)
        if value is None:
            return None
    # The container without the types of its items: ``tuple`` of
    # ``tuple[str, ...]``, an object for a dataclass.
    plain = Mapping if is_dataclass(kind) else get_origin(kind) or kind
    accepted, words = _TYPES[plain]
    # To Python a bool is an int.
    fits = isinstance(value, accepted) and (plain is bool or not isinstance(value, bool))
    if not fits:
        raise TypeError(f"{key or 'the document'} must be {words}, not {value!r}")
    if isinstance(kind, type) and is_dataclass(kind):
        value = {_FORMER_KEYS.get(name, name): item for name, item in value.items()}
        place = f"{key}." if key else ""
        hints = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if field.name not in value and field.default is MISSING:
                raise KeyError(f"{place}{field.name}")
        values = {}
        for name, hint in hints.items():
            if name in value:
                values[name] = _parsed(hint, value[name], place + name)
        return kind(**values)
    if plain is tuple:
        item_kind = get_args(kind)[0]
        return tuple(_parsed(item_kind, item, f"{key}[{at}]") for at, item in enumerate(value))
    return value


def read_json(path: Path, absent: str) -> Any:
    """Parse a JSON file.

    :param absent: why it can be missing.

    :raises NoData: it is missing, or not whole.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NoData(f"{path} is missing: {absent}") from error
    except (OSError, ValueError) as error:
        raise NoData(f"{path} is not whole: {error}") from error


def what_is_wrong(error: Exception) -> str:
    """Return the message of an error in a document; a KeyError has only the key."""
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def write_columns(folder: Path, columns: Iterable[tuple[str, NDArray[np.int64]]]) -> None:
    """Write named columns to a temporary name and rename the file.

    They are consumed one by one, so they need not all be in memory.
    """
    temporary = folder / f".{STREAMS_FILE}.tmp"
    # The fastest compression: a run can have hundreds of thousands of streams.
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, column in columns:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, column, allow_pickle=False)
    temporary.replace(folder / STREAMS_FILE)


class Columns:
    """The columns of a run folder.

    :param count: the number of the run's streams.
    """

    def __init__(self, folder: Path, name: str, count: int) -> None:
        self._path = folder / name
        self._count = count

    def read(self, name: str) -> NDArray[np.int64]:
        """Read a column.

        :raises NoData: the file is missing or not whole, or the column
            does not have one number for each stream.
        """
        try:
            with self._path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                column: NDArray[np.int64] = archive[name]
        except FileNotFoundError as error:
            raise NoData(
                f"{self._path} is missing: the load did not end normally, or the folder was not"
                " copied completely"
            ) from error
        except KeyError as error:
            raise NoData(
                f"{self._path} has no column {name!r}, which {RUN_FILE} requires"
            ) from error
        except (OSError, EOFError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise NoData(f"{self._path} is not whole: {error}") from error
        if column.dtype != np.int64 or column.shape != (self._count,):
            raise NoData(
                f"{self._path}: column {name!r} is {column.dtype} {column.shape}, {RUN_FILE} has"
                f" {self._count} streams: int64 ({self._count},)"
            )
        return column
