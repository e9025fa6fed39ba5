"""Installed kinds of broker, and errors about packages whose kind is broken."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from pytest_loadtest import profile
from pytest_loadtest.errors import UsageError
from pytest_loadtest.kinds import registry
from pytest_loadtest.kinds.registry import (
    able,
    kind_of,
    kind_of_broker,
    kinds,
    load_kinds,
    load_reference,
)

HEAVY = {
    "numpy",
    "pydantic",
    "pyarrow",
    "yaml",
    "pulsar",
    "paho",
    "pyspark",
    "httpx",
    "cryptography",
    "docker",
    "testcontainers",
}
LOOK = """
import sys
from pytest_loadtest.kinds.registry import kinds
kinds()
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
NOTHING = """
from pytest_loadtest.kinds import DriverKind
KIND = DriverKind(name="nothing", label="Nothing", settings="nothing_kind:Settings", clients={}, schemes={}, costs={}, aliases=("naught",))
WRONG = "nothing"
OTHER = DriverKind(name="other", label="Other", settings="x:Y", clients={}, schemes={}, costs={}, aliases=("naught",))
TAKEN = DriverKind(name="taken", label="Taken", settings="x:Y", clients={}, schemes={}, costs={}, aliases=("mqtt",))
"""


class Package:
    """A distribution that registers drivers."""

    name = "their-package"


def point(name: str, value: str) -> EntryPoint:
    made = EntryPoint(name, value, registry.GROUP)
    vars(made)["dist"] = Package()
    return made


@pytest.fixture(autouse=True)
def nothing_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with descriptors."""
    (tmp_path / "nothing_kind.py").write_text(NOTHING)
    (tmp_path / "broken_kind.py").write_text("import no_such_client\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "nothing_kind", raising=False)


def test_descriptors_load_nothing_heavy() -> None:
    """No clients of brokers, and nothing that only profiles or samples need.

    Each profile loads all descriptors.
    """
    done = subprocess.run([sys.executable, "-c", LOOK], check=True, capture_output=True, text=True)
    assert HEAVY & set(done.stdout.split()) == set()


def test_our_kinds_are_registered_by_entry_points() -> None:
    """The default comes first, kinds with their own broker last."""
    assert next(iter(kinds())) == registry.DEFAULT
    assert [name for name, kind in kinds().items() if kind.package == "pytest-loadtest"] == [
        "pulsar",
        "mqtt",
        "loopback",
    ]


def test_every_reference_can_be_imported() -> None:
    for kind in kinds().values():
        plain = (
            kind.settings,
            kind.checks,
            kind.describe,
            kind.delayed_index,
            kind.telemetry,
            kind.observer,
            kind.doctor,
            kind.omb,
        )
        of_brokers = (
            ref
            for broker in kind.brokers.values()
            for ref in (*broker.ways.values(), broker.container)
        )
        for reference in (
            *plain,
            *kind.fixture.values(),
            *(client.driver for client in kind.clients.values()),
            *of_brokers,
        ):
            assert reference is None or load_reference(kind, reference) is not None


@pytest.mark.parametrize("kind", kinds().values(), ids=lambda kind: kind.name)
def test_every_client_and_variant_has_a_cost(kind: Any) -> None:
    """And calibrate measures each with settings that lead to it."""
    from pytest_loadtest.kinds.costs import cost_key
    from pytest_loadtest.profile.client import models

    for key, row in kind.costs.items():
        settings = models()[kind.name].model_validate(dict(row.settings))
        assert (
            cost_key(kind.name, settings.cost_variant, settings.client or next(iter(kind.clients)))
            == key
        )


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([point("x", "broken_kind:KIND")], r"driver 'x' of the package their-package \(broken_kind:KIND\) cannot be loaded: ModuleNotFoundError: No module named 'no_such_client': upgrade it, or pip uninstall their-package"),
        ([point("x", "nothing_kind:ABSENT")], r"driver 'x' of the package their-package \(nothing_kind:ABSENT\) cannot be loaded: AttributeError"),
        ([point("x", "nothing_kind:WRONG")], r"is a str, not a pytest_loadtest.kinds.DriverKind: upgrade it, or pip uninstall their-package"),
        ([point("x", "nothing_kind:KIND")], r"driver 'x' of the package their-package \(nothing_kind:KIND\) is named 'nothing' by its DriverKind"),
        ([point("nothing", "nothing_kind:KIND"), point("nothing", "nothing_kind:KIND")], r"two drivers have the name 'nothing': 'nothing' of their-package and 'nothing' of their-package"),
        ([point("nothing", "nothing_kind:KIND"), point("other", "nothing_kind:OTHER")], r"two drivers have the name 'naught': 'nothing' of their-package and 'other' of their-package: pip uninstall their-package"),
    ],
    ids=["import error", "no such attribute", "wrong type", "another name", "name twice", "alias twice"],
)  # fmt: skip
def test_a_broken_entry_point_is_a_usage_error(points: list[EntryPoint], said: str) -> None:
    """It names the package and the remedy."""
    with pytest.raises(UsageError, match=said):
        load_kinds(points)


def test_a_name_that_two_drivers_have_is_an_error() -> None:
    """Also an alias, or the name of a broker: the profile would be ambiguous."""
    ours = [
        EntryPoint(name, f"pytest_loadtest.drivers.{name}.kind:KIND", registry.GROUP)
        for name in ("pulsar", "mqtt", "loopback")
    ]
    with pytest.raises(
        UsageError,
        match=r"two drivers have the name 'mqtt': 'mqtt' of an unknown package and 'taken' of"
        r" their-package",
    ):
        load_kinds([*ours, point("taken", "nothing_kind:TAKEN")])


def test_an_alias_is_another_spelling_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile may name a kind by it."""
    known = {
        name: replace(kind, aliases=("echo",)) if name == "loopback" else kind
        for name, kind in kinds().items()
    }
    monkeypatch.setattr(registry, "kinds", lambda: known)
    assert kind_of("echo").name == "loopback"
    text = (
        "name: a\nmessageSize: 100\nproducerRate: 1\ntestDuration: 1s\n"
        "driver: {name: echo, delay: 1s}\n"
    )
    assert profile.loads(text, "a.yaml").driver.name == "loopback"


