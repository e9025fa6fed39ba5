"""Payloads: the distribution of sizes, the pool of payloads made from it, and the weighted choice
among them.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from operator import add
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.errors import UsageError
from pytest_loadtest.message import draws, envelope
from pytest_loadtest.message.envelope import COMPACT_HEAD, HEAD
from pytest_loadtest.message.route import IN_BODY, Carrier, EnvelopePlace
from pytest_loadtest.message.size_mix import SizeMix
from pytest_loadtest.message.sizing import SizeLimits, check_payload_count
from pytest_loadtest.message.streams import stream_column
from pytest_loadtest.message.template import Filler, JsonShape, Pattern
from pytest_loadtest.values.quantities import parse_size
from pytest_loadtest.values.records import immutable, record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.message.streams import Streams


CHECKSUM: Final = 4
MAX_BUCKETS: Final = 256  # the envelope numbers them in one byte
MAX_PAYLOADS: Final = 1 << 16  # a burst numbers them in two bytes
_HEAD: Final = np.dtype("V32")
_32 = np.uint64(32)


@record
class Bucket:
    """A range of sizes, [low, high) bytes of whole payload, with its relative weight; the name is
    the profile's key.
    """

    name: str
    low: int
    high: int
    weight: int


def parse_range(text: str) -> tuple[int, int]:
    """Parse a size range: ``"1KB-4KB"`` → (1024, 4096), the sizes from 1024 up to, but without,
    4096.

    :raises ValueError: not two sizes, or nothing between them.
    """
    ends = text.split("-")
    if len(ends) != 2:
        raise ValueError(f"{text!r} is not a size range: write two sizes, as in 1KB-4KB")
    low, high = map(parse_size, ends)
    if low >= high:
        raise ValueError(
            f"size range {text!r} is empty: the second size, which is excluded, must be above {low}"
        )
    return low, high


@immutable
class Filling:
    """The content of bodies."""

    seed: int
    ratio: float
    content: bytes | None
    checksum: bool

    def body(self, size: int, head: int, number: int) -> bytes:
        """Make the body of one payload: the bytes after its head.

        :param head: bytes of the head.
        """
        tail = CHECKSUM if self.checksum else 0
        length = size - head - tail
        # the file fills no payload of a stage with another size
        if self.content is not None and len(self.content) == size:
            body = self.content[head : head + length]
        else:
            body = self._random(int(length * self.ratio), number).ljust(length, b"\0")
        if self.checksum:
            body += zlib.crc32(body).to_bytes(CHECKSUM, "little")
        return body

    def text(self, size: int, number: int) -> bytes:
        """Make the padding of one payload in JSON: letters and digits, as many as are random."""
        length = int(size * self.ratio)
        return self._random(length, number).hex().encode()[:length]

    def _random(self, length: int, number: int) -> bytes:
        # the complement, so that bodies have other keys than choosers
        key = draws.subkey(~self.seed, number)
        return draws.draw_range(key, 0, length // 8 + 1).astype("<u8").tobytes()[:length]


@dataclass(frozen=True, kw_only=True, eq=False)
class PayloadPool:
    """All payloads that can be sent, with their bodies made once.

    One row per payload in every column.

    Stages may have distributions of their own: number 0 is the profile's, followed by one for each
    of ``build_pool``'s ``more``.

    :param filling: the content of bodies.
    :param sizes: int32, bytes of the whole payload.
    :param buckets: int16, index of the size bucket.
    :param weights_of: by distribution, float64, sum 1; a payload that only other distributions have
        weighs 0.
    :param bucket_names: of all distributions; the same key is the same bucket.
    :param clamped: number of payloads whose size was moved to the envelope's or the target's limit.
    :param of_topics: by topic, the index of the only size bucket of its messages; empty if topics
        do not differ.
    :param place: the place of the envelope in each message.
    :param patterns: the payloads with their fields left open; empty: there is no template.
    """

    filling: Filling
    sizes: NDArray[np.int32]
    buckets: NDArray[np.int16]
    weights_of: tuple[NDArray[np.float64], ...]
    bucket_names: tuple[str, ...]
    clamped: int
    checksum: bool
    of_topics: tuple[int, ...] = ()
    place: EnvelopePlace = IN_BODY
    patterns: tuple[Pattern, ...] = ()

    @property
    def mean_size(self) -> float:
        """The mean bytes of a message by the first distribution."""
        return self.mean_sizes[0]

    @cached_property
    def mean_sizes(self) -> tuple[float, ...]:
        """The mean bytes of a message, by distribution: the weighted mean of ``sizes``."""
        return tuple(float(weights @ self.sizes) for weights in self.weights_of)

    @property
    def memory(self) -> int:
        """The bytes of all bodies."""
        return int(self.sizes.sum(dtype=np.int64) - self.head_size.sum(dtype=np.int64))

    @cached_property
    def bodies(self) -> tuple[bytes, ...]:
        """The bytes after each head; with ``checksum`` the last 4 are the CRC-32 (little-endian) of
        the rest of the body.

        Made at the first access: a plan needs sizes only.
        """
        return tuple(map(self.filling.body, self.sizes.tolist(), self.head_size.tolist(), count()))

    @cached_property
    def head_size(self) -> NDArray[np.uint8]:
        """The bytes of the envelope in each payload: 16 if the payload is shorter than 32, else 32;
        0 if it is not in the body.
        """
        if self.place.outside:
            return np.zeros(len(self.sizes), np.uint8)
        return np.where(self.sizes < HEAD, COMPACT_HEAD, HEAD).astype(np.uint8)

    @cached_property
    def compact(self) -> bool:
        """True if any payload has the compact envelope."""
        return bool((self.head_size == COMPACT_HEAD).any())

    @cached_property
    def marks(self) -> NDArray[np.uint32]:
        """The magic, version and bucket of each payload's envelope, as one number."""
        return envelope.marks(self.buckets)

    @cached_property
    def body_column(self) -> NDArray[np.object_]:
        """The bodies as a column, from which a burst takes its own in one call."""
        column = np.empty(len(self.bodies), object)
        column[:] = self.bodies
        return column

    @cached_property
    def filler(self) -> Filler | None:
        """The maker of messages with fields; None: a message is its envelope, if the body has it,
        and one of ``bodies``.
        """
        if self.patterns:
            return Filler(self.patterns)
        if self.place.carrier is not Carrier.JSON:
            return None
        sizes = self.sizes.tolist()
        padding = map(self.filling.text, sizes, count())
        return Filler(tuple(map(JsonShape(self.place.pointer).pattern, sizes, padding)))

    @cached_property
    def choices(self) -> tuple[draws.WeightedChoice, ...]:
        """The table of each distribution, shared by all choosers."""
        return tuple(map(draws.sparse_choice, self.weights_of))

    def table(self, distribution: int | Mapping[str, int]) -> draws.WeightedChoice:
        """Return the table of a distribution: the number of one of the pool's own, or other weights
        for its size buckets.

        :raises UsageError: a bucket that the pool does not have, or no weight above 0.
        """
        if isinstance(distribution, int):
            return self.choices[distribution]
        check_weights(distribution, self.bucket_names)
        return draws.sparse_choice(self._weights_by_bucket(distribution))

    def mix(self, distribution: int | Mapping[str, int]) -> SizeMix:
        """Return the sizes of a distribution, as in :meth:`table`."""
        if isinstance(distribution, int):
            weights = self.weights_of[distribution]
        else:
            weights = self._weights_by_bucket(distribution)
        sizes = self.sizes[weights > 0].astype(np.float64)
        weights = weights[weights > 0]
        mean = float(weights @ sizes)
        return SizeMix(
            mean=mean,
            variance=float(weights @ (sizes - mean) ** 2),
            smallest=int(sizes.min()),
            largest=int(sizes.max()),
            independent=not self.of_topics,
        )

    def _weights_by_bucket(self, buckets: Mapping[str, int]) -> NDArray[np.float64]:
        """Return the weight of each payload; those of one bucket share its weight."""
        weights = np.array([buckets.get(name, 0) for name in self.bucket_names], np.float64)
        payloads = np.bincount(self.buckets, minlength=len(self.bucket_names))
        # buckets of weights [3, 1] with payloads [0, 0, 1]: [1.5, 1.5, 1] / 4
        shares: NDArray[np.float64] = weights[self.buckets] / payloads[self.buckets]
        shares /= shares.sum()
        return shares


