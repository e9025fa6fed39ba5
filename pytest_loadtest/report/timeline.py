"""What else happened while a run was measured, and when: what a chart shades. Times are ns since the start of the measured phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.values.quantities import MILLISECOND, SECOND, ByteRate, format_rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pytest_loadtest.metrics.measurements import Measurements

MOST: Final = 500
"""Spans of a kind. Where there are more, those with the smallest gaps between them become one."""
STALLED: Final = 50 * MILLISECOND
"""A worker stalled in a second that has this much of it, ns: as much as one late wake-up that counts."""
BLOCKED: Final = MILLISECOND
"""Messages were blocked in a second in which each of them waited so long on the average, ns."""


def timeline_section(run: Mapping[str, Any], measurements: Measurements | None) -> dict[str, Any]:
    """The section of a run's document. :param run: ``run.json``. :param measurements: None where nothing was measured."""
    return {
        "stages": [_stage(stage, run["start"]) for stage in run["stages"]],
        "changes": [{"at": change["at"], "text": _said(change)} for change in run.get("changes") or ()],  # older runs do not say
        "restarts": [{"down": one["down"], "ready": one["ready"]} for one in run["facts"]["broker"].get("restarts") or ()],
        "stalls": [] if measurements is None else _stalls(measurements),
        "blocked": [] if measurements is None else _blocked(measurements),
    }


def _stage(stage: Mapping[str, Any], start: int) -> dict[str, Any]:
    return {"name": stage["name"], "start": stage["start"] - start, "end": stage["start"] - start + stage["duration"]}


def _said(change: Mapping[str, Any]) -> str:
    said = []
    if change["rate"] is not None:
        said.append(f"rate {format_rate(ByteRate(change['rate']) if change['bytes'] else change['rate'])}")
    if change["paused"] is not None:
        said.append("consumers paused" if change["paused"] else "consumers go on")
    if change["consumers"] is not None:
        said.append(f"{change['consumers']} consumers of each subscription")
    if change["distribution"]:
        said.append("payload mix")
    if change["end"]:
        lost = f"ended: {change['foregone']} could no longer hold" if change["foregone"] else "ended"
        said.append(change.get("aborted") or lost)
    return ", ".join(said)


def _stalls(measurements: Measurements) -> list[dict[str, Any]]:
    return [
        {"worker": worker.worker, "start": start, "end": end}
        for worker in measurements.workers
        for start, end in second_spans(worker.seconds[:, 1] >= STALLED, measurements.duration)
    ]


def _blocked(measurements: Measurements) -> list[dict[str, Any]]:
    series = measurements.series
    if series.blocked is None:
        return []
    waited = series.blocked >= BLOCKED * np.maximum(series.sent, 1)
    return [{"start": start, "end": end} for start, end in second_spans(waited, len(waited) * SECOND)]


def second_spans(seconds: NDArray[np.bool_], until: int) -> list[tuple[int, int]]:
    """Seconds in a row as spans, ns; at most :data:`MOST`. :param until: where the last second ends, ns."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], seconds, [False]]).astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    gaps = starts[1:] - ends[:-1]
    if len(starts) > MOST:
        kept = np.sort(np.argsort(gaps, kind="stable")[len(starts) - MOST :])
        starts, ends = np.concatenate([starts[:1], starts[1:][kept]]), np.concatenate([ends[:-1][kept], ends[-1:]])
    return [(start * SECOND, min(end * SECOND, until)) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
