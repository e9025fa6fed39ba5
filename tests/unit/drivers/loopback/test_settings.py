"""The driver section of the loopback relay."""

from __future__ import annotations

import pytest

from pytest_loadtest import profile
from pytest_loadtest.drivers.loopback.settings import LoopbackSettings
from pytest_loadtest.errors import ProfileError


def test_only_faults_that_are_set_reach_the_relay() -> None:
    assert LoopbackSettings().broker_settings == {}
    settings = LoopbackSettings.model_validate(
        {"name": "loopback", "loseEvery": 3, "stall": {"at": "1s", "duration": "20ms"}}
    )
    assert settings.broker_settings == {"loseEvery": "3", "stallAt": "1s", "stallDuration": "20ms"}


@pytest.mark.parametrize(
    ("producers", "consumers", "workers", "connections"),
    [(5, 0, 2, 2), (1, 0, 2, 1), (0, 0, 4, 0), (3, 4, 16, 7)],
)
def test_a_worker_with_clients_has_one_connection(
    producers: int, consumers: int, workers: int, connections: int
) -> None:
    assert LoopbackSettings().connections(producers, consumers, workers) == connections


ROUTE = """
name: Orders are confirmed
route: {input: orders, output: confirmed, envelope: "json:/ref"}
messageSize: 100
producerRate: 5
testDuration: 5s
driver: {name: loopback, service: {lose: 500, slow: 100, threads: 2}}
"""


def test_a_service_in_the_relay_has_the_words_of_the_example() -> None:
    driver = profile.loads(ROUTE, "p.yaml").driver
    assert driver.broker_settings == {
        "serviceLose": "500",
        "serviceSlow": "100",
        "serviceThreads": "2",
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("route: {", "#", "driver.service: has no effect without route"),
        ("slow: 100, ", "", "driver.service.threads: has no effect without slow"),
        ("slow: 100, threads: 2", "slowBy: 1s", "driver.service.slowBy: has no effect without"),
        ("output: confirmed", "output: [a, b]", "sends each input on to one topic"),
        ('"json:/ref"', '{in: "json:/a", out: "json:/b"}', "in and out are one"),
        ("service:", "corruptHeaderEvery: 3, service:", "damages more than the token"),
        ("service:", "corruptBodyEvery: 3, service:", "damages more than the token"),
    ],
)
def test_settings_that_the_service_makes_meaningless_are_rejected(
    old: str, new: str, message: str
) -> None:
    assert old in ROUTE
    with pytest.raises(ProfileError, match=message):
        profile.loads(ROUTE.replace(old, new), "p.yaml")


def test_binary_envelopes_of_a_route_can_be_damaged() -> None:
    text = ROUTE.replace('"json:/ref"', "body").replace(
        "service:", "corruptHeaderEvery: 3, service:"
    )
    assert profile.loads(text, "p.yaml").route is not None
