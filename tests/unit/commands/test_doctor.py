"""The doctor's table, and its repairs."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.brokers.java import Java, debian_package
from pytest_loadtest.commands import doctor
from pytest_loadtest.commands.doctor import Inventory
from pytest_loadtest.drivers.mqtt import needs as mqtt_needs
from pytest_loadtest.drivers.pulsar import broker as pulsar_broker

if TYPE_CHECKING:
    from pathlib import Path

HERE = (
    *pulsar_broker.judge_machine(("4.2.4",), lite=True, archived=True),
    *mqtt_needs.broker_needs("2.0.11", ("2.42.0",)),
    replace(doctor.spark_archive(None), ok=True),
)
NOTHING = (
    *pulsar_broker.judge_machine((), lite=False, archived=False),
    *mqtt_needs.broker_needs(None, ()),
)
WELL = Inventory(
    java=Java("/usr/bin/java", "17"),
    java_package="default-jre-headless",
    maven="/usr/bin/mvn",
    docker="27.1",
    docker_missing="",
    images=doctor.own_images(),
    needs=HERE,
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
    files=1024,
    ports=5000,
    localhost=False,
    cores=1,
    memory=1024**3,
    disk=1024**3,
)


def test_a_complete_machine_has_no_costs_and_no_remedies() -> None:
    assert all(row.ok for row in doctor.inspect(WELL))
    assert not any(word in doctor.render(doctor.inspect(WELL)) for word in ("costs", "remedy"))


def test_each_missing_thing_has_its_cost_and_its_remedy() -> None:
    """The table of a bare machine has both for every row."""
    rows = doctor.inspect(BARE)
    assert all(not row.ok and row.cost and row.remedy for row in rows)
    text = doctor.render(rows)
    assert "apt-get install default-jre-headless" in text
    assert text.count("costs:") == text.count("remedy:") == len(rows)


def test_unknown_memory_is_sufficient() -> None:
    rows = {row.name: row for row in doctor.inspect(replace(WELL, memory=None))}
    assert rows["memory"].ok


@pytest.mark.parametrize("version", ["11.0.2", "25.0.2"])
def test_a_java_that_spark_cannot_run_on_is_named_with_the_versions_that_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    """The distribution's own is then installed, unless JAVA_HOME names a better one."""
    binary = tmp_path / "bin" / "java"
    binary.parent.mkdir()
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    binary.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    machine = replace(WELL, java=doctor.java.find())
    (row,) = (row for row in doctor.inspect(machine) if row.name == "Java")
    assert (row.ok, row.value) == (False, f"{version} ({binary})")
    assert row.remedy == (
        "apt-get install default-jre-headless, or set JAVA_HOME to Java 17, 21, or 25 from 25.0.3"
    )
    assert doctor.missing_packages(machine) == ("default-jre-headless",)


def test_maven_is_not_missing_once_all_jars_are_cached() -> None:
    """Each broker needs it once."""
    rows = {row.name: row for row in doctor.inspect(replace(WELL, maven=None))}
    assert rows["Maven"].ok
    rows = {
        row.name: row
        for row in doctor.inspect(
            replace(WELL, maven=None, needs=(*HERE[:2], *mqtt_needs.broker_needs("2.0.11", ())))
        )
    }
    assert not rows["Maven"].ok and not rows["Artemis jars"].ok


def test_images_are_listed_only_with_an_engine() -> None:
    """The remedy for a missing one is a pull, or an image from another registry."""
    rows = {row.name: row for row in doctor.inspect(replace(WELL, images=doctor.own_images()[:1]))}
    assert (rows["images"].value, rows["images"].cost) == (
        "apachepulsar/pulsar:4.2.4",
        "the first run pulls eclipse-mosquitto:2",
    )
    assert (
        "docker pull eclipse-mosquitto:2, or an image of your own registry: --load-image,"
        " target.image" in rows["images"].remedy
    )
    assert "images" not in {row.name for row in doctor.inspect(BARE)}


def test_missing_packages_are_in_the_order_of_the_table() -> None:
    assert doctor.missing_packages(WELL) == ()
    assert doctor.missing_packages(BARE) == ("default-jre-headless", "maven", "mosquitto")


def test_the_default_java_is_read_after_the_package_lists_are_updated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new machine has no package lists, so its default JRE is unknown before.

    It may be older than Spark needs.
    """
    commands: list[tuple[str, ...]] = []
    listed = {False: "", True: "Package: default-jre-headless\nDepends: openjdk-11-jre-headless, x"}

    def run(command: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[str]:
        if command[0] == "apt-cache":
            return subprocess.CompletedProcess(command, 0, listed[doctor.UPDATE in commands])
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    machine = replace(WELL, root=True, java=None, java_package=debian_package())
    assert doctor.missing_packages(machine) == ("default-jre-headless",)
    assert doctor._install_packages(machine, lambda _: None)
    assert commands == [doctor.UPDATE, (*doctor.INSTALL, "openjdk-17-jre-headless")]


@pytest.mark.parametrize(
    ("debian", "words"),
    [(True, "as root: apt-get update && apt-get install"), (False, "install by hand: Java 17")],
)
def test_fix_without_root_or_debian_only_prints_the_exact_line(debian: bool, words: str) -> None:
    said: list[str] = []
    assert doctor.fix(replace(BARE, debian=debian), said.append) is False
    assert said[0].startswith(words)
    assert len(said) == 1


def test_fix_of_a_complete_machine_does_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All packages are installed and the jars are cached."""
    for jars in ("pulsar-4.2.4", "artemis-2.42.0"):
        (tmp_path / "pytest-loadtest" / jars).mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    assert doctor.fix(WELL, said.append) is True
    assert said == []


def test_the_inventory_of_this_machine_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It works also if the cache does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "there"))
    machine = doctor.take_inventory()
    assert machine.cores >= 1
    assert machine.disk > 0
    assert [need.value for need in machine.needs if need.jars_of] == [None, None]
    assert doctor.render(doctor.inspect(machine))


def test_localhost_gets_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root adds the line that Spark needs to /etc/hosts; other users get it printed."""
    monkeypatch.setattr(doctor, "HOSTS", tmp_path / "hosts")
    monkeypatch.setattr(doctor.java.Jars, "resolve", lambda jars, version, tell: None)
    said: list[str] = []
    assert not doctor.fix(replace(WELL, localhost=False), said.append)
    assert said == [f"as root: echo '127.0.0.1 localhost' >> {tmp_path / 'hosts'}"]
    assert doctor.fix(replace(WELL, localhost=False, root=True), said.append)
    assert (tmp_path / "hosts").read_text() == "127.0.0.1 localhost\n"


def test_the_archive_of_spark_is_made_once(tmp_path: Path) -> None:
    """It needs Java; a failure leaves nothing to do by hand."""
    made: list[object] = []
    archive = tmp_path / "spark.jsa"

    def machine() -> Inventory:
        need = replace(doctor.spark_archive(archive), fetch=made.append)
        return replace(WELL, needs=(*WELL.needs[:-1], need))

    assert doctor.fix(machine(), print)
    assert made == [print]
    archive.touch()
    assert doctor.fix(machine(), print)
    assert made == [print]
    assert not doctor.spark_archive(None).ok
