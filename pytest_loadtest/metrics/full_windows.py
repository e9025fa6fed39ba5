"""Messages that were dropped because the in-flight windows of their streams were full, by topic.

The definitions share this code with the controller, which assembles the counts of Spark's workers.

They have ``Status.BLOCKED``. A topic stood before full windows from the intended time of its first
such message until the latest instant up to which such a message had waited (intended + blocked),
both limited to the measured phase.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.metrics.histogram import exact_total
from pytest_loadtest.values.fields import Count  # noqa: TC001 - results documents look it up
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected

    Column = NDArray[np.int64]

# Topics that are listed; their number is exact.
NAMED: Final = 10


@record
class BlockedTopic:
    """A topic whose messages were dropped before full in-flight windows."""

    topic: Count
    """index"""
    dropped: Count
    """messages"""
    start: Count
    """ns after the start of the phase: the first of them was due"""
    end: Count
    """ns after the start of the phase: until then one of them waited"""


@record
class FullWindows:
    """Messages that were dropped because the in-flight windows of their streams were full: caused
    by the target.
    """

    dropped: Count
    """messages"""
    waited: Count
    """ns for which they waited before full windows, summed"""
    topics: Count
    """topics that they were for"""
    first_topics: tuple[BlockedTopic, ...]
    """the ten topics that waited first"""


def full_windows(
    run: Expected, waited: int, topic: Column, dropped: Column, first: Column, last: Column
) -> FullWindows | None:
    """Return the messages that were dropped before full windows; None if there are none.

    :param waited: ns, over all of them.
    :param topic: ``(k,)``, the topics that have such messages, each once.
    :param dropped: their number.
    :param first: their earliest intended time, ns.
    :param last: the latest instant up to which one waited, ns.
    """
    if not len(topic):
        return None
    start = np.clip(first - run.start, 0, run.duration)
    end = np.clip(last - run.start, 0, run.duration)
    order = np.lexsort((topic, start))[:NAMED]
    columns = (column[order].tolist() for column in (topic, dropped, start, end))
    return FullWindows(
        dropped=int(dropped.sum()),
        waited=waited,
        topics=len(topic),
        first_topics=tuple(
            BlockedTopic(topic=number, dropped=count, start=begin, end=until)
            for number, count, begin, until in zip(*columns, strict=True)
        ),
    )


def full_windows_of_rows(blocked: Mapping[str, Column], run: Expected) -> FullWindows | None:
    """Return the same from the sent rows of the messages that were dropped before full windows."""
    topics, place, dropped = np.unique(blocked["topic"], return_inverse=True, return_counts=True)
    first = np.full(len(topics), np.iinfo(np.int64).max)
    np.minimum.at(first, place, blocked["intended"])
    last = np.full(len(topics), np.iinfo(np.int64).min)
    np.maximum.at(last, place, blocked["intended"] + blocked["blocked"])
    return full_windows(run, exact_total(blocked["blocked"]), topics, dropped, first, last)
