"""The samples taken while load runs, as columns: one number per sample, NaN if it is unknown.

Unknown is not zero.

The columns, for the broker, each worker (``worker gw0``) and the connections between them:

* ``NAME.cpu``: cores used by all threads. ``.wanted``: cores that they used or waited for.
  ``.busiest``: cores used by the busiest thread, the one that used and waited most;
  ``.busiestWanted``: cores that it used or waited for, 1.0 at most: it never slept.
* ``.memory``: resident bytes. ``.switches``: context switches a second. ``broker.memoryLimit``: the
  limit of its memory in bytes.
* ``broker.read``, ``broker.written``: bytes a second, of the disk. ``broker.diskWait``: share of
  the checks in which a thread waited for it. ``broker.stopped``: 1 if a signal had stopped the
  process.
* ``workers.unsent``: bytes that our sockets hold and could not send yet; ``workers.unread``: bytes
  that arrived and were not read yet, both summed over the connections to the target;
  ``workers.stale``: connections with unread bytes that are at least half a second old;
  ``workers.retransmits``: segments a second; ``workers.shut``: share of the time with something to
  send in which the other side's window was closed; ``workers.connections``: number of connections.
* ``workers HOST.unsent``, …: the same for the workers of another host than the controller's.
* ``broker.unsent``, ``broker.unread``, …: the same for the broker's own sockets.
  ``broker.relayed``: 1 if the broker itself listens on none of the ports that clients connect to.
* ``service NAME.cpu``, ``.stopped``, …: the same for a service under test that the run started.
  ``service.unread``, …: the same for the connections of all of them to the target.
  ``service.backlog``: messages that wait at the broker for a service, or that it has not
  acknowledged.
* ``broker 1.cpu``, ``bookie 2.memory``, …: the same for one process of a cluster.
  ``broker 1.topics``, ``.messagesIn``, ``.messagesOut``: by the counters of each broker.
* ``sys.…``: the broker's own counters, or rates computed from them. ``docs/reference/results.md``
  lists them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.metrics.measurements import DelayedIndex
from pytest_loadtest.values.quantities import SECOND

COUNTERS: Final = "broker's own counters"
"""The name of the source of the columns ``sys.…``."""

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SampledHost:
    """Another host than the controller's, with workers.

    :param cores: cores that its workers may use.
    :param cost: cores that sampling used there. None: unknown, because sampling failed.
    """

    name: str
    workers: tuple[str, ...]
    cores: int | None
    cost: float | None

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self) | {"cost": None if self.cost is None else round(self.cost, 5)}


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """The samples of one phase.

    :param time: ns after the phase's start, for each sample.
    :param columns: by name, as long as ``time``.
    :param missing: sentences about what could not be sampled, and why.
    :param cost: cores that sampling used on the controller's host.
    :param broker: the target's name. :param hosts: the other hosts.
    :param lost: sources that failed during the phase, by name, with their sentence in ``missing``:
        conclusions from them are unknown. A source that never returned a value is not in it.
    :param versions: each version that the target reported → ns after the phase's start at which it
        was first seen.
    :param notes: sentences for the report about what the sources saw.
    """

    time: NDArray[np.int64]
    columns: Mapping[str, Column]
    missing: tuple[str, ...] = ()
    cost: float = 0.0
    broker: str = "the broker"
    lost: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[SampledHost, ...] = ()
    versions: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.time)

    def column(self, name: str) -> Column:
        """Return the column, all NaN if it was not sampled."""
        column = self.columns.get(name)
        return np.full(len(self.time), np.nan) if column is None else column

    def until(self, end: int) -> Telemetry:
        """Return the samples up to ``end``, ns after the phase's start."""
        kept = self.time <= end + SECOND // 10  # the last second's sample is taken shortly after it
        return replace(
            self,
            time=self.time[kept],
            columns={name: column[kept] for name, column in self.columns.items()},
        )

    @classmethod
    def of_rows(
        cls, time: Sequence[int], rows: Sequence[Mapping[str, float]], **facts: Any
    ) -> Telemetry:
        """Make columns of rows. :param rows: for each sample, its known values."""
        columns = {}
        for name in dict.fromkeys(name for row in rows for name in row):
            values = [row.get(name, math.nan) for row in rows]
            columns[name] = np.array(values, np.float64)
        return cls(time=np.array(time, np.int64), columns=columns, **facts)

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        columns = {
            name: list(map(_short, column.tolist())) for name, column in self.columns.items()
        }
        document: dict[str, Any] = {
            "time": self.time.tolist(),
            "columns": columns,
            "missing": list(self.missing),
            "cost": round(self.cost, 5),
            "broker": self.broker,
            "lost": dict(self.lost),
        }
        if self.hosts:
            document["hosts"] = [host.document() for host in self.hosts]
        document["versions"] = dict(self.versions)
        document["notes"] = list(self.notes)
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Telemetry:
        """Read what :meth:`document` wrote."""
        columns = {
            name: np.array(column, np.float64) for name, column in document["columns"].items()
        }  # None becomes NaN
        return cls(
            time=np.array(document["time"], np.int64),
            columns=columns,
            missing=tuple(document["missing"]),
            cost=document["cost"],
            # earlier versions did not write it
            broker=document["broker"],
            lost=document.get("lost", {}),
            hosts=tuple(
                SampledHost(**{**host, "workers": tuple(host["workers"])})
                for host in document.get("hosts", ())
            ),
            versions=document.get("versions", {}),
            notes=tuple(document.get("notes", ())),
        )


