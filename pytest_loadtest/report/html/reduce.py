"""Fewer points for long runs: each keeps the largest and the smallest value of what it stands for, and nothing is averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    Values = Sequence[float | None]

POINTS: Final = 1200
"""Of a series; more than a screen has columns for."""


def even_spans(length: int, most: int = POINTS) -> list[tuple[int, int]]:
    """Neighbouring, equally long parts of a list, first and one past last; the last may be shorter. One for each entry where all fit."""
    width = max(-(-length // most), 1)
    return [(first, min(first + width, length)) for first in range(0, length, width)]


def span_extremes(values: Values, most: int = POINTS) -> tuple[list[float | None], list[float | None]]:
    """Largest and smallest known value of each span; None where none is known."""
    known = [[value for value in values[first:last] if value is not None] for first, last in even_spans(len(values), most)]
    return [max(group, default=None) for group in known], [min(group, default=None) for group in known]
