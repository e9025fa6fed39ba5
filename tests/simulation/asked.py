"""The load that a profile asks for, and how profiles write durations and rates.

Nothing of the product is used: the load is the integral of the rate as the docs describe it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from simulation.world import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

HELD: Final = 100 * MS
"""ns for which a ramp and a sine hold each rate, at most (docs/reference/profile.md, stages)."""
FINE: Final = 1e-3
"""Rates that change are exact to a thousandth of a message per second."""

Profile = dict[str, Any]


def span_of(text: str) -> int:
    """Return a duration of a profile, ns: ``2500ms``."""
    match = re.fullmatch(r"([\d.]+)(us|ms|s|min)", text)
    assert match is not None, text
    return round(float(match[1]) * {"us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9}[match[2]])


def rate_of(value: Any) -> float:
    """Return a rate, in messages or bytes per second."""
    return float(value.removesuffix("B/s")) if isinstance(value, str) else float(value)


def share_of(text: str) -> float:
    """Return a share of a profile: ``20%``."""
    return float(text.removesuffix("%")) / 100


@dataclass(frozen=True)
class Piece:
    """A time in which the rate is constant, ns and per second."""

    length: int
    rate: float


def _pieces(rate: Any, length: int) -> list[Piece]:
    """Return the pieces of a stage (docs/howto/shape-the-load.md)."""
    if not isinstance(rate, dict):
        return [Piece(length, rate_of(rate))]
    if "from" in rate:
        first, last = rate_of(rate["from"]), rate_of(rate["to"])
        return _held(length, lambda time: first + (last - first) * time / length)
    if "sine" in rate:
        sine = rate["sine"]
        mean, swing = rate_of(sine["mean"]), rate_of(sine["amplitude"])
        period = span_of(sine["period"])
        turn = 2 * math.pi / period
        held = min(HELD, period // 10)
        return _held(length, lambda time: mean + swing * math.sin(turn * time), held)
    if "spike" in rate:
        spike = rate["spike"]
        base, peak = rate_of(spike["base"]), rate_of(spike["peak"])
        begin, long = span_of(spike["at"]), span_of(spike["for"])
        parts = [(begin, base), (long, peak), (length - begin - long, base)]
        return [Piece(part, level) for part, level in parts if part > 0]
    levels = [rate_of(level) for level in rate["replay"]]
    edges = [length * number // len(levels) for number in range(len(levels) + 1)]
    return [Piece(edges[i + 1] - edges[i], level) for i, level in enumerate(levels)]


def _held(length: int, rate: Callable[[float], float], held: int = HELD) -> list[Piece]:
    """Return the pieces of a rate that changes, each of which has the rate of its middle (docs/reference/profile.md, stages)."""
    edges = [*range(0, length, held), length]
    return [Piece(end - begin, rate((begin + end) / 2)) for begin, end in pairwise(edges)]


@dataclass(frozen=True)
class Due:
    """The load that a profile asks for in a phase, as the integral of its rate (docs/howto/shape-the-load.md)."""

    pieces: tuple[Piece, ...]
    in_bytes: bool

    @classmethod
    def of(cls, profile: Profile, duration: int) -> Due:
        """Return the load of a profile. :param duration: ns, where the profile has no stages."""
        rates = [
            profile.get("producerRate"),
            *(stage.get("rate") for stage in profile.get("stages", ())),
        ]
        pieces = []
        for stage in profile.get("stages", ()):
            pieces += _pieces(
                stage.get("rate", profile.get("producerRate")), span_of(stage["duration"])
            )
        return cls(tuple(pieces or _pieces(profile["producerRate"], duration)), "B/s" in str(rates))

    @property
    def length(self) -> int:
        return sum(piece.length for piece in self.pieces)

    def amount(self, time: int) -> float:
        """Return the integral from the phase's start until ``time``, ns."""
        total = 0.0
        for piece in self.pieces:
            total += piece.rate * min(max(time, 0), piece.length) / SECOND
            time -= piece.length
        return total

    def messages(self, time: int) -> int | None:
        """Return the number of messages due before ``time``; None if it is not exact. A message is due at each whole amount."""
        amount = self.amount(time)
        distance = abs(amount - round(amount))
        if self.in_bytes:
            return None
        # Rates have four digits at most, times are in ms: what is nearer to a whole number is rounding.
        if distance < 1e-6:
            return round(amount)
        if len(self.pieces) > 1 and distance < FINE * time / SECOND:
            return None
        return math.ceil(amount)
