"""Artemis's configuration and command, without starting any."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_loadtest import brokers
from pytest_loadtest.brokers import BrokerRequest
from pytest_loadtest.brokers.java import Java
from pytest_loadtest.drivers.mqtt import artemis
from pytest_loadtest.errors import TargetError, UsageError

CORE = "{urn:activemq:core}core"


def core(**settings: str) -> ElementTree.Element:
    text = artemis.broker_xml(
        ports=[1234],
        settings={
            key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()
        },
    )
    found = ElementTree.fromstring(text).find(CORE)
    assert found is not None
    return found


def test_a_plain_broker_is_open_on_loopback_and_keeps_nothing() -> None:
    """One MQTT acceptor, MQTT's wildcards, and no publisher blocked by a full disk."""
    told = core()
    assert told.findtext("{*}acceptors/{*}acceptor") == "tcp://127.0.0.1:1234?protocols=MQTT"
    assert (told.findtext("{*}persistence-enabled"), told.findtext("{*}max-disk-usage")) == (
        "false",
        "-1",
    )
    assert [part.text for part in told.iterfind("{*}wildcard-addresses/*")] == ["/", "#", "+"]


def test_settings_become_elements_and_parameters() -> None:
    """Elements of core and of the address setting, parameters of the acceptor; the profile's replace ours."""
    told = core(
        persistence_enabled="true",
        address_setting__max_size_messages="10",
        acceptor__serverKeepAlive="7",
        acceptor__tcpNoDelay="false",
        name="<a & b>",
    )
    assert [element.text for element in told.iterfind("{*}persistence-enabled")] == ["true"]
    assert (
        told.findtext("{*}address-settings/{*}address-setting[@match='#']/{*}max-size-messages")
        == "10"
    )
    assert (
        told.findtext("{*}acceptors/{*}acceptor")
        == "tcp://127.0.0.1:1234?protocols=MQTT;serverKeepAlive=7;tcpNoDelay=false"
    )
    assert told.findtext("{*}name") == "<a & b>"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("acceptors", "x", "acceptors of Artemis is chosen per run"),
        ("journal-directory", "/tmp", "journal-directory of Artemis is chosen per run"),
        (
            "maxSizeMessages",
            "1",
            "'maxSizeMessages' is not a setting of Artemis: write an element of core",
        ),
        ("address-setting.a b", "1", "is not a setting of Artemis"),
        (
            "acceptor.port",
            "1883",
            "acceptor.port is unknown: after acceptor. write one of allowLinkStealing, ",
        ),
        ("acceptor.receiveMaximum", "7", "acceptor.receiveMaximum is unknown"),
        ("acceptor.backlog", "many", "'many' is not a whole number"),
        ("acceptor.tcpNoDelay", "1", "'1' is not true or false"),
    ],
)
def test_an_invalid_setting_is_rejected(key: str, value: str, words: str) -> None:
    """Settings that are chosen per run, names that cannot be elements, and values that Artemis would silently ignore."""
    with pytest.raises(UsageError, match=r"broker\.settings") as raised:
        artemis.broker_xml(ports=[1], settings={key: value})
    assert words in str(raised.value)


def test_decisive_settings_are_defaults_ours_and_the_profiles() -> None:
    """The report has the settings that affect results even if the profile sets none."""
    told = artemis.decisive_artemis_settings({"acceptor.backlog": "7"})
    assert (told["persistence-enabled"], told["journal-type"], told["acceptor.backlog"]) == (
        "false",
        "NIO",
        "7",
    )
    assert (told["address-setting.address-full-policy"], told["memory"]) == (
        "PAGE",
        "-Xms256m -Xmx1g",
    )


def test_the_jvm_writes_only_to_the_data_folder(tmp_path: Path) -> None:
    """It reads no configuration of the machine."""
    line = artemis.artemis_command(Java("java", "17"), Path("/jars"), tmp_path)
    assert line[:3] == ["java", "-cp", "/jars/*"]
    assert line[-1] == str(tmp_path)
    assert f"-Djava.io.tmpdir={tmp_path}/tmp" in line
    assert f"-Dbroker.properties={tmp_path}/tmp/" in line


def test_only_the_last_acceptor_has_tls() -> None:
    text = artemis.broker_xml(
        ports=[1, 2], settings={"acceptor.backlog": "7"}, tls={"keyStorePath": "data/x.pem"}
    )
    found = [
        element.text
        for element in ElementTree.fromstring(text).iterfind("{*}core/{*}acceptors/{*}acceptor")
    ]
    assert found == [
        "tcp://127.0.0.1:1?protocols=MQTT;backlog=7",
        "tcp://127.0.0.1:2?protocols=MQTT;backlog=7;keyStorePath=data/x.pem",
    ]


def test_an_artemis_container_is_rejected(tmp_path: Path) -> None:
    """The error lists the available ways."""
    with pytest.raises(
        UsageError, match="there is no container artemis broker: choose one of process"
    ):
        brokers.start(BrokerRequest(kind="artemis", mode="container", folder=tmp_path), print)


def test_missing_java_and_missing_jars_are_named_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No other broker is started instead."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    request = BrokerRequest(kind="artemis", mode="auto", folder=tmp_path)
    with pytest.raises(
        TargetError, match=r"process: Artemis needs Java, and there is none .*doctor --fix"
    ):
        brokers.start(request, print)
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.15\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(
        TargetError,
        match=rf"process: Artemis {artemis.JARS.version} is not cached and there is no Maven .*doctor --fix",
    ):
        brokers.start(request, print)
