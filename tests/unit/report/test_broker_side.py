"""What a broker said of itself, in one line and as properties."""

from __future__ import annotations

from typing import Any

from builders.documents import BOTTLENECK, document

from pytest_loadtest.report import broker_side, junit, terminal

SAID: dict[str, Any] = {
    **BOTTLENECK,
    "columns": {
        "sys.totalIn": [None, None, 6000], "sys.totalOut": [None, None, 12000], "sys.publishLatency": [None, 2_000_000, 4_000_000],
        "sys.ledgerLatency": [None, 1_880_000, 1_880_000], "sys.cpu": [None, 0.44, 0.5], "sys.heap": [1 << 20, 3 << 20, 2 << 20],
    },
}  # fmt: skip


def test_totals_medians_and_the_most_memory() -> None:
    told = "  broker     counted 6 000 in, 12 000 out; publish 3.00 ms, ledger 1.88 ms; 0.47 cores, heap up to 3.00 MiB"
    assert told in terminal.summary_lines(document(parts={"bottleneck": SAID}))
    found = dict(junit.junit_properties(document(parts={"bottleneck": SAID})))
    assert {name: value for name, value in found.items() if name.startswith("load.broker.")} == {
        "load.broker.counted.in": "6000", "load.broker.counted.out": "12000", "load.broker.publish.ms": "3.000",
        "load.broker.ledger.ms": "1.880", "load.broker.cores": "0.470",
    }  # fmt: skip


def test_a_broker_that_said_nothing_has_no_line() -> None:
    """Nor one of which only memory is known, as mosquitto's."""
    for section in (None, BOTTLENECK, {**BOTTLENECK, "columns": {"sys.heap": [5, 6]}}):
        assert list(broker_side.broker_lines(section)) == []
        assert broker_side.broker_properties(section) == []
