"""Texts of a run that several reports share."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from builders.documents import BACKLOG, NATIVE, PEAK, document, opening_document, stage
from builders.measurements import MS, made_bucket, spread

from pytest_loadtest.metrics.clocks import HostTime
from pytest_loadtest.metrics.silent import Silent, SilentPair, SilentStream
from pytest_loadtest.report import omb
from pytest_loadtest.report.figures import figures
from pytest_loadtest.report.hdr import latency_distribution
from pytest_loadtest.report.junit import junit_properties
from pytest_loadtest.report.sections import percentiles
from pytest_loadtest.report.terminal import summary_lines
from pytest_loadtest.values.units import Rate, ms

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument


def starting(found: list[str], word: str) -> str:
    return next(line for line in found if line.strip().startswith(word))


def test_stages_are_a_table_with_their_misses() -> None:
    """The headline counts them, too."""
    found = summary_lines(
        document(
            {"endToEndLatency": {"p99": "25ms"}},
            parts={"stages": (stage("ramp", {"loss": 0}), stage("spike"))},
        )
    )
    assert found[0].endswith("MISSED (1 of 23 objectives)")
    at = next(i for i, line in enumerate(found) if line.split()[:1] == ["stage"])
    assert found[at : at + 4] == [
        "     stage     for       offered     delivered  end-to-end p50      p99      max  lost",
        "  ✓  ramp   10.0 s  10.0 k msg/s  10.0 k msg/s         10.5 ms  19.8 ms  20.0 ms     0",
        "  ✗  spike  10.0 s  10.0 k msg/s  10.0 k msg/s         10.5 ms  19.8 ms  20.0 ms     0",
        "  ✗ stage spike: endToEndLatency.p99 19.8 ms > 15.0 ms: over by 32 % (100 000 samples)",
    ]


@pytest.mark.parametrize(
    ("section", "lost", "shown"),
    [
        ({"loss": 0}, 0, False),
        ({"loss": 0}, 7, True),
        ({"buckets": {"0-256": {"loss": 0}}}, 0, True),
    ],
)
def test_size_buckets_are_shown_if_one_has_an_objective_or_lost_messages(
    section: dict[str, Any], lost: int, shown: bool
) -> None:
    found = summary_lines(
        document(
            section,
            buckets=(
                made_bucket("0-256"),
                made_bucket("256-1KB", lost=lost, end_to_end=None, publish=None),
            ),
        )
    )
    table = [
        line.split("  ")
        for line in found
        if line.strip().startswith(("size bucket", "0-256", "256-1KB"))
    ]
    assert bool(table) is shown
    if lost:
        assert [cell.strip() for cell in table[2] if cell] == [
            "256-1KB",
            "50 000",
            "50 000",
            "50 000",
            "7",
            "-",
            "-",
            "-",
            "-",
        ]


def test_a_peak_comes_first_with_interval_limit_and_steps() -> None:
    found = summary_lines(document(parts={"peak": PEAK}))
    assert found[3:9] == [
        "  peak       19 843 msg/s, held for 60.0 s; 20 240 msg/s was missed",
        "             limit: the target; endToEndLatency.p99 broke first",
        "     step          rate     for     delivered",
        "  ✓     1  10 000 msg/s  30.0 s  10 000 msg/s  bracket",
        "  ✗     2  20 240 msg/s  30.0 s             -  bracket, ended early  endToEndLatency.p99 412 ms > 100 ms: 4.1 times the bound",
        "  ✓     3  19 843 msg/s  60.0 s  19 842 msg/s  confirm",
    ]


@pytest.mark.parametrize(
    ("changed", "answer", "limit"),
    [
        (
            {"limit": "generator", "at_least": True, "high": None},
            "at least 19 843 msg/s, held for 60.0 s",
            "limit: the generator, not the target: add workers (-n) to see more; endToEndLatency.p99 broke first",
        ),
        (
            {"limit": "maximum", "at_least": True, "high": None, "broke_first": None},
            "at least 19 843 msg/s, held for 60.0 s",
            "limit: search.max, not the target: raise it to see more",
        ),
        (
            {"confirmed": False, "rate": 312.5, "high": None},
            "312.5 msg/s, not confirmed by a longer hold",
            "limit: the target; endToEndLatency.p99 broke first",
        ),
        (
            {"limit": "none", "rate": None, "low": None, "high": 20_240.0},
            "none: no rate held",
            "limit: every rate tried missed an objective; endToEndLatency.p99 broke first",
        ),
    ],
)
def test_a_peak_has_its_limit(changed: dict[str, Any], answer: str, limit: str) -> None:
    """A rate that the target may exceed is "at least"."""
    found = summary_lines(document(parts={"peak": replace(PEAK, **changed)}))
    assert [line.strip() for line in found[3:5]] == [f"peak       {answer}", limit]


def test_a_peak_without_objectives_lists_the_implicit_ones() -> None:
    said = "the profile has no objectives, so the implicit ones had to hold: loss <= 0, corrupt <= 0, dropped <= 0, sent >= 99 %"
    found = summary_lines(document({}, parts={"peak": PEAK}))
    assert (
        found[5]
        == f"             {said}, throughput >= 95 %, failed <= 1 %, silent <= 0; there is no bound on latency"
    )
    assert "implicit ones" not in "\n".join(summary_lines(document(parts={"peak": PEAK})))


def test_a_peak_in_bytes_is_shown_in_bytes() -> None:
    facts = {"profile": {"name": "smoke", "search": {"start": "1048576B/s"}}}
    peak = replace(PEAK, rate=2e8, high=2.004e8)
    found = summary_lines(document(facts=facts, parts={"peak": peak}))
    # With three digits both would be 191 MiB/s; search.precision may be 0.1 %.
    assert starting(found, "peak") == "  peak       190.73 MiB/s; 191.12 MiB/s was missed"


def test_a_backlog_has_build_drain_and_publish_latency() -> None:
    found = summary_lines(document(parts={"backlog": BACKLOG}))
    assert starting(found, "backlog") == (
        "  backlog    1 048 576 deliveries, 1.00 GiB, built in 32.0 s, drained in 8.00 s at 131 k msg/s"
    )
    assert (
        starting(found, "publish latency")
        == "             publish latency during the drain: p50 6.25 ms, p99 11.9 ms"
    )
    given_up = replace(
        BACKLOG,
        drained=False,
        left=20_000,
        drain=None,
        waited=600_000 * MS,
        publish_during_drain=None,
    )
    shrinking = summary_lines(document(parts={"backlog": given_up}))
    assert (
        "built in 32.0 s, NOT drained within 10.0 min (backlogDrainTimeout; 20 000 still waiting, at most 10 000 are allowed)"
        in starting(shrinking, "backlog")
    )
    assert starting(shrinking, "publish latency").endswith("during the drain: not measured")
    stuck = summary_lines(
        document(parts={"backlog": replace(given_up, left=1_048_577, drain=math.inf)})
    )
    assert (
        "built in 32.0 s, never: it did not shrink, and was NOT drained within 10.0 min"
        in starting(stuck, "backlog")
    )


def test_a_drain_of_older_results_that_was_given_up_has_the_time_of_the_wait() -> None:
    found = document(parts={"backlog": BACKLOG})
    assert found.backlog is not None
    older = replace(
        found, backlog=replace(found.backlog, drained=False, left=20_000, drain=600_000 * MS)
    )
    assert "NOT drained within 10.0 min" in starting(summary_lines(older), "backlog")


def test_a_drain_left_open_by_second_copies_has_its_bounds() -> None:
    """Its rate is unknown, too."""
    unknown = replace(BACKLOG, drain=None, drained=None, left=None, drain_rate=None, uncounted=6000)
    for latest, words in ((9_000 * MS, "9.00 s"), (None, "an unknown time")):
        found = starting(
            summary_lines(
                document(parts={"backlog": replace(unknown, between=(8_000 * MS, latest))})
            ),
            "backlog",
        )
        assert found.endswith(
            f"drained between 8.00 s and {words} (6 000 second or doubtful copies) at an unknown rate"
        )


def test_custom_metrics_have_rows_in_their_order() -> None:
    """Their number of samples is unknown."""
    found = summary_lines(
        document(
            {"custom": {"gold.p99": "5ms"}},
            custom={"gold.p99": ms(3), "rate": Rate(5), "skew": -0.25, "none": None},
        )
    )
    at = found.index("  custom     gold.p99  3.00 ms")
    assert found[at + 1 : at + 4] == [
        "             rate      5 msg/s",
        "             skew      -0.25",
        "             none      no value",
    ]
    assert starting(found, "✓ custom.gold.p99").split() == [
        "✓",
        "custom.gold.p99",
        "3.00",
        "ms",
        "<=",
        "5.00",
        "ms",
        "-",
    ]


def test_silent_topics_and_streams_are_named() -> None:
    """A run without any has no such line."""
    silent = Silent(
        pairs=12,
        pairs_due=200,
        streams=1,
        streams_due=200,
        first_pairs=(SilentPair(17, 0), SilentPair(18, 0)),
        first_streams=(SilentStream(17, 17),),
    )
    found = starting(summary_lines(document(silent=silent)), "silent")
    counts = "12 of 200 subscriptions of topics, 1 of 200 streams"
    assert (
        found
        == f"  silent     {counts}: topic 17 subscription 0, topic 18 subscription 0, …; stream 17 of topic 17"
    )
    assert not [line for line in summary_lines(document()) if line.startswith("  silent")]


def connected(found: RunDocument) -> str:
    return next(line for line in summary_lines(found) if line.startswith("  connected"))


def test_a_run_with_connections_only_shows_nothing_else() -> None:
    found = summary_lines(opening_document())
    said = "1 000, 100 connections/s requested, 100 connections/s in 9.99 s (gw1 0.25 cores), held for 10.0 s, none lost after that"
    assert connected(opening_document()) == f"  connected  {said}"
    text = "\n".join(found)
    assert "connect  10.5 ms" in text
    assert not any(
        word in text for word in ("msg/s", "offered", "end-to-end", "publish", "received/s")
    )


def test_lost_connections_are_shown_if_they_are_known() -> None:
    assert connected(opening_document(losses=3)).endswith(", held for 10.0 s, 3 lost after that")
    assert connected(opening_document(losses=None)).endswith("held for 10.0 s")
    assert "1 000, as fast as possible, 100.1 connections/s in" in connected(
        opening_document(rate=None)
    )


def test_incidents_are_listed_with_their_numbers() -> None:
    """A run without any has no such line."""
    incidents = {"connection lost": 1200, "reconnect failed: Connection refused": 3}
    found = document({}, facts={"driver": NATIVE | {"incidents": incidents}})
    assert (
        "  incidents  1 200 × connection lost; 3 × reconnect failed: Connection refused"
        in summary_lines(found)
    )
    assert not any(
        "incidents" in line
        for line in summary_lines(document({}, facts={"driver": NATIVE | {"incidents": {}}}))
    )


def test_paced_connections_have_a_line_among_those_of_messages() -> None:
    text = "\n".join(summary_lines(opening_document(alone=False)))
    assert (
        "  connected  1 000, 100 connections/s requested, 100 connections/s in 9.99 s (gw1 0.25 cores), none lost"
        in text
    )
    assert "rate       offered 10.0 k msg/s" in text
    assert "connected" not in "\n".join(summary_lines(document()))


def test_latencies_of_clocks_that_disagree_are_unknown_in_every_report() -> None:
    """They came, so they are not "never"; and no statistic of them is a number."""
    run = document(end_to_end=replace(spread(1, 20), negative=5))
    lines = summary_lines(run)
    assert starting(lines, "end-to-end").split() == [
        "end-to-end",
        *["unknown"] * 6,
        "100",
        "000,",
        "clocks",
        "disagree",
    ]
    assert not any(line.startswith("  at target") for line in lines)
    assert percentiles(run.measurements.latencies["endToEnd"], "p99") == ("unknown", "unknown")
    assert not any(name.startswith("load.end_to_end") for name, _ in junit_properties(run))
    assert figures(run)["endToEndLatency.max"].value is None
    assert omb.test_result(run)["aggregatedEndToEndLatencyMax"] is None


def test_latencies_below_zero_within_the_error_of_the_clocks_are_known_in_every_report() -> None:
    """The verdict accepts them, so every report has them."""
    clock = HostTime(host="h1", error=100, round_trip=MS, holds=True)
    run = document(end_to_end=replace(spread(1, 20), negative=5, minimum=-10), clocks=(clock,))
    assert starting(summary_lines(run), "end-to-end").split()[1] == "10.5"
    assert dict(junit_properties(run))["load.end_to_end.p50.ms"] == "10.498"
    assert omb.test_result(run)["aggregatedEndToEndLatency50pct"] == pytest.approx(10.5, rel=0.001)
    assert latency_distribution(run.measurements.latencies["endToEnd"]) is not None
