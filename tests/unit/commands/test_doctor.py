"""What the doctor says of a machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.brokers.java import Java
from pytest_loadtest.commands import doctor
from pytest_loadtest.commands.doctor import Inventory
from pytest_loadtest.drivers.mqtt import needs as mqtt_needs
from pytest_loadtest.drivers.pulsar import broker as pulsar_broker
from pytest_loadtest.pipeline import java_process

if TYPE_CHECKING:
    from pathlib import Path

HERE = (*pulsar_broker.judge_machine(("4.2.4",), lite=True), *mqtt_needs.broker_needs("2.0.11", ("2.42.0",)))
NOTHING = (*pulsar_broker.judge_machine((), lite=False), *mqtt_needs.broker_needs(None, ()))
WELL = Inventory(
    java=Java("/usr/bin/java", 17),
    maven="/usr/bin/mvn",
    docker="27.1",
    docker_missing="",
    images=doctor.own_images(),
    needs=HERE,
    archive=True,
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
    docker=None,
    docker_missing="no Docker engine answers",
    images=(),
    needs=NOTHING,
    archive=None,
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
    """Maven is needed once, for each broker."""
    rows = {row.name: row for row in doctor.rows(replace(WELL, maven=None))}
    assert rows["Maven"].well
    rows = {row.name: row for row in doctor.rows(replace(WELL, maven=None, needs=(*HERE[:2], *mqtt_needs.broker_needs("2.0.11", ()))))}
    assert not rows["Maven"].well and not rows["Artemis jars"].well


def test_images_matter_where_an_engine_could_run_them() -> None:
    """What is not here is pulled, or comes from a registry of one's own; without an engine there is nothing to say of images."""
    rows = {row.name: row for row in doctor.rows(replace(WELL, images=doctor.own_images()[:1]))}
    assert (rows["images"].found, rows["images"].cost) == ("apachepulsar/pulsar:4.2.4", "the first run pulls eclipse-mosquitto:2")
    assert "docker pull eclipse-mosquitto:2, or an image of your own registry: --load-image, target.image" in rows["images"].remedy
    assert "images" not in {row.name for row in doctor.rows(BARE)}


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
    for jars in ("pulsar-4.2.4", "artemis-2.42.0"):
        (tmp_path / "pytest-loadtest" / jars).mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = java_process.path()
    assert archive is not None
    archive.touch()
    said: list[str] = []
    assert doctor.fix(WELL, said.append) is True
    assert said == []


def test_collect_looks_at_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It looks without starting anything, also where the cache does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "there"))
    machine = doctor.collect()
    assert machine.cores >= 1
    assert machine.disk > 0
    assert [need.found for need in machine.needs if need.jars_of] == [None, None]
    assert doctor.render(doctor.rows(machine))


def test_localhost_gets_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root file system without /etc/hosts gets the one line that Spark needs; anybody but root is told it."""
    monkeypatch.setattr(doctor, "HOSTS", tmp_path / "hosts")
    monkeypatch.setattr(doctor.java.Jars, "resolve", lambda jars, version, tell: None)
    monkeypatch.setattr(doctor, "there", lambda: True)
    said: list[str] = []
    assert not doctor.fix(replace(WELL, localhost=False), said.append)
    assert said == [f"as root: echo '127.0.0.1 localhost' >> {tmp_path / 'hosts'}"]
    assert doctor.fix(replace(WELL, localhost=False, root=True), said.append)
    assert (tmp_path / "hosts").read_text() == "127.0.0.1 localhost\n"


def test_fix_makes_the_archive_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where there is Java and no archive; that none could be made leaves nothing to do by hand."""
    made: list[object] = []
    monkeypatch.setattr(doctor.java.Jars, "resolve", lambda jars, version, tell: None)
    monkeypatch.setattr(doctor, "make", made.append)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert doctor.fix(WELL, print)
    assert made == [print]
    archive = java_process.path()
    assert archive is not None
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert doctor.fix(WELL, print)
    assert made == [print]
