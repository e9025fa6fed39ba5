"""Random numbers that are keyed by what they are for, not by the order of calls: two plays of a world differ only where it was changed."""

from __future__ import annotations

from functools import cache, lru_cache
from statistics import NormalDist
from typing import Final
from zlib import crc32

_MASK: Final = (1 << 64) - 1
_QUANTILES: Final = 4096


@lru_cache(maxsize=4096)
def _key(seed: int, purpose: str) -> int:
    return _mixed((seed & 0xFFFFFFFF) << 32 | crc32(purpose.encode()))


def _mixed(bits: int) -> int:
    """One step of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)."""
    bits = (bits + 0x9E3779B97F4A7C15) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)


@lru_cache(maxsize=4096)
def _stream_key(seed: int, purpose: str, stream: int) -> int:
    return _mixed(_key(seed, purpose) ^ stream)


def _bits(seed: int, purpose: str, stream: int, seq: int) -> int:
    return _mixed(_stream_key(seed, purpose, stream) ^ seq)


def uniform(seed: int, purpose: str, stream: int, seq: int) -> float:
    """Return a number in [0, 1) for a message."""
    return (_bits(seed, purpose, stream, seq) >> 11) * 2.0**-53


@cache
def _normal_quantiles() -> tuple[float, ...]:
    normal = NormalDist()
    return tuple(normal.inv_cdf((number + 0.5) / _QUANTILES) for number in range(_QUANTILES))


@cache
def _factors(sigma: float) -> tuple[float, ...]:
    import math

    return tuple(math.exp(sigma * quantile) for quantile in _normal_quantiles())


def lognormal(median: int, sigma: float, seed: int, purpose: str, stream: int, seq: int) -> int:
    """Return a duration for a message, ns."""
    return round(median * _factors(sigma)[_bits(seed, purpose, stream, seq) >> 52])
