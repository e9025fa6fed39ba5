"""Documents merged, and the matrix of a profile.

The rule: the keys of one document replace those of another, with the keys that they exclude, and
each value keeps its place in the text, or in the list of overrides.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pytest_loadtest.errors import Invalid, Path, Problem, UsageError
from pytest_loadtest.kinds.registry import DEFAULT
from pytest_loadtest.profile.secrets import secret, shown_key, shown_path, shown_text, shown_value
from pytest_loadtest.profile.text import Document, Place
from pytest_loadtest.values.addresses import HIDDEN

# A profile has at most one key of each group: a change that sets one removes the others.
_INSTEAD = (
    ("messageSize", "messageSizeDistribution"),
    ("warmupDuration", "warmupDurationMinutes"),
)
_TRAFFIC = (("testDuration", "testDurationMinutes", "messages", "stages"),)
# With messages: 0 a profile has a duration, and no rate.
_NO_TRAFFIC = (
    ("testDuration", "testDurationMinutes", "stages"),
    ("messages", "producerRate", "search", "stages"),
)
# Keys that need another one: a change that removes that one removes them too.
_WITH = {
    "messageSize": ("payloadsPerBucket", "representative"),
    "messageSizeDistribution": ("payloadFile",),
}
_TOP = ("workloads", "matrix")
_FLAT = (("abort",), ("slo", "regression"), ("slo", "drift"))
"""Sections whose keys may contain dots: ``endToEndLatency.p99``."""
OVERRIDE = 0
"""The line of a value that comes from an override, not from a text; its column is the number of the
override."""


def copied(document: Document) -> Document:
    """Return a document that can be changed without changing this one."""
    return replace(
        document,
        value=_copy(document.value),
        values=dict(document.values),
        keys=dict(document.keys),
        broken=set(document.broken),
        problems=[],
    )


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def dotted(key: str) -> Path:
    """Split a key at its dots: ``driver.batchingEnabled``.

    The dot in ``p99.9`` belongs to the name.
    """
    return tuple(re.split(r"\.(?!\d)", key))


def remove_key(document: Document, path: Path) -> None:
    """Remove a key, with everything below it."""
    holder = value_at(document.value, path[:-1])
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
    for places in (document.values, document.keys):
        for below in _within(places, path):
            del places[below]
    document.broken.difference_update(_within(document.broken, path))


def put(document: Document, path: Path, other: Document, at: Path) -> None:
    """Set the value of ``document`` at ``path`` to the one of ``other`` at ``at``.

    Missing mappings on the way are created.

    :raises Invalid: a value on the way is not a mapping.
    """
    key = other.keys.get(at, other.values[at])
    holder: Any = document.value
    for depth, step in enumerate(path[:-1], 1):
        if isinstance(holder, dict) and step not in holder:
            document.keys[path[:depth]] = document.values[path[:depth]] = key
            holder[step] = {}
        holder = holder[step]
        if not isinstance(holder, dict | list):
            message = f"{shown_path(path[:depth])} is not a section"
            raise Invalid(Problem(path, message, "replace it as a whole"))
    remove_key(document, path)
    holder[path[-1]] = _copy(value_at(other.value, at))
    document.values |= _moved(other.values, at, path)
    document.keys |= _moved(other.keys, at, path)
    document.keys[path] = key
    document.broken |= {(*path, *below[len(at) :]) for below in _within(other.broken, at)}


def _within(paths: Iterable[Path], at: Path) -> list[Path]:
    """Return the paths at and below another one."""
    return [path for path in paths if path[: len(at)] == at]


def _moved(places: Mapping[Path, Place], at: Path, to: Path) -> dict[Path, Place]:
    """Return the places at and below ``at`` by their paths at and below ``to``."""
    return {(*to, *path[len(at) :]): places[path] for path in _within(places, at)}


def value_at(value: Any, path: Path) -> Any:
    """Return the part of a document's value at a path, or None."""
    for step in path:
        if isinstance(value, list) and isinstance(step, int):
            value = value[step]
        elif isinstance(value, dict):
            value = value.get(step)
        else:
            return None
    return value


