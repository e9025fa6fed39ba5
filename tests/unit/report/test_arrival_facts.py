"""The clock of arrivals, and the time at the target."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from builders.documents import FACTS, document
from builders.measurements import spread

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.report.arrival_facts import where_table
from pytest_loadtest.report.terminal import summary_lines

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        (
            {"stamps": "kernel", "unstamped": 0},
            ["  clock      arrivals and acknowledgements stamped by the kernel"],
        ),
        (
            {"stamps": "kernel", "unstamped": 1204},
            [
                "  clock      arrivals and acknowledgements stamped by the kernel; 1 204 reads stamped by the client (no usable stamp)"
            ],
        ),
        (
            {"stamps": "kernel", "unstamped": 1},
            [
                "  clock      arrivals and acknowledgements stamped by the kernel; 1 read stamped by the client (no usable stamp)"
            ],
        ),
        (
            {"stamps": "kernel", "unstamped": 0, "late_stamps": 12},
            [
                "  clock      arrivals and acknowledgements stamped by the kernel; 12 copies may have arrived earlier than stamped"
            ],
        ),
        (
            {"stamps": "client", "unstamped": None},
            ["  clock      arrivals and acknowledgements stamped by the client"],
        ),
        ({}, []),
    ],
    ids=["kernel", "some without", "one without", "some late", "client", "older results"],
)
def test_the_clock_of_arrivals_is_stated_if_it_is_known(
    facts: dict[str, Any], shown: list[str]
) -> None:
    found = summary_lines(document(facts={"driver": {"client": "native", "version": "1", **facts}}))
    assert [line for line in found if line.startswith("  clock ")] == shown


def test_the_time_at_the_target_is_shown_if_every_message_has_its_copies() -> None:
    """A difference of means: end-to-end less send delay, and the lag apart."""
    lines = summary_lines(document(receive_lag=spread(0.02, 0.06)))
    assert (
        next(line for line in lines if line.startswith("  at target"))
        == "  at target  10.00 ms on average from send to arrival, then 40.0 µs of receive lag"
    )
    routed = {**FACTS.profile, "route": {"input": "orders", "output": ["confirmed"]}}
    through = summary_lines(document(facts={"profile": routed}))
    assert "  route      orders → service → confirmed" in through
    (at_target,) = [line for line in through if line.startswith("  at target")]
    assert at_target.endswith(
        "10.00 ms on average from send to arrival, at broker and service together"
    )
    assert not [
        line
        for line in summary_lines(document(counts={"lost": 1, "received": 99_999}))
        if line.startswith("  at target")
    ]
    assert next(line for line in lines if "receive lag" in line).split()[:5] == [
        "receive",
        "lag",
        "40.0",
        "µs",
        "56.0",
    ]


TAPPED = {"toTap": spread(1, 3), "afterTap": spread(20, 30), "pastTap": spread(22, 32)}


def tapped(parts: dict[str, Any], **changed: Any) -> RunDocument:
    """A run with a tap. :param parts: its latencies, by their key."""
    kinds = {metric.key: kind for kind, metric in LATENCIES.items()}
    latencies = {kinds[key]: values for key, values in parts.items()}
    routed = {"input": "orders", "output": ["confirmed"], "tap": True}
    profile = {**FACTS.profile, "route": routed}
    return document(facts={"profile": profile}, tapped=True, **latencies, **changed)


def test_where_the_time_went_is_a_line_and_a_table() -> None:
    """The means add up; the parts are in no other table."""
    found = tapped({**TAPPED, "ownPastTap": spread(0, 4), "receiveLag": spread(0.02, 0.06)})
    lines = summary_lines(found)
    (where,) = [line for line in lines if "tap" in line]
    assert where == (
        "  where      27.0 ms end-to-end on average: 2.00 ms until the tap (send delay 500 µs of all sent,"
        " then broker), 25.0 ms from there on (service and broker); 2.00 ms of it by the generator"
    )
    assert not [line for line in lines if line.startswith("  at target")]
    table = where_table(found.measurements)
    assert table is not None
    assert [(row[0], row[1]) for row in table.rows] == [
        ("until the tap has it (send delay, broker)", "2.00 ms"),
        ("… send delay of all that were sent", "500 µs"),
        ("from there on (service, broker)", "25.0 ms"),
        ("end-to-end", "27.0 ms"),
        ("… of it own delays of the generator", "2.00 ms"),
        ("after it: receive lag", "40.0 µs"),
    ]
    assert where_table(document().measurements) is None


@pytest.mark.parametrize("part", ["toTap", "pastTap", "sendDelay", "endToEnd"])
def test_parts_by_clocks_that_disagree_are_unknown(part: str) -> None:
    found = tapped(TAPPED)
    latencies = dict(found.measurements.latencies)
    wrong = latencies[part]
    assert wrong is not None
    latencies[part] = replace(wrong, negative=1, percentiles=dict.fromkeys(wrong.percentiles))
    found = replace(found, measurements=replace(found.measurements, latencies=latencies))
    assert "  where      unknown: the clocks of hosts disagree" in summary_lines(found)
    assert where_table(found.measurements) is None


@pytest.mark.parametrize(
    ("parts", "missed"),
    [({**TAPPED, "pastTap": spread(22, 32, 99_990)}, "10"), ({}, "100 000")],
    ids=["some", "all"],
)
def test_what_the_tap_missed_is_stated(parts: dict[str, Any], missed: str) -> None:
    found = tapped(parts)
    (where,) = [line for line in summary_lines(found) if line.startswith("  where")]
    assert where.endswith(f"; the tap missed the messages of {missed} deliveries")
    assert "unknown on average" not in where
    assert found.verdict.outcome == document().verdict.outcome
