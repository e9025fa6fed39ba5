"""``matrix: {messageSize: [100, 1KB], "driver.batchingEnabled": [true, false]}``: every combination of some keys' values."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pytest_loadtest.profile.merge import Unreachable, copied, dotted, merged, remove

if TYPE_CHECKING:
    from pytest_loadtest.profile.text import Document, Path

Combination = dict[str, "Path"]
"""Key → where the document has its value."""


def combinations(document: Document) -> tuple[Combination, ...]:
    """All of them, the last key's values changing fastest; none without a matrix. What is wrong with it goes to the document's problems."""
    if "matrix" not in document.value:
        return ()
    matrix = document.value["matrix"]
    if not isinstance(matrix, dict) or not matrix:
        document.refuse(("matrix",), "is no mapping of keys to lists", "write matrix: {messageSize: [100, 1KB]}")
        return ()
    for key, values in matrix.items():
        if dotted(key)[0] == "matrix" or key == "workloads":
            document.refuse(("matrix", key), "cannot be varied", "name keys of the profile")
        elif not isinstance(values, list) or not values:
            document.refuse(("matrix", key), "is no list of values", f"write {key}: [{values}, …]" if values else f"write {key}: [ … ]")
    if any(path[:1] == ("matrix",) for path in document.broken):
        return ()
    places = [[("matrix", key, i) for i in range(len(values))] for key, values in matrix.items()]
    return tuple(dict(zip(matrix, combination, strict=True)) for combination in itertools.product(*places))


def applied(document: Document, combination: Combination) -> Document:
    """The document without its matrix, its keys as one combination says. What cannot be goes to the problems of the result."""
    base = copied(document)
    remove(base, ("matrix",))
    try:
        return merged(base, {dotted(key): (document, at) for key, at in combination.items()})
    except Unreachable as error:
        key = next(key for key in combination if dotted(key) == error.path)
        base.problems.append(document.problem(("matrix", key), f"matrix.{key}: {error.message}", error.suggestion, at_key=True))
        return base
