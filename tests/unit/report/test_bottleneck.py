"""The section ``bottleneck``, and the broker's own numbers."""

from __future__ import annotations

from dataclasses import replace

from builders.documents import BOTTLENECK, PEAK, document

from pytest_loadtest.report import bottleneck, junit, terminal
from pytest_loadtest.report.bottleneck import peak_bottleneck

FOUND = document(parts={"peak": PEAK}).peak
assert FOUND is not None


def test_a_search_has_the_bottleneck_of_the_step_above_the_peak() -> None:
    """The second step, at 20 240 msg/s, was missed; the step at the peak itself held."""
    sections = {1: None, 2: BOTTLENECK, 3: replace(BOTTLENECK, conclusion="network")}
    found = peak_bottleneck(FOUND, sections.get)
    assert found == replace(
        BOTTLENECK, evidence=f"at 20 240 msg/s, which was missed: {BOTTLENECK.evidence}"
    )


def test_a_step_without_a_conclusion_is_no_bottleneck() -> None:
    """It ended too early, or nothing was missed."""
    short = replace(BOTTLENECK, conclusion=None)
    assert peak_bottleneck(FOUND, {2: short}.get) is None
    assert peak_bottleneck(FOUND, lambda _: None) is None
    assert peak_bottleneck(replace(FOUND, high=None), {2: BOTTLENECK}.get) is None


SAID = replace(
    BOTTLENECK,
    columns={
        "sys.totalIn": (None, None, 6000), "sys.totalOut": (None, None, 12000), "sys.publishLatency": (None, 2_000_000, 4_000_000),
        "sys.ledgerLatency": (None, 1_880_000, 1_880_000), "sys.cpu": (None, 0.44, 0.5), "sys.heap": (1 << 20, 3 << 20, 2 << 20),
    },
)  # fmt: skip


def test_the_broker_line_has_totals_medians_and_peak_memory() -> None:
    told = "  broker     counted 6 000 in, 12 000 out; publish 3.00 ms, ledger 1.88 ms; 0.47 cores, heap up to 3.00 MiB"
    assert told in terminal.summary_lines(document(parts={"bottleneck": SAID}))
    found = dict(junit.junit_properties(document(parts={"bottleneck": SAID})))
    assert {name: value for name, value in found.items() if name.startswith("load.broker.")} == {
        "load.broker.counted.in": "6000", "load.broker.counted.out": "12000", "load.broker.publish.ms": "3.000",
        "load.broker.ledger.ms": "1.880", "load.broker.cores": "0.470",
    }  # fmt: skip


def test_a_broker_without_numbers_has_no_line() -> None:
    """The same applies if only memory is known, as for mosquitto."""
    for section in (None, BOTTLENECK, replace(BOTTLENECK, columns={"sys.heap": (5, 6)})):
        assert list(bottleneck.broker_facts(section)) == []
        assert bottleneck.broker_properties(section) == []
