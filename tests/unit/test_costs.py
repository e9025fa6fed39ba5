"""CPU by calibrated cost."""

from __future__ import annotations

import pytest

from pytest_loadtest.costs import SHIPPED, Cost, cost_key

COST = Cost(produce=100, consume=50, broker=40, per_byte=2)


def test_cores_add_up() -> None:
    """Sender, every copy's receiver, the broker where it is here, and bytes each way."""
    assert COST.cores(1e6, 1, 0, broker_here=False) == pytest.approx(0.15)
    assert COST.cores(1e6, 1, 0, broker_here=True) == pytest.approx(0.19)
    assert COST.cores(1e6, 3, 100, broker_here=True) == pytest.approx(0.1 + 0.15 + 0.08 + 0.4)


def test_a_worker_gets_its_share() -> None:
    """Twice the workers, half the work of each."""
    assert COST.busiest_worker(1e6, 2, 100, 1) == pytest.approx(2 * COST.busiest_worker(1e6, 2, 100, 2))


def test_as_a_document_and_back() -> None:
    """A calibrated row survives JSON; a row that lacks a figure is refused."""
    assert Cost.of(COST.document()) == COST
    with pytest.raises(KeyError):
        Cost.of({"produce": 1.0})


def test_every_driver_has_a_row() -> None:
    """The table has every driver, MQTT by QoS; more assured delivery never costs less."""
    assert {cost_key("pulsar", None), cost_key("loopback", None), *(cost_key("mqtt", qos) for qos in (0, 1, 2))} == set(SHIPPED)
    assert SHIPPED["mqtt-qos0"].produce < SHIPPED["mqtt-qos1"].produce < SHIPPED["mqtt-qos2"].produce