@pytest.mark.parametrize(
    ("ask", "what"), [(kind_of, "no driver 'kafka'"), (kind_of_broker, "no broker of kind 'kafka'")]
)
def test_an_unknown_name_is_a_usage_error(ask: Any, what: str) -> None:
    """With the possible names."""
    with pytest.raises(UsageError, match=rf"{what}: choose one of pulsar, mqtt"):
        ask("kafka")


def test_a_missing_reference_is_an_error_with_the_package() -> None:
    """For example a client library that is not installed."""
    kind = replace(kind_of("mqtt"), package="their-package")
    with pytest.raises(
        UsageError,
        match=r"driver 'mqtt' of the package their-package: cannot import broken_kind:Driver:"
        r" No module named 'no_such_client'",
    ):
        load_reference(kind, "broken_kind:Driver")


def test_kinds_with_a_capability_are_found_by_its_name() -> None:
    """With their labels."""
    assert [kind.name for kind in able("security")] == ["pulsar", "mqtt"]
    assert registry.labels("security") == "Pulsar and MQTT"


def test_missing_metadata_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example in a checkout that was installed before its kinds were entry points."""
    monkeypatch.setattr(registry, "entry_points", lambda group: ())
    with pytest.raises(
        UsageError,
        match=r"pytest-loadtest has no entry points 'pytest_loadtest.drivers' in its metadata:"
        r" install it again",
    ):
        kinds.__wrapped__()


def test_importing_the_profile_model_loads_no_kind(tmp_path: Path) -> None:
    """So that a driver's module can import it."""
    look = "import sys, pytest_loadtest.profile, pytest_loadtest.drivers.base; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert [
        name
        for name in done.stdout.split()
        if name.endswith((".kind", ".settings")) and ".drivers." in name
    ] == []
