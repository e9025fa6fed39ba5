"""CPU by calibrated cost."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.kinds.costs import Cost, cost_key
from pytest_loadtest.kinds.registry import shipped_costs

COST = Cost(produce=100, consume=50, broker=40, per_byte=2)


def test_cores_are_those_of_sender_receivers_broker_and_bytes() -> None:
    """The broker counts only if it is on this machine."""
    assert COST.cores(1e6, 1, 0, broker_here=False) == pytest.approx(0.15)
    assert COST.cores(1e6, 1, 0, broker_here=True) == pytest.approx(0.19)
    assert COST.cores(1e6, 3, 100, broker_here=True) == pytest.approx(0.1 + 0.15 + 0.08 + 0.4)


def test_twice_the_workers_have_half_the_work_each() -> None:
    assert COST.busiest_worker(1e6, 2, 100, 1) == pytest.approx(
        2 * COST.busiest_worker(1e6, 2, 100, 2)
    )
    assert COST.busiest_worker(1e6, 3, 100, 1) == pytest.approx(
        0.1 + 0.15 + 0.2
    )  # half of the bytes' cost is the broker's


figures = st.floats(0, 1e6)
costs = st.builds(
    Cost, produce=figures, consume=figures, broker=figures, per_byte=figures, shared=st.floats(0, 1)
)


@given(
    cost=costs,
    fan_out=st.integers(0, 5),
    here=st.booleans(),
    batches=st.lists(st.floats(1, 1e6), min_size=2, max_size=2),
)
def test_a_larger_batch_never_costs_more(
    cost: Cost, fan_out: int, here: bool, batches: list[float]
) -> None:
    """And never less than the bytes and the part of each message that is not shared."""
    small, big = sorted(batches)
    alone = replace(
        cost,
        shared=0.0,
        produce=cost.produce * (1 - cost.shared),
        consume=cost.consume * (1 - cost.shared),
        broker=0.0,
    )
    little = 1 + 1e-9
    for of in (partial(Cost.cores, broker_here=here), partial(Cost.busiest_worker, workers=3)):
        dear, cheap = (
            of(cost, rate=1e6, fan_out=fan_out, size=100, batch=batch) for batch in (small, big)
        )
        assert of(alone, rate=1e6, fan_out=fan_out, size=100) <= cheap * little
        assert cheap <= dear * little


@given(cost=costs, fan_out=st.integers(0, 5), here=st.booleans())
def test_a_batch_of_one_has_the_full_costs(cost: Cost, fan_out: int, here: bool) -> None:
    """So has a message in any batch if nothing is shared."""
    plain = replace(cost, shared=0.0)
    for of in (partial(Cost.cores, broker_here=here), partial(Cost.busiest_worker, workers=3)):
        expected = of(plain, rate=1e6, fan_out=fan_out, size=100)
        assert of(cost, rate=1e6, fan_out=fan_out, size=100, batch=1.0) == pytest.approx(expected)
        assert of(plain, rate=1e6, fan_out=fan_out, size=100, batch=77.0) == expected


def test_the_messages_of_a_batch_share_their_part_of_the_cost() -> None:
    """Three quarters of the cost of a message, but none of its bytes."""
    cost = replace(COST, shared=0.75)
    assert cost.cores(1e6, 1, 10, broker_here=False, batch=3) == pytest.approx(
        0.15 * (0.25 + 0.25) + 0.02
    )
    assert cost.cores(1e6, 3, 0, broker_here=True, batch=1e12) == pytest.approx(
        0.25 * COST.cores(1e6, 3, 0, broker_here=True)
    )
    assert cost.busiest_worker(1e6, 1, 10, 2, batch=3) == pytest.approx((0.15 * 0.5 + 0.01) / 2)


def test_a_cost_survives_json() -> None:
    """A document without a figure is an error."""
    assert Cost.of(COST.document()) == COST
    assert Cost.of(replace(COST, shared=0.5).document(), shared=0.9).shared == 0.5
    with pytest.raises(KeyError):
        Cost.of({"produce": 1.0})


def test_a_document_without_a_share_has_the_default_one() -> None:
    document = {name: figure for name, figure in COST.document().items() if name != "shared"}
    assert Cost.of(document) == COST
    assert Cost.of(document, shared=0.99) == replace(COST, shared=0.99)


def test_every_driver_and_client_has_a_cost() -> None:
    """MQTT by QoS: a higher one never costs less."""
    mqtt = (
        cost_key("mqtt", f"qos{qos}", client)
        for qos in (0, 1, 2)
        for client in ("library", "native")
    )
    assert {
        cost_key("pulsar"),
        cost_key("pulsar", "", "native"),
        cost_key("loopback"),
        *mqtt,
    } == set(shipped_costs())
    assert {key for key, cost in shipped_costs().items() if cost.shared} == {"pulsar-native"}
    library, native = (
        shipped_costs()[key].cores(1e6, 1, 100, broker_here=True, batch=100)
        for key in ("pulsar", "pulsar-native")
    )
    assert native < library / 20
    for of in ("mqtt", "mqtt-native"):
        assert (
            shipped_costs()[f"{of}-qos0"].produce
            < shipped_costs()[f"{of}-qos1"].produce
            < shipped_costs()[f"{of}-qos2"].produce
        )
