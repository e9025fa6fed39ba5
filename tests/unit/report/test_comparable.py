"""Comparability of two runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from builders.documents import PEAK, changed, document

from pytest_loadtest.report.comparable import comparable_key, differences, profile_key
from pytest_loadtest.report.verdict_section import DifferenceEntry
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument


def test_a_run_is_comparable_with_another_of_its_kind() -> None:
    """Measurements, time and folder of results do not matter."""
    other = replace(document(), started="2027-01-01T00:00:00+00:00", results="elsewhere")
    assert differences(document(), other) == []
    assert (
        comparable_key(document())
        == comparable_key(other)
        == comparable_key(document(counts={"lost": 3}))
    )


def searched(hold: int) -> RunDocument:
    """Return a search with steps of so many seconds, and confirmations of twice as many."""
    found = document(parts={"peak": PEAK})
    assert found.peak is not None
    steps = []
    for step in found.peak.steps:
        seconds = 2 * hold if step.purpose == "confirm" else hold
        steps.append(replace(step, duration=seconds * SECOND))
    return replace(found, peak=replace(found.peak, steps=tuple(steps)))


def test_searches_with_steps_of_different_length_are_not_comparable() -> None:
    """Short steps find higher rates; confirmations are longer, and not every search has one."""
    short = searched(10)
    assert short.peak is not None
    steps = tuple(step for step in short.peak.steps if step.purpose != "confirm")
    assert len(steps) < len(short.peak.steps)
    unconfirmed = replace(short, peak=replace(short.peak, steps=steps))
    long = searched(25)
    assert comparable_key(short) == comparable_key(unconfirmed)
    assert comparable_key(short) != comparable_key(long)
    (found,) = differences(short, long)
    assert (found.name, found.decides) == ("seconds of a step", True)


@pytest.mark.parametrize(
    ("path", "value", "name"),
    [
        ("profile/document/producerRate", 20_000, "profile.producerRate"),
        ("profile/document/driver", {"name": "mqtt"}, "profile.driver.name"),
        ("scale", {"factor": 0.5, "changes": {}}, "scale"),
        ("plan/workers", 2, "workers"),
        ("plan/bodies", "b5b5", "bodies of templates"),
        ("measurements/duration", 20_000_000_000, "seconds"),
        ("broker/version", "4.3.0", "broker.version"),
        ("broker/mode", "url", "broker.mode"),
        ("broker/settings", {"journalSyncData": "true"}, "broker.settings.journalSyncData"),
        ("driver/client", "native", "driver.client"),
        ("driver/version", "4", "driver.version"),
        ("machine/cores", 4, "machine.cores"),
        ("machine/memory", 2**33, "machine.memory"),
        ("machine/system", "Linux 6", "machine.system"),
        ("versions/pytest-loadtest", "0.2.0", "versions.pytest-loadtest"),
    ],
)
def test_deciding_facts_make_runs_incomparable(path: str, value: Any, name: str) -> None:
    """The difference has both values, and the digests differ."""
    other = changed(document(), path, value)
    (found,) = differences(document(), other)
    assert (found.name, found.decides) == (name, True)
    assert found.baseline != found.now
    assert comparable_key(document()) != comparable_key(other)
    assert (profile_key(document()) != profile_key(other)) == name.startswith("profile.")


@pytest.mark.parametrize(
    "path",
    [
        "profile/document/slo",
        "profile/document/generator",
        "profile/document/target",
        "broker/url",
        "broker/adminUrl",
    ],
)
def test_bounds_and_addresses_are_no_difference(path: str) -> None:
    assert (
        differences(
            document(), changed(document(), path, {"x": "y"} if "profile" in path else "elsewhere")
        )
        == []
    )


def test_other_differences_follow_the_deciding_ones() -> None:
    other = replace(
        changed(document(), "machine/host", "other"),
        versions={"pytest-loadtest": "0.2.0", "numpy": "3"},
    )
    assert differences(document(), other) == [
        DifferenceEntry(
            name="versions.pytest-loadtest", baseline="0.1.0", now="0.2.0", decides=True
        ),
        DifferenceEntry(name="machine.host", baseline="-", now="other", decides=False),
        DifferenceEntry(name="versions.numpy", baseline="-", now="3", decides=False),
    ]


def test_two_unknown_versions_are_a_difference() -> None:
    unknown = changed(document(), "broker/version", "unknown")
    assert differences(unknown, unknown) == [
        DifferenceEntry(name="broker.version", baseline="unknown", now="unknown", decides=True)
    ]
