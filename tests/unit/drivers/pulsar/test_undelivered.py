"""What Pulsar has yet to deliver, by answers of its admin REST."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pulsar_rest import rest

from pytest_loadtest.drivers.base import DrainingRun, TargetAddress, Undelivered
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.drivers.pulsar.undelivered import MOST_TOPICS, pulsar_undelivered
from pytest_loadtest.errors import TargetError
from pytest_loadtest.schedule.topology import Topology

ONE = Topology(topics=1, partitions=1, producers=1, subscriptions=2, consumers=1)


def run(url: str | None, topology: Topology = ONE, **settings: Any) -> DrainingRun:
    return DrainingRun(
        target=TargetAddress(url="pulsar://h", admin_url=url),
        settings=PulsarSettings(**settings),
        run="r",
        topology=topology,
    )


def path(topic: str) -> str:
    return f"GET /admin/v2/persistent/{PulsarSettings().namespace_prefix}-r/{topic}/stats?getPreciseBacklog=true"


def stats(*subscriptions: tuple[int, int]) -> tuple[int, object]:
    return 200, {
        "subscriptions": {
            f"s{i}": {"msgBacklog": held, "msgOutCounter": sent}
            for i, (held, sent) in enumerate(subscriptions)
        }
    }


def test_backlogs_are_held_and_not_compared_with_what_was_sent() -> None:
    with rest({path("topic-0"): stats((0, 9), (3, 6))}) as (url, asked):
        assert pulsar_undelivered(run(url)) == Undelivered(3)
        assert len(asked) == 1


def test_sent_messages_are_read_again_once_all_backlogs_are_empty() -> None:
    """In one answer the count may be older than the backlog."""
    with rest({path("topic-0"): stats((0, 9), (0, 8))}) as (url, asked):
        assert pulsar_undelivered(run(url)) == Undelivered(0, 17)
        assert len(asked) == 2


def test_each_partition_of_each_topic_is_asked() -> None:
    names = [f"topic-{topic}-partition-{partition}" for topic in range(2) for partition in range(3)]
    with rest({path(name): stats((0, 1), (0, 1)) for name in names}) as (url, asked):
        assert pulsar_undelivered(run(url, replace(ONE, topics=2, partitions=3))) == Undelivered(
            0, 12
        )
        assert {what for what, _, _ in asked} == set(map(path, names))


@pytest.mark.parametrize(
    ("topology", "settings"),
    [
        (replace(ONE, name="persistent://public/default/theirs"), {}),
        (replace(ONE, topics=MOST_TOPICS // 2 + 1, partitions=2), {}),
        (ONE, {"topic_type": "non-persistent"}),
    ],
)
def test_other_topics_and_too_many_are_not_asked(
    topology: Topology, settings: dict[str, Any]
) -> None:
    with rest({}) as (url, asked):
        assert pulsar_undelivered(run(url, topology, **settings)) is None
        assert not asked


def test_without_an_admin_rest_nothing_is_known() -> None:
    assert pulsar_undelivered(run(None)) is None


def test_a_missing_topic_or_subscription_is_no_answer() -> None:
    """A topic is not loaded while another broker takes it over."""
    with (
        rest({path("topic-0"): stats((0, 9))}) as (url, _),
        pytest.raises(LookupError, match="1 subscriptions of 1 topics, not 2 of each"),
    ):
        pulsar_undelivered(run(url))
    with (
        rest({path("topic-0"): (404, {"reason": "Topic not found"})}) as (url, _),
        pytest.raises(TargetError, match="Topic not found"),
    ):
        pulsar_undelivered(run(url))
