"""A backlog's drain: the controller's looks at the workers' reports, settled by what the samples count exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.metrics.measurements import Backlog
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.fleet.watches import BacklogWatch
    from pytest_loadtest.metrics.measurements import Counts, Measurements


def settled(watch: BacklogWatch, windows: Mapping[str, Measurements], whole: Measurements) -> Backlog | None:
    """The backlog as far as it is certain; None if none was built, or its drain was not seen.

    :param windows: of the phase, by name; the publish latency is that of the messages due while it was drained. :param whole: the phase.
    """
    if watch.reached is None or watch.resumed is None or watch.emptied is None:
        return None
    uncounted = _uncounted(whole.counts, whole.subscriptions)
    first, certain = watch.drained_between(uncounted)
    exact, end = first == certain, first or watch.last
    drain, during = end.elapsed - watch.resumed, windows.get("drain")
    between = None
    if first is not None and not exact:
        between = (drain, None if certain is None else certain.elapsed - watch.resumed)
    return Backlog(
        size_messages=watch.messages, size_bytes=round(watch.messages * watch.mean_size), build=watch.reached,
        drain=None if between else drain, drained=None if between else first is not None, between=between, uncounted=uncounted,
        left=None if uncounted else max(end.waiting, 0), allowed=watch.allowed,
        drain_rate=None if uncounted else end.received / (drain / SECOND),
        publish_during_drain=None if during is None or between or end.elapsed != watch.emptied else during.publish,
    )  # fmt: skip


def _uncounted(counts: Counts, subscriptions: int) -> int:
    """How many of the copies that the workers counted are no first copies of acknowledged messages: second ones, damaged ones, those of
    another topic, and first ones of messages that were answered as failed or not at all."""
    first_of_acked = counts.acked * subscriptions - counts.lost
    return max(counts.received - first_of_acked, 0) + counts.duplicates + counts.corrupt + (counts.foreign or 0)


def read(said: Mapping[str, Any]) -> Backlog:
    """The backlog of earlier results, as far as it is judged."""
    between = said.get("drainedBetween")
    return Backlog(
        size_messages=said["messages"], size_bytes=said["bytes"], build=said["build"], drain=said["drain"], drained=said["drained"],
        left=said["left"], allowed=said["allowed"], drain_rate=said["drainRate"], publish_during_drain=None,
        between=between and tuple(between), uncounted=said.get("uncounted", 0),
    )  # fmt: skip
