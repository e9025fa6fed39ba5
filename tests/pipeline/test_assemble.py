"""Measurements from tables, without Spark."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from runs import differences, generate, make_recorded, make_run

from pytest_loadtest.metrics.gaps import delivery_gaps, gap_times
from pytest_loadtest.metrics.in_time import begins_in_time
from pytest_loadtest.metrics.stats import LOST_RANGES, measure
from pytest_loadtest.pipeline import tables
from pytest_loadtest.pipeline.assemble import Answers, assemble, latencies_by_kind
from pytest_loadtest.pipeline.broadcasts import words_of
from pytest_loadtest.pipeline.executor import pack, split
from pytest_loadtest.pipeline.kernel import copies_of, received_tables, sent_tables
from pytest_loadtest.pipeline.spool import Spool, spool_spans
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.pipeline.tables import Table

SHAPES: dict[str, dict[str, Any]] = {
    "two subscriptions": {"subscriptions": 2, "first": 60},
    "producers only": {"subscriptions": 0},
    "a broadcast": {"subscriptions": 70, "messages": 30, "broadcasts": True},
    "windows and tenths": {
        "duration": 23 * SECOND,
        "window": 2 * SECOND,
        "drift": True,
        "messages": 300,
    },
}


def answers(run: Expected, sent: dict[str, Any], received: dict[str, Any]) -> Answers:
    """Return what Spark's two scans answer for rows without second copies."""
    parts: dict[str, list[Table]] = defaultdict(list)
    for name, table in (*sent_tables(sent, run), *received_tables(received, run)):
        parts[name].append(table)
    counted = {name: tables.merge_rows(name, parts[name]) for name in tables.TABLES}
    begins = begins_in_time(latencies_by_kind(counted), sent["intended"], len(sent["seq"]), run)
    words = words_of(run)
    of_words = words.tables(
        words.merge([words.sent(sent), words.copies(received, begins)]),
        LOST_RANGES,
    )
    spool = Spool(Path())
    spans = spool_spans(
        spool, [*parts["spans"], *([of_words["spans"]] if "spans" in of_words else [])]
    )
    due = [spool.keep(pack(table)) for _, table in split("due", counted["due"])]
    for name in ("counts", "histograms"):
        counted[name] = tables.merge_rows(
            name, [counted[name], *([of_words[name]] if name in of_words else [])]
        )
    names = ("deliveries", "buckets", "reached", "pieces")
    merged = {
        name: tables.merge_rows(name, [of_words[name]] if name in of_words else [])
        for name in names
    }
    edges = of_words["edges"] if merged["deliveries"]["lost"].any() else None
    copies = copies_of(received, run)
    gaps = delivery_gaps(run, copies["subscription"], copies["topic"], gap_times(copies, run))
    return Answers(
        tables=counted,
        spans=spans,
        due=due,
        **merged,
        edges=edges,
        gaps=gaps,
        gaps_without_own=None,
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_tables_of_all_rows_are_the_measurements_of_the_definitions(shape: str) -> None:
    """They are equal to the bit, with loss, damage, and rows of other phases."""
    run = make_run(**SHAPES[shape])
    sent, received = (
        {name: np.asarray(column, np.int64) for name, column in rows.items()}
        for rows in generate(run, 3, again=0.0)
    )
    recorded = make_recorded(2)
    assert (
        differences(
            assemble(run, recorded, answers(run, sent, received)),
            measure(sent, received, run, recorded),
        )
        == []
    )


def test_lost_messages_of_neighbouring_words_are_one_range() -> None:
    """A range that goes over the end of a word is named once, with its first and its last message."""
    run = make_run(streams=1, topics=1, messages=200)
    sent, received = generate(run, 1, again=0.0)
    sent["status"] = np.zeros_like(sent["status"])
    kept = np.isin(received["seq"], np.arange(40, 150), invert=True)
    received = {name: column[kept] for name, column in received.items()}
    lost = assemble(run, make_recorded(1), answers(run, sent, received)).lost
    assert any(one.first <= 40 and one.last >= 149 for one in lost)
