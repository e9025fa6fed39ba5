"""A run that sends nothing: what the workers counted of other people's messages, which have no samples, or that there were none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.errors import NoData
from pytest_loadtest.message.samples import MANIFEST_SUFFIX
from pytest_loadtest.metrics.measurements import Counts, Measurements, Series
from pytest_loadtest.pipeline import read
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pathlib import Path


def measure(run_dir: Path) -> Measurements:
    """What arrived, by the second; of latency, loss and order nothing is known.

    :raises NoData: the folder is incomplete; names worker or file.
    """
    folder = read.load(run_dir)
    run, seconds = folder.run, -(-folder.run.duration // SECOND)
    received = np.zeros(seconds, np.int64)
    for path in sorted(run_dir.glob(f"*{MANIFEST_SUFFIX}")):
        try:
            for second, count in json.loads(path.read_text(encoding="utf-8"))["arrivals"].items():
                received[int(second)] += count
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise NoData(f"{path} does not say what arrived: {error}") from error
    none, unknown, total = np.zeros(seconds, np.int64), np.full(seconds, np.nan), int(received.sum())
    counts = dict.fromkeys(("offered", "sent", "sent_in_time", "acked", "failed", "dropped", "unknown", "lost", "duplicates", "corrupt"), 0)
    return Measurements(
        duration=run.duration, rate=0.0, subscriptions=run.subscriptions,
        counts=Counts(**counts, received=total, received_in_time=total, out_of_order=None, foreign=folder.recorded.foreign),
        bytes_sent=0, publish=None, end_to_end=None, send_delay=None, own_send_delay=None, blocked=0,
        series=Series(
            offered=none, sent=none, acked=none, received=received, end_to_end_p50=unknown, end_to_end_p99=unknown, end_to_end_max=unknown,
        ),
        workers=folder.recorded.workers, connect=folder.recorded.connect, subscribe=folder.recorded.subscribe,
        opening=folder.recorded.opening,
    )  # fmt: skip
