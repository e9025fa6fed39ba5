"""A consumer-only run: rates are what its workers counted, and the rest is unknown."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import empty, make_run, write_run

from pytest_loadtest.errors import NoData
from pytest_loadtest.metrics.clocks import ClockFit, ClockLine
from pytest_loadtest.pipeline import read
from pytest_loadtest.pipeline.run_file import RunClock, RunFile


def make_folder(tmp_path: Path, *counts: Any) -> Path:
    """A run of two seconds in which each worker counted what is given."""
    folder = write_run(
        tmp_path / "run", make_run(streams=0), empty("sent"), empty("received"), workers=len(counts)
    )
    for i, counted in enumerate(counts):
        manifest = folder / f"gw{i}.manifest.json"
        manifest.write_text(
            json.dumps(
                json.loads(manifest.read_text())
                | ({} if counted is None else {"arrivals": counted})
            )
        )
    return folder


def test_the_workers_counts_add_up(tmp_path: Path) -> None:
    """Counts are added by second; what was not measured has no number, since no envelope is read."""
    measured = read.measure_arrivals(make_folder(tmp_path, {"0": 300, "1": 20}, {"1": 5}))
    assert measured.series.received.tolist() == [300, 25]
    assert measured.counts.received == measured.counts.received_in_time == 325
    assert measured.latencies == {} and measured.counts.out_of_order is None
    assert np.isnan(measured.series.end_to_end_p50).all()
    for name in ("lost", "duplicates", "foreign", "corrupt", "corrupt_heads"):
        assert getattr(measured.counts, name) is None


def test_a_clock_that_was_set_while_load_ran_is_known(tmp_path: Path) -> None:
    """Its worker's seconds of arrival are unreliable, so its host is named."""
    folder = make_folder(tmp_path, {"0": 300})
    line = ClockLine(at=0, offset=0)
    fit = ClockFit(line=line, error=5 * 10**9, round_trip=100_000, exchanges=9, holds=False)
    clock = RunClock(worker="gw0", host="h1", used=line, fit=fit)
    dataclasses.replace(RunFile.read(folder), clocks=(clock,)).write(folder)
    assert read.measure_arrivals(folder).uneven_hosts == ("h1",)


@pytest.mark.parametrize(
    "counted",
    [None, [1, 2], {"two": 3}, {"2": 3}, {"0": "many"}],
    ids=["missing", "list", "name", "beyond", "text"],
)
def test_a_worker_that_does_not_say(tmp_path: Path, counted: Any) -> None:
    """Its file is named; a count is never guessed."""
    with pytest.raises(NoData, match=r"gw1\.manifest\.json has no valid arrivals"):
        read.measure_arrivals(make_folder(tmp_path, {"0": 1}, counted))
