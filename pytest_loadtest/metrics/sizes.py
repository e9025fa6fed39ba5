"""The size of a run's counts, estimated before it is measured: buckets with values, by the number
of values that fall into each piece of the phase.

The controller calls this while it plans, and before Spark's workers count.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pytest_loadtest.metrics.expected import Expected

# HDR buckets of ten bits that latencies spread over an order of magnitude fill: of a lognormal with
# σ 0.6, 100 values fill 98 buckets, 1 000 fill 860, 10 000 fill 3 400 and 100 000 fill 5 200. With
# σ 0.3, 100 000 fill 2 900.
BUCKETS: Final = 5200
# Buckets of seven bits, for each second: an eighth.
SECOND_BUCKETS: Final = 650
TASK_ROWS: Final = 2_000_000
"""Rows, sent or received, that one of Spark's tasks reads; fewer in all are one task, so that
nothing is shuffled.
"""
PACKED_BYTES: Final = 2
"""For a count of a bucket.

Measured with the same latencies: 1.3 with 10 000 values, 1.9 with 1 000, 2.5 with 100, 3.9 with 20.
"""


def filled(parts: float, values: float, buckets: int = BUCKETS) -> float:
    """Return the number of HDR buckets with values, over all parts.

    :param values: of all parts together, in even shares.
    """
    # As if each value drew its bucket from all of them: for the lognormal above never fewer than
    # measured, and at most a third more.
    return parts * buckets * -math.expm1(-values / max(parts, 1) / buckets)


def packed_size(run: Expected, rows: int) -> int:
    """Return the packed bytes of the tables that grow with the length of a run.

    :param rows: sent and received.
    """
    kinds = sum(map(run.slices, LATENCIES.values()))
    pieces = 0 if run.cut is None else len(run.cut.starts)
    # Each kind has a value of some of the rows only.
    cells = kinds * filled(pieces, rows) + filled(run.duration / SECOND, rows, SECOND_BUCKETS)
    return int(cells * PACKED_BYTES)
