"""Silent subscriptions of topics, and silent streams: messages were due and none arrived.

One dead topic among many is a small share of all messages, so no bound on a share detects it.

The controller calls this after the load, with the marks that Spark's workers collected.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.values.fields import Count  # noqa: TC001 - results documents look it up
from pytest_loadtest.values.records import immutable, record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected

# Silent pairs, and silent streams, that are listed; their counts are exact.
NAMED: Final = 10
# The greatest probability that the choice of a service alone leaves any pair or stream silent.
BY_CHANCE: Final = 0.01


@immutable
class SilentPair:
    """A subscription that got nothing of its topic."""

    topic: Count
    """index"""
    subscription: Count
    """index within the topic"""


@immutable
class SilentStream:
    """A stream of which nothing arrived."""

    stream: Count
    """producer"""
    topic: Count
    """index"""


@record
class Silent:
    """Subscriptions and streams that had messages due and of which nothing arrived."""

    pairs: Count
    """subscriptions that got nothing of their topic"""
    pairs_due: Count
    """subscriptions of topics that had messages due; if a service chooses which messages have an
    output, those with so many that it cannot have chosen none by chance
    """
    streams: Count
    """streams of which no subscription got anything; without subscriptions, streams of which
    nothing was acknowledged
    """
    streams_due: Count
    """streams that had messages due; likewise"""
    first_pairs: tuple[SilentPair, ...] = ()
    """the first ten silent pairs"""
    first_streams: tuple[SilentStream, ...] = ()
    """the first ten silent streams"""

    @property
    def count(self) -> int:
        """Silent pairs and silent streams together."""
        return self.pairs + self.streams

    @property
    def due(self) -> int:
        """Pairs and streams that had messages due."""
        return self.pairs_due + self.streams_due


def silence(
    run: Expected,
    heard: NDArray[np.bool_],
    arrived: NDArray[np.bool_],
    answered: tuple[int, ...] | None,
) -> Silent | None:
    """Count silent pairs and streams; None if nothing subscribes and acknowledgement is not
    applicable.

    :param heard: ``(subscriptions, topics)``, the subscription received a message of the topic.
    :param arrived: ``(P,)``, a message of the stream was delivered or, without subscriptions,
        acknowledged.
    :param answered: see :class:`~pytest_loadtest.metrics.measurements.Measurements`.
    """
    if not run.subscriptions and not run.publish_acks:
        return None
    # A topic or stream without messages in the phase is not silent: nothing was due.
    least = 1 if answered is None else _least_certain(run, sum(answered))
    offered = run.end - run.first >= least
    due = _of_topics(run) >= least
    # Transposed to (topics, subscriptions): the first pairs are listed topic by topic.
    pairs = (due & ~heard).T
    streams = np.flatnonzero(offered & ~arrived)
    first_pairs = []
    for pair in np.flatnonzero(pairs)[:NAMED].tolist():
        first_pairs.append(SilentPair(*divmod(pair, run.subscriptions)))
    first_streams = []
    for stream in streams[:NAMED].tolist():
        first_streams.append(SilentStream(stream, int(run.stream_topics[stream])))
    return Silent(
        pairs=int(np.count_nonzero(pairs)),
        pairs_due=int(np.count_nonzero(due)) * run.subscriptions,
        streams=len(streams),
        streams_due=int(np.count_nonzero(offered)),
        first_pairs=tuple(first_pairs),
        first_streams=tuple(first_streams),
    )


def unheard_pairs(run: Expected, heard: NDArray[np.bool_]) -> int:
    """Return the number of subscriptions that got nothing of a topic with messages due.

    :param heard: as for :func:`silence`.
    """
    return int(np.count_nonzero((_of_topics(run) > 0) & ~heard))


def _of_topics(run: Expected) -> NDArray[np.int64]:
    """Return the number of messages due of each topic."""
    of_topics = np.zeros(run.topics, np.int64)
    np.add.at(of_topics, run.stream_topics, run.end - run.first)
    return of_topics


def answered_of(run: Expected, lost: NDArray[np.int64], acked: int) -> tuple[int, ...] | None:
    """Return ``answered`` of :class:`~pytest_loadtest.metrics.measurements.Measurements`.

    :param lost: acknowledged messages without an output, by subscription.
    """
    if not run.selective:
        return None
    if run.broadcasts:
        return (run.subscriptions * acked - int(lost.sum()),)
    answered: list[int] = (acked - lost).tolist()
    return tuple(answered)


def _least_certain(run: Expected, answered: int) -> float:
    """Return the messages from which on a service that chooses cannot have chosen none by chance.

    With the share of the whole run each message has an output. So of n messages none has one with
    the probability (1 - share)**n, which must be small even for the number of pairs and streams.
    """
    messages = int((run.end - run.first).sum())
    share = answered / max(run.subscriptions * messages, 1)
    if not share:
        return math.inf
    if share >= 1:
        return 1
    number = run.topics * run.subscriptions + len(run.first)
    return max(math.ceil(math.log(BY_CHANCE / number) / math.log1p(-share)), 1)


def heard_of(
    run: Expected, subscription: NDArray[np.int64], topic: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return a mask ``(subscriptions, topics)`` of the given pairs."""
    heard = np.zeros((run.subscriptions, run.topics), np.bool_)
    heard[subscription, topic] = True
    return heard


def marked(run: Expected, stream: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask ``(P,)`` of the given streams."""
    mask = np.zeros(len(run.first), np.bool_)
    mask[stream] = True
    return mask
