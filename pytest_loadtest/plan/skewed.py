"""What a profile's ``skew`` makes of the plan: whose turn each message is, and which payloads a topic has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_loadtest.schedule.stream_order import Turns

if TYPE_CHECKING:
    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Topology


def turns_of(profile: Profile, topology: Topology, rate: float) -> Turns | None:
    """By the weights of topics, which all producers of a topic have alike; None where topics have the same share.

    :param rate: msg/s, all streams together.
    """
    skew = profile.skew
    if skew is None or not topology.streams or (skew.weights is None and skew.zipf is None):
        return None
    return Turns.weighted(skew.shares(topology.topics), swing=skew.period(rate), times=topology.producers)


def skewed_pool(profile: Profile, pool: PayloadPool) -> PayloadPool:
    """The pool, where topics have sizes of their own with the size bucket of each of them."""
    sizes = profile.skew and profile.skew.message_sizes
    if not sizes:
        return pool
    return replace(pool, of_topics=tuple(pool.bucket_names.index(str(size)) for size in sizes))
