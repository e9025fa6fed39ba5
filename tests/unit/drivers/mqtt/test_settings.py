"""The ``driver`` section of MQTT: what a ``tls`` section leaves to be agreed on; OMB's driver files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_loadtest import profile
from pytest_loadtest.drivers.mqtt.settings import MqttSettings, Tls
from pytest_loadtest.errors import ProfileError
from pytest_loadtest.profile.omb_driver import OmbDriver, read_driver
from pytest_loadtest.values.quantities import SECOND


@pytest.mark.parametrize(
    ("given_settings", "versions", "of_tls12", "of_tls13"),
    [
        ({}, ("TLSv1.2", "TLSv1.3"), (), ()),
        ({"version": "TLSv1.2"}, ("TLSv1.2",), (), ()),
        ({"ciphers": "TLS_A:TLS_B"}, ("TLSv1.3",), (), ("TLS_A", "TLS_B")),
        ({"ciphers": "OLD"}, ("TLSv1.2",), ("OLD",), ()),
        ({"ciphers": "OLD:TLS_A"}, ("TLSv1.2", "TLSv1.3"), ("OLD",), ("TLS_A",)),
    ],
)
def test_ciphers_limit_the_tls_versions(
    given_settings: dict[str, Any],
    versions: tuple[str, ...],
    of_tls12: tuple[str, ...],
    of_tls13: tuple[str, ...],
) -> None:
    """A version in the profile is the only one; otherwise those of the ciphers."""
    tls = Tls(**given_settings)
    assert (tls.versions, tls.of_tls12, tls.of_tls13) == (versions, of_tls12, of_tls13)


PROFILE = """\
name: a
producerRate: 1
messageSize: 100
testDuration: 1s
driver: {name: mqtt, keepAlive: KEEP_ALIVE}
"""


@pytest.mark.parametrize("longest", ["65535s", "0s"])
def test_a_keep_alive_has_two_bytes(longest: str) -> None:
    """18 h 12 min 15 s is the longest (MQTT 5, 3.1.2.10); without a broker it would be found as the first client connects."""
    driver = profile.loads(PROFILE.replace("KEEP_ALIVE", longest), "p.yaml").driver
    assert driver.keep_alive == int(longest[:-1]) * SECOND


@pytest.mark.parametrize(
    "keys",
    [
        "password: sesame",  # MQTT 5 with our own client
        'protocolVersion: "3.1.1", username: joe, password: sesame',
        "client: library, username: joe, password: sesame",
        "client: library, username: joe",
    ],
)
def test_a_login_that_a_client_can_send_is_valid(keys: str) -> None:
    profile.loads(PROFILE.replace("keepAlive: KEEP_ALIVE", keys), "p.yaml")


@pytest.mark.parametrize("given", ["65536s", "24h"])
def test_a_longer_keep_alive_is_a_problem_of_its_line(given: str) -> None:
    with pytest.raises(ProfileError) as caught:
        profile.loads(PROFILE.replace("KEEP_ALIVE", given), "p.yaml")
    assert "p.yaml:5:33: driver.keepAlive: " in str(caught.value)
    assert "(write 65535s or less, or 0s for none)" in str(caught.value)


# OMB's driver files for MQTT 5: the fields of its Mqtt*Config at 8559989.

CLASS = "driverClass: io.openmessaging.benchmark.driver.mqtt5.MqttBenchmarkDriver\n"
STOPS = "has no value, and OMB stops at null"
ROWS: list[tuple[str, str, Any, Any]] = [
    # Section and key in OMB, our key, the initial value of the Java field, the value after null (or the error).
    ("client.qos", "qos", 1, 0),
    ("client.topicPrefix", "topicPrefix", "benchmark", "null"),
    ("client.username", "username", None, None),
    ("client.password", "password", None, None),
    ("consumer.cleanSession", "cleanStart", True, STOPS),
    ("consumer.receiveMaximum", "receiveMaximum", 256, STOPS),
    ("consumer.sessionExpiryInterval", "sessionExpiry", 0, 0),
]


def converted(text: str) -> tuple[OmbDriver, dict[str, Any]]:
    """Return a driver file, and all settings of the client with it."""
    found = read_driver(CLASS + text, "d.yaml")
    settings = MqttSettings.model_validate(
        found.driver, context={"units": "named"}, by_alias=True, by_name=False
    )
    return found, settings.model_dump(by_alias=True) | {"password": settings.password}


@pytest.mark.parametrize(
    "text",
    ["", "client: {}\nconsumer: {}\n", "client: {qos: 1}\n", "consumer: {receiveMaximum: 256}\n"],
)
def test_missing_keys_have_the_values_with_which_omb_runs(text: str) -> None:
    """In a section that is missing, empty or there in part; the address too."""
    found, settings = converted(text)
    assert {ours: settings[ours] for _, ours, _, _ in ROWS} == {
        ours: initial for _, ours, initial, _ in ROWS
    }
    assert (found.target, found.target_named) == ({"url": "mqtt://localhost:1883"}, False)
    assert found.not_applied == {}


@pytest.mark.parametrize(
    ("place", "ours", "value"), [(place, ours, null) for place, ours, _, null in ROWS]
)
def test_null_has_the_effect_that_it_has_in_omb(place: str, ours: str, value: Any) -> None:
    section, key = place.split(".")
    text = f"{section}:\n  {key}:\n"
    if value == STOPS:
        with pytest.raises(ProfileError, match=f"d.yaml:3:3: {key} {STOPS}"):
            converted(text)
    else:
        assert converted(text)[1][ours] == value


@pytest.mark.parametrize(
    "text",
    [
        "client:\n",
        "consumer:\n",
        "client:\n  serverUri:\n",
        "consumer: {cleanSession: false, sessionExpiryInterval: }\n",
    ],
)
def test_null_at_which_omb_stops_is_an_error(text: str) -> None:
    with pytest.raises(ProfileError, match=STOPS):
        converted(text)


@pytest.mark.parametrize(
    ("keys", "expiry"),
    [
        ("", 259_200),
        ("sessionExpiryInterval: 60", 60),
        ("sessionExpiryIntervalSeconds: 60", 259_200),
    ],
)
def test_a_session_lasts_as_long_as_in_omb(keys: str, expiry: int) -> None:
    """OMB's own file has sessionExpiryIntervalSeconds, which its class does not have, so that three days apply."""
    found, settings = converted(f"consumer: {{cleanSession: false, {keys}}}\n")
    assert (settings["cleanStart"], settings["sessionExpiry"]) == (False, expiry * SECOND)
    assert list(found.not_applied) == (
        ["consumer.sessionExpiryIntervalSeconds"] if "Seconds" in keys else []
    )


