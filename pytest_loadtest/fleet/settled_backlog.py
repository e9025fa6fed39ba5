"""The backlog of a run, from what its watch saw and what its samples count.

:func:`~pytest_loadtest.fleet.judge.conclude_run` calls it, in the controller's thread that ends a
run and in the command ``aggregate``. Pure: a watch or a section of a document in, a backlog out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_loadtest.metrics.measurements import Backlog, Counts, Measurements
from pytest_loadtest.report.measured import section_of
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.tolerance import is_allowed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.fleet.watches import BacklogWatch
    from pytest_loadtest.report.document import BacklogSection
    from pytest_loadtest.verdict.objectives import Objective


def settle_backlog(
    watch: BacklogWatch,
    windows: Mapping[str, Measurements],
    whole: Measurements,
    bounds: Sequence[Objective],
) -> Backlog | None:
    """Return the backlog as far as it is certain.

    None if none was built, or if the end of its drain was not seen. The watch saw the workers'
    counts of copies; the samples show how many of them were no first copies.

    :param windows: the windows of the phase by name; ``drain`` has the publish latency of messages
        due during the drain.
    :param whole: the measurements of the phase.
    :param bounds: those that allow messages never to come. A message that never came waits as long
        as anyone can see, and does not if the target dropped it: a loss that a bound allows makes
        the end of the drain uncertain, and any other loss is a miss of its own.
    """
    if watch.reached is None or watch.resumed is None or watch.emptied is None:
        return None
    uncounted = _uncounted(whole.counts, whole.fan_out)
    lost = 0
    if is_allowed("loss", bounds, whole):
        lost = whole.counts.lost or 0
    first, certain = watch.drained_between(uncounted, lost)
    end = first or watch.last
    duration = end.elapsed - watch.resumed
    left = None if uncounted or lost else max(end.waiting, 0)

    drained: bool | None = None
    drain: float | None = None
    between = None
    waited = None
    if first is None:
        drained = False
        drain = given_up(watch.messages, left)
        waited = duration
    elif first == certain:
        drained = True
        drain = duration
    else:
        between = (duration, None if certain is None else certain.elapsed - watch.resumed)

    publish = None
    during = windows.get("drain")
    if during is not None and between is None and end.elapsed == watch.emptied:
        publish = during.latencies.get("publish")
    return Backlog(
        size_messages=watch.messages,
        size_bytes=round(watch.messages * watch.mean_size),
        build=watch.reached,
        drain=drain,
        drained=drained,
        between=between,
        uncounted=uncounted,
        lost=lost,
        left=left,
        allowed=watch.allowed,
        waited=waited,
        drain_rate=None if uncounted or between else end.received / (duration / SECOND),
        publish_during_drain=publish,
    )


def _uncounted(counts: Counts, fan_out: int) -> int:
    """Return how many counted copies are no first copies of acknowledged messages.

    They are second or damaged ones, those of another topic, and first ones of messages that were
    answered as failed or not at all.
    """
    assert counts.lost is not None, "a service that chooses has no backlog"
    first_of_acked = counts.acked * fan_out - counts.lost
    first_of_others = max(counts.received - first_of_acked, 0)
    further = (counts.duplicates, counts.corrupt, counts.foreign)
    return first_of_others + sum(count or 0 for count in further)


def given_up(messages: int, left: int | None) -> float | None:
    """Return how long a drain that was given up takes.

    It is inf if the backlog did not shrink, otherwise None: unknown.

    :param messages: deliveries waiting at the resumption.
    :param left: those waiting at the end; None if unknown.
    """
    return math.inf if left is not None and left >= messages else None


def recorded_backlog(section: BacklogSection) -> Backlog:
    """Return the backlog in an earlier results document, as far as it is judged."""
    drain: float | None = section.drain
    waited = section.waited
    if section.drained is False:
        # Older results have the time of the wait as that of the drain.
        waited = section.drain if waited is None else waited
        drain = given_up(section.messages, section.left)
    return section_of(
        Backlog,
        section,
        size_messages=section.messages,
        size_bytes=section.bytes,
        drain=drain,
        waited=waited,
        publish_during_drain=None,
        between=section.drained_between,
    )
