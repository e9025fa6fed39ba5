"""Random draws that a seed and a name repeat exactly."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")


class Dice(random.Random):
    """A source of random numbers with the draws that worlds need."""

    def chance(self, share: float) -> bool:
        """Return True with this probability."""
        return self.random() < share

    def between(self, low: float, high: float) -> float:
        """Return a number whose logarithm is uniform: each order of magnitude is as likely as any other."""
        return math.exp(self.uniform(math.log(low), math.log(high)))

    def whole(self, low: int, high: int) -> int:
        """Return a whole number as :meth:`between`, with both ends possible."""
        return min(max(round(self.between(low, high + 0.499)), low), high)

    def weighted(self, weights: Mapping[T, float]) -> T:
        """Return a key by its weight."""
        return self.choices(list(weights), list(weights.values()))[0]

    def some(self, items: Sequence[T], most: int) -> list[T]:
        """Return 1 to ``most`` different items in their order."""
        number = self.randint(1, max(min(most, len(items)), 1))
        chosen = sorted(self.sample(range(len(items)), min(number, len(items))))
        return [items[index] for index in chosen]


def dice(*key: object) -> Dice:
    """Return the dice of a key: the same key gives the same draws in every process and Python version.

    Each aspect of a world has dice of its own, so that one aspect that is left out does not change the others.
    """
    source = Dice()
    source.seed(" ".join(str(part) for part in key))
    return source


def significant(value: float, digits: int = 3) -> float:
    """Round to so many significant digits."""
    return float(f"{value:.{digits}g}")


def span(ns: float) -> str:
    """Write a duration for a profile, in whole milliseconds where it has any: ``1500ms``, ``5s``, ``700us``."""
    if ns >= 1e9 and ns % 1e9 == 0:
        return f"{int(ns // 1e9)}s"
    if ns >= 1e6:
        return f"{round(ns / 1e6)}ms"
    return f"{max(round(ns / 1e3), 1)}us"


def percent(share: float) -> str:
    """Write a share for a profile: ``0.25%``."""
    return f"{significant(share * 100):.10f}".rstrip("0").rstrip(".") + "%"
