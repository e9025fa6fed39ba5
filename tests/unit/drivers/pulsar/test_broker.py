"""The configuration and the command of a Pulsar standalone, without starting one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.brokers.java import Java, class_archive
from pytest_loadtest.drivers.pulsar import broker as pulsar
from pytest_loadtest.drivers.pulsar.secured import Secured
from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def conf(secured: Secured = pulsar.OPEN, **settings: str) -> dict[str, str]:
    text = pulsar.standalone_conf(port=1, web_port=2, settings=settings, secured=secured)
    return dict(line.split("=", 1) for line in text.splitlines())


def test_the_base_configuration_is_one_bookie_on_loopback() -> None:
    """The largest frame depends on the largest message."""
    written = conf()
    assert (written["brokerServicePort"], written["webServicePort"], written["bindAddress"]) == (
        "1",
        "2",
        "127.0.0.1",
    )
    assert written["listeningInterface"] == "lo"
    assert {
        written[f"managedLedgerDefault{what}"]
        for what in ("EnsembleSize", "WriteQuorum", "AckQuorum")
    } == {"1"}
    assert (
        int(written["nettyMaxFrameSizeBytes"])
        == int(written["maxMessageSize"]) + pulsar.FRAME_OVERHEAD
    )


def test_settings_of_the_profile_replace_the_base() -> None:
    """The largest frame follows a changed maxMessageSize."""
    written = conf(maxMessageSize="1000", journalSyncData="true", anything="x=y")
    assert (written["journalSyncData"], written["anything"], written["nettyMaxFrameSizeBytes"]) == (
        "true",
        "x=y",
        "11240",
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"webServicePort": "8080"},
        {"listeningInterface": "eth0"},
        {"maxMessageSize": "5MB"},
        {"a": "1\nb=2"},
    ],
)
def test_settings_that_the_run_chooses_or_that_are_malformed_are_an_error(
    settings: dict[str, str],
) -> None:
    """A size must be a number, a value one line."""
    with pytest.raises(UsageError, match=r"broker\.settings"):
        conf(**settings)


def test_other_characters_than_latin_are_escaped() -> None:
    """Java's properties need escapes, and the path of a key may have any characters."""
    assert (
        conf(secured=Secured(lines={"tlsKeyFilePath": "/home/José 語😀/k"}))["tlsKeyFilePath"]
        == r"/home/Jos\u00e9 \u8a9e\ud83d\ude00/k"
    )


def test_under_tls_there_is_no_plain_port() -> None:
    """Pulsar would open plain ports by default; without TLS there is no TLS port."""
    written = conf(secured=Secured(tls=True, lines={"tlsKeyFilePath": "/k"}))
    assert (
        written["brokerServicePortTls"],
        written["webServicePortTls"],
        written["tlsKeyFilePath"],
    ) == ("1", "2", "/k")
    assert (written["brokerServicePort"], written["webServicePort"]) == ("", "")
    assert "brokerServicePortTls" not in conf()


def test_settings_for_security_are_chosen_by_the_run() -> None:
    """A key that target.security sets is an error in broker.settings, and the user's choice without target.security."""
    assert conf(authenticationEnabled="true")["authenticationEnabled"] == "true"
    with pytest.raises(
        UsageError, match=r"broker\.settings: authenticationEnabled .* chosen per run"
    ):
        conf(authenticationEnabled="true", secured=Secured(lines={"authenticationEnabled": "true"}))


@pytest.mark.parametrize(("major", "flag"), [(17, False), (25, True)])
def test_the_java_command_writes_only_into_the_data_folder(
    major: int, flag: bool, tmp_path: Path
) -> None:
    """Newer Javas need a permission for unsafe memory access."""
    runtime = Java(sys.executable, str(major))
    line = pulsar.command(runtime, tmp_path, "4.2.4", tmp_path, 7003)
    assert line[:3] == [sys.executable, "-cp", f"{tmp_path}/*"]
    assert ("--sun-misc-unsafe-memory-access=allow" in line) is flag
    data = str(tmp_path / "data")
    assert all(
        line[line.index(option) + 1].startswith(data)
        for option in ("--metadata-dir", "--bookkeeper-dir")
    )
    assert f"-Djava.io.tmpdir={data}/tmp" in line


@pytest.mark.parametrize(
    ("version", "pom", "bookie_port"),
    [
        ("4.0.0", "pulsar-pom.xml", True),
        ("4.2.4", "pulsar-pom.xml", True),
        ("5.0.0-M1", "pulsar-5-pom.xml", False),
        ("11.2", "pulsar-5-pom.xml", False),
    ],
)
def test_pulsar_5_has_its_own_class_path_and_no_option_for_the_bookies_port(
    version: str, pom: str, bookie_port: bool, tmp_path: Path
) -> None:
    assert pulsar.pulsar_jars(version).pom.name == pom
    assert pulsar.pulsar_jars(version).pom.is_file()
    line = pulsar.command(Java(sys.executable, "17"), tmp_path, version, tmp_path, 7003)
    assert ("--bookkeeper-port" in line) is bookie_port


def test_classes_come_from_the_archive_of_these_jars_once_it_is_made(tmp_path: Path) -> None:
    jars = tmp_path / "pulsar-4.2.4"
    jars.mkdir()
    runtime = Java(sys.executable, "17")
    archive = class_archive(jars, runtime)
    mapped = f"-XX:SharedArchiveFile={archive}"
    assert mapped not in pulsar.command(runtime, jars, "4.2.4", tmp_path, 7003)
    archive.touch()
    assert mapped in pulsar.command(runtime, jars, "4.2.4", tmp_path, 7003)


def test_a_text_that_is_no_version_is_rejected_where_jars_are_resolved() -> None:
    with pytest.raises(UsageError, match="'latest' is not a version of Pulsar: write one like"):
        pulsar.pulsar_jars("latest").resolve("latest", print)
