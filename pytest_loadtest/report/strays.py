"""The first foreign and corrupt messages of a run, for terminal, page and Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.report.tables import Table
from pytest_loadtest.values.quantities import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.metrics.strays import Stray
    from pytest_loadtest.report.measurements_section import MeasurementsSection
    from pytest_loadtest.report.sections import Labelled

SHOWN: Final = 40
"""Characters of a message in the terminal."""
UNKNOWN: Final = "unknown"


def stray_facts(measured: MeasurementsSection) -> Iterator[Labelled]:
    """Yield the first foreign and the first corrupt message, on one line."""
    firsts: dict[str, str] = {}
    for stray in measured.strays:
        beginning = _beginning(stray)
        if len(beginning) > SHOWN:
            beginning = f"{beginning[:SHOWN]}…"
        text = f"{stray.kind} on {stray.topic}, {format_size(stray.size)}: {beginning}"
        firsts.setdefault(stray.kind, text)
    if firsts:
        yield "first", "; ".join(firsts.values())


def stray_tables(measured: MeasurementsSection) -> Iterator[Table]:
    """Yield the table of these messages if there are any."""
    rows = []
    for stray in measured.strays:
        when = format_duration(abs(stray.at)) + (" before load" if stray.at < 0 else "")
        rows.append((stray.kind, stray.topic, when, format_size(stray.size), _beginning(stray)))
    if rows:
        caption = "The first foreign and corrupt messages"
        head = ("kind", "topic", "time", "size", "first bytes")
        yield Table(caption=caption, head=head, align="<<>><", rows=rows)


def _beginning(stray: Stray) -> str:
    return UNKNOWN if stray.beginning is None else stray.beginning
