"""The request for a cluster, before any process starts."""

from __future__ import annotations

import pytest

from pytest_loadtest.drivers.pulsar.broker import BASE, configuration
from pytest_loadtest.drivers.pulsar.cluster import _CHOSEN, CLUSTER
from pytest_loadtest.errors import UsageError


@pytest.mark.parametrize(
    "key", ["clusterName", "bookiePort", "metadataStoreUrl", "journalDirectories"]
)
def test_addresses_and_folders_are_chosen_by_the_run(key: str) -> None:
    with pytest.raises(UsageError, match=f"^broker.settings: {key} of Pulsar is chosen per run"):
        configuration(BASE | CLUSTER | {key: "x"}, {}, {key: "x"}, managed=_CHOSEN)


def test_the_profile_has_the_last_word_on_everything_else() -> None:
    given = {"loadBalancerSheddingEnabled": "true", "maxMessageSize": "1000"}
    lines = configuration(
        BASE | CLUSTER | given, {"bookiePort": "1"}, given, managed=_CHOSEN
    ).splitlines()
    assert {
        "loadBalancerSheddingEnabled=true",
        "bookiePort=1",
        "maxMessageSize=1000",
        "nettyMaxFrameSizeBytes=11240",
    } <= set(lines)