def _remove_replaced(document: Document, prefix: Path, new: Mapping[str | int, Any]) -> None:
    """Remove the keys below ``prefix`` that the ``new`` ones replace."""
    names = set(new)
    messages = new.get("messages")
    if not messages and messages != 0:
        messages = value_at(document.value, (*prefix, "messages"))
    replaced = set()
    for group in (*_INSTEAD, *(_NO_TRAFFIC if messages == 0 else _TRAFFIC)):
        if names & {*group}:
            replaced.update(group)
    for name in names:
        replaced.update(_WITH.get(str(name), ()))
    if "search" in names:
        replaced.add("producerRate")
    elif new.get("producerRate"):  # 0 asks for a search
        replaced.add("search")
    for key in replaced - names:
        remove_key(document, (*prefix, key))


def merged(base: Document, changes: Mapping[Path, tuple[Document, Path]]) -> Document:
    """Return ``base`` with other values for some keys.

    :param changes: path of a key → the document that has its value, and the path there. A value of
        None removes the key.
    :raises Invalid: a path leads through a value that is not a mapping, or to a key that every
        workload replaces.
    """
    document = copied(base)
    targets = {path: _folded(document, _reached(document, path)) for path in changes}
    for prefix in {path[:-1] for path in targets.values()}:
        if not prefix or prefix[0] == "workloads":
            new = {}
            for path, at in targets.items():
                if at[:-1] == prefix:
                    other, there = changes[path]
                    new[at[-1]] = value_at(other.value, there)
            _remove_replaced(document, prefix, new)
    for path in targets.values():
        _remove_scaled(document, path)
    for path, (other, at) in changes.items():
        in_driver = path[0] == "driver" and len(path) > 1
        if in_driver and "driver" not in document.value and ("driver", "name") not in changes:
            place = other.keys.get(at, other.values[at])
            put(document, ("driver", "name"), Document(value=DEFAULT, values={(): place}), ())
        if value_at(other.value, at) is None:
            remove_key(document, targets[path])
        else:
            put(document, targets[path], other, at)
    return document


def _remove_scaled(document: Document, path: Path) -> None:
    """Remove the bound for scaled runs that belongs to a replaced bound.

    The new one applies to scaled runs too.
    """
    prefix: Path = path[:2] if path[0] == "workloads" else ()
    rest = path[len(prefix) :]
    if rest[:1] in (("slo",), ("generator",)):
        remove_key(document, (*prefix, "scaled", *rest[:2]))


def _reached(document: Document, path: Path) -> Path:
    """Return the path with the number of a workload instead of its name."""
    entries = document.value.get("workloads")
    if not isinstance(entries, list) or path == ("workloads",):
        return path
    if path[0] != "workloads":
        if entries and all(isinstance(entry, dict) and path[0] in entry for entry in entries):
            remedy = f"write workloads.{entries[0].get('name')}.{shown_path(path)}"
            raise Invalid(Problem(path, f"every workload has its own {path[0]}", remedy))
        return path
    names = [value_at(entry, ("name",)) for entry in entries]
    if len(path) == 2 or path[1] not in names:
        known = ", ".join(str(name) for name in names)
        remedy = f"write workloads.NAME.key with one of {known}"
        raise Invalid(Problem(path, f"there is no workload {path[1]!r}", remedy))
    return ("workloads", names.index(path[1]), *path[2:])


def _folded(document: Document, path: Path) -> Path:
    """Return the path with the rest below a flat section as one key with dots.

    If the section has the rest as nested keys, the path stays.
    """
    for section in _FLAT:
        for end in range(len(section), len(path) - 1):
            if path[end - len(section) : end] == section and value_at(document.value, path) is None:
                return (*path[:end], ".".join(map(str, path[end:])))
    return path


