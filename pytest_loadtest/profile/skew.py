"""Checks of ``skew`` against the other keys of a profile.

The rule: topics can differ only if each has its own messages, at rates that are paced in messages.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_loadtest.errors import Problem
from pytest_loadtest.kinds.registry import labels
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.payloads import CHECKSUM, MAX_BUCKETS
from pytest_loadtest.profile.traffic import small_sizes
from pytest_loadtest.schedule.stream_order import MOST_TURNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.profile.model import Profile


def _lists(profile: Profile) -> Iterator[Problem]:
    skew = profile.skew
    if skew is None:
        return
    lists: dict[str, Sequence[int] | None] = {
        "weights": skew.weights,
        "messageSizes": skew.message_sizes,
        "hashes": skew.hashes,
    }
    for key, values in lists.items():
        if values is not None and len(values) != profile.topics:
            message = f"skew.{key}: {len(values)} values for {profile.topics} topics"
            remedy = f"write one for each topic, or topics: {len(values)}"
            yield Problem(("skew", key), message, remedy)
    repeated = [value for value, times in Counter(skew.hashes or ()).items() if times > 1]
    if repeated:
        message = f"skew.hashes: {repeated[0]} occurs twice"
        consequence = "no split of bundles could separate those topics"
        path = ("skew", "hashes")
        yield Problem(path, f"{message}: {consequence}", "write different hashes")
    if skew.swing is not None and skew.weights is None and skew.zipf is None:
        message = "skew.swing: all topics have the same share"
        yield Problem(("skew", "swing"), message, "write weights or zipf", at_key=True)


def _turns(profile: Profile) -> Iterator[Problem]:
    skew = profile.skew
    if skew is None:
        return
    turns = sum(skew.shares(profile.topics))
    if skew.swing is not None:
        key = "swing"
        remedy = "write a shorter swing"
        turns = skew.period(float(profile.producer_rate)) * profile.topics
    elif skew.weights:
        key = "weights"
        remedy = "write smaller weights in the same proportion"
    else:
        key = "zipf"
        remedy = "write fewer topics"
    turns *= profile.producers_per_topic
    if turns > MOST_TURNS:
        cycle = f"skew.{key}: {turns:,} messages in one cycle of the shares"
        message = f"{cycle}, at most {MOST_TURNS:,} are possible"
        yield Problem(("skew", key), message, remedy)


def _whose(profile: Profile) -> Iterator[Problem]:
    """Reject a skew together with keys that it cannot be combined with."""
    skew = profile.skew
    if skew is None:
        return
    if profile.topic is not None:
        message = "skew: cannot be combined with topic, which names a single existing one"
        yield Problem(("skew",), message, "remove one of them", at_key=True)
    if profile.consumer_only or profile.connects_only:
        message = "skew: has no effect, because the run sends no messages"
        yield Problem(("skew",), message, "remove it", at_key=True)
    if "topics" in profile.scalable:
        message = "skew: needs all topics, but scalable allows fewer"
        yield Problem(("scalable",), message, "remove topics from scalable")
    if skew.swing is not None:
        yield from _swinging(profile)
    if skew.message_sizes is not None and any(stage.buckets for stage in profile.stages):
        message = "skew.messageSizes: cannot be combined with messageSizeDistribution of a stage"
        remedy = "remove messageSizeDistribution from the stages"
        yield Problem(("skew", "messageSizes"), message, remedy, at_key=True)
    if skew.hashes is not None and not profile.driver.kind.topic_hashes:
        message = f"skew.hashes: only {labels('topic_hashes')} has bundles"
        yield Problem(("skew", "hashes"), message, "remove it", at_key=True)
    elif skew.hashes is not None and profile.partitions_per_topic > 1:
        message = "skew.hashes: each partition has a hash of its own, which cannot be chosen"
        yield Problem(("partitionsPerTopic",), message, "write 1, or remove hashes")


def _swinging(profile: Profile) -> Iterator[Problem]:
    """Reject a rate with which shares cannot move on: they do after a number of messages."""
    if profile.in_bytes:
        message = "skew.swing: needs a rate in messages; producerRate is in bytes"
        yield Problem(("producerRate",), message, "write producerRate in messages, as in 5000/s")
    if profile.stages or profile.peak_search:
        change = "stages change" if profile.stages else "a search changes"
        message = f"skew.swing: needs a constant rate, but {change} it"
        yield Problem(("skew", "swing"), message, "remove one of them", at_key=True)


def _sizes(profile: Profile) -> Iterator[Problem]:
    """Reject sizes for the compact envelope, and those that the broker does not take.

    The intended time that it omits can be computed only if the streams take equal turns.
    """
    skew = profile.skew
    if skew is None:
        return
    reason = "topics with different rates need"
    least = HEAD + (CHECKSUM if profile.checksum else 0)
    sizes = sorted(set(skew.message_sizes or ()))
    for size in sizes:
        if size < least:
            message = f"skew.messageSizes: {size} B is below the {least} B that {reason}"
            yield Problem(("skew", "messageSizes"), message, f"write {least} or more")
    if len(sizes) > MAX_BUCKETS:
        message = f"skew.messageSizes: {len(sizes)} different sizes, more than {MAX_BUCKETS}"
        yield Problem(("skew", "messageSizes"), message, "round them, so that some are equal")
    yield from small_sizes(profile, HEAD, reason, ", or remove skew")
    limit = profile.max_message_size
    if sizes and sizes[-1] > limit:
        message = f"skew.messageSizes: {sizes[-1]} B is above what the broker takes, {limit} B"
        yield Problem(("skew", "messageSizes"), message, f"write {limit} or less")


CHECKS = (_lists, _turns, _whose, _sizes)
