"""How the connections of a run came up, from what the run asked for and its workers' manifests say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import NoData
from pytest_loadtest.metrics.opening import Opening

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from pytest_loadtest.metrics.histogram import Histogram


def opening_of(path: Path, run: Any, manifests: Mapping[str, Any], times: Mapping[str, Histogram | None]) -> Opening | None:
    """None of a run whose connections are neither paced nor all that there is.

    :param run: ``run.json``. :param manifests: by worker. :param times: ``connect`` and ``dial``, of all workers.
    :raises NoData: not all of the connections came up, or nobody told.
    """
    alone, rate = bool(run.get("connects_only")), run.get("connect_rate")
    if not alone and rate is None:
        return None
    try:
        asked, found = int(run["connections"]), {worker: dict(manifest["connecting"]) for worker, manifest in manifests.items()}
        spans = [[one[who] for one in found.values() if who in one] for who in ("consumers", "producers")]
        took = sum(max(ended for _, ended, *_ in span) - min(began for began, *_ in span) for span in spans if span)
        in_time = None if rate is None else sum(int(count) for span in spans for *_, count in span)
        cpu = {worker: _cores(one.values()) for worker, one in found.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise NoData(f"{path}: its manifests do not say how connections were opened: {error}") from error
    came = times["connect"].n if times["connect"] else 0
    if came < asked:
        raise NoData(f"{path}: {asked} connections were to be opened, the workers' manifests have {came}")
    busiest = max(cpu, key=cpu.__getitem__)
    return Opening(
        alone=alone, connections=asked, rate=rate, took=took, busiest=busiest, cpu=cpu[busiest],
        begun_late=times["dial"].percentile(99) if times["dial"] else None, in_time=in_time,
    )  # fmt: skip


def _cores(spans: Collection[Sequence[int]]) -> float:
    """That a worker used while it opened its connections. :param spans: each begins with its begin, its end and its CPU time, ns."""
    return sum(cpu for _, _, cpu, *_ in spans) / max(sum(ended - began for began, ended, *_ in spans), 1)