def check_weights(weights: Mapping[str, float], names: Sequence[str]) -> None:
    """Check other weights for the size buckets of a pool.

    :raises UsageError: a bucket that is not among ``names``, or no weight above 0.
    """
    if unknown := [str(name) for name in weights if name not in names]:
        raise UsageError(
            f"no size bucket {', '.join(unknown)}: the payloads were made for {', '.join(names)}"
        )
    are_valid = any(weights.values())
    for weight in weights.values():
        if not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            are_valid = False
    if not are_valid:
        raise UsageError(
            f"weights {dict(weights)} are not valid: none may be below 0,"
            " and at least one must be above 0"
        )


def build_pool(
    *,
    buckets: Sequence[Bucket] | None = None,
    message_size: int | None = None,
    representative: str = "midpoint",
    randomized: bool,
    random_ratio: float,
    pool_size: int = 1,
    file_content: bytes | None = None,
    seed: int,
    checksum: bool = False,
    max_size: int | None = None,
    per_bucket: int = 1,
    more: Sequence[Sequence[Bucket]] = (),
    place: EnvelopePlace = IN_BODY,
) -> PayloadPool:
    """Make the payloads of a distribution or of one size, and those of the stages' own
    distributions.

    :param representative: the sizes for a bucket: its ``midpoint``, its ``max`` (the last size
        inside), or ``uniform``, which is ``per_bucket`` sizes spread evenly inside, 16 if that is
        1. A bucket of weight 0 keeps its index and gets no payload.
    :param randomized: the first ``random_ratio`` of each body is random, the rest zeros; otherwise
        all zeros, or ``file_content``.
    :param pool_size: number of different random bodies for ``message_size`` (OMB's
        ``randomizedPayloadPoolSize``).
    :param file_content: exactly ``message_size`` bytes; envelope and checksum replace the bytes at
        its beginning and end.
    :param max_size: the target's limit on a whole payload.
    :param per_bucket: payloads of each size bucket, equally likely; several of one size only if
        bodies are random.
    :param more: distributions of stages. The pool has the buckets of all; buckets with the same key
        are one.
    :param place: as in :class:`PayloadPool`.
    :raises ValueError: a size, or a whole range, that cannot be sent; no weight; too many buckets
        or payloads; a file of another size.
    """
    if (buckets is None) == (message_size is None):
        raise ValueError("give either messageSize or messageSizeDistribution")
    if file_content is not None and len(file_content) != message_size:
        raise ValueError(
            f"payloadFile has {len(file_content)} bytes but messageSize is {message_size}:"
            " they must be equal"
        )

    if message_size is not None:
        name = str(message_size)
        buckets = [Bucket(name=name, low=message_size, high=message_size + 1, weight=1)]
    distributions = [buckets or (), *more]
    union = _united(distributions)
    counts = [per_bucket] * len(union)
    if message_size is not None:
        counts[0] = max(per_bucket, pool_size)
    check_payload_count(counts, per_bucket, MAX_PAYLOADS)

    limits = SizeLimits(CHECKSUM if checksum else 0, max_size, enveloped=not place.outside)
    sizes: list[int] = []
    payloads = []
    for bucket, most in zip(union, counts, strict=True):
        before = len(sizes)
        if bucket.weight:
            sizes += limits.sizes(bucket, representative, most, randomized)
        payloads.append(len(sizes) - before)

    weights_of = tuple(_weights(each, union, payloads) for each in distributions)
    if randomized:
        filling = Filling(seed, random_ratio, None, checksum)
    else:
        filling = Filling(seed, 0.0, file_content, checksum)
    return PayloadPool(
        filling=filling,
        sizes=np.array(sizes, np.int32),
        buckets=np.repeat(np.arange(len(union), dtype=np.int16), payloads),
        weights_of=weights_of,
        bucket_names=tuple(bucket.name for bucket in union),
        clamped=limits.moved,
        checksum=checksum,
        place=place,
    )


