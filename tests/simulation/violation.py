"""A rule that the results of a world violate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """A violated rule.

    :param text: what is wrong, with the numbers. :param margin: the name of the margin (margins.py) that explains it, so that it is only
        counted; empty if nothing does.
    """

    rule: str
    text: str
    margin: str = ""
