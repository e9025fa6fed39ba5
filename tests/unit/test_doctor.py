"""What the doctor says of a machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest import doctor
from pytest_loadtest.brokers.java import Java
from pytest_loadtest.doctor import Machine

if TYPE_CHECKING:
    from pathlib import Path

WELL = Machine(
    java=Java("/usr/bin/java", 17),
    maven="/usr/bin/mvn",
    mosquitto="2.0.11",
    docker="27.1",
    docker_missing="",
    embedded=True,
    pulsar=("4.2.4",),
    files=65_536,
    ports=28_232,
    localhost=True,
    cores=8,
    memory=16 * 1024**3,
    disk=100 * 1024**3,
    root=False,
    debian=True,
)
BARE = replace(
    WELL,
    java=None,
    maven=None,
    mosquitto=None,
    docker=None,
    docker_missing="no Docker engine answers",
    embedded=False,
    pulsar=(),
    files=1024,
    ports=5000,
    localhost=False,
    cores=1,
    memory=1024**3,
    disk=1024**3,
)


def test_a_well_machine_costs_nothing() -> None:
    """No cost and no remedy where nothing is missing."""
    assert all(row.well and not row.cost and not row.remedy for row in doctor.rows(WELL))
    assert "costs" not in doctor.render(doctor.rows(WELL))


def test_each_missing_thing_has_its_cost_and_its_remedy() -> None:
    """A bare machine is told, line by line, what it loses and what to do."""
    rows = doctor.rows(BARE)
    assert all(not row.well and row.cost and row.remedy for row in rows)
    text = doctor.render(rows)
    assert "apt-get install openjdk-17-jre-headless" in text
    assert text.count("costs:") == text.count("remedy:") == len(rows)


def test_old_java_is_not_well_and_unknown_memory_is_not_ill() -> None:
    """Found is not enough; unknown is not a fault."""
    rows = {row.name: row for row in doctor.rows(replace(WELL, java=Java("/usr/bin/java", 11), memory=None))}
    assert not rows["Java"].well
    assert rows["memory"].well


def test_maven_is_not_missed_once_the_jars_are_cached() -> None:
    """Maven is needed once."""
    rows = {row.name: row for row in doctor.rows(replace(WELL, maven=None))}
    assert rows["Maven"].well


def test_missing_packages() -> None:
    """The Debian packages, in one order."""
    assert doctor.missing_packages(WELL) == ()
    assert doctor.missing_packages(BARE) == ("openjdk-17-jre-headless", "maven", "mosquitto")


@pytest.mark.parametrize(("debian", "words"), [(True, "as root: apt-get update && apt-get install"), (False, "install by hand: Java 17")])
def test_fix_without_the_right_prints_the_exact_line(debian: bool, words: str) -> None:
    """Nothing is tried that cannot work."""
    said: list[str] = []
    assert doctor.fix(replace(BARE, debian=debian), said.append) is False
    assert said[0].startswith(words)
    assert len(said) == 1


def test_fix_of_a_well_machine_does_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Cached jars and all packages: nothing to say."""
    (tmp_path / "pytest-loadtest" / "pulsar-4.2.4").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    assert doctor.fix(WELL, said.append) is True
    assert said == []


def test_collect_looks_at_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It looks without starting anything, also where the cache does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "there"))
    machine = doctor.collect()
    assert machine.cores >= 1
    assert machine.disk > 0
    assert machine.pulsar == ()
    assert doctor.render(doctor.rows(machine))


def test_localhost_gets_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root file system without /etc/hosts gets the one line that Spark needs; anybody but root is told it."""
    monkeypatch.setattr(doctor, "HOSTS", tmp_path / "hosts")
    monkeypatch.setattr(doctor.pulsar_jars, "resolve", lambda version, tell: None)
    said: list[str] = []
    assert not doctor.fix(replace(WELL, localhost=False), said.append)
    assert said == [f"as root: echo '127.0.0.1 localhost' >> {tmp_path / 'hosts'}"]
    assert doctor.fix(replace(WELL, localhost=False, root=True), said.append)
    assert (tmp_path / "hosts").read_text() == "127.0.0.1 localhost\n"
