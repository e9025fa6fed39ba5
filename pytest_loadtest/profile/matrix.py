"""``matrix: {messageSize: [100, 1KB], "driver.batchingEnabled": [true, false]}``: every combination of some keys' values.

Keys that belong together have names: ``matrix: {sessions: {clean: {driver.cleanStart: true}, kept: {driver.cleanStart: false, …}}}``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_loadtest.errors import UsageError
from pytest_loadtest.profile.merge import Unreachable, copied, dotted, merged, remove
from pytest_loadtest.profile.secrets import HIDDEN, secret, shown_key, shown_path, shown_value

if TYPE_CHECKING:
    from pytest_loadtest.profile.text import Document, Path

MOST_COMBINATIONS = 10_000
"""Each is a test."""


class Choice(NamedTuple):
    """One value of one axis. :param said: the value, or its name. :param label: in a test's id. :param places: key → where its value is."""

    said: object
    label: str
    places: dict[str, Path]


class Combination(NamedTuple):
    """One choice of each axis. :param id: of the test. :param places: key → where the document has its value."""

    id: str = ""
    places: Mapping[str, Path] = {}


class Variant(NamedTuple):
    """A combination as overrides. :param id: of the test. :param changes: key → value."""

    id: str
    changes: dict[str, object]


def combinations(document: Document, chosen: Mapping[str, object] | None = None) -> tuple[Combination, ...]:
    """All of them, the last axis changing fastest; none without a matrix. What is wrong with it goes to the document's problems.

    :param chosen: axis → the only value (or name) that is wanted of it, or a list of them.
    :raises UsageError: the matrix has no such axis, or the axis no such value.
    """
    if "matrix" not in document.value:
        return _nothing(chosen)
    axes = _axes(document)
    if any(path[:1] == ("matrix",) for path in document.broken):
        return ()
    axes = _narrowed(axes, chosen or {})
    number = math.prod(map(len, axes.values()))
    if number > MOST_COMBINATIONS:
        document.refuse(("matrix",), f"{number} combinations, at most {MOST_COMBINATIONS} are possible", "vary less")
        return ()
    return tuple(
        Combination("-".join(one.label for one in picked), {key: at for one in picked for key, at in one.places.items()})
        for picked in itertools.product(*axes.values())
    )


def _nothing(chosen: Mapping[str, object] | None) -> tuple[Combination, ...]:
    if chosen:
        raise UsageError(f"matrix={shown_value((), chosen)!r}: the profile has no matrix")
    return ()


def _axes(document: Document) -> dict[str, list[Choice]]:
    matrix = document.value["matrix"]
    if not isinstance(matrix, dict) or not matrix:
        document.refuse(("matrix",), "is no mapping of keys to lists", "write matrix: {messageSize: [100, 1KB]}")
        return {}
    owners: dict[str, str] = {}
    return {axis: _choices(document, axis, values, owners) for axis, values in matrix.items()}


def _choices(document: Document, axis: str, values: Any, owners: dict[str, str]) -> list[Choice]:
    """:param owners: key → the axis that varies it."""
    if isinstance(values, dict) and values:
        return [_named(document, axis, name, keys, owners) for name, keys in values.items()]
    if not isinstance(values, list) or not values:
        example = f"{shown_value((axis,), values)}, …" if values else " … "
        document.refuse(("matrix", axis), "is no list of values", f"write {shown_key(axis)}: [{example}]")
        return []
    _own(document, ("matrix", axis), axis, axis, owners)
    return [Choice(value, f"{axis}={_label(axis, value, i)}", {axis: ("matrix", axis, i)}) for i, value in enumerate(values)]


def _label(axis: str, value: Any, index: int) -> str:
    """A value in a test's id, which has no secret: then its number, as two such values have to differ."""
    shown = value if isinstance(value, str) and not secret((axis,)) else shown_value((axis,), value)
    return str(value) if shown == value else f"#{index + 1}"


def _named(document: Document, axis: str, name: str, keys: Any, owners: dict[str, str]) -> Choice:
    path = ("matrix", axis, name)
    if not isinstance(keys, dict) or not keys:
        document.refuse(path, "is no mapping of keys to values", f"write {name}: {{driver.qos: 0}}")
        return Choice(name, name, {})
    for key in keys:
        _own(document, (*path, key), key, axis, owners)
    return Choice(name, name, {key: (*path, key) for key in keys})


def _own(document: Document, path: Path, key: str, axis: str, owners: dict[str, str]) -> None:
    if dotted(key)[0] == "matrix" or key == "workloads":
        document.refuse(path, "cannot be varied", "name keys of the profile")
    elif owners.setdefault(key, axis) != axis:
        document.refuse(path, f"is varied by matrix.{owners[key]} too", "leave it to one of them")


def _narrowed(axes: dict[str, list[Choice]], chosen: Mapping[str, object]) -> dict[str, list[Choice]]:
    for axis, wanted in chosen.items():
        if axis not in axes:
            raise UsageError(f"matrix={{{axis!r}: …}}: the matrix has no such axis: choose of {', '.join(axes)}")
        values = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
        there = [one.said for one in axes[axis]]
        if not values or (missing := [value for value in values if value not in there]):
            said = HIDDEN if secret((axis,)) else ", ".join(map(str, there))
            asked = shown_value((axis,), missing[0] if values else wanted)
            raise UsageError(f"matrix={{{axis!r}: {asked!r}}}: not in the profile's matrix: choose of {said}")
        axes[axis] = [one for one in axes[axis] if one.said in values]
    return axes


def applied(document: Document, combination: Combination) -> Document:
    """The document without its matrix, its keys as one combination says. What cannot be goes to the problems of the result."""
    base = copied(document)
    remove(base, ("matrix",))
    try:
        return merged(base, {dotted(key): (document, at) for key, at in combination.places.items()})
    except Unreachable as error:
        path = next(at for key, at in combination.places.items() if dotted(key) == error.path)
        at = path if isinstance(path[-1], str) else path[:-1]
        base.problems.append(document.problem(at, f"{shown_path(at)}: {error.message}", error.suggestion, at_key=True))
        return base