@pytest.mark.parametrize(
    "given",
    [
        "username: joe",
        "password: sesame",
        "username: joe, password: ''",
        "username: , password: sesame",
    ],
)
def test_half_of_a_login_is_not_used_as_in_omb(given: str) -> None:
    found, settings = converted(f"client: {{{given}}}\n")
    assert (settings["username"], settings["password"]) == (None, None)
    assert len(found.not_applied) == 1
    assert "sesame" not in repr(found.not_applied)
    whole, settings = converted("client: {username: joe, password: sesame}\n")
    assert (settings["username"], settings["password"], whole.not_applied) == ("joe", "sesame", {})


def test_the_address_of_omb_does_not_replace_the_target_of_a_profile(tmp_path: Path) -> None:
    """It is for files without serverUri, and for profiles without a target."""
    file = tmp_path / "mqtt5.yaml"
    file.write_text(CLASS)
    plain = "name: a\nproducerRate: 1\nmessageSize: 100\ntestDuration: 1s\n"

    def url(text: str) -> str | None:
        target = profile.with_driver(profile.loads(text, "p.yaml"), file).target
        return None if target is None else target.url

    assert url(plain) == "mqtt://localhost:1883"
    assert url(plain + "driver: {name: mqtt}\ntarget: {url: mqtt://other:1}\n") == "mqtt://other:1"
    file.write_text(CLASS + "client: {serverUri: 'tcp://named:2'}\n")
    assert url(plain + "driver: {name: mqtt}\ntarget: {url: mqtt://other:1}\n") == "mqtt://named:2"