def build_pattern_pool(
    patterns: Mapping[str, Sequence[Pattern]],
    weights: Mapping[str, int],
    max_size: int,
    place: EnvelopePlace = IN_BODY,
) -> PayloadPool:
    """Make the pool of rendered templates.

    :param patterns: the patterns of each template, by its name; each template is a size bucket.
    :param weights: of the templates.
    :param max_size: the target's limit on a whole payload, bytes.
    :param place: as in :class:`PayloadPool`.
    :raises ValueError: too many payloads; one that is larger than the limit.
    """
    counts = [len(each) for each in patterns.values()]
    check_payload_count(counts, max(counts), MAX_PAYLOADS)
    sizes = []
    of_payloads = []
    total = sum(weights[name] for name in patterns)
    for name, each in patterns.items():
        for pattern in each:
            if pattern.size > max_size:
                raise ValueError(f"{name}: {pattern.size} B, and the target takes {max_size} B")
            sizes.append(pattern.size)
            of_payloads.append(weights[name] / total / len(each))
    return PayloadPool(
        filling=Filling(0, 0.0, None, checksum=False),
        sizes=np.array(sizes, np.int32),
        buckets=np.repeat(np.arange(len(counts), dtype=np.int16), counts),
        weights_of=(np.array(of_payloads),),
        bucket_names=tuple(patterns),
        clamped=0,
        checksum=False,
        place=place,
        patterns=tuple(pattern for each in patterns.values() for pattern in each),
    )


