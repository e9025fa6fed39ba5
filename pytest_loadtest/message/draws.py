"""Random draws that are the same on every machine and with every numpy version: a counter hash and
a weighted choice.

Draw number i of a key is a pure function of (key, i): splitmix64's finaliser (Steele, Lea, Flood,
"Fast splittable pseudorandom number generators", 2014) over ``(i + 1) * golden ^ key``, a dozen
integer operations. A numpy Generator is not used, because numpy promises stable streams only for
its bit generators, not for ``Generator.choice`` or ``integers``. Random access also makes draws
independent of how messages are cut into bursts, and the state of a stream is one integer.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.message.streams import stream_column
from pytest_loadtest.values.records import immutable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.message.streams import Streams

MASK64: Final = 2**64 - 1
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX2: Final = np.uint64(0x94D049BB133111EB)
_27: Final = np.uint64(27)
_30: Final = np.uint64(30)
_31: Final = np.uint64(31)


def draw_range(key: int, first: int, count: int) -> NDArray[np.uint64]:
    """Return draws ``first`` to ``first + count - 1`` of a key, uniform over 64 bits."""
    # from 1, as splitmix64 does: key 0 gives its published numbers
    drawn = np.arange(first + 1, first + count + 1, dtype=np.uint64)
    drawn *= _GOLDEN
    # XOR, not a sum: with a sum all keys would be windows on one common sequence
    drawn ^= np.uint64(key & MASK64)
    return _finalise(drawn)


def draw_each(keys: NDArray[np.uint64], numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return draw ``numbers[i]`` of key ``keys[i]``, for each ``i``."""
    drawn = numbers.astype(np.uint64)
    drawn += np.uint64(1)
    drawn *= _GOLDEN
    drawn ^= keys
    return _finalise(drawn)


def _finalise(drawn: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # in place, with one temporary: this runs for each message
    shifted = drawn >> _30
    drawn ^= shifted
    drawn *= _MIX1
    np.right_shift(drawn, _27, out=shifted)
    drawn ^= shifted
    drawn *= _MIX2
    np.right_shift(drawn, _31, out=shifted)
    drawn ^= shifted
    return drawn


def subkey(key: int, index: int) -> int:
    """Return a key derived from ``key`` for an index (of a payload)."""
    return int(draw_range(key, index, 1)[0])


def subkeys(key: int, indexes: Streams) -> NDArray[np.uint64]:
    """Return the :func:`subkey` of each index (of the streams of a worker)."""
    numbers = stream_column(indexes)
    return draw_each(np.full(len(numbers), key & MASK64, np.uint64), numbers)


@immutable
class WeightedChoice:
    """A weighted choice by Walker's alias method, in integers: slots of equal width, each split
    between two choices.

    The top ``64 - shift`` bits of a draw are its slot. A draw below ``split`` gives the slot's own
    choice, any other its alias. A choice of weight 0 has no draw at all, because its part of its
    slot is empty.

    :param split: uint64, one per slot.
    :param own: uint16.
    :param alias: uint16.
    """

    shift: np.uint64
    split: NDArray[np.uint64]
    own: NDArray[np.uint16]
    alias: NDArray[np.uint16]

    def choose(self, drawn: NDArray[np.uint64]) -> NDArray[np.uint16]:
        """Return one choice for each draw."""
        slot = (drawn >> self.shift).view(np.int64)
        return np.where(drawn < self.split.take(slot), self.own.take(slot), self.alias.take(slot))


def weighted_choice(weights: Sequence[float]) -> WeightedChoice:
    """Make the alias table of relative weights: each share is exact to 2**-63, and zero stays zero.

    :raises ValueError: a negative weight, no weight above 0, or more than 65536 of them.
    """
    shares = _shares(weights)
    bits = max(1, (len(shares) - 1).bit_length())
    slots = 1 << bits
    width = 1 << (64 - bits)
    left = shares + [0] * (slots - len(shares))
    alias = list(range(slots))
    split = [slot * width for slot in range(slots)]

    small = [slot for slot in range(slots) if left[slot] < width]
    large = [slot for slot in range(slots) if left[slot] >= width]
    while small:
        slot = small.pop()
        giver = large[-1]
        split[slot] += left[slot]
        alias[slot] = giver
        left[giver] -= width - left[slot]
        if left[giver] < width:
            small.append(large.pop())
    # What is left in ``large`` is exactly full: its alias, the slot itself, gets everything.

    return WeightedChoice(
        shift=np.uint64(64 - bits),
        split=np.array(split, np.uint64),
        own=np.arange(slots, dtype=np.uint16),
        alias=np.array(alias, np.uint16),
    )


def sparse_choice(weights: NDArray[np.float64]) -> WeightedChoice:
    """Make the alias table of the weights above 0 alone, so that its draws do not depend on the
    number or position of zeros.
    """
    above = np.flatnonzero(weights).astype(np.uint16)
    table = weighted_choice(weights[above].tolist())
    # slots beyond the last are all alias
    padded = np.pad(above, (0, len(table.own) - len(above)), mode="edge")
    return replace(table, own=padded[table.own], alias=padded[table.alias])


def _shares(weights: Sequence[float]) -> list[int]:
    """Return whole shares of 2**64 in proportion to the weights; the heaviest gets the remainder of
    rounding.
    """
    if not 0 < len(weights) <= 1 << 16 or min(weights) < 0 or max(weights) <= 0:
        raise ValueError(
            f"{len(weights)} weights leave nothing to choose from:"
            " give 1 to 65536, none negative, at least one above 0"
        )
    exact = list(map(Fraction, weights))
    total = sum(exact)
    shares = [int(weight * 2**64 / total) for weight in exact]
    shares[exact.index(max(exact))] += 2**64 - sum(shares)
    return shares
