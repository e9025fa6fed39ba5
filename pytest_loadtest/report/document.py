"""One run as a JSON document, version 4: everything that any report shows, and nothing that has to be computed again.

Times are ns, rates msg/s, sizes bytes; null means "not measured" or "not applicable", never zero. ``results.schema.json`` beside
this module describes every key. Unknown keys are not allowed, so that a reader may rely on ``version``.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

VERSION: Final = 4

Document = dict[str, Any]
OUTCOMES: Final = ("no data", "generator-limited", "missed", "met")
"""Worst first."""
MISSES_FIRST: Final = ("missed", "generator-limited", "no data", "met")
"""The order of objectives: what did not hold, then what could not be told."""


def results_schema() -> Document:
    """The JSON Schema (draft 2020-12) of the document."""
    text = files("pytest_loadtest.report").joinpath("results.schema.json").read_text(encoding="utf-8")
    document: Document = json.loads(text)
    return document


def dumps(document: Document) -> str:
    """As text: a line for each key, and for each entry of a list of sections; numbers of a list side by side. NaN is not JSON.

    :raises ValueError: a NaN or an infinity got into the document.
    """
    return _text(document, "\n") + "\n"


def _text(node: Any, line: str) -> str:
    """:param line: the line break before the node's own line, with its indentation."""
    inner = line + " "
    if isinstance(node, dict) and node:
        return "{" + ",".join(f"{inner}{_short(key)}: {_text(value, inner)}" for key, value in node.items()) + line + "}"
    if isinstance(node, list) and any(isinstance(entry, dict | list) for entry in node):
        return "[" + ",".join(inner + _short(entry) for entry in node) + line + "]"
    return _short(node)


def _short(node: Any) -> str:
    return json.dumps(node, ensure_ascii=False, allow_nan=False)
