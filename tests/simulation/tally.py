"""Which laws were applied to how many worlds, and how many needed each margin: neither a law that is never tried proves anything, nor a
world that a wide margin accepts.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from simulation.campaign import IN_PROCESS, JAVA
from simulation.laws import LAWS
from simulation.margins import MARGINS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from simulation.campaign import Report

TRIED: Final = (*(law.name for law in LAWS), "determinism", IN_PROCESS)
"""Laws that a large run must have applied; with ``--spark`` also :data:`JAVA`."""


class Tally:
    """Counts of laws and margins over many worlds."""

    def __init__(self) -> None:
        self._laws: Counter[str] = Counter()
        self._margins: Counter[str] = Counter()

    def add(self, report: Report) -> None:
        self._laws.update(report.tried)
        self._margins.update(report.margins)

    def missing(self, *, spark: bool) -> list[str]:
        """Return the laws that were never applied."""
        wanted = (*TRIED, JAVA) if spark else TRIED
        return [f"law: {law}" for law in wanted if not self._laws[law]]

    def lines(self) -> Iterator[str]:
        """Yield the counts as text."""
        yield _line("laws applied", (*TRIED, JAVA), self._laws)
        yield _line("worlds that needed a margin", MARGINS, self._margins)


def _line(title: str, names: Iterable[str], counts: Counter[str]) -> str:
    every = dict.fromkeys((*names, *counts))
    return f"{title}: {', '.join(f'{name} {counts[name]}' for name in every)}"
