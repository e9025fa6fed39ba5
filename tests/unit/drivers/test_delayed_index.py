"""What the stats of topics say of the index of delayed messages."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_loadtest.drivers.pulsar import delayed_index
from pytest_loadtest.drivers.pulsar.delayed_index import DELAYED, INDEX, DelayedIndexSource, indexed
from pytest_loadtest.drivers.pulsar.names import topics_of
from pytest_loadtest.errors import TargetError
from pytest_loadtest.profile.settings import PulsarSettings
from pytest_loadtest.schedule.topology import Topology

STATS = {"subscriptions": {"a": {"msgDelayed": 70}, "b": {"msgDelayed": 30}, "c": {}}, "delayedMessageIndexSizeInBytes": 250}


def test_all_subscriptions_of_a_topic() -> None:
    """A message counts once for each; brokers that do not tell the size of the index have none."""
    assert indexed(STATS) == (100, 250)
    assert indexed({"subscriptions": {}}) == (0, 0)


def test_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sum; while one does not answer, nothing is known."""
    answers: list[Any] = [STATS, STATS, STATS, TargetError("restarting")]

    def stats(_admin: Any, _topic: str) -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(delayed_index.Admin, "stats", stats)
    source = DelayedIndexSource("http://h:1", PulsarSettings(), ["one", "two"])
    assert source.read(0) == {DELAYED: 200, INDEX: 500}
    assert source.read(1) == {}
    assert list(source.missing) == []
    source.close()


@pytest.mark.parametrize(("partitions", "name", "topics"), [
    (1, None, ["persistent://public/loadtest-r/topic-0", "persistent://public/loadtest-r/topic-1"]),
    (2, None, [f"persistent://public/loadtest-r/topic-{i}-partition-{j}" for i in range(2) for j in range(2)]),
    (1, "persistent://a/b/c", ["persistent://a/b/c"]),
])  # fmt: skip
def test_the_topics_of_a_run(partitions: int, name: str | None, topics: list[str]) -> None:
    """Each partition has an index of its own."""
    topology = Topology(topics=2, partitions=partitions, producers=1, subscriptions=1, consumers=1, name=name)
    assert topics_of(PulsarSettings(), "r", topology) == topics
