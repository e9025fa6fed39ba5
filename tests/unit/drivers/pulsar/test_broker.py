"""The configuration and the command of a Pulsar standalone, without starting one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_loadtest.brokers.java import Java
from pytest_loadtest.drivers.pulsar import broker as pulsar
from pytest_loadtest.drivers.pulsar.secured import Secured
from pytest_loadtest.errors import UsageError


def conf(secured: Secured = pulsar.OPEN, **settings: str) -> dict[str, str]:
    text = pulsar.standalone_conf(port=1, web_port=2, settings=settings, secured=secured)
    return dict(line.split("=", 1) for line in text.splitlines())


def test_base() -> None:
    """Own ports on loopback, quorums of one, and the frame follows the largest message."""
    told = conf()
    assert (told["brokerServicePort"], told["webServicePort"], told["bindAddress"]) == ("1", "2", "127.0.0.1")
    assert told["listeningInterface"] == "lo"
    assert {told[f"managedLedgerDefault{what}"] for what in ("EnsembleSize", "WriteQuorum", "AckQuorum")} == {"1"}
    assert int(told["nettyMaxFrameSizeBytes"]) == int(told["maxMessageSize"]) + pulsar.FRAME_OVERHEAD


def test_the_profile_wins_over_the_base() -> None:
    """Settings replace and add; the frame follows."""
    told = conf(maxMessageSize="1000", journalSyncData="true", anything="x=y")
    assert (told["journalSyncData"], told["anything"], told["nettyMaxFrameSizeBytes"]) == ("true", "x=y", "11240")


@pytest.mark.parametrize(
    "settings", [{"webServicePort": "8080"}, {"listeningInterface": "eth0"}, {"maxMessageSize": "5MB"}, {"a": "1\nb=2"}]
)
def test_wrong_settings(settings: dict[str, str]) -> None:
    """What is chosen per run, what is not a number, what is not one line."""
    with pytest.raises(UsageError, match=r"broker\.settings"):
        conf(**settings)


def test_characters_beyond_latin() -> None:
    """Java's properties have them by escapes: a folder of keys may be below a home of any name."""
    assert conf(secured=Secured(lines={"tlsKeyFilePath": "/home/José 語😀/k"}))["tlsKeyFilePath"] == r"/home/Jos\u00e9 \u8a9e\ud83d\ude00/k"


def test_tls_leaves_no_plain_port() -> None:
    """TLS ports in place of the others, which Pulsar would open by default; without TLS it is the other way round."""
    told = conf(secured=Secured(tls=True, lines={"tlsKeyFilePath": "/k"}))
    assert (told["brokerServicePortTls"], told["webServicePortTls"], told["tlsKeyFilePath"]) == ("1", "2", "/k")
    assert (told["brokerServicePort"], told["webServicePort"]) == ("", "")
    assert "brokerServicePortTls" not in conf()


def test_what_security_sets_is_chosen_per_run() -> None:
    """The same key in broker.settings is refused beside target.security, and the user's own business without."""
    assert conf(authenticationEnabled="true")["authenticationEnabled"] == "true"
    with pytest.raises(UsageError, match=r"broker\.settings: authenticationEnabled .* chosen per run"):
        conf(authenticationEnabled="true", secured=Secured(lines={"authenticationEnabled": "true"}))


@pytest.mark.parametrize(("major", "flag"), [(17, False), (25, True)])
def test_command(major: int, flag: bool, tmp_path: Path) -> None:
    """Everything the JVM writes stays in the data folder; newer Javas need leave for unsafe memory."""
    line = pulsar.command(Java("java", major), Path("/jars"), tmp_path, 7003)
    assert line[:3] == ["java", "-cp", "/jars/*"]
    assert ("--sun-misc-unsafe-memory-access=allow" in line) is flag
    data = str(tmp_path / "data")
    assert all(line[line.index(option) + 1].startswith(data) for option in ("--metadata-dir", "--bookkeeper-dir"))
    assert f"-Djava.io.tmpdir={data}/tmp" in line