def _short(value: float) -> float | int | None:
    """Round shares and rates to six digits; bytes stay whole."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) else float(f"{value:.6g}")


def merge_host(telemetry: Telemetry, host: SampledHost, part: Telemetry) -> Telemetry:
    """Add what was sampled on another host, or by another process on it.

    All samplers count seconds from the phase's start, so a sample of the host belongs to the
    nearest one within half a second. One that has none becomes a row of its own.
    """
    # Three samples at 0, 1 and 2 s, and the host's at 0.1 and 3 s: ``row`` is 0 and -1, then 0 and
    # 3; ``time`` gets a fourth row.
    row = _nearest(telemetry.time, part.time)
    alone = row < 0
    time = np.concatenate([telemetry.time, part.time[alone]])
    row[alone] = np.arange(len(telemetry), len(time))
    order = np.argsort(time, kind="stable")
    columns = {}
    for name, own in telemetry.columns.items():
        columns[name] = np.concatenate([own, np.full(len(time) - len(own), np.nan)])[order]
    for name, column in part.columns.items():
        spread = np.full(len(time), np.nan)
        spread[row] = column
        in_order = spread[order]
        if name in columns:
            in_order = _both(name, columns[name], in_order)
        columns[name] = in_order
    prefix = f"host {host.name}: "
    missing = [prefix + text for text in part.missing]
    lost = {prefix + source: prefix + text for source, text in part.lost.items()}
    return replace(
        telemetry,
        time=time[order],
        columns=columns,
        missing=(*telemetry.missing, *missing),
        lost={**telemetry.lost, **lost},
        hosts=_with(telemetry.hosts, host),
    )


def _nearest(time: NDArray[np.int64], of: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each time of ``of`` the index of the nearest one in ``time``.

    -1 if it is too far away, or nearer to another one.
    """
    if not len(time):
        return np.full(len(of), -1)
    at = np.searchsorted((time[1:] + time[:-1]) // 2, of)
    distance = np.abs(time[at] - of)
    by_distance = np.lexsort((distance, at))
    is_nearest = np.zeros(len(at), np.bool_)
    is_nearest[by_distance[np.unique(at[by_distance], return_index=True)[1]]] = True
    return np.where(is_nearest & (distance <= SECOND // 2), at, -1)


def _both(name: str, one: Column, other: Column) -> Column:
    """Return one column for the workers of a host in several network namespaces.

    They may be in several containers.
    """
    return np.maximum(one, other) if name.endswith(".shut") else one + other


def _with(hosts: tuple[SampledHost, ...], host: SampledHost) -> tuple[SampledHost, ...]:
    by_name = {known.name: known for known in hosts}
    earlier = by_name.get(host.name)
    if earlier is not None:
        cost = None
        if earlier.cost is not None and host.cost is not None:
            cost = earlier.cost + host.cost
        host = replace(
            earlier,
            workers=earlier.workers + host.workers,
            cores=earlier.cores or host.cores,
            cost=cost,
        )
    by_name[host.name] = host
    return tuple(by_name.values())


def fullest(telemetry: Telemetry | None) -> DelayedIndex | None:
    """Return the sample of the broker's index of delayed messages with the most messages.

    None if no sample has any, or if the samples end before the phase does: the fullest one may be
    missing.
    """
    if telemetry is None or COUNTERS in telemetry.lost:
        return None
    messages = telemetry.column("sys.delayed")
    size = telemetry.column("sys.delayedIndex")
    filled = np.flatnonzero((messages > 0) & np.isfinite(size))
    if not len(filled):
        return None
    at = filled[np.argmax(messages[filled])]
    return DelayedIndex(bytes=int(size[at]), messages=int(messages[at]))
