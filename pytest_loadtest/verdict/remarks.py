"""Facts beside a count: who was silent, which duplicates a protocol excuses, how far damage was looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.metrics.silent import Silent
    from pytest_loadtest.verdict.objectives import Objective

NAMED = 3
"""Silent subscriptions, and silent streams, that a finding names; the results have more."""


def name_silent(silent: Silent, most: int = NAMED) -> str:
    """Counts, then the first ``most`` of each by name: ``1 of 200 streams: stream 17 of topic 17``."""
    counts = [f"{exact(silent.pairs)} of {exact(silent.pairs_due)} subscriptions of topics"] if silent.pairs_due else []
    counts.append(f"{exact(silent.streams)} of {exact(silent.streams_due)} streams")
    named = (
        _first([f"topic {topic} subscription {subscription}" for topic, subscription in silent.first_pairs[:most]], silent.pairs),
        _first([f"stream {stream} of topic {topic}" for stream, topic in silent.first_streams[:most]], silent.streams),
    )
    return ": ".join(filter(None, [", ".join(counts), "; ".join(filter(None, named))]))


def _first(names: list[str], count: int) -> str:
    return ", ".join(names) + (", …" if count > len(names) else "")


def excused(measurements: Measurements) -> int:
    """Duplicates that MQTT allows at QoS 2: of messages sent again, unless each broker that was met again still had the session.

    A broker that has forgotten the session cannot know what it was sent before (MQTT 5, 4.1); one that has it must (4.3.3). Which
    connection a message went over is not recorded, so where any session of a producer was forgotten, all of them are excused.
    """
    return 0 if measurements.forgotten == 0 else measurements.counts.duplicates_of_resent


def remarks(objective: Objective, measurements: Measurements) -> Iterator[str]:
    """Facts that belong beside a count."""
    metric, counts = objective.metric, measurements.counts
    if metric == "corrupt" and not measurements.checksum:
        yield "by heads and sizes alone: no checksum"
    if metric == "corrupt" and counts.corrupt_heads:
        yield f"{exact(counts.corrupt_heads)} of them with a damaged head, at any time of the run"
    if metric == "foreign" and counts.foreign:
        yield "at any time of the run"
    if metric == "failed" and counts.unknown:
        yield f"{exact(counts.unknown)} of them unanswered"
    if metric == "duplicates" and objective.implicit and (allowed := excused(measurements)):
        why = "" if measurements.forgotten is None else " to a broker that had forgotten the session"
        yield f"besides {exact(allowed)} of messages sent again{why}"
