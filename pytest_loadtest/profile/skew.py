"""Checks of ``skew`` against the other keys of a profile."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_loadtest.errors import Problem
from pytest_loadtest.kinds.registry import labels
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.payloads import CHECKSUM
from pytest_loadtest.schedule.stream_order import MOST_TURNS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.profile.model import Profile

_LISTS = ("weights", "messageSizes", "hashes")


def _lists(profile: Profile) -> Iterator[Problem]:
    skew = profile.skew
    if skew is None:
        return
    for key, values in zip(_LISTS, (skew.weights, skew.message_sizes, skew.hashes), strict=True):
        if values is not None and len(values) != profile.topics:
            message = f"skew.{key}: {len(values)} values for {profile.topics} topics"
            yield Problem(
                ("skew", key), message, f"write one for each topic, or topics: {len(values)}"
            )
    if skew.hashes is not None and len(set(skew.hashes)) < len(skew.hashes):
        twice = next(one for one, times in Counter(skew.hashes).items() if times > 1)
        yield Problem(
            ("skew", "hashes"),
            f"skew.hashes: {twice} occurs twice: no split of bundles could separate those topics",
            "write different hashes",
        )
    if skew.swing is not None and skew.weights is None and skew.zipf is None:
        yield Problem(
            ("skew", "swing"),
            "skew.swing: all topics have the same share",
            "write weights or zipf",
            at_key=True,
        )


def _turns(profile: Profile) -> Iterator[Problem]:
    skew = profile.skew
    if skew is None:
        return
    turns = sum(skew.shares(profile.topics)) * profile.producers_per_topic
    key = "weights" if skew.weights else "zipf"
    if skew.swing is not None:
        turns, key = (
            skew.period(float(profile.producer_rate))
            * profile.topics
            * profile.producers_per_topic,
            "swing",
        )
    if turns > MOST_TURNS:
        message = f"skew.{key}: {turns:,} messages in one cycle of the shares, at most {MOST_TURNS:,} are possible"
        remedy = {"swing": "write a shorter swing", "zipf": "write fewer topics"}.get(
            key, "write smaller weights in the same proportion"
        )
        yield Problem(("skew", key), message, remedy)


def _whose(profile: Profile) -> Iterator[Problem]:
    """Reject a skew together with keys that it cannot be combined with."""
    skew = profile.skew
    if skew is None:
        return
    if profile.topic is not None:
        yield Problem(
            ("skew",),
            "skew: cannot be combined with topic, which names a single existing one",
            "remove one of them",
            at_key=True,
        )
    if profile.consumer_only or profile.connects_only:
        yield Problem(
            ("skew",),
            "skew: has no effect, because the run sends no messages",
            "remove it",
            at_key=True,
        )
    if profile.in_bytes and skew.swing is not None:  # shares move on after a number of messages
        message = "skew.swing: needs a rate in messages; producerRate is in bytes"
        yield Problem(("producerRate",), message, "write producerRate in messages, as in 5000/s")
    if "topics" in profile.scalable:
        yield Problem(
            ("scalable",),
            "skew: needs all topics, but scalable allows fewer",
            "remove topics from scalable",
        )
    if skew.swing is not None and (profile.stages or profile.peak_search):
        what = "stages change" if profile.stages else "a search changes"
        yield Problem(
            ("skew", "swing"),
            f"skew.swing: needs a constant rate, but {what} it",
            "remove one of them",
            at_key=True,
        )
    if skew.message_sizes is not None and any(stage.buckets for stage in profile.stages):
        message = "skew.messageSizes: cannot be combined with messageSizeDistribution of a stage"
        yield Problem(
            ("skew", "messageSizes"),
            message,
            "remove messageSizeDistribution from the stages",
            at_key=True,
        )
    if skew.hashes is not None and not profile.driver.kind.topic_hashes:
        yield Problem(
            ("skew", "hashes"),
            f"skew.hashes: only {labels('topic_hashes')} has bundles",
            "remove it",
            at_key=True,
        )
    elif skew.hashes is not None and profile.partitions_per_topic > 1:
        message = "skew.hashes: each partition has a hash of its own, which cannot be chosen"
        yield Problem(("partitionsPerTopic",), message, "write 1, or remove hashes")


def _sizes(profile: Profile) -> Iterator[Problem]:
    """Reject sizes for the compact envelope: it omits the intended time, which can be computed only if the streams take equal turns."""
    skew = profile.skew
    if skew is None:
        return
    least = HEAD + (CHECKSUM if profile.checksum else 0)
    for size in sorted({size for size in skew.message_sizes or () if size < least}):
        message = f"skew.messageSizes: {size} B is below the {least} B that topics with different rates need"
        yield Problem(("skew", "messageSizes"), message, f"write {least} or more")
    if profile.message_size is not None and profile.message_size < HEAD:
        message = f"messageSize: {profile.message_size} B is below the {HEAD} B that topics with different rates need"
        yield Problem(("messageSize",), message, f"write {HEAD} or more, or remove skew")
    for bucket in () if profile.message_size_distribution is None else profile.buckets or ():
        if bucket.low < HEAD:
            message = f"size range {bucket.name!r} has sizes below the {HEAD} B that topics with different rates need"
            yield Problem(
                ("messageSizeDistribution", bucket.name),
                message,
                f"begin it at {HEAD}, or remove skew",
                at_key=True,
            )
    largest = max(skew.message_sizes or (0,))
    if largest > (limit := profile.max_message_size):
        message = f"skew.messageSizes: {largest} B is above what the broker takes, {limit} B"
        yield Problem(("skew", "messageSizes"), message, f"write {limit} or less")


_WHO = ("topics", "skew.*")
CHECKS = (
    (_lists, _WHO),
    (_turns, (*_WHO, "producersPerTopic", "producerRate")),
    (
        _whose,
        ("skew.*", "producerRate", "producersPerTopic", "messages", "driver.name", "search.*"),
    ),
    (
        _sizes,
        ("skew.*", "checksum", "messageSizeDistribution.*", "driver.name", "broker.settings.*"),
    ),
)
