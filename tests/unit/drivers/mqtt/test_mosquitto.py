"""mosquitto's configuration as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_loadtest.brokers.base import UnavailableError
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.mqtt.mosquitto import tls_listener
from pytest_loadtest.drivers.mqtt.settings import Tls
from pytest_loadtest.errors import UsageError
from pytest_loadtest.profile.sections import SecuritySection


def lines(**settings: str) -> list[str]:
    return mosquitto.mosquitto_conf(port=1234, settings=settings, user="me", data="/here").splitlines()


def test_base() -> None:
    """One listener on loopback, no delay, quick $SYS, nothing kept, our own user."""
    assert lines()[:6] == [
        "user me",
        "listener 1234 127.0.0.1",
        "allow_anonymous true",
        "set_tcp_nodelay true",
        "sys_interval 1",
        "persistence false",
    ]


def test_the_profile_wins_over_ours_and_adds() -> None:
    """A key of the profile replaces ours, once; others are appended."""
    text = lines(set_tcp_nodelay="false", max_queued_messages="0")
    assert [line for line in text if line.startswith("set_tcp_nodelay")] == ["set_tcp_nodelay false"]
    assert text[-1] == "max_queued_messages 0"


@pytest.mark.parametrize("settings", [{"listener": "1883"}, {"user": "root"}, {"max_queued_messages": "0\nlistener 1"}, {" ": "x"}])
def test_what_is_chosen_per_run_is_refused(settings: dict[str, str]) -> None:
    """A profile cannot move the listener, not by a second line either."""
    with pytest.raises(UsageError, match=r"broker\.settings"):
        lines(**settings)


def test_without_a_user_name_mosquitto_keeps_its_choice() -> None:
    """A container's own user is left alone."""
    assert "user" not in mosquitto.mosquitto_conf(port=1, settings={}, user=None, data="/here")


def test_decisive_settings_tell_defaults_ours_and_the_profiles() -> None:
    """The report names what decides results even where the profile says nothing."""
    told = mosquitto.decisive_mosquitto_settings({"max_queued_messages": "0"})
    assert (told["max_queued_messages"], told["max_inflight_messages"], told["set_tcp_nodelay"]) == ("0", "20", "true")


def test_a_certificate_makes_the_address_tls() -> None:
    """The URL says what the listener speaks."""
    assert mosquitto.listener_scheme({}) == "mqtt"
    assert mosquitto.listener_scheme({"certfile": "x"}) == "mqtts"


@pytest.mark.parametrize(("wanted", "fits"), [(None, True), ("2", True), ("2.0", True), ("2.0.11", True), ("2.0.1", False), ("2.1", False)])
def test_versions(wanted: str | None, fits: bool) -> None:
    """A wanted version is a prefix by whole numbers."""
    if fits:
        mosquitto.check_version("2.0.11", wanted)
    else:
        with pytest.raises(UnavailableError, match=r"2\.0\.11 is installed"):
            mosquitto.check_version("2.0.11", wanted)


def test_parse_version() -> None:
    """The version is in the first line of the help."""
    assert mosquitto.parse_version("mosquitto version 2.0.11\n\nmosquitto is an MQTT broker.") == "2.0.11"
    assert mosquitto.parse_version("?") == "unknown"


def test_one_listener_with_tls() -> None:
    """Its lines stand below it, with those of the profile."""
    text = mosquitto.mosquitto_conf(port=1, settings={"x": "y"}, user=None, data="/here", tls={"certfile": "c"})
    assert [line for line in text.splitlines() if line.split()[0] in ("listener", "x", "certfile")] == [
        "listener 1 127.0.0.1", "x y", "certfile c",
    ]  # fmt: skip


def test_subscribers_have_a_listener_of_their_own() -> None:
    """The lines of TLS stand below the second one, and below no other."""
    text = mosquitto.mosquitto_conf(port=1, settings={"x": "y"}, user=None, data="/here", tls={"certfile": "c"}, tls_port=2)
    assert text.splitlines()[0] == "listener 1 127.0.0.1"
    assert text.splitlines()[-2:] == ["listener 2 127.0.0.1", "certfile c"]


def test_who_asks_for_keys_of_the_run_brings_none() -> None:
    """A certificate of the profile would win over the one that clients are told of."""
    with pytest.raises(UsageError, match="cafile, certfile of mosquitto is chosen per run"):
        mosquitto.mosquitto_conf(port=1, settings={"certfile": "x", "cafile": "y"}, user=None, data="/here", tls={"certfile": "c"})


@pytest.mark.parametrize(
    ("wanted", "lines"),
    [
        (None, {"tls_version": "tlsv1.2"}),
        (Tls(version="TLSv1.3"), {"tls_version": "tlsv1.3"}),
        (Tls(ciphers="TLS_A:TLS_B"), {"tls_version": "tlsv1.3", "ciphers_tls1.3": "TLS_A:TLS_B"}),
        (Tls(ciphers="TLS_A:OLD"), {"tls_version": "tlsv1.2", "ciphers": "OLD", "ciphers_tls1.3": "TLS_A"}),
    ],
)
def test_versions_and_ciphers(wanted: Tls | None, lines: dict[str, str], tmp_path: Path) -> None:
    """OpenSSL sets those of TLS 1.3 apart; the report has all of these lines, and none that names a file."""
    made = tls_listener(tmp_path / "security", SecuritySection(tls=True), wanted)
    assert made.decisive == lines
    assert lines.items() <= made.lines.items()
    assert made.client == Tls(ca_file=str(tmp_path / "security" / "ca.pem"))
    assert "require_certificate" not in made.lines
