"""The first foreign and corrupt messages of a run, which show where they come from.

Workers keep them, and the controller merges those of all workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pytest_loadtest.values.fields import Count  # noqa: TC001 - results documents look it up
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMED: Final = 3
"""The number of messages of each kind that are kept; their counts are exact."""
BEGINNING: Final = 64
"""The number of bytes of their bodies that are kept."""

StrayKind = Literal["foreign", "corrupt"]


@record
class Stray:
    """A foreign or corrupt message."""

    kind: StrayKind
    """foreign or corrupt"""
    at: int
    """ns after the start of the measured phase; negative: before it"""
    topic: str
    """its name, or that of the topics that its consumer reads"""
    size: Count
    """bytes of the body"""
    beginning: str | None
    """at most the first 64 bytes of the body, as in a bytes literal of Python: printable ASCII
    characters, and escapes; null where they are unknown"""


def printable(data: bytes) -> str:
    """Return bytes as printable ASCII characters, and escapes of Python for all others, as between
    ``b'`` and ``'``.
    """
    text = ascii(data)
    # Python chooses the other quotes where an apostrophe would need an escape.
    return text[2:-1].replace("'", r"\'") if text[1] == '"' else text[2:-1]


def first_strays(strays: Iterable[Stray]) -> tuple[Stray, ...]:
    """Return the first messages of each kind, in the order of time."""
    ordered = sorted(strays, key=lambda stray: stray.at)
    foreign = [stray for stray in ordered if stray.kind == "foreign"]
    corrupt = [stray for stray in ordered if stray.kind == "corrupt"]
    return (*foreign[:NAMED], *corrupt[:NAMED])
