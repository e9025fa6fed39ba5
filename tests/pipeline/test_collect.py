"""Counted tables come from Spark in pieces of a limited size, and are the same as at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from runs import by_worker, differences, generate, make_recorded, make_run, make_stages, write_run

from pytest_loadtest.metrics.expected import Recorded
from pytest_loadtest.metrics.stats import measure
from pytest_loadtest.pipeline import collect, spool
from pytest_loadtest.pipeline.aggregate import aggregate, aggregate_with_stages
from pytest_loadtest.pipeline.collect import Collector
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

LONG = {
    "duration": 1100 * SECOND,
    "window": SECOND,
    "drift": True,
    "messages": 600,
    "subscriptions": 2,
}
"""A run of several shards: more than 1000 windows of a second, which are also more than the blocks of a results document."""


@pytest.fixture
def actions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the packed bytes of each action's result, of which no two shards fit into one action, and nothing stays in memory."""
    monkeypatch.setattr(collect, "AT_ONCE", 1000)
    monkeypatch.setattr(spool, "IN_MEMORY", 0)
    sizes: list[int] = []
    found = Collector._rows

    def rows(self: Collector, frame: DataFrame) -> Iterator[dict[str, Any]]:
        of_shard: dict[int, int] = {}
        for row in found(self, frame):
            of_shard[row["shard"]] = of_shard.get(row["shard"], 0) + len(row["content"])
            yield row
        sizes.extend(of_shard.values())

    monkeypatch.setattr(Collector, "_rows", rows)
    return sizes


def test_a_run_that_is_collected_in_pieces_has_the_same_measurements(
    spark: SparkSession, tmp_path: Path, actions: list[int]
) -> None:
    """To the bit, with second copies, which need a third scan."""
    run = make_run(**LONG)
    sent, received = generate(run, seed=5)
    write_run(tmp_path / "run", run, sent, received, chunk=100_000)
    assert (
        differences(
            aggregate(spark, tmp_path / "run"),
            measure(*by_worker(run, sent, received, 2), make_recorded(2)),
        )
        == []
    )
    assert len(actions) >= 10


def test_stages_are_collected_in_pieces_too(
    spark: SparkSession, tmp_path: Path, actions: list[int]
) -> None:
    """Each part has its own windows."""
    run = make_run(**{**LONG, "duration": 40 * SECOND})
    stages = make_stages(run, 1)
    sent, received = generate(run, seed=6, again=0.0)
    write_run(tmp_path / "run", run, sent, received, chunk=100_000, stages=stages)
    _, parts = aggregate_with_stages(spark, tmp_path / "run")
    plain = by_worker(run, sent, received, 2)[:2]
    for name, found in parts:
        expected = measure(*plain, stages[name], Recorded(foreign=None))
        assert (
            differences((found.windows, found.intervals), (expected.windows, expected.intervals))
            == []
        )
