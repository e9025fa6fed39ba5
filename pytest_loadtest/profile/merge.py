"""Read texts put together: keys of one over keys of another, each value with the place that it came from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_loadtest.kinds.registry import DEFAULT
from pytest_loadtest.profile.secrets import secret, shown_path, shown_text
from pytest_loadtest.profile.text import Document, Path, Place

_INSTEAD = (
    # a profile has one key of each group at most: when a change sets one, the others are removed
    ("messageSize", "messageSizeDistribution"),
    ("warmupDuration", "warmupDurationMinutes"),
)
_TRAFFIC = (("testDuration", "testDurationMinutes", "messages", "stages"),)
_NO_TRAFFIC = (  # messages: 0 has a duration beside it, and no rate
    ("testDuration", "testDurationMinutes", "stages"),
    ("messages", "producerRate", "search", "stages"),
)
_WITH = {
    # keys that make sense beside another one only: when the change replaces that, they are removed too
    "messageSize": ("payloadsPerBucket", "representative"),
    "messageSizeDistribution": ("payloadFile",),
}
_TOP = ("workloads", "matrix")
_FLAT = (("abort",), ("slo", "regression"), ("slo", "drift"))
"""Sections whose keys have points themselves: ``endToEndLatency.p99``."""
OVERRIDE = 0
"""The line of a value that no text has: its column is the number of the override."""


class Unreachable(ValueError):
    """A change cannot be made.

    :param path: of the change. :param message: why not. :param suggestion: what to write instead.
    """

    def __init__(self, path: Path, message: str, suggestion: str) -> None:
        super().__init__(path, message, suggestion)
        self.path, self.message, self.suggestion = path, message, suggestion


def copied(document: Document) -> Document:
    """A document that can be changed without changing this one."""
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
    return [_copy(item) for item in value] if isinstance(value, list) else value


def dotted(key: str) -> Path:
    """``driver.batchingEnabled`` → its path; the point of ``p99.9`` belongs to the name."""
    return tuple(re.split(r"\.(?!\d)", key))


def remove(document: Document, path: Path) -> None:
    """Take a key away, with all that is below it."""
    holder = value_at(document.value, path[:-1])
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
    for places in (document.values, document.keys):
        for found in [found for found in places if found[: len(path)] == path]:
            del places[found]
    document.broken -= {found for found in document.broken if found[: len(path)] == path}


def put(document: Document, path: Path, other: Document, at: Path) -> None:
    """The value that ``other`` has at ``at`` becomes the value of ``document`` at ``path``; mappings on the way are made where missing.

    :raises Unreachable: something on the way is no mapping.
    """
    key = other.keys.get(at, other.values[at])
    holder: Any = document.value
    for depth, step in enumerate(path[:-1], 1):
        if isinstance(holder, dict) and step not in holder:
            document.keys[path[:depth]] = document.values[path[:depth]] = key
            holder[step] = {}
        holder = holder[step]
        if not isinstance(holder, dict | list):
            raise Unreachable(path, f"{shown_path(path[:depth])} is no section", "replace it as a whole")
    remove(document, path)
    holder[path[-1]] = _copy(value_at(other.value, at))
    document.keys[path] = key
    document.values |= {(*path, *found[len(at) :]): place for found, place in other.values.items() if found[: len(at)] == at}
    document.keys |= {
        (*path, *found[len(at) :]): place for found, place in other.keys.items() if len(found) > len(at) and found[: len(at)] == at
    }
    document.broken |= {(*path, *found[len(at) :]) for found in other.broken if found[: len(at)] == at}


def value_at(value: Any, path: Path) -> Any:
    """What a document's value has at a path; None where it has nothing."""
    for step in path:
        value = value[step] if isinstance(value, list) and isinstance(step, int) else value.get(step) if isinstance(value, dict) else None
    return value


def _give_way(document: Document, prefix: Path, new: Mapping[str | int, Any]) -> None:
    """Remove the keys that ``new`` ones below ``prefix`` replace."""
    names, messages = set(new), new.get("messages")
    silent = not messages and 0 in (messages, value_at(document.value, (*prefix, "messages")))
    groups = (*_INSTEAD, *(_NO_TRAFFIC if silent else _TRAFFIC))
    gone = [other for group in groups if names & {*group} for other in group]
    gone += [other for name in names for other in _WITH.get(str(name), ())]
    if "search" in names:
        gone.append("producerRate")
    elif new.get("producerRate"):  # 0 asks for a search
        gone.append("search")
    for name in set(gone) - names:
        remove(document, (*prefix, name))


