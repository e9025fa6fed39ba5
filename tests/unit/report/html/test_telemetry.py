"""The chapters on the broker's samples and on the generator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from builders.documents import BOTTLENECK, document
from builders.measurements import spread
from builders.report import broken
from builders.telemetry import made_telemetry, with_host

from pytest_loadtest.metrics.expected import WorkerEvidence
from pytest_loadtest.observe.conclusion import Bottleneck
from pytest_loadtest.report.bottleneck import bottleneck_section
from pytest_loadtest.report.html.blocks import ChartFigure, Fold, Paragraph
from pytest_loadtest.report.html.telemetry import GROUPS, broker_chapter, generator_chapter
from pytest_loadtest.report.tables import Table

if TYPE_CHECKING:
    from pytest_loadtest.metrics.histogram import Histogram


def test_a_run_that_was_not_sampled_says_so() -> None:
    (block,) = broker_chapter("run-1", document())
    assert isinstance(block, Paragraph)
    assert block.kind == "absent"


def test_a_column_without_a_sample_is_in_no_chart() -> None:
    columns = {**BOTTLENECK.columns, "broker.cpu": (None,) * len(BOTTLENECK.time)}
    run = document(parts={"bottleneck": replace(BOTTLENECK, columns=columns)})
    charts = {
        block.name: block.chart
        for block in broker_chapter("run-1", run)
        if isinstance(block, ChartFigure)
    }
    assert all(
        line["label"] != "broker.cpu" for chart in charts.values() for line in chart["series"]
    )


def test_every_sampled_column_is_in_the_table() -> None:
    run = document(parts={"bottleneck": BOTTLENECK})
    (fold,) = (block for block in broker_chapter("run-1", run) if isinstance(block, Fold))
    (table,) = fold.blocks
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == sorted(BOTTLENECK.columns)


def test_no_column_is_drawn_in_two_charts() -> None:
    columns = [column for _, _, names in GROUPS.values() for column in names]
    assert len(columns) == len(set(columns))


def test_hosts_have_charts_and_a_table() -> None:
    """A run on one host has neither."""
    telemetry = with_host(with_host(made_telemetry(), "h1", unsent=2**20), "h2")
    run = document(
        parts={
            "bottleneck": bottleneck_section(
                Bottleneck(conclusion="generator", evidence="busy"), telemetry
            )
        }
    )
    charts = {
        block.name: block.chart
        for block in broker_chapter("run-1", run)
        if isinstance(block, ChartFigure)
    }
    assert [line["label"] for line in charts["run-1-hosts"]["series"]] == ["host h1", "host h2"]
    assert [line["label"] for line in charts["run-1-hostQueues"]["series"]] == ["workers h1.unsent"]
    tables = [block for block in generator_chapter(run) if isinstance(block, Table)]
    assert [row[:2] for row in tables[1].rows] == [("h1", "1"), ("h2", "1"), ("controller", "1")]
    alone = document(parts={"bottleneck": BOTTLENECK})
    assert len([block for block in generator_chapter(alone) if isinstance(block, Table)]) == 1
    assert not any(
        "host" in block.name
        for block in broker_chapter("run-1", alone)
        if isinstance(block, ChartFigure)
    )


def test_the_table_of_workers_has_the_delays_that_were_measured() -> None:
    """A worker that sends nothing has no send delay; without kernel stamps nobody has a receive lag."""
    workers = [
        WorkerEvidence(worker=name, cpu=0.5 - i / 10, stalled=0, longest_stall=0, gc=0)
        for i, name in enumerate(("gw0", "gw1"))
    ]

    def table(*latencies: dict[str, Histogram]) -> Table:
        parts = tuple(
            replace(worker, latencies=own) for worker, own in zip(workers, latencies, strict=True)
        )
        (found,) = (
            block
            for block in generator_chapter(document(workers=parts))
            if isinstance(block, Table)
        )
        return found

    both = table(
        {"own_send_delay": spread(0, 10), "receive_lag": spread(0, 300)},
        {"receive_lag": spread(0, 700)},
    )
    assert list(both.head)[-2:] == ["own send delay p99", "receive lag p99"]
    assert [row[-2:] for row in both.rows] == [("9.90 ms", "297 ms"), ("–", "693 ms")]
    assert list(table({"own_send_delay": spread(0, 10)}, {}).head)[-1:] == ["own send delay p99"]


def test_a_broken_run_has_no_evidence_of_its_generator() -> None:
    (block,) = generator_chapter(broken())
    assert isinstance(block, Paragraph)
    assert block.kind == "absent"


def test_a_chart_that_leaves_out_workers_says_so() -> None:
    """More lines than roles could not be distinguished."""
    section = replace(
        BOTTLENECK,
        columns={
            f"worker gw{number}.busiestWanted": (0.1 + number / 100,) * 10 for number in range(16)
        },
    )
    made = replace(document(), bottleneck=section)
    (chart,) = (
        block.chart for block in broker_chapter("run-1", made) if isinstance(block, ChartFigure)
    )
    assert chart["summary"].endswith("; 8 of 16 lines are drawn.")
    assert chart["series"][0]["label"] == "worker gw15.busiestWanted"
