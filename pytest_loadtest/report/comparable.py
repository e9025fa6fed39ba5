"""Decide from two results documents whether their runs can be compared.

Facts that *decide* make two runs different experiments: the profile except for what only judges
it, how much of it ran, the broker with its version and settings, the client, the machine, and this
package. Other differences, such as a host's name or the version of another library, are only
reported. Addresses and folders of results are no difference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.report.verdict_section import DifferenceEntry
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument

_NOT_LOAD: Final = (
    "name",
    "description",
    "slo",
    "scaled",
    "abort",
    "generator",
    "target",
    "sizeSource",
    "notApplied",
)
"""Keys of a profile that name it, address its target or judge it, and do not change the load."""
_GIB: Final = 2**30
_DECIDING_VERSIONS: Final = ("pytest-loadtest", "python")
ABSENT: Final = "-"
UNKNOWN: Final = "unknown"
"""The version of a broker that does not report one: two unknown versions may differ."""


def deciding_facts(document: RunDocument) -> dict[str, str]:
    """Return the facts that decide as text by dotted name, for example ``profile.driver.name``."""
    profile = {
        key: value for key, value in document.profile.document.items() if key not in _NOT_LOAD
    }
    seconds = None
    if document.measurements is not None and document.peak is None:
        seconds = round(document.measurements.duration / SECOND)
    steps = None
    if document.peak is not None:
        # Confirmations are longer, and not every search has one.
        held = [step for step in document.peak.steps if step.purpose != "confirm"]
        steps = sorted({round(step.duration / SECOND) for step in held})
    machine = _picked(document.machine, "system", "processor", "cores", "memory")
    if machine["memory"] is not None:
        machine["memory"] = f"{machine['memory'] / _GIB:.0f} GiB"
    facts = {
        "profile": profile,
        "scale": None if document.scale is None else document.scale.factor,
        "workers": document.plan.get("workers"),
        "bodies of templates": document.plan.get("bodies"),
        "seconds": seconds,
        "seconds of a step": steps,
        "broker": _picked(document.broker, "name", "version", "mode", "settings"),
        "driver": _picked(document.driver, "client", "version", "stamps"),
        "machine": machine,
        "versions": _picked(document.versions, *_DECIDING_VERSIONS),
    }
    return dict(_flat(facts, ""))


def _picked(facts: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: facts.get(key) for key in keys}


def comparable_key(document: RunDocument) -> str:
    """Return a digest of the deciding facts: equal if two runs can be compared.

    Histories keep it.
    """
    return _digest(deciding_facts(document))


def profile_key(document: RunDocument) -> str:
    """Return a digest of the deciding facts of the profile alone."""
    facts = deciding_facts(document).items()
    return _digest({name: value for name, value in facts if name.startswith("profile.")})


def differences(baseline: RunDocument, now: RunDocument) -> list[DifferenceEntry]:
    """Return everything that differs, deciding facts first."""
    deciding = _unlike(deciding_facts(baseline), deciding_facts(now), decides=True)
    return deciding + _unlike(_other_facts(baseline), _other_facts(now), decides=False)


def _other_facts(document: RunDocument) -> dict[str, str]:
    versions = dict(document.versions)
    for name in _DECIDING_VERSIONS:
        versions.pop(name, None)
    host = document.machine.get("host")
    return dict(_flat({"machine": {"host": host}, "versions": versions}, ""))


def _unlike(
    before: Mapping[str, str], after: Mapping[str, str], *, decides: bool
) -> list[DifferenceEntry]:
    entries = []
    for name in dict.fromkeys([*before, *after]):
        was = before.get(name, ABSENT)
        now = after.get(name, ABSENT)
        if was != now or UNKNOWN in (was, now):
            entries.append(DifferenceEntry(name=name, baseline=was, now=now, decides=decides))
    return entries


def _flat(node: Mapping[str, Any], path: str) -> list[tuple[str, str]]:
    """Return the values by dotted name, without those that are None; a list is one value."""
    facts = []
    for name, value in node.items():
        at = f"{path}.{name}" if path else str(name)
        if isinstance(value, Mapping):
            facts += _flat(value, at)
        elif isinstance(value, str):
            facts.append((at, value))
        elif value is not None:
            facts.append((at, json.dumps(value, sort_keys=True, ensure_ascii=False)))
    return facts


def _digest(named: Mapping[str, str]) -> str:
    text = json.dumps(sorted(named.items()), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
