"""What a run was asked to do and what its workers counted themselves: the two sides that samples are measured against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.message.due import Delays
    from pytest_loadtest.metrics.evidence import WorkerEvidence
    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.opening import Opening

INTERVAL: Final = 10 * SECOND


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What was asked for: the plan's side of the accounting.

    :param start: ns, intended time of the first measured message. :param duration: ns. :param rate: offered msg/s.
    :param topics: number of topics. :param subscriptions: per topic; 0 when nothing consumes. :param ordered: whether order is judged.
    :param publish_acks: whether an acknowledgement means that the target has the message.
    :param buckets: names of the size buckets.
    :param broadcasts: each message goes to 64 subscriptions or more, of one consumer each: samples are broadcast rows, and how long a
        message takes to reach all is measured.
    :param delays: when messages are due that a consumer is to get later than they leave; None: they are due when they are intended.
    :param stream_topics: int64 ``(P,)``, topic of each stream.
    :param first: int64 ``(P,)``, first measured sequence of each stream. :param end: int64 ``(P,)``, one past the last.
    """

    start: int
    duration: int
    rate: float
    topics: int
    subscriptions: int
    ordered: bool
    publish_acks: bool
    buckets: tuple[str, ...]
    stream_topics: NDArray[np.int64]
    first: NDArray[np.int64]
    end: NDArray[np.int64]
    broadcasts: bool = False
    delays: Delays | None = None

    def lateness(self, copies: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """received − due of each copy, ns. :param copies: int64 ``stream``, ``seq``, ``intended``, ``received``."""
        due = copies["intended"] if self.delays is None else self.delays.due(copies["stream"], copies["seq"], copies["intended"])
        late: NDArray[np.int64] = copies["received"] - due
        return late

    @property
    def intervals(self) -> int:
        """Stretches of ten seconds in the measured phase; a single one is the whole and not told apart, so it counts as none."""
        number = -(-self.duration // INTERVAL)
        return number if number > 1 else 0

    def interval(self, intended: NDArray[np.int64]) -> NDArray[np.int64]:
        """In which of them messages were due."""
        return np.clip((intended - self.start) // INTERVAL, 0, max(self.intervals - 1, 0))

    def topic_names(self) -> tuple[str, ...]:
        """How topics are called in a breakdown: by index."""
        return tuple(f"topic {i}" for i in range(self.topics))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the workers counted themselves: foreign messages (None: unknown, as in a stage), damaged heads, and how they fared.

    :param connect: how long connections took to come up. :param subscribe: and subscriptions to be confirmed; None where nobody told.
    :param opening: of connections that were paced, or are all that there is; None of others.
    """

    foreign: int | None = 0
    corrupt: int = 0
    workers: tuple[WorkerEvidence, ...] = ()
    connect: Histogram | None = None
    subscribe: Histogram | None = None
    opening: Opening | None = None