def entry(document: Document, index: int) -> Document:
    """Return one entry of ``workloads``, a mapping, as a document.

    Its keys replace those next to the list.
    """
    path: Path = ("workloads", index)
    base = copied(document)
    remove_key(base, ("workloads",))
    base.values[()] = document.values[path]
    changes: dict[Path, tuple[Document, Path]] = {}
    for key in document.value["workloads"][index]:
        if key not in _TOP:
            changes[key,] = (document, (*path, key))
    return merged(base, changes)


def from_values(values: Mapping[str, object], first: int = 0) -> Document:
    """Make a document of Python values.

    The place of each value is (:data:`OVERRIDE`, number of its key).

    :param first: number of the first key.
    :raises TypeError: YAML has no such value; the error has its key.
    """
    document = Document(value={}, values={(): Place(OVERRIDE, first)})
    for number, (key, value) in enumerate(values.items(), first):
        document.keys[key,] = Place(OVERRIDE, number, key)
        try:
            document.value[key] = _plain_value(value, (key,), number, document)
        except TypeError:
            raise TypeError(key) from None
    return document


def _plain_value(value: object, path: Path, number: int, document: Document) -> Any:
    if isinstance(value, Mapping):
        plain: Any = {}
        document.values[path] = Place(OVERRIDE, number)
        for name, item in value.items():
            document.keys[*path, str(name)] = Place(OVERRIDE, number, str(name))
            plain[str(name)] = _plain_value(item, (*path, str(name)), number, document)
        return plain
    if isinstance(value, list | tuple):
        document.values[path] = Place(OVERRIDE, number)
        return [_plain_value(item, (*path, i), number, document) for i, item in enumerate(value)]
    if not isinstance(value, str | bool | int | float) and (value is not None or len(path) > 1):
        raise TypeError
    if secret(path):
        written = ""
    elif isinstance(value, str):
        written = shown_text(value)
    else:
        written = json.dumps(value)
    document.values[path] = Place(OVERRIDE, number, written)
    return value


# ``matrix: {messageSize: [100, 1KB], "driver.batchingEnabled": [true, false]}``: every combination
# of the values of some keys.
#
# Keys that change together have a name:
# ``matrix: {sessions: {clean: {driver.cleanStart: true}, kept: {driver.cleanStart: false, …}}}``.

MOST_COMBINATIONS = 10_000
"""The largest number of combinations, each of which is a test."""


class Choice(NamedTuple):
    """One value of one axis.

    :param value: or its name. :param label: its part of a test's id.
    :param places: key → path of its value.
    """

    value: object
    label: str
    places: dict[str, Path]


class Combination(NamedTuple):
    """One choice of each axis.

    :param id: the test's id. :param places: key → path of its value in the document.
    """

    id: str = ""
    places: Mapping[str, Path] = {}


class Variant(NamedTuple):
    """A combination as overrides. :param id: the test's id. :param changes: key → value."""

    id: str
    changes: dict[str, object]


def combinations(
    document: Document, chosen: Mapping[str, object] | None = None
) -> tuple[Combination, ...]:
    """Return all combinations, the last axis changing fastest; none without a matrix.

    Problems are added to the document.

    :param chosen: axis → the value (or name) to keep, or a list of them.
    :raises UsageError: the matrix has no such axis, or the axis no such value.
    """
    if "matrix" not in document.value:
        if chosen:
            raise UsageError(f"matrix={shown_value((), chosen)!r}: the profile has no matrix")
        return ()
    axes = _axes(document)
    if any(path[:1] == ("matrix",) for path in document.broken):
        return ()
    axes = _narrowed(axes, chosen or {})
    number = math.prod(map(len, axes.values()))
    if number > MOST_COMBINATIONS:
        message = f"{number} combinations, at most {MOST_COMBINATIONS} are possible"
        document.refuse(("matrix",), message, "write fewer values")
        return ()
    return tuple(_combination(choices) for choices in itertools.product(*axes.values()))


def _combination(choices: Iterable[Choice]) -> Combination:
    labels = []
    places: dict[str, Path] = {}
    for choice in choices:
        labels.append(choice.label)
        places |= choice.places
    return Combination("-".join(labels), places)


