"""The ring of hashes that a Pulsar namespace is cut into bundles by, and names for topics that fall where they are wanted.

A topic's position is the CRC-32 (as in zlib) of its full name in UTF-8, ``persistent://tenant/namespace/name``; each partition is a topic
of its own, ``…-partition-0`` (Pulsar's ``NamespaceBundleFactory``: Guava's ``Hashing.crc32()``, padded to a long). A bundle holds the
positions from its lower end up to, but without, its upper one; the last bundle has the last position too.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

LAST: Final = 0xFFFFFFFF
"""The last position there is."""
_DIGITS: Final = 12  # octal: 36 free bits, of which some combination gives any 32
_BITS: Final = 3


def position(topic: str) -> int:
    """Where a topic falls. :param topic: its full name."""
    return zlib.crc32(topic.encode())


def suffix(prefix: str, wanted: int) -> str:
    """Twelve octal digits by which ``prefix + suffix`` falls on a position.

    CRC-32 of texts of one length is affine in their bits, and the three low bits of an octal digit are free: so this is a system of 32
    equations over 36 unknown bits, which has a solution whatever the prefix is. Of several, always the same.

    :raises ValueError: no position.
    """
    if not 0 <= wanted <= LAST:
        raise ValueError(f"{wanted} is no position: 0 to {LAST} (0xffffffff)")
    zero = ["0"] * _DIGITS
    base = position(prefix + "".join(zero))
    chosen, left = 0, wanted ^ base
    for effect, bits in _eliminated(prefix, base):
        if left ^ effect < left:
            left, chosen = left ^ effect, chosen ^ bits
    assert not left
    return f"{chosen:0{_DIGITS}o}"


def _eliminated(prefix: str, base: int) -> list[tuple[int, int]]:
    """What the free bits do to the position, combined so that each has a highest bit of its own; descending. (effect, bits)."""
    rows: list[tuple[int, int]] = []
    for bit in range(_DIGITS * _BITS):
        bits = 1 << bit
        effect = position(f"{prefix}{bits:0{_DIGITS}o}") ^ base
        for other, others in rows:
            if effect ^ other < effect:
                effect, bits = effect ^ other, bits ^ others
        if effect:
            rows = sorted([*rows, (effect, bits)], reverse=True)
    return rows


class Bundle(NamedTuple):
    """One bundle, by its two ends."""

    low: int
    high: int

    def __str__(self) -> str:
        """As the admin REST spells it: ``0x00000000_0xffffffff``."""
        return f"0x{self.low:08x}_0x{self.high:08x}"

    def __contains__(self, where: object) -> bool:
        """Whether a position is in it."""
        return isinstance(where, int) and (self.low <= where < self.high or where == self.high == LAST)


@dataclass(frozen=True, slots=True)
class Ring:
    """How a namespace is cut. :param boundaries: ascending, both ends included."""

    boundaries: tuple[int, ...] = (0, LAST)

    @property
    def bundles(self) -> tuple[Bundle, ...]:
        """In the order of their positions."""
        return tuple(Bundle(low, high) for low, high in pairwise(self.boundaries))

    def bundle(self, where: int) -> Bundle:
        """The bundle that a position is in."""
        return self.bundles[min(bisect_right(self.boundaries, where), len(self.boundaries) - 1) - 1]

    def cut(self, at: Iterable[int]) -> Ring:
        """The ring with more boundaries; the position of a boundary belongs to the upper bundle."""
        return Ring(tuple(sorted({*self.boundaries, *at})))
