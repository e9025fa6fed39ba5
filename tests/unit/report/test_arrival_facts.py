"""The clock of arrivals, and the time at the target."""

from __future__ import annotations

from typing import Any

import pytest
from builders.documents import FACTS, document
from builders.measurements import spread

from pytest_loadtest.report.terminal import summary_lines


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
