"""What is sent: the size distribution, the pool of payloads made from it, and the weighted choice among them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pytest_loadtest import draws, envelope
from pytest_loadtest.envelope import COMPACT_HEAD, HEAD
from pytest_loadtest.quantities import parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CHECKSUM: Final = 4
MAX_BUCKETS: Final = 256  # the envelope numbers them in one byte
MAX_PAYLOADS: Final = 1 << 16  # a burst numbers them in two
UNIFORM_SIZES: Final = 16
_HEAD: Final = np.dtype("V32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One range of sizes, [low, high) bytes of whole payload, and its relative weight; the name is the profile's key."""

    name: str
    low: int
    high: int
    weight: int


def parse_range(text: str) -> tuple[int, int]:
    """``"1KB-4KB"`` → (1024, 4096): sizes from the first up to, but without, the second.

    :raises ValueError: not two sizes, or nothing between them.
    """
    ends = text.split("-")
    if len(ends) != 2:
        raise ValueError(f"{text!r} is not a size range: write two sizes, as in 1KB-4KB")
    low, high = parse_size(ends[0]), parse_size(ends[1])
    if low >= high:
        raise ValueError(f"size range {text!r} is empty: it holds sizes from {low} up to, but without, {high}; the larger goes second")
    return low, high


@dataclass(frozen=True, kw_only=True, eq=False)
class PayloadPool:
    """Everything that can be sent, made once. One row per payload in every column.

    :param bodies: what follows the head; with ``checksum`` the last 4 bytes are the CRC-32 (little-endian) of the rest of the body.
    :param sizes: int32, bytes of the whole payload. :param buckets: int16, index of the size bucket. :param weights: float64, sum 1.
    :param clamped: how many payloads had their size moved to the envelope's or the target's limit.
    """

    bodies: tuple[bytes, ...]
    sizes: NDArray[np.int32]
    buckets: NDArray[np.int16]
    weights: NDArray[np.float64]
    bucket_names: tuple[str, ...]
    clamped: int
    checksum: bool

    @property
    def mean_size(self) -> float:
        """The weighted mean of ``sizes``: what one message really weighs, in bytes."""
        return float(self.weights @ self.sizes)

    @property
    def memory(self) -> int:
        """Bytes that the bodies take."""
        return sum(map(len, self.bodies))

    @cached_property
    def head_size(self) -> NDArray[np.uint8]:
        """Bytes of envelope per payload: 16 where the payload is shorter than 32, else 32."""
        return np.where(self.sizes < HEAD, COMPACT_HEAD, HEAD).astype(np.uint8)

    @cached_property
    def compact(self) -> bool:
        """Whether any payload has the compact envelope."""
        return bool((self.sizes < HEAD).any())

    @cached_property
    def marks(self) -> NDArray[np.uint32]:
        """Magic, version and bucket of each payload's envelope, as one number."""
        return envelope.marks(self.buckets)

    @cached_property
    def body_column(self) -> NDArray[np.object_]:
        """The bodies as a column, to be taken from by the burst."""
        column = np.empty(len(self.bodies), object)
        column[:] = self.bodies
        return column

    @cached_property
    def choice(self) -> draws.WeightedChoice:
        """The table that every chooser of this pool shares."""
        return draws.weighted_choice(self.weights.tolist())


def build_pool(
    *,
    buckets: Sequence[Bucket] | None,
    message_size: int | None,
    representative: str = "midpoint",
    randomized: bool,
    random_ratio: float,
    pool_size: int = 1,
    file_content: bytes | None,
    seed: int,
    checksum: bool,
    max_size: int | None,
) -> PayloadPool:
    """The payloads of a distribution, or of one size.

    :param representative: which sizes stand for a bucket: its ``midpoint``, its ``max`` (the last size inside), or ``uniform``, 16
        sizes spread evenly inside. A bucket of weight 0 keeps its index and gets no payload.
    :param randomized: the first ``random_ratio`` of each body is random, the rest zeros; otherwise all zeros, or ``file_content``.
    :param pool_size: how many different random bodies a ``message_size`` gets (OMB's ``randomizedPayloadPoolSize``).
    :param file_content: exactly ``message_size`` bytes; the envelope takes the place of its head, the checksum that of its end.
    :param max_size: the target's limit on a whole payload.
    :raises ValueError: a size, or a whole range, that cannot be sent; no weight; too many buckets or payloads; a file of another size.
    """
    if (buckets is None) == (message_size is None):
        raise ValueError("give either messageSize or messageSizeDistribution")
    if file_content is not None and len(file_content) != message_size:
        raise ValueError(f"payloadFile holds {len(file_content)} bytes and messageSize says {message_size}: they must be equal")
    limits = _Limits(checksum, max_size)
    if buckets is not None:
        names, rows = tuple(bucket.name for bucket in buckets), _distribution(buckets, representative, limits)
    else:
        assert message_size is not None
        copies = pool_size if randomized else 1
        size = limits.fit(message_size, message_size, message_size + 1, f"messageSize {message_size}")
        names, rows = (str(message_size),), [_Row(size, 0, 1 / copies)] * copies
    if len(rows) > MAX_PAYLOADS:
        raise ValueError(f"{len(rows)} payloads: a message chooses among at most {MAX_PAYLOADS}")
    filling = _Filling(seed, random_ratio if randomized else 0.0, None if randomized else file_content, checksum)
    return PayloadPool(
        bodies=tuple(filling.body(row.size, number) for number, row in enumerate(rows)),
        sizes=np.array([row.size for row in rows], np.int32),
        buckets=np.array([row.bucket for row in rows], np.int16),
        weights=np.array([row.weight for row in rows]),
        bucket_names=names,
        clamped=limits.moved,
        checksum=checksum,
    )


