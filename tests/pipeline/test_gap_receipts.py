"""Delivery gaps that are shorter than the cells of the first scan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from frames_in_process import InProcess
from runs import Rows, far_rows, make_run, write_run

from pytest_loadtest.metrics import gaps
from pytest_loadtest.pipeline.aggregate import aggregate
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pytest_loadtest.metrics.expected import Expected


def longest(folder: Path, run: Expected, sent: Rows, received: Rows) -> tuple[int, int]:
    """Return the longest and the shortest delivery gap, ns."""
    measured = aggregate(cast("SparkSession", InProcess()), write_run(folder, run, sent, received, chunk=5000))
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
    run = make_run(streams=1, topics=1, messages=60, subscriptions=1_000_000, broadcasts=True, duration=60 * SECOND)
    sent, one = far_rows(make_run(streams=1, topics=1, messages=60, duration=60 * SECOND), 60)
    parts = [{**one, "subscription": np.full(60, subscription)} for subscription in (999_900, 999_970, 999_999)]
    parts[1]["received"] = parts[1]["received"] + np.where(parts[1]["seq"] < 30, 0, 300 * MILLISECOND)
    received = {name: np.concatenate([part[name] for part in parts]) for name in one}
    assert longest(tmp_path / "run", run, sent, received) == (SECOND + 300 * MILLISECOND, SECOND)


def test_a_second_copy_does_not_end_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old messages come again, at another worker, while nothing new arrives for two seconds; the topic's cell has the whole minute."""
    monkeypatch.setattr(gaps, "CELLS", 1)
    run = make_run(streams=1, topics=1, messages=600, duration=60 * SECOND)
    sent, once = far_rows(run, 600)
    came = (once["seq"] < 300) | (once["seq"] >= 320)
    again = {name: column[:20] for name, column in once.items()} | {"received": once["received"][300:320]}
    received = {name: np.concatenate([once[name][came], again[name]]) for name in once}
    assert longest(tmp_path / "run", run, sent, received) == (2100 * MILLISECOND, 2100 * MILLISECOND)
