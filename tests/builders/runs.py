"""Documents of runs with autocorrelated latency: each second is similar to the one before it, as with a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from builders.documents import document
from builders.measurements import MS, histogram, made_series
from pytest_loadtest.metrics.histogram import hdr_index
from pytest_loadtest.metrics.series import SERIES_BITS
from pytest_loadtest.metrics.time_slices import over_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.report.document import RunDocument

EACH = 200
"""Messages a second."""


def wandering(
    seed: int, seconds: int = 60, *, factor: float = 1.0, alike: float = 0.7, noise: float = 0.05
) -> NDArray[np.int64]:
    """Return latencies in ns, ``(seconds, EACH)``: around 50 ms, with a random walk. :param alike: correlation of neighbouring seconds."""
    draw = np.random.default_rng(seed)
    steps, level = draw.normal(0, noise * np.sqrt(1 - alike**2), seconds), draw.normal(0, noise)
    levels = np.empty(seconds)
    for at, step in enumerate(steps):
        level = levels[at] = alike * level + step
    spread = np.exp(levels[:, None] + draw.normal(0, 0.1, (seconds, EACH)))
    return (factor * 50 * MS * spread).astype(np.int64)


def run_of(
    latencies: NDArray[np.int64], section: dict[str, Any] | None = None, **parts: Any
) -> RunDocument:
    """Return the document of a run with these latencies. :param parts: as for :func:`builders.documents.document`."""
    seconds = len(latencies)
    second = np.repeat(np.arange(seconds), latencies.shape[1])
    course = over_time(second, hdr_index(latencies.ravel(), SERIES_BITS))
    return document(
        section or {"throughput": "1%"}, duration=seconds * 1000 * MS, end_to_end=histogram(latencies.ravel()), over_time=course,
        series=made_series(seconds), **parts,
    )  # fmt: skip
