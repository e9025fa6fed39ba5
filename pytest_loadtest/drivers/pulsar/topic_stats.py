"""What the admin REST's statistics of a topic tell that ``/metrics/`` does not. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def columns(topics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Over all topics asked: chunks published a second, as the broker last reckoned it, and consumers that take nothing more: without
    permits, or held back because too many messages are unacknowledged.

    :param topics: answers of ``/admin/v2/…/TOPIC/stats``.
    """
    consumers = [one for topic in topics for sub in topic.get("subscriptions", {}).values() for one in sub.get("consumers", ())]
    chunks = [float(one["chunkedMessageRate"]) for topic in topics for one in topic.get("publishers", ()) if "chunkedMessageRate" in one]
    starved = [
        one["availablePermits"] <= 0 or bool(one.get("blockedConsumerOnUnackedMsgs")) for one in consumers if "availablePermits" in one
    ]
    found = {"sys.chunks": sum(chunks)} if chunks else {}
    return found | ({"sys.starved": float(sum(starved)), "sys.consumers": float(len(starved))} if starved else {})


def loaded_at(topics: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """When each was loaded: what it counts began then. Pulsar 4.0 does not tell."""
    return tuple(topic.get("topicCreationTimeStamp") for topic in topics)
