"""What Pulsar says of its index of delayed messages, in the stats of the run's topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.drivers.pulsar.admin import Admin
from pytest_loadtest.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.profile.settings import PulsarSettings

DELAYED, INDEX = "sys.delayed", "sys.delayedIndex"
"""Columns: messages delayed, once for each subscription, and bytes of the index."""


class DelayedIndexSource:
    """Asks the admin REST for the stats of topics.

    :param topics: full names; of a partitioned topic, of each partition.
    """

    missing: Sequence[str] = ()

    def __init__(self, admin_url: str, settings: PulsarSettings, topics: Sequence[str]) -> None:
        self._admin, self._topics = Admin(admin_url, settings), topics

    def read(self, now: int) -> Mapping[str, float]:
        """Both columns; neither while a topic does not answer, as in a restart."""
        try:
            found = [indexed(self._admin.stats(topic)) for topic in self._topics]
        except TargetError:
            return {}
        return {DELAYED: sum(messages for messages, _ in found), INDEX: sum(size for _, size in found)}

    def close(self) -> None:
        """Nothing is open."""


def indexed(stats: Mapping[str, Any]) -> tuple[int, int]:
    """Messages delayed, over all subscriptions, and bytes of their index. :param stats: of one topic, as the admin REST has them."""
    delayed = sum(subscription.get("msgDelayed", 0) for subscription in stats["subscriptions"].values())
    return delayed, int(stats.get("delayedMessageIndexSizeInBytes", 0))