class _Row(NamedTuple):
    size: int
    bucket: int
    weight: float


def _distribution(buckets: Sequence[Bucket], representative: str, limits: _Limits) -> list[_Row]:
    if len(buckets) > MAX_BUCKETS:
        raise ValueError(f"{len(buckets)} size buckets: the envelope numbers at most {MAX_BUCKETS}")
    weights = [bucket.weight for bucket in buckets]
    if sum(weights) <= 0 or min(weights) < 0:
        raise ValueError("the weights of messageSizeDistribution must not be negative, and at least one must be above 0")
    rows = []
    for number, bucket in enumerate(buckets):
        if bucket.weight:
            asked = _representatives(bucket, representative)
            sizes = [limits.fit(size, bucket.low, bucket.high, f"size range {bucket.name!r}") for size in asked]
            rows += [_Row(size, number, bucket.weight / sum(weights) / len(sizes)) for size in sizes]
    return rows


class _Limits:
    """Which sizes can be sent: room for head and checksum, and not above the target's limit."""

    def __init__(self, checksum: bool, max_size: int | None) -> None:
        self._tail, self._max = CHECKSUM if checksum else 0, max_size
        self.moved = 0

    def fit(self, size: int, low: int, high: int, name: str) -> int:
        """The size asked for, or the nearest in [low, high) that can be sent."""
        last = high - 1 if self._max is None else min(high - 1, self._max)
        compact = max(low, COMPACT_HEAD + self._tail), min(last, HEAD - 1)
        full = max(low, HEAD + self._tail), last
        nearest = [min(max(size, lowest), highest) for lowest, highest in (compact, full) if lowest <= highest]
        if not nearest:
            raise ValueError(f"{name} cannot be sent: {self._reason(low)}")
        fitting = min(nearest, key=lambda one: abs(one - size))
        self.moved += fitting != size
        return fitting

    def _reason(self, low: int) -> str:
        if self._max is not None and low > self._max:
            return f"the target takes at most {self._max} bytes"
        tail = f" and the checksum {self._tail}" if self._tail else ""
        return f"the envelope takes {COMPACT_HEAD} bytes ({HEAD} in payloads of {HEAD} bytes or more){tail}"


def _representatives(bucket: Bucket, representative: str) -> list[int]:
    if representative == "midpoint":
        return [(bucket.low + bucket.high) // 2]
    if representative == "max":
        return [bucket.high - 1]
    if representative == "uniform":
        width = bucket.high - bucket.low
        count = min(UNIFORM_SIZES, width)
        return [bucket.low + (2 * i + 1) * width // (2 * count) for i in range(count)]
    raise ValueError(f"representative {representative!r}: one of midpoint, max, uniform")


@dataclass(frozen=True, slots=True)
class _Filling:
    """What the bodies are made of."""

    seed: int
    ratio: float
    content: bytes | None
    checksum: bool

    def body(self, size: int, number: int) -> bytes:
        """What follows the head of one payload of the pool."""
        head = HEAD if size >= HEAD else COMPACT_HEAD
        length = size - head - (CHECKSUM if self.checksum else 0)
        body = self._random(int(length * self.ratio), number).ljust(length, b"\0")
        if self.content is not None:
            body = self.content[head : head + length]
        return body + zlib.crc32(body).to_bytes(CHECKSUM, "little") if self.checksum else body

    def _random(self, length: int, number: int) -> bytes:
        key = draws.subkey(~self.seed, number)  # the complement keeps bodies apart from the choosers' keys
        return draws.words(key, 0, length // 8 + 1).astype("<u8").tobytes()[:length]


def body_ok(data: bytes) -> bool:
    """Whether the body of one whole payload is as it was made, by its checksum (the profile's ``checksum: true``)."""
    head = HEAD if len(data) >= HEAD else COMPACT_HEAD
    if len(data) < head + CHECKSUM:
        return False
    return zlib.crc32(memoryview(data)[head:-CHECKSUM]) == int.from_bytes(data[-CHECKSUM:], "little")


class Chooser:
    """The payloads of one stream's messages, in order: message n's is a function of (seed, stream, n) alone."""

    def __init__(self, pool: PayloadPool, seed: int, stream: int) -> None:
        self._choice, self._key = pool.choice, draws.subkey(seed, stream)
        self._drawn, self._at = 0, 0
        self._block = np.empty(0, np.uint16)

    def take(self, n: int) -> NDArray[np.uint16]:
        """The payloads of the next ``n`` messages."""
        end = self._at + n
        if end > len(self._block):
            rest = self._block[self._at :]
            self._block = np.concatenate((rest, self._draw(n - len(rest)))) if len(rest) else self._draw(n)
            end, self._at = n, 0
        taken = self._block[self._at : end]
        self._at = end
        return taken

    def _draw(self, n: int) -> NDArray[np.uint16]:
        """At least ``n`` more, in blocks that grow with the stream: small takes become slices, short streams stay small."""
        first, count = self._drawn, max(n, min(4096, max(64, self._drawn)))
        self._drawn += count
        return self._choice.choose(draws.words(self._key, first, count))


def messages(pool: PayloadPool, heads: NDArray[np.uint8], payload: NDArray[np.uint16]) -> list[bytes]:
    """Whole payloads, for clients that take one message at a time; ``heads`` as ``envelope.encode_heads`` made them."""
    fronts = heads.view(_HEAD).ravel().tolist()
    if pool.compact:
        fronts = [front[:size] for front, size in zip(fronts, pool.head_size[payload].tolist(), strict=True)]
    return list(map(add, fronts, pool.body_column.take(payload).tolist()))
