"""A rule that the results of a world violate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """A violated rule. :param text: what is wrong, with the numbers."""

    rule: str
    text: str
