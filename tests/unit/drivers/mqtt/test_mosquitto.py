"""mosquitto's configuration as text."""

from __future__ import annotations

import pytest

from pytest_loadtest.brokers.base import UnavailableError
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.errors import UsageError


def lines(**settings: str) -> list[str]:
    return mosquitto.mosquitto_conf(
        port=1234, settings=settings, user="me", data="/here"
    ).splitlines()


def test_a_plain_broker_is_open_on_loopback_and_keeps_nothing() -> None:
    """One listener without Nagle delay, $SYS every second, our own user."""
    assert lines()[:6] == [
        "user me",
        "listener 1234 127.0.0.1",
        "allow_anonymous true",
        "set_tcp_nodelay true",
        "sys_interval 1",
        "persistence false",
    ]


def test_lines_of_the_profile_replace_ours() -> None:
    """A key of the profile replaces ours; other keys are appended."""
    text = lines(set_tcp_nodelay="false", max_queued_messages="0")
    assert [line for line in text if line.startswith("set_tcp_nodelay")] == [
        "set_tcp_nodelay false"
    ]
    assert text[-1] == "max_queued_messages 0"


@pytest.mark.parametrize(
    "settings",
    [{"listener": "1883"}, {"user": "root"}, {"max_queued_messages": "0\nlistener 1"}, {" ": "x"}],
)
def test_a_setting_that_is_chosen_per_run_is_rejected(settings: dict[str, str]) -> None:
    """A profile cannot move the listener, not even by a second line in a value."""
    with pytest.raises(UsageError, match=r"broker\.settings"):
        lines(**settings)


def test_without_a_user_name_mosquitto_chooses_its_user() -> None:
    """As in a container."""
    assert "user" not in mosquitto.mosquitto_conf(port=1, settings={}, user=None, data="/here")


def test_decisive_settings_are_defaults_ours_and_the_profiles() -> None:
    """The report has the settings that affect results even if the profile sets none."""
    decisive = mosquitto.decisive_mosquitto_settings({"max_queued_messages": "0"})
    assert (
        decisive["max_queued_messages"],
        decisive["max_inflight_messages"],
        decisive["set_tcp_nodelay"],
    ) == ("0", "20", "true")


def test_a_certificate_makes_the_address_mqtts() -> None:
    assert mosquitto.listener_scheme({}) == "mqtt"
    assert mosquitto.listener_scheme({"certfile": "x"}) == "mqtts"


@pytest.mark.parametrize(
    ("limits", "fits"),
    [(None, True), ("2", True), ("2.0", True), ("2.0.11", True), ("2.0.1", False), ("2.1", False)],
)
def test_a_version_is_a_prefix_by_whole_numbers(limits: str | None, fits: bool) -> None:
    """A wanted version is a prefix by whole numbers."""
    if fits:
        mosquitto.check_version("2.0.11", limits)
    else:
        with pytest.raises(UnavailableError, match=r"2\.0\.11 is installed"):
            mosquitto.check_version("2.0.11", limits)


def test_the_version_is_read_from_the_help() -> None:
    assert (
        mosquitto.parse_version("mosquitto version 2.0.11\n\nmosquitto is an MQTT broker.")
        == "2.0.11"
    )
    assert mosquitto.parse_version("?") == "unknown"


def test_a_single_listener_has_the_lines_of_tls() -> None:
    """After its own line, together with the profile's."""
    text = mosquitto.mosquitto_conf(
        port=1, settings={"x": "y"}, user=None, data="/here", tls={"certfile": "c"}
    )
    assert [line for line in text.splitlines() if line.split()[0] in ("listener", "x", "certfile")] == [
        "listener 1 127.0.0.1", "x y", "certfile c",
    ]  # fmt: skip


def test_subscribers_have_their_own_listener() -> None:
    """The lines of TLS are those of the second listener only."""
    text = mosquitto.mosquitto_conf(
        port=1, settings={"x": "y"}, user=None, data="/here", tls={"certfile": "c"}, tls_port=2
    )
    assert text.splitlines()[0] == "listener 1 127.0.0.1"
    assert text.splitlines()[-3:] == ["listener 2 127.0.0.1", "allow_anonymous true", "certfile c"]


def test_the_profiles_settings_of_a_listener_apply_to_both_listeners() -> None:
    """Otherwise subscribers would connect to a listener without them. Settings of the whole broker are written once."""
    settings = {"max_connections": "8", "max_queued_messages": "5"}
    text = mosquitto.mosquitto_conf(
        port=1, settings=settings, user=None, data="/here", tls={"certfile": "c"}, tls_port=2
    )
    plain, _, subscribers = text.partition("listener 2 127.0.0.1\n")
    assert "max_connections 8\n" in plain
    assert "max_connections 8\n" in subscribers
    assert "max_queued_messages" not in subscribers


def test_certificates_of_the_profile_are_rejected_with_keys_of_the_run() -> None:
    """They would replace the certificate that the clients trust."""
    with pytest.raises(UsageError, match="cafile, certfile of mosquitto is chosen per run"):
        mosquitto.mosquitto_conf(
            port=1,
            settings={"certfile": "x", "cafile": "y"},
            user=None,
            data="/here",
            tls={"certfile": "c"},
        )
