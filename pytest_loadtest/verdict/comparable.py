"""Whether two runs may be held against each other: decided by what their documents say, never assumed.

What *decides* makes two runs different experiments: the profile but for what only judges it, how much of it ran, the broker with its
version and settings, the client, the machine, and this package. What else differs is told and decides nothing: a host's name, a library
beside the path of a message. Addresses and the places of results are no difference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pytest_loadtest.values.quantities import SECOND

Document = Mapping[str, Any]

_JUDGING: Final = ("name", "description", "slo", "scaled", "abort", "generator", "target", "sizeSource", "notApplied")
"""Keys of a profile that say what it is called, where it goes and how it is judged, and nothing about the load."""
_GIB: Final = 2**30
_DECIDING_VERSIONS: Final = ("pytest-loadtest", "python")
ABSENT: Final = "-"
UNKNOWN: Final = "unknown"
"""As results have it of a broker that does not tell its version: nobody knows that it is the same."""


class Difference(NamedTuple):
    """One fact of two runs, as text. :param decides: because of it the two cannot be compared."""

    name: str
    baseline: str
    now: str
    decides: bool


def facts(document: Document) -> dict[str, str]:
    """What decides whether another run can be compared with this one, as text by name; ``profile.driver.name`` for one."""
    broker, driver, machine = document["broker"], document["driver"], document["machine"]
    measured, scale, memory = document["measurements"] or {}, document["scale"], machine.get("memory")
    found = {
        "profile": {key: value for key, value in document["profile"]["document"].items() if key not in _JUDGING},
        "scale": None if scale is None else scale["factor"],
        "workers": document["plan"].get("workers"),
        "seconds": None if not measured or document.get("peak") is not None else round(measured["duration"] / SECOND),
        "broker": {key: broker.get(key) for key in ("name", "version", "mode", "settings")},
        "driver": {key: driver.get(key) for key in ("client", "version")},
        "machine": {key: machine.get(key) for key in ("system", "processor", "cores")}
        | {"memory": None if memory is None else f"{memory / _GIB:.0f} GiB"},
        "versions": {key: document["versions"].get(key) for key in _DECIDING_VERSIONS},
    }
    return dict(_flat(found, ""))


def key(document: Document) -> str:
    """A digest of what decides, for files that keep no more: equal where two runs can be compared."""
    return _digest(facts(document))


def profile_key(document: Document) -> str:
    """A digest of the profile alone."""
    return _digest({name: value for name, value in facts(document).items() if name.startswith("profile.")})


def differences(baseline: Document, now: Document) -> list[Difference]:
    """Everything that differs, what decides first."""
    deciding = _unlike(facts(baseline), facts(now), decides=True)
    return deciding + _unlike(_beside(baseline), _beside(now), decides=False)


def _beside(document: Document) -> dict[str, str]:
    versions = {name: text for name, text in document["versions"].items() if name not in _DECIDING_VERSIONS}
    return dict(_flat({"machine": {"host": document["machine"].get("host")}, "versions": versions}, ""))


def _unlike(before: Mapping[str, str], after: Mapping[str, str], *, decides: bool) -> list[Difference]:
    names = dict.fromkeys([*before, *after])
    pairs = ((name, before.get(name, ABSENT), after.get(name, ABSENT)) for name in names)
    return [Difference(name, was, now, decides) for name, was, now in pairs if was != now or UNKNOWN in (was, now)]


def _flat(node: Mapping[str, Any], path: str) -> list[tuple[str, str]]:
    """Dotted names of what is there; a list is one value."""
    found: list[tuple[str, str]] = []
    for name, value in node.items():
        at = f"{path}.{name}" if path else str(name)
        if isinstance(value, Mapping):
            found += _flat(value, at)
        elif value is not None:
            found.append((at, value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)))
    return found


def _digest(named: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(named.items()), ensure_ascii=False).encode()).hexdigest()[:16]
