"""A history file as a table."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report import history

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


def series(path: Path, wanted: str = "") -> list[dict[str, Any]]:
    """Of each test one. :param wanted: a part of a node id or of a profile's name.

    :raises UsageError: the file cannot be read, or has none of it.
    """
    lines, wrong = history.read_history(path)
    if wrong:
        print(f"{path}: {wrong} lines are none of a history, or of a later version; they are left out", file=sys.stderr)
    found = [line for line in lines if wanted in line["test"] or wanted in line["profile"]]
    if not found:
        raise UsageError(f"{path} has no run{f' of {wanted!r}' if wanted else ''}")
    return history.build_trend(found)


def in_words(found: Sequence[dict[str, Any]], *, unicode: bool) -> Iterable[str]:
    """A table for each test."""
    return history.trend_table(found, unicode=unicode)


def in_json(found: Sequence[dict[str, Any]]) -> str:
    """For programs, and for whoever draws it."""
    return json.dumps(found, indent=1, ensure_ascii=False)
