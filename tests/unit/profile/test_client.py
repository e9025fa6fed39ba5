"""The client of a profile, and the reason for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers import driver_class, planned_facts
from pytest_loadtest.kinds.costs import cost_key
from pytest_loadtest.kinds.registry import kinds, shipped_costs
from pytest_loadtest.plan.plan import Plan, make_plan, profile_pool
from pytest_loadtest.plan.scaling import Machine
from pytest_loadtest.profile import Profile, from_document, loads
from pytest_loadtest.profile.client import models
from pytest_loadtest.profile.model import ClientChoice, choose_client
from pytest_loadtest.report.plan import plan_table

HERE = Machine(cores=2, memory=1 << 34)


def profile(**driver: Any) -> Profile:
    return from_document(
        {
            "name": "a",
            "messageSize": 100,
            "producerRate": 1000,
            "testDuration": "1s",
            "driver": driver,
        }
    )


def choice(**driver: Any) -> ClientChoice:
    return choose_client(profile(**driver))


def test_the_native_client_is_the_default_if_there_is_one() -> None:
    """Whatever other keys the section has."""
    for driver in (
        {"name": "pulsar"},
        {"name": "pulsar", "compression": "NONE", "ioThreads": 8},
        {"name": "mqtt", "qos": 0},
    ):
        assert choice(**driver) == ("native", "the default: it costs less CPU for a message")


@pytest.mark.parametrize("client", ["library", "native"])
@pytest.mark.parametrize("more", [{}, {"compression": "LZ4"}])
def test_the_client_in_the_profile_is_chosen(client: str, more: dict[str, Any]) -> None:
    """Keys that it lacks are reported as not applied, or are errors under strictTuning."""
    assert choice(name="pulsar", client=client, **more) == (client, "set in the profile")


@pytest.mark.parametrize("given", [{}, {"client": "library"}])
def test_the_relay_has_one_client_and_no_reason(given: dict[str, Any]) -> None:
    """There is no choice, so plans do not mention it."""
    assert choice(name="loopback", **given) == ("library", "")


@given(
    rate=st.integers(1, 10**6),
    scale=st.sampled_from([0.001, 0.5, 1.0, 2.0]),
    workers=st.integers(1, 16),
)
def test_the_choice_depends_on_the_profile_alone(rate: int, scale: float, workers: int) -> None:
    """Neither scale nor workers, nor reading the profile back from results, changes the client."""
    asked = profile(name="pulsar", compression="LZ4").model_copy(
        update={"producer_rate": float(rate)}
    )
    made = plan(asked, scale=scale, workers=workers).profile
    again = from_document(asked.document())
    assert {choose_client(one) for one in (asked, made, again)} == {
        choice(name="pulsar", compression="LZ4")
    }


def plan(profile: Profile, **more: Any) -> Plan:
    given: dict[str, Any] = {
        "workers": 1,
        "cost": shipped_costs()["pulsar"],
        "machine": HERE,
        "broker_here": True,
    } | more
    return make_plan(profile, profile_pool(profile), **given)


def test_the_plan_shows_the_client_and_the_reason() -> None:
    """In the line below its driver; the relay has no such line."""
    for driver, said in (
        (
            {"name": "pulsar", "client": "library"},
            ["client       library: set in the profile"],
        ),
        ({"name": "mqtt"}, ["client       native: the default: it costs less CPU for a message"]),
        ({"name": "loopback"}, []),
    ):
        made = plan(profile(**driver))
        shown = plan_table(made, planned_facts(made.profile), HERE)
        at = next(i for i, line in enumerate(shown) if line.startswith("driver"))
        assert (
            [line for line in shown if line.startswith("client")]
            == said
            == shown[at + 1 : at + 1 + len(said)]
        )


def test_a_profile_without_client_has_none_in_results() -> None:
    """Reading it back leaves the choice open."""
    assert "client" not in profile(name="pulsar").document()["driver"]
    assert (
        loads(
            "name: a\nmessageSize: 100\nproducerRate: 1\ntestDuration: 1s\ndriver: {name: pulsar}\n",
            "a.yaml",
        ).driver.client
        is None
    )


@pytest.mark.parametrize(
    "name", [kind.name for kind in kinds().values() if "native" in kind.clients]
)
def test_every_native_client_has_a_driver_and_costs(name: str) -> None:
    """For each QoS, if the kind has several."""
    assert driver_class(name, "native")
    rows = {cost_key(name, f"qos{qos}", "native") for qos in (0, 1, 2)}
    assert cost_key(name, "", "native") in shipped_costs() or rows <= set(shipped_costs())


@pytest.mark.parametrize("name", models())
def test_the_settings_of_each_kind_are_built(name: str) -> None:
    """Before pydantic 2.14 a profile whose settings are not cannot be written."""
    assert models()[name].__pydantic_complete__
