"""Streams, sequences, payloads and intended times are the same from release to release, to the bit.

The files in ``columns/`` hold the samples of these runs as version 0.1.0 drove them, whose engine
worked stream by stream; those with a rate in bytes as they are since the messages of all streams
are one train (docs/decisions/047), and, after a change of the rate, a nanosecond later.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_rig import drive

from pytest_loadtest.message.payloads import Bucket, build_pool
from pytest_loadtest.schedule.changes import Change
from pytest_loadtest.schedule.pacing import Pacer
from pytest_loadtest.values.quantities import SECOND

KEPT = Path(__file__).parent / "columns"
STEPS = [(SECOND // 3, 300.0), (SECOND // 2, 1200.5), (SECOND // 4, 0.0), (SECOND, 700.0)]
STAGES = (
    Change(at=SECOND // 3, distribution=1),
    Change(at=SECOND // 3 + SECOND // 2),
    Change(at=SECOND, distribution=0),
)
LENGTH = sum(length for length, _ in STEPS)


def buckets(*sizes: tuple[str, int, int, int]) -> list[Bucket]:
    return [
        Bucket(name=name, low=low, high=high, weight=weight) for name, low, high, weight in sizes
    ]


POOL = build_pool(
    buckets=buckets(("a", 32, 64, 5), ("b", 100, 200, 3), ("c", 500, 900, 1)), message_size=None, representative="uniform", randomized=False,
    random_ratio=0.0, file_content=None, seed=3, checksum=False, max_size=None, per_bucket=4,
    more=[buckets(("b", 100, 200, 1), ("d", 1000, 1001, 2))],
)  # fmt: skip


def staged(phase: Any) -> Any:
    return replace(phase, pacer=Pacer.through(STEPS, 3), duration=LENGTH, changes=STAGES)


def staged_in_bytes(phase: Any) -> Any:
    rates = [(length, rate * POOL.mean_size) for length, rate in STEPS]
    return replace(
        phase,
        pacer=Pacer.through(rates, 5),
        duration=LENGTH,
        changes=STAGES,
        mean_size=POOL.mean_size,
    )


def in_bytes(phase: Any) -> Any:
    return replace(phase, pacer=Pacer.of(50_000, 5), mean_size=POOL.mean_size)


HEARD, LATER = SECOND + SECOND // 4, 2 * SECOND
TOLD = [
    (HEARD, Change(at=SECOND, rate=2345.5)),
    (LATER, Change(at=3 * SECOND // 2, distribution={"b": 1})),
]
ENDED = [(HEARD, Change(at=SECOND, rate=40_000.25)), (LATER, Change(at=2 * SECOND, end=True))]
RUNS: dict[str, dict[str, Any]] = {
    "even": {"rate": 1000.5, "seconds": 2, "streams": 7, "warm_up": 0.5},
    "fast": {"rate": 50_000, "seconds": 0.34, "streams": 2},
    "stages": {"rate": 1000, "seconds": 2, "streams": 3, "change": staged},
    "bytes": {"rate": 1000, "seconds": 2, "streams": 5, "change": staged_in_bytes},
    "told": {"rate": 500, "seconds": 2, "streams": 4, "told": TOLD},
    "told_bytes": {"rate": 500, "seconds": 3, "streams": 5, "change": in_bytes, "told": ENDED},
}


@pytest.mark.parametrize("name", RUNS)
def test_columns_are_those_of_earlier_versions(tmp_path: Path, name: str) -> None:
    """With a constant rate, stages, bytes, and changes announced while load runs."""
    run = drive(tmp_path, pool=POOL, **RUNS[name])
    with np.load(KEPT / f"{name}.npz") as kept:
        assert len(kept["seq"]) > 500
        for column, expected in kept.items():
            rows = run.received if column.startswith("received_") else run.sent
            order = np.lexsort((rows["seq"], rows["stream"]))
            values = rows[column.removeprefix("received_")][order]
            # The start of a phase after a warm-up depends on when the loop saw the end of that.
            start = values.min() - expected.min() if column.endswith("intended") else 0
            assert np.array_equal(values - start, expected), column
