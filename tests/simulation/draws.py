"""Random numbers that are keyed by what they are for, not by the order of calls: two plays of a world differ only where it was changed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


def uniform(
    seed: int, purpose: str, stream: NDArray[np.int32], seq: NDArray[np.int64], copy: int = 0
) -> NDArray[np.float64]:
    """Return a number in (0, 1) for each message. :param copy: the number of the copy."""
    with np.errstate(over="ignore"):
        key = np.uint64(seed & 0xFFFFFFFF) << np.uint64(32) | np.uint64(crc32(purpose.encode()))
        bits = _mixed(stream.astype(np.uint64) * _GOLDEN + key)
        bits = _mixed(bits ^ seq.astype(np.uint64))
        bits = _mixed(bits ^ np.uint64(copy + 1))
    return (bits >> np.uint64(11)).astype(np.float64) / 2.0**53 + 2.0**-54


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One step of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)."""
    bits = bits + _GOLDEN
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def lognormal(
    median: int, sigma: float, first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return durations, ns, from two uniform numbers each (Box and Muller, 1958)."""
    normal = np.sqrt(-2 * np.log(first)) * np.cos(2 * math.pi * second)
    return np.round(median * np.exp(sigma * normal)).astype(np.int64)
