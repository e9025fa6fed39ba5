"""The heat map and the percentiles of blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from builders.documents import FACTS, RESTARTED, changed, document
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.histogram import hdr_index
from pytest_loadtest.metrics.series import SERIES_BITS
from pytest_loadtest.metrics.time_slices import over_time
from pytest_loadtest.report.build import build_document
from pytest_loadtest.report.hdr import encode_coarse_counts
from pytest_loadtest.report.html.over_time import (
    COLUMNS,
    MOST_BANDS,
    drawn_bands,
    events_table,
    find_bands,
    heat_map,
    lag_chart,
    percentile_chart,
    time_blocks,
)
from pytest_loadtest.report.measurements_section import MeasurementsSection, OverTimeSection
from pytest_loadtest.verdict.slo import Outcome, Verdict

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument


MS, SECOND = 1_000_000, 1_000_000_000


MEASURED = document().measurements
assert MEASURED is not None


def measured(latencies: list[tuple[int, int]], seconds: int = 10) -> MeasurementsSection:
    """Return the measurements of a run with these copies: second, and latency in ns."""
    second, latency = (np.array(column, np.int64) for column in zip(*latencies, strict=True))
    order = np.argsort(second, kind="stable")
    counted = over_time(second[order], hdr_index(latency, SERIES_BITS)[order])
    assert counted is not None
    length, blocks = counted.blocks(seconds * SECOND)
    texts = [encode_coarse_counts(block) if block else None for block in blocks]
    tops = [
        max((latency for at, latency in latencies if at == second), default=None)
        for second in range(seconds)
    ]
    series = replace(MEASURED.series, end_to_end_max=tuple(tops))
    return replace(
        MEASURED, over_time=OverTimeSection(block=length, end_to_end=tuple(texts)), series=series
    )


def heat_of(found: MeasurementsSection) -> dict[str, Any] | None:
    return heat_map(time_blocks(found), found, "run-1")


def percentiles_of(found: MeasurementsSection) -> dict[str, Any] | None:
    return percentile_chart(time_blocks(found), found, [], "run-1")


@given(st.lists(st.tuples(st.integers(0, 1999), st.integers(0, 10**11)), min_size=1, max_size=100))
def test_a_heat_map_counts_every_copy_once(latencies: list[tuple[int, int]]) -> None:
    """It is in the column of its second and in the row of its latency, even if blocks share a column."""
    found = heat_of(measured(latencies, seconds=2000))
    assert found is not None
    assert len(found["xs"]) <= COLUMNS
    assert sum(count for _, _, count in found["cells"]) == len(latencies)
    assert found["ys"] == sorted(set(found["ys"]))
    cells = {(x, y) for x, y, _ in found["cells"]}
    for second, latency in latencies:
        x = int(second // found["step"])
        assert any(
            (x, y) in cells and low <= latency < high
            for y, (low, high) in enumerate(zip(found["ys"], found["ys"][1:], strict=False))
        )


def test_an_octave_has_eight_rows() -> None:
    found = heat_of(measured([(0, MS), (9, 2 * MS)]))
    assert found is not None
    assert 8 <= len(found["ys"]) - 1 <= 10


def test_each_block_has_the_percentiles_of_its_own_copies() -> None:
    """A block without copies has none."""
    found = percentiles_of(measured([(0, MS)] * 99 + [(0, 50 * MS)] + [(2, 3 * MS)]))
    assert found is not None
    lines = {line["role"]: line["values"] for line in found["series"]}
    assert lines["p50"][1] is None
    assert abs(lines["p50"][0] - MS) < MS / 100
    assert abs(lines["p99.9"][0] - 50 * MS) < MS
    assert abs(lines["p50"][2] - 3 * MS) < MS / 30
    assert found["title"] == "Percentiles of end-to-end latency, each second"
    assert lines["max"] == [50 * MS, None, 3 * MS, *[None] * 7]


@given(st.lists(st.tuples(st.integers(0, 2999), st.integers(0, 10**11)), min_size=1, max_size=100))
def test_no_percentile_is_above_the_maximum(latencies: list[tuple[int, int]]) -> None:
    """The maximum of a block is exact, its percentiles are not."""
    found = percentiles_of(measured(latencies, seconds=3000))
    assert found is not None
    for line in found["series"]:
        for at, value in enumerate(line["values"]):
            assert value is None or value <= max(
                latency for second, latency in latencies if second // 3 == at
            )


def test_results_without_blocks_have_no_chart_of_them() -> None:
    assert MEASURED.over_time is None
    assert (heat_of(MEASURED), percentiles_of(MEASURED)) == (None, None)


S = 1_000_000_000
TIMELINE = {
    "stages": [
        {"name": "ramp", "start": 0, "end": 4 * S},
        {"name": "hold", "start": 4 * S, "end": 10 * S},
    ],
    "changes": [{"at": 5 * S, "text": "rate 12 000 msg/s"}],
    "restarts": [{"down": 6 * S, "ready": 8 * S}, {"down": 9 * S, "ready": None}],
    "stalls": [{"worker": "gw1", "start": S, "end": 2 * S}],
    "blocked": [{"start": 6 * S, "end": 9 * S}],
}


def made(missing: list[int] | None = None) -> RunDocument:
    """Return a run of ten seconds with every kind of event."""
    return changed(
        changed(document(), "timeline", TIMELINE), "measurements/series/missing", missing
    )


def test_every_kind_of_event_is_a_band() -> None:
    """A broker that did not come back is down until the end."""
    found = [
        (one["kind"], one["from"], one["to"], one["label"])
        for one in find_bands(made([0, 2, 3, -1, 0, 0, 1, 0, 0, 0]))
    ]
    assert found == [
        ("stage", 0, 4, "ramp"), ("stage", 4, 10, "hold"), ("change", 5, 5, "rate 12 000 msg/s"),
        ("restart", 6, 8, "ready 2.00 s later"), ("restart", 9, 10, "not ready again"), ("stall", 1, 2, "worker gw1"),
        ("blocked", 6, 9, "the target's window was full"), ("lost", 1, 3, "5 deliveries missing of those due here"),
        ("lost", 6, 7, "1 delivery missing of those due here"),
    ]  # fmt: skip


def test_events_are_listed_in_order_of_time() -> None:
    table = events_table(find_bands(made()))
    assert table is not None
    assert [row[:3] for row in table.rows] == [
        ("0.000 s", "4.00 s", "stage"), ("1.000 s", "1.00 s", "generator stalled"), ("4.000 s", "6.00 s", "stage"), ("5.000 s", "an instant", "change"),
        ("6.000 s", "2.00 s", "outage"), ("6.000 s", "3.00 s", "blocked"), ("9.000 s", "1.00 s", "outage"),
    ]  # fmt: skip


def test_a_run_without_events_has_no_table() -> None:
    """The same applies to a run that broke."""
    assert events_table(find_bands(document())) is None
    assert (
        find_bands(
            build_document(
                FACTS,
                Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died",)),
                None,
            )
        )
        == []
    )


def test_results_without_a_time_line_have_the_restarts_of_the_broker() -> None:
    old = document(facts={"broker": RESTARTED})
    assert old.timeline is None
    assert [(one["kind"], one["from"], one["to"]) for one in find_bands(old)] == [
        ("restart", 3.02, 7.13),
        ("restart", 9, 10),
    ]


def test_the_longest_of_too_many_bands_are_shown() -> None:
    """The caption tells how many are left out."""
    found = find_bands(made([1, 0] * MOST_BANDS + [1, 1, 1, 0]))
    lost = [one for one in drawn_bands(found) if one["kind"] == "lost"]
    assert len(lost) == MOST_BANDS
    assert lost[-1]["to"] - lost[-1]["from"] == 3
    table = events_table(found)
    assert table is not None
    assert table.caption.endswith("; 1 shorter ones are left out")


def test_moves_of_topics_are_bands_between_the_samples_that_differ() -> None:
    """Counts begin at zero with the phase."""
    columns = {
        "broker 1.gained": (0, 0, None, 3), "broker 2.gained": (2, 2, 2, 2), "sys.reopened": (0, 0, 0, 1), "sys.bundles": (None, 8, 9, 9),
    }  # fmt: skip
    sampled = {
        "conclusion": None,
        "evidence": "",
        "also": [],
        "missing": [],
        "cost": 0,
        "time": [S, 2 * S, 3 * S, 4 * S],
        "columns": columns,
    }
    found = find_bands(changed(document(), "bottleneck", sampled))
    assert [(one["from"], one["to"], one["label"]) for one in found if one["kind"] == "move"] == [
        (2, 4, "3 to broker 1"), (0, 1, "2 to broker 2"), (3, 4, "1 closed and opened again"), (2, 3, "bundles 8 → 9"),
    ]  # fmt: skip


def test_the_receive_lag_of_each_second_is_drawn_where_it_is_known() -> None:
    assert lag_chart(MEASURED, "run-1") is None
    known = replace(
        MEASURED, series=replace(MEASURED.series, receive_lag_max=(40_000, None, 7 * MS))
    )
    chart = lag_chart(known, "run-1")
    assert chart is not None
    assert chart["summary"] == "max 40.0 µs to 7.00 ms."
    assert (
        lag_chart(
            replace(MEASURED, series=replace(MEASURED.series, receive_lag_max=(None, None))),
            "run-1",
        )
        is None
    )
