"""Facts of JSON as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_loadtest.report.html.blocks import Table

if TYPE_CHECKING:
    from collections.abc import Iterator


def facts_table(caption: str, facts: Mapping[str, Any]) -> Table:
    """Names and values; those of a mapping within have both names."""
    return Table(caption=caption, head=("what", "value"), rows=list(_flat(facts)))


def _flat(facts: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", fact_text(value)


def fact_text(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
