"""Latencies of first copies, where deliveries came more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from runs import slow_streams

from pytest_loadtest.pipeline import read
from pytest_loadtest.pipeline.executor import unpack
from pytest_loadtest.pipeline.first_copies import FirstCopiesOfFiles

if TYPE_CHECKING:
    from pathlib import Path


def test_of_what_came_three_times_a_row_leaves_a_task_for_each_delivery(tmp_path: Path) -> None:
    """The others are counted in the task."""
    found = read.load_run(slow_streams(tmp_path))
    files = [path for task in read.tasks(found) for path in task]
    scan = FirstCopiesOfFiles(
        [[*files, *files, *files]],
        [found.run],
        [{"low": np.array([0]), "high": np.array([1 << 40])}],
    )
    names: dict[str, int] = {}
    for batch in scan(iter([pa.record_batch([pa.array([0])], names=["id"])])):
        for name, content in zip(batch["name"].to_pylist(), batch["content"], strict=True):
            table = unpack(content.as_buffer())
            names[name] = names.get(name, 0) + (
                int(table["n"].sum()) if "n" in table else len(next(iter(table.values())))
            )
    assert (names["rows"], names["counts"]) == (64_000, 128_000)
