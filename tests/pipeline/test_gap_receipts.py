"""Delivery gaps that are shorter than the cells of the first scan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import runs
from frames_in_process import InProcess
from runs import Rows, far_rows, make_run, write_run

from pytest_loadtest.metrics import gaps
from pytest_loadtest.metrics.catalogue import with_own, without_own
from pytest_loadtest.metrics.pauses import COLUMNS, Pauses
from pytest_loadtest.pipeline import transforms as T
from pytest_loadtest.pipeline.aggregate import aggregate
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pytest_loadtest.metrics.expected import Expected


def longest(folder: Path, run: Expected, sent: Rows, received: Rows) -> tuple[int, int]:
    """Return the longest and the shortest delivery gap, ns."""
    measured = aggregate(
        cast("SparkSession", InProcess()), write_run(folder, run, sent, received, chunk=5000)
    )
    counted = cast("Any", measured.latencies["delivery_gap"])
    return counted.maximum, counted.minimum


@pytest.mark.parametrize("spacing", [SECOND, SECOND // 2, SECOND // 5])
def test_a_gap_is_not_longer_in_a_long_run_of_many_topics(tmp_path: Path, spacing: int) -> None:
    """An hour of 1 000 topics, with a message each second (half, fifth) that comes after a millisecond. A cell has 1.72 s."""
    messages = 3600 * SECOND // spacing
    run = make_run(streams=1, topics=1000, messages=messages, duration=3600 * SECOND)
    assert longest(tmp_path / "run", run, *far_rows(run, messages)) == (spacing, spacing)


def test_a_gap_is_not_longer_with_a_million_subscriptions(tmp_path: Path) -> None:
    """A minute with a message each second: a cell has 28.6 s. All but the last subscriptions are silent here."""
    run = make_run(
        streams=1,
        topics=1,
        messages=60,
        subscriptions=1_000_000,
        broadcasts=True,
        duration=60 * SECOND,
    )
    sent, one = far_rows(make_run(streams=1, topics=1, messages=60, duration=60 * SECOND), 60)
    parts = [
        {**one, "subscription": np.full(60, subscription)}
        for subscription in (999_900, 999_970, 999_999)
    ]
    parts[1]["received"] = parts[1]["received"] + np.where(
        parts[1]["seq"] < 30, 0, 300 * MILLISECOND
    )
    received = {name: np.concatenate([part[name] for part in parts]) for name in one}
    assert longest(tmp_path / "run", run, sent, received) == (SECOND + 300 * MILLISECOND, SECOND)


def test_a_second_copy_does_not_end_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old messages come again, at another worker, while nothing new arrives for two seconds; the topic's cell has the whole minute."""
    monkeypatch.setattr(gaps, "CELLS", 1)
    run = make_run(streams=1, topics=1, messages=600, duration=60 * SECOND)
    sent, once = far_rows(run, 600)
    came = (once["seq"] < 300) | (once["seq"] >= 320)
    again = {name: column[:20] for name, column in once.items()} | {
        "received": once["received"][300:320]
    }
    received = {name: np.concatenate([once[name][came], again[name]]) for name in once}
    assert longest(tmp_path / "run", run, sent, received) == (
        2100 * MILLISECOND,
        2100 * MILLISECOND,
    )


@pytest.mark.parametrize("cells", [1, gaps.CELLS])
def test_a_gap_without_the_generators_own_delays_is_exact_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    """The consumer stands still for two of 60 s; a message comes each 100 ms, and all that waited come after the stall."""
    run = make_run(streams=1, topics=1, messages=600, duration=60 * SECOND)
    sent, received = far_rows(run, 600)
    begin = run.start + 10 * SECOND + 50 * MILLISECOND
    stall = Pauses(
        begin=np.array([begin]),
        end=np.array([begin + 2 * SECOND]),
        since=np.array([begin]),
        until=np.array([begin + 2 * SECOND]),
        exact=False,
    )
    waited = (received["received"] > begin) & (received["received"] < begin + 2 * SECOND)
    received["received"] = np.where(waited, begin + 2 * SECOND, received["received"])
    received["lag"] = np.full(len(waited), -1)
    monkeypatch.setattr(gaps, "CELLS", cells)
    monkeypatch.setattr(runs, "make_pauses", lambda number: stall)
    measured = aggregate(
        cast("SparkSession", InProcess()),
        write_run(tmp_path / "run", run, sent, received, chunk=5000),
    )
    found = {
        name: cast("Any", measured.latencies[name]).maximum
        for name in (with_own("delivery_gap"), without_own("delivery_gap"))
    }
    last = int(received["received"][received["received"] < begin].max())
    assert found[with_own("delivery_gap")] == begin + 2 * SECOND - last
    assert found[without_own("delivery_gap")] <= 200 * MILLISECOND


def test_a_run_without_stalls_has_one_search_for_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short pauses of all workers are no reason for a second one."""
    columns = {name: [0, 20 * MILLISECOND] for name in COLUMNS} | {
        "end": [20 * MILLISECOND, 21 * MILLISECOND]
    }
    columns["until"] = columns["end"]
    short = Pauses.of_document(
        {**columns, "exact": False, "late": {name: [] for name in ("due", "sent")}}
    )
    monkeypatch.setattr(gaps, "CELLS", 1)
    monkeypatch.setattr(runs, "make_pauses", lambda number: short)
    searched: list[int] = []
    search = T.gap_receipts
    monkeypatch.setattr(
        T, "gap_receipts", lambda *how: (searched.append(len(how[2])), search(*how))[1]
    )
    run = make_run(streams=1, topics=1, messages=60, duration=60 * SECOND)
    sent, received = far_rows(run, 60)
    received["received"] = received["received"] + np.where(
        received["seq"] < 30, 0, 300 * MILLISECOND
    )
    measured = aggregate(
        cast("SparkSession", InProcess()),
        write_run(tmp_path / "run", run, sent, received, chunk=5000),
    )
    assert searched == [1]
    assert without_own("delivery_gap") not in measured.latencies
