"""What must hold between ``skew`` and the rest of a profile."""

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
    for key, given in zip(_LISTS, (skew.weights, skew.message_sizes, skew.hashes), strict=True):
        if given is not None and len(given) != profile.topics:
            message = f"skew.{key}: {len(given)} values for {profile.topics} topics"
            yield Problem(("skew", key), message, f"write one for each topic, or topics: {len(given)}")
    if skew.hashes is not None and len(set(skew.hashes)) < len(skew.hashes):
        twice = next(one for one, times in Counter(skew.hashes).items() if times > 1)
        yield Problem(("skew", "hashes"), f"skew.hashes: {twice} is there twice, and no split could part those topics", "give each its own")
    if skew.swing is not None and skew.weights is None and skew.zipf is None:
        yield Problem(("skew", "swing"), "skew.swing: all topics have the same share", "write weights or zipf", at_key=True)


def _turns(profile: Profile) -> Iterator[Problem]:
    skew = profile.skew
    if skew is None:
        return
    turns = sum(skew.shares(profile.topics)) * profile.producers_per_topic
    key = "weights" if skew.weights else "zipf"
    if skew.swing is not None:
        turns, key = skew.period(float(profile.producer_rate)) * profile.topics * profile.producers_per_topic, "swing"
    if turns > MOST_TURNS:
        message = f"skew.{key}: {turns:,} messages until all producers have had their shares, at most {MOST_TURNS:,} are possible"
        remedy = {"swing": "write a shorter swing", "zipf": "write fewer topics"}.get(key, "write smaller weights of the same proportion")
        yield Problem(("skew", key), message, remedy)


def _whose(profile: Profile) -> Iterator[Problem]:
    """What a skew cannot stand beside."""
    skew = profile.skew
    if skew is None:
        return
    if profile.topic is not None:
        yield Problem(("skew",), "skew: the topics of the run differ, and topic names one that exists", "leave one out", at_key=True)
    if profile.consumer_only or profile.connects_only:
        yield Problem(("skew",), "skew: says how topics share what is sent, and nobody sends", "remove it", at_key=True)
    if profile.in_bytes:
        yield Problem(("producerRate",), "skew: topics share messages, producerRate is in bytes", "write it in messages, as in 5000/s")
    if "topics" in profile.scalable:
        yield Problem(("scalable",), "skew: is for these topics, and scalable lets them be fewer", "leave topics out of it")
    if skew.swing is not None and (profile.stages or profile.peak_search):
        what = "stages change" if profile.stages else "a search changes"
        yield Problem(("skew", "swing"), f"skew.swing: counts messages of one rate, which {what}", "leave out one of them", at_key=True)
    if skew.message_sizes is not None and any(stage.buckets for stage in profile.stages):
        message = "skew.messageSizes: stages have sizes of their own, which say nothing of topics"
        yield Problem(("skew", "messageSizes"), message, "leave messageSizeDistribution out of stages", at_key=True)
    if skew.hashes is not None and not profile.driver.kind.topic_hashes:
        yield Problem(("skew", "hashes"), f"skew.hashes: only {labels('topic_hashes')} has bundles", "leave it out", at_key=True)
    elif skew.hashes is not None and profile.partitions_per_topic > 1:
        message = "skew.hashes: each partition is hashed by a name of its own, which follows from its topic's"
        yield Problem(("partitionsPerTopic",), message, "write 1, or leave out hashes")


def _sizes(profile: Profile) -> Iterator[Problem]:
    """The compact envelope leaves out the intended time, which is arithmetic only where streams have their turns one after another."""
    skew = profile.skew
    if skew is None:
        return
    least = HEAD + (CHECKSUM if profile.checksum else 0)
    for size in sorted({size for size in skew.message_sizes or () if size < least}):
        message = f"skew.messageSizes: {size} B is below the {least} B that topics of their own rate need"
        yield Problem(("skew", "messageSizes"), message, f"write {least} or more")
    if profile.message_size is not None and profile.message_size < HEAD:
        message = f"messageSize: {profile.message_size} B is below the {HEAD} B that topics of their own rate need"
        yield Problem(("messageSize",), message, f"write {HEAD} or more, or leave out skew")
    for bucket in () if profile.message_size_distribution is None else profile.buckets or ():
        if bucket.low < HEAD:
            message = f"size range {bucket.name!r} has sizes below the {HEAD} B that topics of their own rate need"
            yield Problem(("messageSizeDistribution", bucket.name), message, f"begin it at {HEAD}, or leave out skew", at_key=True)
    largest = max(skew.message_sizes or (0,))
    if largest > (limit := profile.max_message_size):
        message = f"skew.messageSizes: {largest} B is above what the broker takes, {limit} B"
        yield Problem(("skew", "messageSizes"), message, f"write {limit} or less")


_WHO = ("topics", "skew.*")
CHECKS = (
    (_lists, _WHO),
    (_turns, (*_WHO, "producersPerTopic", "producerRate")),
    (_whose, ("skew.*", "producerRate", "producersPerTopic", "messages", "driver.name", "search.*")),
    (_sizes, ("skew.*", "checksum", "messageSizeDistribution.*", "driver.name", "broker.settings.*")),
)
