"""What was sampled beside the load, as columns: a number for each sample, NaN where it is not known. Unknown is not zero.

The columns, each of broker, of every worker (``worker gw0``), or of the connections between them:

* ``SOMEBODY.cpu``: cores, all threads together. ``.wanted``: cores that they used or waited for. ``.busiest``: cores that the thread used
  which wanted most; ``.busiestWanted``: what it used or waited for, 1.0 at most: it never slept.
* ``.memory``: resident bytes. ``.switches``: context switches a second. ``broker.memoryLimit``: bytes that it may have.
* ``broker.read``, ``broker.written``: bytes a second, of the disk. ``broker.diskWait``: share of the looks in which a thread slept for it.
  ``broker.stopped``: 1 where the process was stopped by a signal.
* ``workers.unsent``: bytes that our sockets hold and could not send yet, ``workers.unread``: that arrived and were not read yet, both
  summed over the connections to the target; ``workers.stale``: connections on which such bytes had come half a second ago or earlier;
  ``workers.retransmits``: segments a second; ``workers.shut``: share of the time in which they had something to send that the other
  side's window was shut; ``workers.connections``: how many there were.
* ``broker.unsent``, ``broker.unread``, …: the same of the broker's own ends of its connections. ``broker.relayed``: 1 where none of the
  ports that we dial is its own.
* ``sys.…``: what the broker itself tells: counters as they stood, or rates that come of them. ``docs/reference/results.md`` has each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.metrics.measurements import DelayedIndex
from pytest_loadtest.values.quantities import SECOND

COUNTERS: Final = "broker's own counters"
"""The name of the source of ``sys.…``."""

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """What was sampled while one phase ran.

    :param time: ns after the phase's start, of each sample. :param columns: as long as ``time``, by name.
    :param missing: what could not be sampled, and why, in sentences. :param cost: cores that sampling used.
    :param broker: what the target is called. :param lost: sources that ended while the phase ran, by name, with the sentence that is in
        ``missing`` too: what depends on them is unknown. One that never told anything is not among them.
    """

    time: NDArray[np.int64]
    columns: Mapping[str, Column]
    missing: tuple[str, ...] = ()
    cost: float = 0.0
    broker: str = "the broker"
    lost: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.time)

    def column(self, name: str) -> Column:
        """That column; NaN throughout where nobody sampled it."""
        found = self.columns.get(name)
        return np.full(len(self.time), np.nan) if found is None else found

    def knows(self, name: str) -> bool:
        """Whether any sample has a number for it."""
        return bool(np.isfinite(self.column(name)).any())

    def until(self, end: int) -> Telemetry:
        """The samples of the phase up to ``end``, ns after its start."""
        kept = self.time <= end + SECOND // 10  # the sample of the last second is taken a moment after it
        return replace(self, time=self.time[kept], columns={name: column[kept] for name, column in self.columns.items()})

    @classmethod
    def of_rows(cls, time: Sequence[int], rows: Sequence[Mapping[str, float]], **facts: Any) -> Telemetry:
        """:param rows: of each sample, what is known."""
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: np.array([row.get(name, math.nan) for row in rows], np.float64) for name in names}
        return cls(time=np.array(time, np.int64), columns=columns, **facts)

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        columns = {name: [_short(value) for value in column.tolist()] for name, column in self.columns.items()}
        return {
            "time": self.time.tolist(), "columns": columns, "missing": list(self.missing), "cost": round(self.cost, 5),
            "broker": self.broker, "lost": dict(self.lost),
        }  # fmt: skip

    @classmethod
    def from_document(cls, said: Mapping[str, Any]) -> Telemetry:
        """The other way round."""
        columns = {name: np.array(column, np.float64) for name, column in said["columns"].items()}  # None becomes NaN
        return cls(
            time=np.array(said["time"], np.int64), columns=columns, missing=tuple(said["missing"]), cost=said["cost"],
            broker=said["broker"], lost=said.get("lost", {}),  # earlier versions did not keep it
        )  # fmt: skip


def _short(value: float) -> float | int | None:
    """Six digits are enough of shares and rates; bytes stay whole."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) else float(f"{value:.6g}")


# From what was sampled of a broker's index of delayed messages to what is judged. Pure.


def fullest(telemetry: Telemetry | None) -> DelayedIndex | None:
    """The sample with most messages delayed; None if no sample has any, or if the samples end before the phase does: the fullest one may
    be missing."""
    if telemetry is None or COUNTERS in telemetry.lost:
        return None
    messages, size = telemetry.column("sys.delayed"), telemetry.column("sys.delayedIndex")
    known = np.flatnonzero((messages > 0) & np.isfinite(size))
    if not len(known):
        return None
    at = known[np.argmax(messages[known])]
    return DelayedIndex(bytes=int(size[at]), messages=int(messages[at]))
