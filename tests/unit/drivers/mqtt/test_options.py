"""Settings of a profile become options of clients, and facts say what is applied of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqtt_rig import ONE, context

from pytest_loadtest.drivers.base import TopicNames
from pytest_loadtest.drivers.mqtt.native.driver import NativeMqttDriver
from pytest_loadtest.drivers.mqtt.options import (
    client_options,
    is_shared,
    output_numbers,
    topic_filters,
)
from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.errors import UsageError
from pytest_loadtest.message.route import Route


def test_facts_have_every_setting_except_the_password() -> None:
    """They need no connection."""
    facts = PahoMqttDriver(
        context(sessionExpiry="1h", receiveMaximum=9, username="anna", password="secret")
    ).facts()
    assert facts.client == "paho-mqtt"
    assert facts.applied["sessionExpiry"] == "60.0 min"
    assert facts.applied["receiveMaximum"] == "9"
    assert facts.applied["maxInflightMessages"] == "20"
    assert facts.applied["username"] == "anna"
    assert facts.not_applied == {}
    assert "secret" not in str(facts)


def test_settings_that_3_1_1_does_not_have_are_not_applied() -> None:
    """They have a reason, like partitions in every version."""
    facts = PahoMqttDriver(
        context(
            protocolVersion="3.1.1",
            sessionExpiry="1h",
            receiveMaximum=9,
            topology=replace(ONE, partitions=4),
        )
    ).facts()
    assert set(facts.not_applied) == {"sessionExpiry", "receiveMaximum", "partitionsPerTopic"}


@pytest.mark.parametrize(
    ("given", "durable"),
    [
        ({"cleanStart": False}, False),
        ({"cleanStart": False, "sessionExpiry": "1h"}, True),
        ({"sessionExpiry": "1h"}, True),
        ({"protocolVersion": "3.1.1", "cleanStart": False}, True),
        ({"protocolVersion": "3.1.1"}, False),
    ],
)
def test_a_session_outlives_its_connection_by_its_expiry(
    given: dict[str, Any], durable: bool
) -> None:
    """MQTT 3.1.1 has no expiry: there a session that does not start clean stays."""
    assert client_options(context(**given)).durable is durable


@pytest.mark.parametrize(
    ("given", "ordered", "shared"),
    [
        ({}, True, False),
        ({}, False, True),
        ({"sharedSubscription": True}, True, True),
        ({"sharedSubscription": False}, True, False),
    ],
)
def test_consumers_share_as_the_profile_says(
    given: dict[str, Any], ordered: bool, shared: bool
) -> None:
    """By default they share if order is not judged, which is the case for several consumers."""
    assert is_shared(context(ordered=ordered, **given)) is shared


@pytest.mark.parametrize("kind", [PahoMqttDriver, NativeMqttDriver])
def test_a_route_has_other_topics_for_consumers_than_for_producers(kind: type[Any]) -> None:
    """Without one they are the run's own topics."""
    ours = context(topology=replace(ONE, topics=2))
    own = kind(ours).topic_names()
    assert own == TopicNames(inputs=("loadtest/r1/0", "loadtest/r1/1"), outputs=own.inputs)
    through = replace(ours, route=Route(input="in/{topic}", output=("out/{topic}",)))
    names = kind(through).topic_names()
    assert names == TopicNames(inputs=("in/0", "in/1"), outputs=("out/0", "out/1"))
    several = Route(input="in/{topic}", output=("yes/{topic}", "no/{topic}"))
    names = kind(replace(ours, route=several)).topic_names()
    assert names.outputs == ("yes/0", "no/0", "yes/1", "no/1")


def test_a_consumer_subscribes_to_all_outputs_of_its_topic() -> None:
    route = Route(input="in/{topic}", output=("yes/{topic}", "no/{topic}"))
    ours = replace(context(topology=replace(ONE, topics=2)), route=route)
    assert topic_filters(ours, 1, shared=False) == ("yes/1", "no/1")
    assert topic_filters(ours, 0, shared=True) == (
        "$share/r1-00000007-sub-0/yes/0",
        "$share/r1-00000007-sub-0/no/0",
    )
    assert output_numbers(ours) == {b"yes/0": 0, b"no/0": 1, b"yes/1": 0, b"no/1": 1}
    assert output_numbers(replace(ours, route=None)) == {}


def test_an_existing_topic_keeps_its_name() -> None:
    """The group of a shared subscription contains the run there; on topics of the run the topic does."""
    ours = replace(ONE, subscriptions=4)
    theirs = replace(ours, name="plant/1/t")
    filters = [
        topic_filters(context(topology=topology), 3, shared=shared)[0]
        for topology in (theirs, ours)
        for shared in (False, True)
    ]
    assert filters == [
        "plant/1/t",
        "$share/r1-00000007-sub-3/plant/1/t",
        "loadtest/r1/0",
        "$share/sub-3/loadtest/r1/0",
    ]
    facts = PahoMqttDriver(context(topicPrefix="x", topology=theirs)).facts()
    assert (facts.applied["topic"], facts.not_applied) == (
        "plant/1/t",
        {"topicPrefix": "the topic has its own name"},
    )


def test_retain_is_rejected_on_an_existing_topic() -> None:
    """It would replace the retained message, which could not be restored."""
    with pytest.raises(
        UsageError,
        match=r"retain: true would replace the retained message of .*'plant/1/t': leave out retain",
    ):
        PahoMqttDriver(context(retain=True, topology=replace(ONE, name="plant/1/t")))


def test_a_window_is_not_applied_at_qos_0() -> None:
    """It is reported only if the profile sets it."""
    assert set(PahoMqttDriver(context(qos=0, maxInflightMessages=9)).facts().not_applied) == {
        "maxInflightMessages"
    }
    assert PahoMqttDriver(context(qos=0)).facts().not_applied == {}