def _axes(document: Document) -> dict[str, list[Choice]]:
    matrix = document.value["matrix"]
    if not isinstance(matrix, dict) or not matrix:
        remedy = "write matrix: {messageSize: [100, 1KB]}"
        document.refuse(("matrix",), "is not a mapping of keys to lists", remedy)
        return {}
    owners: dict[str, str] = {}
    return {axis: _choices(document, axis, values, owners) for axis, values in matrix.items()}


def _choices(document: Document, axis: str, values: Any, owners: dict[str, str]) -> list[Choice]:
    """Return the choices of one axis. :param owners: key → the axis that varies it."""
    if isinstance(values, dict) and values:
        return [_named(document, axis, name, keys, owners) for name, keys in values.items()]
    if not isinstance(values, list) or not values:
        example = f"{shown_value((axis,), values)}, …" if values else " … "
        remedy = f"write {shown_key(axis)}: [{example}]"
        document.refuse(("matrix", axis), "is not a list of values", remedy)
        return []
    _own(document, ("matrix", axis), axis, axis, owners)
    choices = []
    for index, value in enumerate(values):
        places: dict[str, Path] = {axis: ("matrix", axis, index)}
        choices.append(Choice(value, f"{axis}={_label(axis, value, index)}", places))
    return choices


def _label(axis: str, value: Any, index: int) -> str:
    """Return a value for a test's id; instead of a secret the value's number: ids must differ."""
    shown = shown_value((axis,), value)
    if isinstance(value, str) and not secret((axis,)):
        shown = value
    return str(value) if shown == value else f"#{index + 1}"


def _named(document: Document, axis: str, name: str, keys: Any, owners: dict[str, str]) -> Choice:
    path = ("matrix", axis, name)
    if not isinstance(keys, dict) or not keys:
        remedy = f"write {name}: {{driver.qos: 0}}"
        document.refuse(path, "is not a mapping of keys to values", remedy)
        return Choice(name, name, {})
    for key in keys:
        _own(document, (*path, key), key, axis, owners)
    return Choice(name, name, {key: (*path, key) for key in keys})


def _own(document: Document, path: Path, key: str, axis: str, owners: dict[str, str]) -> None:
    if dotted(key)[0] == "matrix" or key == "workloads":
        document.refuse(path, "cannot be varied", "write other keys of the profile")
    elif owners.setdefault(key, axis) != axis:
        axes = f"matrix.{owners[key]}, matrix.{axis}"
        document.refuse(path, f"{key!r} is in two axes: {axes}", "remove it from one")


def _narrowed(
    axes: dict[str, list[Choice]], chosen: Mapping[str, object]
) -> dict[str, list[Choice]]:
    for axis, kept in chosen.items():
        if axis not in axes:
            unknown = f"matrix={{{axis!r}: …}}: the matrix has no such axis"
            raise UsageError(f"{unknown}: choose one of {', '.join(axes)}")
        values = list(kept) if isinstance(kept, list | tuple) else [kept]
        possible = [choice.value for choice in axes[axis]]
        missing = [value for value in values if value not in possible]
        if missing or not values:
            names = HIDDEN if secret((axis,)) else ", ".join(map(str, possible))
            shown = shown_value((axis,), missing[0] if values else kept)
            unknown = f"matrix={{{axis!r}: {shown!r}}}: not in the profile's matrix"
            raise UsageError(f"{unknown}: choose one of {names}")
        axes[axis] = [choice for choice in axes[axis] if choice.value in values]
    return axes


def with_combination(document: Document, combination: Combination) -> Document:
    """Return the document without its matrix, with the keys of one combination.

    Problems are those of the result.
    """
    base = copied(document)
    remove_key(base, ("matrix",))
    try:
        return merged(base, {dotted(key): (document, at) for key, at in combination.places.items()})
    except Invalid as error:
        problem = error.problem
        path = next(at for key, at in combination.places.items() if dotted(key) == problem.path)
        at = path if isinstance(path[-1], str) else path[:-1]
        message = f"{shown_path(at)}: {problem.message}"
        base.problems.append(document.problem(at, message, problem.suggestion, at_key=True))
        return base
