"""The tables that workers count from rows, without Spark, compared with plain counting."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import generate, make_run, make_stages

from pytest_loadtest.message.samples import Status
from pytest_loadtest.metrics.histogram import hdr_index, join_total
from pytest_loadtest.pipeline import executor, kernel, tables

INT = st.integers(-(1 << 40), 1 << 40)


@given(
    values=st.lists(st.integers(-(1 << 62), 1 << 62), min_size=1),
    group=st.lists(st.integers(0, 2), min_size=1),
)
def test_sums_of_nanoseconds_never_overflow(values: list[int], group: list[int]) -> None:
    """Whatever a broken clock makes of them."""
    n = min(len(values), len(group))
    numbers, index = np.array(values[:n], np.int64), np.array(group[:n], np.int64)
    high, low = kernel._halves(tables.Groups({"group": index}), numbers)
    expected = Counter[int]()
    for key, value in zip(group[:n], values[:n], strict=True):
        expected[key] += value
    assert [join_total(int(h), int(lo)) for h, lo in zip(high, low, strict=True)] == [
        expected[key] for key in sorted(set(group[:n]))
    ]


@given(st.lists(st.integers(0, 1 << 50), min_size=1))
def test_a_coarser_bucket_is_the_one_that_the_value_lies_in(values: list[int]) -> None:
    """The way over the finer bucket changes nothing."""
    numbers = np.array(values, np.int64)
    assert (
        kernel._coarser(hdr_index(numbers)).tolist()
        == hdr_index(numbers, kernel.SERIES_BITS).tolist()
    )


def test_a_value_below_0_has_no_part_of_the_generator() -> None:
    """As in the definitions. A clock that was set makes such values."""
    values = np.array([-5, 0, 7], np.int64)
    part = np.minimum(3, values)
    rows = {"second": np.zeros(3, np.int64)}
    found = kernel.own_part_tables("spread", values, part, rows, make_run())
    counts = [int(table["n"].sum()) for _, table in found if "n" in table]
    assert counts
    assert set(counts) == {1}


def merged(rows: dict[str, Any], kind: str, runs: list[Any], block: int) -> dict[str, Any]:
    """All tables of a kind, from blocks of rows."""
    how = {"sent": kernel.sent_tables, "received": kernel.received_tables}[kind]
    found: dict[str, list[tables.Table]] = defaultdict(list)
    for low in range(0, len(rows["seq"]), block):
        for run in runs:
            for name, table in how(
                {column: values[low : low + block] for column, values in rows.items()}, run
            ):
                found[name].append(executor.unpack(executor.pack(table)))
    whole = {
        name: {column: values.tolist() for column, values in tables.merge_rows(name, parts).items()}
        for name, parts in found.items()
    }
    for name, prefix in (("histograms", ""), ("sent", "blocked_")):
        halves = [
            whole.get(name, {}).pop(f"{prefix}{half}", []) for half in ("high", "low")
        ]  # two of many ways to write the same sum
        whole.setdefault(name, {})["total"] = [
            join_total(high, low) for high, low in zip(*halves, strict=True)
        ]
    return whole


@pytest.mark.parametrize("kind", ["sent", "received"])
def test_how_rows_are_cut_into_blocks_makes_no_difference(kind: str) -> None:
    """Merged tables are those of all rows at once."""
    run = make_run(messages=300, subscriptions=2)
    rows = dict(zip(("sent", "received"), generate(run, 7), strict=True))[kind]
    assert merged(rows, kind, [run], 37) == merged(rows, kind, [run], 1_000_000) != {}


def test_stages_that_share_out_the_messages_add_up_to_the_run() -> None:
    """No message of a stage is seen in another one."""
    run = make_run(messages=300)
    sent, _ = generate(run, 8)
    stages = list(make_stages(run, 8).values())
    parts = [
        replace(run, first=stages[0].first, end=stages[0].end),
        replace(run, first=stages[0].end),
    ]
    together, whole = merged(sent, "sent", parts, 100), merged(sent, "sent", [run], 100)
    assert together == whole
    assert sum(whole["sent"]["n"]) == int((run.end - run.first).sum())
    assert whole["sent"]["status"] and set(whole["sent"]["status"]) <= set(map(int, Status))
