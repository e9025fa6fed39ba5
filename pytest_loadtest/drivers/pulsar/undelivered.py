"""The deliveries of a run that Pulsar still has to make.

They are known from the statistics of the run's topics (docs/decisions/032).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.drivers.base import DrainingRun, Undelivered
from pytest_loadtest.drivers.pulsar.admin import Admin
from pytest_loadtest.drivers.pulsar.names import own_topic

if TYPE_CHECKING:
    from collections.abc import Sequence


# Most topics, each partition counted: an answer costs the broker
# about 17 ms of CPU (docs/decisions/020).
MOST_TOPICS: Final = 64


def pulsar_undelivered(run: DrainingRun) -> Undelivered | None:
    """Ask for the statistics of each of the run's own persistent topics.

    None for other topics, for too many, and without an admin REST.

    :raises TargetError: the broker refuses or does not answer.
    :raises LookupError: the answer lacks a count.
    """
    topology = run.topology
    settings = run.settings
    url = run.target.admin_url
    if url is None or topology.name is not None or settings.topic_type != "persistent":
        return None
    if topology.topics * topology.partitions > MOST_TOPICS:
        return None
    names = [own_topic(settings, run.run, topology, index) for index in range(topology.topics)]
    if topology.partitions > 1:
        names = [
            f"{name}-partition-{partition}"
            for name in names
            for partition in range(topology.partitions)
        ]
    admin = Admin(url, settings)
    held = sum(backlog for backlog, _ in _subscriptions(admin, names, topology.subscriptions))
    if held:
        return Undelivered(held)
    # Read again: the numbers of one answer are not of one instant, and a message may have been sent
    # after its subscription's count of sent messages was read and been expired before the backlog
    # was. With all backlogs empty nothing is sent any more.
    again = _subscriptions(admin, names, topology.subscriptions)
    backlog = sum(backlog for backlog, _ in again)
    sent = sum(sent for _, sent in again)
    return Undelivered(backlog, sent)


def _subscriptions(admin: Admin, topics: Sequence[str], count: int) -> list[tuple[int, int]]:
    """Return backlog and messages sent of each subscription.

    :raises LookupError: a number is missing, or a topic does not have ``count`` subscriptions.
    """
    found = [
        _counts(subscription)
        for topic in topics
        for subscription in admin.stats(topic, precise=True)["subscriptions"].values()
    ]
    if len(found) != count * len(topics):
        raise LookupError(
            f"{len(found)} subscriptions of {len(topics)} topics, not {count} of each"
        )
    return found


def _counts(subscription: dict[str, Any]) -> tuple[int, int]:
    return int(subscription["msgBacklog"]), int(subscription["msgOutCounter"])
