"""A model of the memory of a broker's index of delayed messages, for the two trackers of Pulsar.

There is one index for each subscription of each partition.

*Heap* (``TripleLongPriorityQueue``; up to 4.0.0, and in 4.0 again from 4.0.6 on): due time, ledger
and entry of each message, three longs in direct memory.

*Time buckets* (apache/pulsar#23611; 4.0.1 to 4.0.5, 4.1 and later): due times lose their lower
bits, and for each bucket and ledger the entries are a Roaring bitmap on Java's heap. x messages/ms
and y bits make M = x·2^y messages per bucket. If due times ascend as entries do (one delay for
all), buckets and ledgers divide the entries into *pieces* of consecutive numbers; a container of n
of them takes min(2n, 8192) bytes (Roaring's format, RoaringFormatSpec: an array of shorts, from
4096 on a bitmap; Pulsar does not use run containers).

Random delays scatter each ledger's entries over all buckets of their range:
pieces hold few entries, down to one, and each has a header and Java objects. So
time buckets can take more memory than the heap.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.pulsar.broker import GIVEN
from pytest_loadtest.drivers.pulsar.settings import DEFAULT_TICK, TICK
from pytest_loadtest.values.quantities import MILLISECOND, SECOND, format_count, format_size
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from pytest_loadtest.message.due import Delays
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Topology


# Bytes of an entry: due time, ledger, entry.
HEAP_ENTRY: Final = 24
# Entries in a ledger: ``managedLedgerMaxEntriesPerLedger``.
LEDGER: Final = 50_000
# Bytes of a bitmap of 2^16 entries.
CONTAINER: Final = 8192
_KEYS: Final = 1 << 16  # entries that a container may hold
# Bytes of a 64-bit bitmap with one 32-bit bitmap: number of bitmaps, high half, and the cookie and
# number of containers of RoaringFormatSpec.
_PIECE_HEAD: Final = 20
_CONTAINER_HEAD: Final = 8  # bytes: key, cardinality, offset
# Bytes of Java objects (nodes of the maps, the bitmap's own) for each piece: fitted to a published
# measurement on a heap dump, see ``tests/unit/drivers/pulsar/test_delayed_index.py``. A histogram
# of a running Pulsar 4.2.4 had 608 of fastutil and Roaring.
JAVA_OBJECTS: Final = 590


@record
class BucketIndex:
    """The memory of one index in time buckets.

    For random delays these are expected values, so not whole numbers.

    :param pieces: number of bitmaps, one for each bucket and ledger.
    :param payload: bytes of their containers.
    :param headers: bytes.
    """

    messages: int
    pieces: float
    payload: float
    headers: float

    @property
    def bitmaps(self) -> float:
        """Bytes of the bitmaps, as Roaring counts them."""
        return self.payload + self.headers

    @property
    def total(self) -> float:
        """Bytes of bitmaps and Java objects."""
        return self.bitmaps + self.pieces * JAVA_OBJECTS


def time_buckets(version: str) -> bool:
    """Return whether this version of Pulsar has time buckets (and not a heap).

    They came with 4.1 and 4.0.1, and were removed from 4.0 in 4.0.6 (apache/pulsar#24429).
    :param version: such as ``4.0.0``.
    :raises ValueError: the version does not begin with three numbers.
    """
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if numbers is None:
        raise ValueError(f"{version!r} is not a version such as 4.2.4")
    major, minor, patch = map(int, numbers.groups())
    return (major, minor) > (4, 0) or ((major, minor) == (4, 0) and 1 <= patch <= 5)


def heap(messages: int) -> int:
    """Return the bytes of a heap.

    Clients do not batch delayed messages, so each message is an entry.
    """
    return messages * HEAP_ENTRY


def bits_of(tick: int) -> int:
    """Return the number of lower bits of a due time that the broker clears.

    :param tick: ``delayedDeliveryTickTimeMillis``.
    """
    return max(tick.bit_length() - 1, 0)


def index_of_one_delay(
    messages: int, per_ms: float, bits: int, ledger: int = LEDGER
) -> BucketIndex:
    """Model one delay for all messages: due times ascend with entries.

    :param per_ms: messages/ms (x).
    :param bits: number of cleared bits (y).
    :param ledger: entries in a ledger.
    """
    size = per_ms * (1 << bits)
    pieces = containers = payload = at = bucket = 0
    while at < messages:
        ends = min(math.ceil(size * (bucket + 1)), messages)
        bucket += 1
        while at < ends:
            start = at % ledger
            stop = min(start + ends - at, ledger)
            at += stop - start
            pieces += 1
            while start < stop:
                reach = min(stop, (start // _KEYS + 1) * _KEYS)
                payload += min(2 * (reach - start), CONTAINER)
                containers += 1
                start = reach
    return BucketIndex(
        messages=messages,
        pieces=pieces,
        payload=payload,
        headers=pieces * _PIECE_HEAD + containers * _CONTAINER_HEAD,
    )


def index_of_random_delays(messages: int, range_ms: float, bits: int) -> BucketIndex:
    """Model delays that are evenly distributed over a range: the expected memory.

    All pairs of bucket and ledger are equally likely, so a piece holds a Poisson
    number of entries. Large pieces are arrays or bitmaps of about the same size; a
    ledger larger than a container counts as several.
    """
    span = min(LEDGER, _KEYS)
    pairs = max(range_ms / (1 << bits), 1) * max(messages / span, 1)
    each = messages / pairs
    # Share of pairs with at least one entry, 1 - exp(-mean) for a
    # Poisson number; expm1 is exact for small means.
    there = pairs * -math.expm1(-each)
    return BucketIndex(
        messages=messages,
        pieces=there,
        payload=pairs * min(2 * each, CONTAINER),
        headers=there * (_PIECE_HEAD + _CONTAINER_HEAD),
    )


@record
class PlannedIndex:
    """The memory of all indexes when most messages are pending.

    :param pending: messages.
    :param subscriptions: per topic; each has its index.
    :param heap: bytes of direct memory, for brokers with a heap.
    :param buckets: bytes of Java heap, for brokers with time buckets.
    """

    pending: int
    subscriptions: int
    heap: int
    buckets: int

    @property
    def text(self) -> str:
        """A description in one line."""
        return (
            f"about {format_count(self.pending)} messages pending, an entry each (clients batch"
            " none of them);"
            f" index of {self.subscriptions} subscription{'' if self.subscriptions == 1 else 's'}:"
            f" {format_size(self.heap)} as a heap (Pulsar 4.0.0), {format_size(self.buckets)} in"
            " time buckets (4.1 and later)"
        )

    def warning(self, given: int) -> str | None:
        """Return a warning if the broker has too little memory.

        :param given: bytes of direct memory, and as many of Java heap.
        """
        trackers = {"a heap": self.heap, "time buckets": self.buckets}
        beyond = [
            f"{format_size(size)} as {name}" for name, size in trackers.items() if size > given
        ]
        if not beyond:
            return None
        return (
            f"the broker has {format_size(given)}, the index needs {' or '.join(beyond)}: shorten"
            " the delay, or lower the rate"
        )


def planned_index(
    delays: Delays, *, rate: float, messages: int, topics: int, subscriptions: int, tick: int
) -> PlannedIndex:
    """Return the expected memory after sending for the time of a delay.

    It is that after all messages of the run if they are fewer.

    :param rate: msg/s over all topics.
    :param messages: number of messages that the run sends.
    :param topics: each partition counts.
    :param tick: the broker's tick, ms.
    """
    mean = (
        delays.longest if delays.at is not None else (delays.least + delays.most) * MILLISECOND / 2
    )
    pending = min(messages, round(rate * mean / SECOND))
    each = max(pending // topics, 1)
    range_ms = float(delays.most - delays.least)
    bits = bits_of(tick)
    if delays.at is not None:
        # All messages have one due time, so they are in one bucket.
        index = index_of_random_delays(each, 1, bits)
    elif range_ms:
        index = index_of_random_delays(each, float(delays.most), bits)
    else:
        index = index_of_one_delay(each, max(rate / topics, 1e-9) * MILLISECOND / SECOND, bits)
    indexes = topics * subscriptions
    return PlannedIndex(
        pending=pending,
        subscriptions=subscriptions,
        heap=heap(pending) * subscriptions,
        buckets=round(index.total * indexes),
    )


def planned(
    profile: Profile, topology: Topology, rate: float, messages: int
) -> tuple[str, str | None]:
    """Return the expected index in one line.

    A warning follows if a broker that the run starts has too little memory for it.
    """
    assert profile.delays is not None
    index = planned_index(
        profile.delays,
        rate=rate,
        messages=messages,
        topics=topology.topics * topology.partitions,
        subscriptions=topology.subscriptions,
        tick=int(profile.broker.settings.get(TICK, DEFAULT_TICK)),
    )
    started = profile.target is None or profile.target.url is None
    return index.text, index.warning(GIVEN) if started else None
