"""Silence: subscriptions that got nothing of a topic, and streams of which nothing arrived, though messages were due.

A dead topic of many is a small share of all messages, so no bound on a share shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected

NAMED: Final = 10
"""Silent pairs, and silent streams, that are listed; their counts are exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """Pairs of a topic and a subscription, and streams, that had messages due in the measured phase and of which none was delivered.

    Due is what was offered, whether or not it was sent. Where nothing subscribes there are no pairs, and a stream is silent when none of
    its messages was acknowledged.

    :param pairs: silent ones. :param pairs_due: all that had messages due. :param streams: and :param streams_due: the same of streams.
    :param first_pairs: topic and subscription of the first silent pairs, in this order. :param first_streams: stream and topic of the
        first silent streams. Each has :data:`NAMED` at most.
    """

    pairs: int
    pairs_due: int
    streams: int
    streams_due: int
    first_pairs: tuple[tuple[int, int], ...] = ()
    first_streams: tuple[tuple[int, int], ...] = ()

    @property
    def count(self) -> int:
        """Silent pairs and silent streams together."""
        return self.pairs + self.streams

    @property
    def due(self) -> int:
        """Pairs and streams that had messages due."""
        return self.pairs_due + self.streams_due


def silence(run: Expected, heard: NDArray[np.bool_], arrived: NDArray[np.bool_]) -> Silent | None:
    """Count what was silent in a run; None where nothing could tell: nothing subscribes, and acknowledgement is not applicable.

    :param heard: ``(subscriptions, topics)``, where a subscription got a message of a topic. :param arrived: ``(P,)``, streams of which
        a message was delivered or, where nothing subscribes, acknowledged.
    """
    if not run.subscriptions and not run.publish_acks:
        return None
    offered = run.end > run.first
    due = np.zeros(run.topics, np.bool_)
    due[run.stream_topics[offered]] = True
    pairs = (due & ~heard).T
    streams = np.flatnonzero(offered & ~arrived)
    first = np.flatnonzero(pairs)[:NAMED]
    return Silent(
        pairs=int(np.count_nonzero(pairs)),
        pairs_due=int(np.count_nonzero(due)) * run.subscriptions,
        streams=len(streams),
        streams_due=int(np.count_nonzero(offered)),
        first_pairs=tuple((one // run.subscriptions, one % run.subscriptions) for one in first.tolist()),
        first_streams=tuple((stream, int(run.stream_topics[stream])) for stream in streams[:NAMED].tolist()),
    )


def heard_of(run: Expected, subscription: NDArray[np.int64], topic: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark each pair that is named at least once. :returns: ``(subscriptions, topics)``."""
    heard = np.zeros((run.subscriptions, run.topics), np.bool_)
    heard[subscription, topic] = True
    return heard


def marked(run: Expected, stream: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark each stream that is named at least once. :returns: ``(P,)``."""
    found = np.zeros(len(run.first), np.bool_)
    found[stream] = True
    return found
