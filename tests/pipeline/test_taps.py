"""Latencies past a tap: Spark's answer is the definitions' answer, to the bit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from frames_in_process import InProcess
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import (
    by_worker,
    differences,
    empty,
    generate,
    make_recorded,
    make_run,
    make_stages,
    tapped,
    write_run,
)

from pytest_loadtest.metrics.expected import Recorded
from pytest_loadtest.metrics.stats import measure
from pytest_loadtest.pipeline import executor, read, taps
from pytest_loadtest.pipeline.aggregate import aggregate, aggregate_with_stages
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

KINDS = {"to_tap", "after_tap", "past_tap", "own_past_tap"}


def test_spark_equals_the_definitions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many tasks, messages that the tap has twice or not at all, windows, and copies of all kinds."""
    monkeypatch.setattr(read, "TASK_ROWS", 500)
    run = make_run(
        subscriptions=2,
        messages=300,
        first=7,
        duration=20 * SECOND,
        window=SECOND,
        outputs=2,
        tapped=True,
    )
    sent, received = generate(run, seed=5)
    rows = tapped(run, sent, 5, compact=True)
    folder = write_run(tmp_path / "run", run, sent, received, workers=3, taps=rows)
    found = aggregate(spark, folder)
    defined = measure(*by_worker(run, sent, received, 3), make_recorded(3), rows)
    assert differences(found, defined) == []
    assert found.latencies.keys() > KINDS


SHAPES = st.fixed_dictionaries({
    "streams": st.integers(0, 4), "topics": st.integers(1, 3), "subscriptions": st.integers(1, 3), "messages": st.sampled_from([0, 1, 63, 130]),
    "outputs": st.sampled_from([1, 1, 3]), "selective": st.booleans(), "first": st.sampled_from([0, 1, 2**40]),
    "duration": st.sampled_from([SECOND, 12 * SECOND + 7]), "window": st.sampled_from([None, SECOND]),
})  # fmt: skip


@settings(max_examples=10)
@given(
    shape=SHAPES,
    seed=st.integers(0, 99),
    few=st.booleans(),
    nothing=st.booleans(),
    compact=st.booleans(),
)
def test_any_tap_is_counted_as_it_is_defined(
    tmp_path_factory: pytest.TempPathFactory,
    shape: dict[str, Any],
    seed: int,
    few: bool,
    nothing: bool,
    compact: bool,
) -> None:
    """What Spark's workers run, without Spark, of a run and of its stages; the other measurements are those without a tap.

    :param few: rows of a task, and of what it keeps before it sends. :param nothing: the tap received nothing.
    """
    run = make_run(**shape, tapped=True)
    sent, received = generate(run, seed)
    rows = empty("tap") if nothing else tapped(run, sent, seed, compact=compact)
    stages = make_stages(run, seed) if len(run.first) else {}
    path = tmp_path_factory.mktemp("run") / "run"
    folder = write_run(path, run, sent, received, workers=3, chunk=90, stages=stages, taps=rows)
    with pytest.MonkeyPatch.context() as patch:
        for module, name, number in (
            (read, "TASK_ROWS", 200),
            (executor, "BLOCK", 128),
            (taps, "CELLS", 50),
        ):
            patch.setattr(module, name, number if few else getattr(module, name))
        whole, parts = aggregate_with_stages(cast("SparkSession", InProcess()), folder)
    own = by_worker(run, sent, received, 3)
    assert differences(whole, measure(*own, make_recorded(3), rows)) == []
    others = {kind: found for kind, found in whole.latencies.items() if kind not in KINDS}
    alone = measure(*own, make_recorded(3))
    assert differences(replace(whole, latencies=others), alone) == []
    for name, found in parts:
        stage = by_worker(stages[name], sent, received, 3)
        during = tuple(
            worker.during(stages[name].start - run.start, stages[name].duration, run.duration)
            for worker in make_recorded(3).workers
        )
        recorded = Recorded(foreign=None, workers=during)
        assert differences(found, measure(*stage, recorded, rows)) == []