def merged(base: Document, changes: Mapping[Path, tuple[Document, Path]]) -> Document:
    """``base`` with other values for some keys.

    :param changes: path of a key → the document that has its value, and where. None leaves the key out.
    :raises Unreachable: a path leads into something that is no mapping, or past every workload.
    """
    document = copied(base)
    found = {path: _folded(document, _reached(document, path)) for path in changes}
    for prefix in {path[:-1] for path in found.values()}:
        if not prefix or prefix[0] == "workloads":
            new = {at[-1]: value_at(changes[path][0].value, changes[path][1]) for path, at in found.items() if at[:-1] == prefix}
            _give_way(document, prefix, new)
    for path in found.values():
        _give_way_when_scaled(document, path)
    for path, (other, at) in changes.items():
        if path[0] == "driver" and len(path) > 1 and "driver" not in document.value and ("driver", "name") not in changes:
            place = other.keys.get(at, other.values[at])
            put(document, ("driver", "name"), Document(value=DEFAULT, values={(): place}), ())
        if value_at(other.value, at) is None:
            remove(document, found[path])
        else:
            put(document, found[path], other, at)
    return document


def _give_way_when_scaled(document: Document, path: Path) -> None:
    """A bound that is set holds in scaled runs too: what the profile has for those is about the bound that it replaces."""
    prefix, rest = (path[:2], path[2:]) if path[0] == "workloads" else ((), path)
    if rest[:1] in (("slo",), ("generator",)):
        remove(document, (*prefix, "scaled", *rest[:2]))


def _reached(document: Document, path: Path) -> Path:
    """The path with workloads by their number instead of their name."""
    entries = document.value.get("workloads")
    if not isinstance(entries, list) or path == ("workloads",):
        return path
    names = [entry.get("name") if isinstance(entry, dict) else None for entry in entries]
    if path[0] != "workloads":
        if entries and all(isinstance(entry, dict) and path[0] in entry for entry in entries):
            written = shown_path(path)
            raise Unreachable(path, f"every workload has its own {path[0]}", f"write workloads.{names[0]}.{written}")
        return path
    if len(path) == 2 or path[1] not in names:
        known = ", ".join(str(name) for name in names)
        raise Unreachable(path, f"there is no workload {path[1]!r}", f"write workloads.NAME.key with one of {known}")
    return ("workloads", names.index(path[1]), *path[2:])


def _folded(document: Document, path: Path) -> Path:
    """The path with what follows one of the flat sections as one key, unless the section has it in parts."""
    for section in _FLAT:
        for end in range(len(section), len(path) - 1):
            if path[end - len(section) : end] == section and value_at(document.value, path) is None:
                return (*path[:end], ".".join(map(str, path[end:])))
    return path


def entry(document: Document, index: int) -> Document:
    """One entry of ``workloads``, a mapping, as a document of its own: its keys over those beside the list."""
    path: Path = ("workloads", index)
    base = copied(document)
    remove(base, ("workloads",))
    base.values[()] = document.values[path]
    return merged(base, {(key,): (document, (*path, key)) for key in document.value["workloads"][index] if key not in _TOP})


def spoken(values: Mapping[str, object], first: int = 0) -> Document:
    """Python values as if YAML had said them; every place is (:data:`OVERRIDE`, number of the key).

    :param first: number of the first key. :raises TypeError: a value that YAML has no word for; its key.
    """
    document = Document(value={}, values={(): Place(OVERRIDE, first)})
    for number, (key, value) in enumerate(values.items(), first):
        document.keys[key,] = Place(OVERRIDE, number, key)
        try:
            document.value[key] = _said(value, (key,), number, document)
        except TypeError:
            raise TypeError(key) from None
    return document


def _said(value: object, path: Path, number: int, document: Document) -> Any:
    if isinstance(value, Mapping):
        plain: Any = {}
        document.values[path] = Place(OVERRIDE, number)
        for name, item in value.items():
            document.keys[*path, str(name)] = Place(OVERRIDE, number, str(name))
            plain[str(name)] = _said(item, (*path, str(name)), number, document)
        return plain
    if isinstance(value, list | tuple):
        document.values[path] = Place(OVERRIDE, number)
        return [_said(item, (*path, i), number, document) for i, item in enumerate(value)]
    if not isinstance(value, str | bool | int | float) and (value is not None or len(path) > 1):
        raise TypeError
    written = "" if secret(path) else shown_text(value) if isinstance(value, str) else json.dumps(value)
    document.values[path] = Place(OVERRIDE, number, written)
    return value
