"""The ``skew`` section: topics of which each has its own share of the rate, its own size, and its own place on Pulsar's ring of hashes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from pytest_loadtest.kinds.registry import labels
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.payloads import CHECKSUM, Bucket
from pytest_loadtest.profile.fields import Count, PositiveDuration, Section, Size
from pytest_loadtest.profile.presence import Misfit
from pytest_loadtest.schedule.stream_order import MOST_TURNS
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.profile.model import Profile


_LAST_HASH = 0xFFFFFFFF  # the ring of hashes has 32 bits
_ZIPF_TURNS = 10_000  # of a cycle, or a hundred a topic where that is more: shares are exact to as much


class SkewSection(Section):
    """How topics differ; every list has a value for each of them, in their order."""

    weights: Annotated[tuple[Count, ...], Field(min_length=1)] | None = Field(default=None, strict=False)
    """Of producerRate, the share of each topic: whole numbers, in proportion."""
    zipf: float | None = Field(default=None, gt=0, le=10)
    """In place of weights: the share of topic number n is as 1/n to this power."""
    swing: PositiveDuration | None = None
    """Every so long the shares move on by one topic: what the first had, the second has, until they are where they were."""
    message_sizes: Annotated[tuple[Size, ...], Field(min_length=1)] | None = Field(default=None, strict=False)
    """In place of messageSize: of the messages of each topic, envelope included."""
    hashes: Annotated[tuple[Annotated[int, Field(ge=0, le=_LAST_HASH)], ...], Field(min_length=1)] | None = Field(
        default=None, strict=False
    )
    """Pulsar: where each topic falls among the hashes that bundles are made of; topics get names for it."""

    def shares(self, topics: int) -> tuple[int, ...]:
        """Turns of each topic in a round: the weights; of a Zipf law the nearest whole numbers of ten thousand, or of a hundred a topic."""
        if self.zipf is None:
            return self.weights or (1,) * topics
        exact = [(number + 1) ** -self.zipf for number in range(topics)]
        whole, total = max(_ZIPF_TURNS, 100 * topics), sum(exact)
        return tuple(max(round(one / total * whole), 1) for one in exact)

    def period(self, rate: float) -> int:
        """Messages after which the shares move on, at so many msg/s; 0: never."""
        return 0 if self.swing is None else max(round(self.swing * rate / SECOND), 1)

    def buckets(self, topics: int) -> tuple[Bucket, ...] | None:
        """A size bucket for each size, of the weight of its topics; None where topics do not differ in it."""
        if self.message_sizes is None:
            return None
        weights = Counter[int]()
        for size, share in zip(self.message_sizes, (1,) * topics if self.swing else self.shares(topics), strict=False):
            weights[size] += share
        return tuple(Bucket(name=str(size), low=size, high=size + 1, weight=weight) for size, weight in weights.items())


# What must hold between ``skew`` and the rest of a profile.

_LISTS = ("weights", "messageSizes", "hashes")


def _lists(profile: Profile) -> Iterator[Misfit]:
    skew = profile.skew
    if skew is None:
        return
    for key, given in zip(_LISTS, (skew.weights, skew.message_sizes, skew.hashes), strict=True):
        if given is not None and len(given) != profile.topics:
            message = f"skew.{key}: {len(given)} values for {profile.topics} topics"
            yield Misfit(("skew", key), message, f"write one for each topic, or topics: {len(given)}")
    if skew.hashes is not None and len(set(skew.hashes)) < len(skew.hashes):
        twice = next(one for one, times in Counter(skew.hashes).items() if times > 1)
        yield Misfit(("skew", "hashes"), f"skew.hashes: {twice} is there twice, and no split could part those topics", "give each its own")
    if skew.swing is not None and skew.weights is None and skew.zipf is None:
        yield Misfit(("skew", "swing"), "skew.swing: all topics have the same share", "write weights or zipf", at_key=True)


def _turns(profile: Profile) -> Iterator[Misfit]:
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
        yield Misfit(("skew", key), message, remedy)


def _whose(profile: Profile) -> Iterator[Misfit]:
    """What a skew cannot stand beside."""
    skew = profile.skew
    if skew is None:
        return
    if profile.topic is not None:
        yield Misfit(("skew",), "skew: the topics of the run differ, and topic names one that exists", "leave one out", at_key=True)
    if profile.consumer_only or profile.connects_only:
        yield Misfit(("skew",), "skew: says how topics share what is sent, and nobody sends", "remove it", at_key=True)
    if profile.in_bytes:
        yield Misfit(("producerRate",), "skew: topics share messages, producerRate is in bytes", "write it in messages, as in 5000/s")
    if "topics" in profile.scalable:
        yield Misfit(("scalable",), "skew: is for these topics, and scalable lets them be fewer", "leave topics out of it")
    if skew.swing is not None and (profile.stages or profile.peak_search):
        what = "stages change" if profile.stages else "a search changes"
        yield Misfit(("skew", "swing"), f"skew.swing: counts messages of one rate, which {what}", "leave out one of them", at_key=True)
    if skew.message_sizes is not None and any(stage.buckets for stage in profile.stages):
        message = "skew.messageSizes: stages have sizes of their own, which say nothing of topics"
        yield Misfit(("skew", "messageSizes"), message, "leave messageSizeDistribution out of stages", at_key=True)
    if skew.hashes is not None and not profile.driver.kind.topic_hashes:
        yield Misfit(("skew", "hashes"), f"skew.hashes: only {labels('topic_hashes')} has bundles", "leave it out", at_key=True)
    elif skew.hashes is not None and profile.partitions_per_topic > 1:
        message = "skew.hashes: each partition is hashed by a name of its own, which follows from its topic's"
        yield Misfit(("partitionsPerTopic",), message, "write 1, or leave out hashes")


def _sizes(profile: Profile) -> Iterator[Misfit]:
    """The compact envelope leaves out the intended time, which is arithmetic only where streams have their turns one after another."""
    skew = profile.skew
    if skew is None:
        return
    least = HEAD + (CHECKSUM if profile.checksum else 0)
    for size in sorted({size for size in skew.message_sizes or () if size < least}):
        message = f"skew.messageSizes: {size} B is below the {least} B that topics of their own rate need"
        yield Misfit(("skew", "messageSizes"), message, f"write {least} or more")
    if profile.message_size is not None and profile.message_size < HEAD:
        message = f"messageSize: {profile.message_size} B is below the {HEAD} B that topics of their own rate need"
        yield Misfit(("messageSize",), message, f"write {HEAD} or more, or leave out skew")
    for bucket in () if profile.message_size_distribution is None else profile.buckets or ():
        if bucket.low < HEAD:
            message = f"size range {bucket.name!r} has sizes below the {HEAD} B that topics of their own rate need"
            yield Misfit(("messageSizeDistribution", bucket.name), message, f"begin it at {HEAD}, or leave out skew", at_key=True)
    largest = max(skew.message_sizes or (0,))
    if largest > (limit := profile.max_message_size):
        message = f"skew.messageSizes: {largest} B is above what the broker takes, {limit} B"
        yield Misfit(("skew", "messageSizes"), message, f"write {limit} or less")


_WHO = ("topics", "skew.*")
CHECKS = (
    (_lists, _WHO),
    (_turns, (*_WHO, "producersPerTopic", "producerRate")),
    (_whose, ("skew.*", "producerRate", "producersPerTopic", "messages", "driver.name", "search.*")),
    (_sizes, ("skew.*", "checksum", "messageSizeDistribution.*", "driver.name", "broker.settings.*")),
)
