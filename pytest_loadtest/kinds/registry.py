"""The installed kinds of broker, found through entry points.

Nothing is loaded before a kind is needed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.errors import UsageError
from pytest_loadtest.kinds.kind import DriverKind, Reference

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_loadtest.kinds.costs import Cost

GROUP: Final = "pytest_loadtest.drivers"
DEFAULT: Final = "pulsar"
"""``driver.name`` of a profile without a ``driver`` section, as OMB's workload files are."""


@cache
def kinds() -> Mapping[str, DriverKind]:
    """Return every installed kind by its name.

    The default one is first, kinds with their own broker are last.

    :raises UsageError: an entry point is broken, or two of them have the same name; names the
        packages and the remedy.
    """
    found = load_kinds(entry_points(group=GROUP))
    if DEFAULT not in found:
        raise UsageError(
            f"pytest-loadtest has no entry points {GROUP!r} in its metadata: install it again:"
            " pip install --force-reinstall pytest-loadtest (in a checkout: pip install -e .)"
        )

    def order(kind: DriverKind) -> tuple[bool, bool, str]:
        return kind.name != DEFAULT, kind.own_broker, kind.name

    return {kind.name: kind for kind in sorted(found.values(), key=order)}


def load_kinds(points: Iterable[EntryPoint]) -> dict[str, DriverKind]:
    """Load the descriptors.

    :raises UsageError: see :func:`kinds`.
    """
    loaded = {}
    owners: dict[str, DriverKind] = {}
    for point in points:
        kind = _descriptor(point)
        for name in dict.fromkeys((kind.name, *kind.aliases, *kind.brokers)):
            if name in owners:
                raise _clash(name, owners[name], kind)
            owners[name] = kind
        loaded[kind.name] = kind
    return loaded


def _descriptor(point: EntryPoint) -> DriverKind:
    package = point.dist.name if point.dist is not None else "an unknown package"
    where = f"driver {point.name!r} of the package {package} ({point.value})"
    remedy = f"upgrade it, or pip uninstall {package}"
    try:
        kind = point.load()
    except Exception as error:
        raise UsageError(
            f"{where} cannot be loaded: {type(error).__name__}: {error}: {remedy}"
        ) from error
    if not isinstance(kind, DriverKind):
        raise UsageError(
            f"{where} is a {type(kind).__name__}, not a pytest_loadtest.kinds.DriverKind: {remedy}"
        )
    if kind.name != point.name:
        raise UsageError(f"{where} is named {kind.name!r} by its DriverKind: {remedy}")
    return replace(kind, package=package)


def _clash(name: str, one: DriverKind, other: DriverKind) -> UsageError:
    packages = sorted({one.package, other.package})
    drivers = f"{one.name!r} of {one.package} and {other.name!r} of {other.package}"
    return UsageError(
        f"two drivers have the name {name!r}: {drivers}: pip uninstall {' or '.join(packages)}"
    )


def kind_of(name: str) -> DriverKind:
    """Return the kind with this name or alias.

    :raises UsageError: there is none.
    """
    found = kinds().get(canonical(name))
    if found is None:
        raise UsageError(f"there is no driver {name!r}: choose one of {', '.join(kinds())}")
    return found


def canonical(name: str) -> str:
    """Return the kind's name for one of its aliases; any other name unchanged."""
    return next((kind.name for kind in kinds().values() if name in kind.aliases), name)


def load_reference(kind: DriverKind, reference: Reference) -> Any:
    """Import the object that a descriptor refers to.

    :raises UsageError: it is missing; names the package and the reference.
    """
    module, _, attribute = reference.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        remedy = f"pip install --force-reinstall {kind.package}"
        raise UsageError(
            f"driver {kind.name!r} of the package {kind.package}: cannot import {reference}:"
            f" {error}: {remedy}"
        ) from error


def able(capability: str) -> tuple[DriverKind, ...]:
    """Return the kinds with a capability.

    :param capability: a field of :class:`DriverKind` that is true for them.
    """
    return tuple(kind for kind in kinds().values() if getattr(kind, capability))


def labels(capability: str) -> str:
    """Return the labels of the kinds with a capability: ``Pulsar and MQTT``."""
    return " and ".join(kind.label for kind in able(capability))


def shipped_costs() -> dict[str, Cost]:
    """Return the shipped cost table of all kinds: key → cost."""
    return {key: row.cost for kind in kinds().values() for key, row in kind.costs.items()}


def kind_of_broker(name: str) -> DriverKind:
    """Return the kind that has a broker of this name.

    :raises UsageError: there is none.
    """
    names: dict[str, None] = {}
    for kind in kinds().values():
        if name == kind.name or name in kind.brokers:
            return kind
        names |= dict.fromkeys((kind.name, *kind.brokers))
    raise UsageError(f"there is no broker of kind {name!r}: choose one of {', '.join(names)}")
