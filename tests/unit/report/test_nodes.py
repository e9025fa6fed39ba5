"""The processes of a cluster: what each of them used."""

from __future__ import annotations

from builders.documents import BOTTLENECK, document

from pytest_loadtest.observe.conclusion import Bottleneck
from pytest_loadtest.observe.telemetry import Telemetry
from pytest_loadtest.report.bottleneck import bottleneck_section
from pytest_loadtest.report.nodes import node_facts, node_uses
from pytest_loadtest.report.terminal import summary_lines


def test_a_single_broker_has_no_rows() -> None:
    assert node_uses(document(parts={"bottleneck": BOTTLENECK})) == []
    assert list(node_facts(document())) == []


ROWS = [
    {
        "broker.memory": 9.0,
        "worker gw0.memory": 9.0,
        "ZooKeeper.memory": 2.0**20,
        "broker 1.memory": 2.0**20,
        "broker 1.topics": 4.0,
    },
    {
        "broker 1.memory": 2.0**21,
        "broker 1.cpu": 0.5,
        "broker 1.messagesIn": 100.0,
        "broker 1.topics": 8.0,
        "broker 2.topics": 4.0,
    },
]


def test_each_process_has_a_row_and_what_is_unknown_is_empty() -> None:
    """Medians, maxima and means; topics at the begin and at the end. The sum over all processes and the workers are not among them."""
    section = bottleneck_section(
        Bottleneck(conclusion="none", evidence=""), Telemetry.of_rows([0, 10**9], ROWS)
    )
    run = document(parts={"bottleneck": section})
    assert [use.cells for use in node_uses(run)] == [
        ("ZooKeeper", "", "1.00 MiB", "", "", "", ""),
        ("broker 1", "0.50", "2.00 MiB", "", "100 msg/s", "", "4 → 8"),
        ("broker 2", "", "", "", "", "", "4"),
    ]
    assert (
        "  nodes      ZooKeeper 1.00 MiB; broker 1 0.50 cores, 2.00 MiB, topics 4 → 8; broker 2 topics 4"
        in summary_lines(run)
    )
