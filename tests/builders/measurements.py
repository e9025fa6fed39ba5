"""Measurements for tests: a good run of 10 s at 10 000 msg/s, of which every value can be replaced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.metrics.catalogue import COUNTED_LATENCIES
from pytest_loadtest.metrics.expected import WorkerEvidence
from pytest_loadtest.metrics.histogram import Histogram
from pytest_loadtest.metrics.histogram import histogram as histogram_of
from pytest_loadtest.metrics.measurements import Breakdown, Counts, Lost, Measurements, Series
from pytest_loadtest.metrics.signed import Lateness
from pytest_loadtest.metrics.silent import Silent

if TYPE_CHECKING:
    from numpy.typing import NDArray

MS = 1_000_000


@dataclass(frozen=True)
class Limits:
    """The defaults of a profile's generator section."""

    send_delay_p99: int = 100 * MS
    receive_lag_p99: int = 100 * MS
    cpu: float = 0.95
    stalled: float = 0.10


def histogram(values: NDArray[np.int64]) -> Histogram:
    """Return a histogram of exact values, by the definition of an HDR index."""
    shift = np.maximum(np.frexp(np.maximum(values, 1).astype(float))[1] - 11, 0)
    index, count = np.unique((shift << 10) + (values >> shift), return_counts=True)
    return Histogram(
        index=index,
        count=count,
        minimum=int(values.min()),
        maximum=int(values.max()),
        total=int(values.sum()),
    )


@cache
def spread(low_ms: float, high_ms: float, n: int = 100_000) -> Histogram:
    """Return evenly spaced values between two latencies."""
    return histogram(np.linspace(low_ms * MS, high_ms * MS, n).astype(np.int64))


def lateness(values: NDArray[np.int64]) -> Lateness | None:
    """Return the lateness of values. :param values: int64 ns, received − due; None if there are none."""
    late, early = histogram_of(values[values >= 0]), histogram_of(-values[values < 0])
    return Lateness(early=early, late=late) if len(values) else None


def made_counts(**changed: Any) -> Counts:
    """Return the counts of 100 000 messages, all of them sent, acked and received."""
    every = dict.fromkeys(
        ("offered", "sent", "sent_in_time", "acked", "received", "received_in_time"), 100_000
    )
    none = dict.fromkeys(
        (
            "failed",
            "dropped",
            "unknown",
            "lost",
            "duplicates",
            "out_of_order",
            "foreign",
            "corrupt",
        ),
        0,
    )
    return Counts(**{**every, **none, **changed})


OTHERS_SEND = {
    **dict.fromkeys(("offered", "sent", "sent_in_time", "acked"), 0),
    **dict.fromkeys(("lost", "duplicates", "out_of_order", "foreign", "corrupt", "corrupt_heads")),
}
"""The changes of counts for a run that only receives: it reads no envelope."""


def made_series(seconds: int = 10) -> Series:
    """Return even rates with one slow second, and one second without arrivals."""
    rate = np.full(seconds, 10_000)
    latency = np.full(seconds, 2e6)
    latency[4:6] = (83e6, np.nan)[: len(latency[4:6])]
    received = np.where(np.isnan(latency), 0, rate)
    return Series(
        offered=rate, sent=rate, acked=rate, received=received,
        end_to_end_p50=latency / 2, end_to_end_p99=latency, end_to_end_max=latency * 2,
    )  # fmt: skip


def replace_measured(part: Any, **changed: Any) -> Any:
    """Replace fields of measurements or a breakdown, and latencies by the name of their kind; None removes one."""
    latencies = dict(part.latencies) | {
        kind: changed.pop(kind) for kind in COUNTED_LATENCIES if kind in changed
    }
    return replace(
        part,
        latencies={kind: found for kind, found in latencies.items() if found is not None},
        **changed,
    )


def made_bucket(name: str, **changed: Any) -> Breakdown:
    """Return a size bucket (or a topic) of 50 000 messages that all arrived."""
    every = dict.fromkeys(("offered", "sent", "acked", "received", "received_in_time"), 50_000)
    latencies = {"end_to_end": spread(1, 20, 50_000), "publish": spread(0.5, 12, 50_000)}
    return replace_measured(
        Breakdown(name=name, **every, lost=0, bytes_sent=12_800_000, latencies=latencies), **changed
    )


def made(**changed: Any) -> Measurements:
    """Return a good run; ``counts`` is a mapping of changes, latencies are given by kind.

    A given lateness also sets the earliness.
    """
    if changed.get("lateness") is not None:
        changed.setdefault("earliness", changed["lateness"].earliness)
    counts = made_counts(**changed.pop("counts", {}))
    worker = WorkerEvidence(worker="gw0", cpu=0.42, stalled=0, longest_stall=0, gc=3 * MS)
    topic = Breakdown(
        name="topic 0", offered=counts.offered, sent=counts.sent, acked=counts.acked, received=counts.received, lost=counts.lost,
        bytes_sent=25_600_000, latencies={"end_to_end": spread(1, 20)},
    )  # fmt: skip
    subscriptions = changed.get("subscriptions", 1)
    run = Measurements(
        duration=10_000 * MS, rate=10_000.0, subscriptions=1, counts=counts, bytes_sent=25_600_000, blocked=0, series=made_series(),
        latencies={
            "publish": spread(0.5, 12), "end_to_end": spread(1, 20), "send_delay": spread(0.001, 1), "own_send_delay": spread(0.001, 1),
        },
        topics=(topic,), workers=(worker,),
        silent=Silent(pairs=0, pairs_due=subscriptions, streams=0, streams_due=4),
        lost=(Lost(topic=0, subscription=0, stream=3, first=100, last=100 + counts.lost - 1),) if counts.lost else (),
    )  # fmt: skip
    return replace_measured(run, **changed)
