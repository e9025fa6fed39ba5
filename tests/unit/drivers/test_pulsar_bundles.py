"""Whose bundles a run may look at, and what topics are called that fall where they are wanted."""

from __future__ import annotations

import pytest

from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.pulsar.bundle_admin import Bundles
from pytest_loadtest.drivers.pulsar.names import own_topic
from pytest_loadtest.errors import UsageError
from pytest_loadtest.models.bundles import LAST, position
from pytest_loadtest.profile.settings import MqttSettings, PulsarSettings
from pytest_loadtest.schedule.topology import Topology

REMEDY = "write target: {adminUrl: http://host:8080}, or pytest --load-admin-url"
HERE = TargetAddress(url="pulsar://h:6650", admin_url="http://h:8080/")


def topology(**more: object) -> Topology:
    return Topology(**{"topics": 2, "partitions": 1, "producers": 1, "subscriptions": 1, "consumers": 1} | more)  # type: ignore[arg-type]


def test_the_runs_own_namespace() -> None:
    """That which the driver makes."""
    bundles = Bundles.of_run(HERE, PulsarSettings(namespace_prefix="acme/load"), topology(), "r-1")
    assert bundles.namespace == "acme/load-r-1"


@pytest.mark.parametrize(
    ("target", "settings", "more", "said"),
    [
        (HERE, MqttSettings(), {}, "load.bundles: only Pulsar has bundles, not the driver mqtt"),
        (
            TargetAddress(url="pulsar://h:6650"), PulsarSettings(), {},
            f"load.bundles: bundles are seen and split by the admin REST, and pulsar://h:6650 comes without one: {REMEDY}",
        ),
        (HERE, PulsarSettings(), {"topics": 1, "name": "persistent://a/b/c"}, "load.bundles: persistent://a/b/c is in a namespace that is not the run's: leave topic out"),
    ],
    ids=["mqtt", "no admin URL", "somebody else's topic"],
)  # fmt: skip
def test_no_bundles_to_look_at(target: TargetAddress, settings: object, more: dict[str, object], said: str) -> None:
    """With what is missing."""
    with pytest.raises(UsageError) as error:
        Bundles.of_run(target, settings, topology(**more), "r")
    assert str(error.value) == said


def test_topics_have_names_for_their_places() -> None:
    """Twelve digits more; without places nothing is different."""
    settings = PulsarSettings(topic_type="non-persistent")
    names = [own_topic(settings, "r", topology(hashes=(7, LAST - 1)), index) for index in (0, 1)]
    assert [position(name) for name in names] == [7, LAST - 1]
    assert [name[:-13] for name in names] == [own_topic(settings, "r", topology(), index) for index in (0, 1)]
    assert names[1].startswith("non-persistent://public/loadtest-r/topic-1-")
