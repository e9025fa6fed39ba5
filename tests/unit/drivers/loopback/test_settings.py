"""The driver section of the loopback relay."""

from __future__ import annotations

import pytest

from pytest_loadtest.drivers.loopback.settings import LoopbackSettings


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