def _united(distributions: Sequence[Sequence[Bucket]]) -> list[Bucket]:
    """Return each bucket once, in order of first appearance; its weight is above 0 if it is above 0
    in any distribution.
    """
    union: dict[str, Bucket] = {}
    for buckets in distributions:
        weights = [bucket.weight for bucket in buckets]
        if sum(weights) <= 0 or min(weights) < 0:
            raise ValueError(
                "the weights of messageSizeDistribution must not be negative,"
                " and at least one must be above 0"
            )
        for bucket in buckets:
            before = union.setdefault(bucket.name, bucket)
            if not before.weight:
                union[bucket.name] = bucket
    if len(union) > MAX_BUCKETS:
        stages = " in all stages together" if len(distributions) > 1 else ""
        raise ValueError(
            f"{len(union)} size buckets{stages}: the envelope numbers at most {MAX_BUCKETS}"
        )
    return list(union.values())


def _weights(
    buckets: Sequence[Bucket], union: Sequence[Bucket], payloads: Sequence[int]
) -> NDArray[np.float64]:
    """Return the weight of each payload in a distribution.

    :param union: the buckets of all distributions.
    :param payloads: the number of payloads of each of them.
    """
    total = sum(bucket.weight for bucket in buckets)
    shares = {bucket.name: bucket.weight / total for bucket in buckets if bucket.weight}
    weights = []
    for bucket, number in zip(union, payloads, strict=True):
        share = shares.get(bucket.name, 0.0)
        weights += [share / max(number, 1)] * number
    return np.array(weights)


def body_ok(data: bytes) -> bool:
    """Return true if the checksum of a whole payload (the profile's ``checksum: true``) matches its
    body.
    """
    head = HEAD if len(data) >= HEAD else COMPACT_HEAD
    if len(data) < head + CHECKSUM:
        return False
    return zlib.crc32(memoryview(data)[head:-CHECKSUM]) == int.from_bytes(
        data[-CHECKSUM:], "little"
    )


class PayloadChooser:
    """Chooses the payloads of messages: a pure function of (seed, stream, number of the message)
    and the distribution.
    """

    def __init__(self, pool: PayloadPool, seed: int, streams: Streams) -> None:
        self._table = pool.choices[0]
        self._keys = draws.subkeys(seed, streams)

    def draw(
        self,
        index: NDArray[np.int64],
        seq: NDArray[np.int64],
        table: draws.WeightedChoice | None = None,
    ) -> NDArray[np.uint16]:
        """Return one payload for each message.

        :param index: position of its stream among ``streams``.
        :param seq: its number in the stream.
        :param table: the table of its distribution; by default of the pool's first.
        """
        return (table or self._table).choose(draws.draw_each(self._keys.take(index), seq))


def whole_payloads(
    pool: PayloadPool,
    heads: NDArray[np.uint8],
    payload: NDArray[np.uint16],
    key: NDArray[np.int32] | None = None,
) -> list[bytes]:
    """Return whole payloads, for clients that take one message at a time.

    An envelope outside of bodies is in ``carried_values`` of the same heads.

    :param heads: from ``envelope.encode_heads``.
    :param key: as in a burst.
    """
    if pool.filler is not None:
        return pool.filler.messages(heads, payload, key)
    bodies: list[bytes] = pool.body_column.take(payload).tolist()
    if pool.place.outside:
        return bodies
    fronts = heads.view(_HEAD).ravel().tolist()
    if pool.compact:
        head_sizes = pool.head_size[payload].tolist()
        fronts = [front[:size] for front, size in zip(fronts, head_sizes, strict=True)]
    return list(map(add, fronts, bodies))


class TopicChooser:
    """Chooses payloads where each topic has messages of one size: a pure function of (seed, stream,
    number of the message).

    All payloads of the topic's size are equally likely.

    :param topics: index of the topic of each of the streams.
    """

    def __init__(
        self, pool: PayloadPool, seed: int, streams: Streams, topics: NDArray[np.int64]
    ) -> None:
        self._keys = draws.subkeys(seed, streams)
        buckets = np.array(pool.of_topics, np.int64)[topics]
        # the payloads of a bucket are neighbours in the pool
        self._first = np.searchsorted(pool.buckets, buckets)
        end = np.searchsorted(pool.buckets, buckets, side="right")
        self._count = (end - self._first).astype(np.uint64)

    def draw(
        self, index: NDArray[np.int64], seq: NDArray[np.int64], table: draws.WeightedChoice
    ) -> NDArray[np.uint16]:
        """Return one payload for each message; ``table`` is ignored, because the topic decides the
        size.
        """
        word = draws.draw_each(self._keys.take(index), seq) >> _32
        within = (word * self._count[index]) >> _32
        return (self._first[index] + within.astype(np.int64)).astype(np.uint16)


Chooser = PayloadChooser | TopicChooser


def make_chooser(pool: PayloadPool, seed: int, streams: Streams, topics: int) -> Chooser:
    """Return the chooser for some streams.

    :param topics: number of the run's topics, to which streams are assigned round robin.
    """
    if not pool.of_topics:
        return PayloadChooser(pool, seed, streams)
    return TopicChooser(pool, seed, streams, stream_column(streams) % topics)
