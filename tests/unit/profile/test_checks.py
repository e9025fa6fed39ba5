"""Profiles of runs that only connect, and what cannot stand beside that."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from pytest_loadtest import profile
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.errors import ProfileError
from pytest_loadtest.values.quantities import MINUTE, SECOND

ONLY = "name: a\nmessages: 0\nsubscriptionsPerTopic: 0\ndriver: {name: mqtt, connectRate: 100}\nslo: {connectLatency: {p50: 1s}}\n"
LEAST = ONLY + "testDuration: 9s\n"
SCHEMA = jsonschema.Draft202012Validator(profile.json_schema())


def loads(text: str) -> profile.Profile:
    return profile.loads(text, "p.yaml")


def fits(text: str) -> bool:
    """Whether the JSON Schema takes it."""
    return not list(SCHEMA.iter_errors(yaml.safe_load(text)))


@pytest.mark.parametrize(
    "text", [LEAST, ONLY + "testDurationMinutes: 2\n", LEAST + "producerRate: 0\nmessageSize: 16\nwarmupDuration: 1s\n"]
)
def test_connections_alone(text: str) -> None:
    """They want a duration; neither size nor rate, and 0 asks for no search here. Results read back the same."""
    found = loads(text)
    assert (found.connects_only, found.peak_search, found.search, found.connect_rate) == (True, False, None, 100)
    assert found.test_duration in (9 * SECOND, 2 * MINUTE)
    back = profile.from_document(json.loads(json.dumps(found.document())))
    assert (back.connects_only, back.connect_rate, back.test_duration) == (True, 100, found.test_duration)
    assert fits(text)


def test_the_rate_is_an_objective() -> None:
    """Where one is asked for, and 95 % of it unless the profile says otherwise; a bound without a rate is refused."""
    asked, said = loads(LEAST), loads(LEAST.replace("slo: {", "slo: {connectRate: 99%, "))
    for found, bound in ((asked, 0.95), (said, 0.99)):
        assert [one.minimum for one in found.objectives if one.metric == "connectRate"] == [bound]
    none = LEAST.replace(", connectRate: 100", "")
    assert not [one for one in loads(none).objectives if one.metric == "connectRate"]
    with pytest.raises(ProfileError, match=r"5:7: slo.connectRate: driver.connectRate is missing \(write driver: {connectRate: 100}"):
        loads(none.replace("slo: {", "slo: {connectRate: 99%, "))
    with pytest.raises(ProfileError, match="'100/s' is not a share of the connections"):
        loads(LEAST.replace("slo: {", "slo: {connectRate: 100/s, "))


def test_subscribers_alone() -> None:
    """Without a producer, and without a topic of somebody else."""
    text = LEAST.replace("subscriptionsPerTopic: 0", "producersPerTopic: 0").replace("connectLatency", "subscribeLatency")
    assert (loads(text).consumer_only, loads(text).connects_only) == (True, True)
    assert fits(text)


def test_connections_beside_messages() -> None:
    """A rate of connections is no matter of messages, and left out there is none."""
    text = "name: a\nproducerRate: 5\nmessageSize: 100\ntestDuration: 1s\n"
    assert loads(text + "driver: {name: mqtt, connectRate: 0.5}\n").connect_rate == 0.5
    assert loads(text + "driver: {name: mqtt}\n").connect_rate is loads(text).connect_rate is None


REFUSED = [
    ("producerRate: 5", "7:15: producerRate: 5 msg/s, but messages: 0 sends none (remove producerRate, or messages; driver.connectRate paces connections)"),
    ("search: true", "7:1: search: finds the highest rate of messages, but messages: 0 sends none (remove search, and write a matrix of driver.connectRate)"),
    ("consumerBacklogSizeGB: 1", "7:24: consumerBacklogSizeGB: messages: 0 builds no backlog (write 0)"),
    ("scaled: {slo: {loss: 0}}", "7:16: scaled.slo.loss: the run has no messages (messages: 0) (bound connectLatency or subscribeLatency)"),
    ("producersPerTopic: 0", "2:11: messages: 0 only connects, but the run has no clients (write producersPerTopic: 1)"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), REFUSED)
def test_what_cannot_stand_beside_it(line: str, expected: str) -> None:
    """One error each, with its place and what to write."""
    with pytest.raises(ProfileError) as caught:
        loads(LEAST + line + "\n")
    assert expected in [text.removeprefix("p.yaml:") for text in str(caught.value).splitlines()]


def test_what_is_wrong_elsewhere_is_all_that_is_told() -> None:
    """Nobody wrote a rate of messages."""
    with pytest.raises(ProfileError) as caught:
        loads(LEAST.replace("connectRate: 100", "connectRate: 0"))
    assert str(caught.value) == "p.yaml:4:35: driver.connectRate: 0 must be at least 0.001"


BOUNDS = [
    ("throughput: 99%", "5:7: slo.throughput: the run has no messages (messages: 0) (bound connectLatency or subscribeLatency)"),
    ("endToEndLatency: {p99: 1s}", "5:7: slo.endToEndLatency: the run has no messages (messages: 0) (bound connectLatency or subscribeLatency)"),
    ("loss: 0", "5:7: slo.loss: the run has no messages (messages: 0) (bound connectLatency or subscribeLatency)"),
    ("custom: {mine: 5}", "5:7: slo.custom: the run has no messages (messages: 0) (bound connectLatency or subscribeLatency)"),
    ("subscribeLatency: {p50: 1s}", "5:7: slo.subscribeLatency: the run has no consumers (bound connectLatency)"),
    ("connectRate: 90%", "2:11: messages: 0 only connects, but slo bounds no latency of connecting (write slo: {connectLatency: {mean: 500ms}})"),
    ("", "2:11: messages: 0 only connects, but slo bounds no latency of connecting (write slo: {connectLatency: {mean: 500ms}})"),
]  # fmt: skip


@pytest.mark.parametrize(("bound", "expected"), BOUNDS)
def test_objectives_that_nothing_could_measure(bound: str, expected: str) -> None:
    """Refused before any broker is touched, once each."""
    with pytest.raises(ProfileError) as caught:
        loads(LEAST.replace("connectLatency: {p50: 1s}", bound))
    assert str(caught.value) == f"p.yaml:{expected}"


@pytest.mark.parametrize("name", ["pulsar", "loopback"])
def test_who_does_not_tell(name: str) -> None:
    """Clients that share connections have no rate of them either."""
    with pytest.raises(ProfileError, match=f"clients of {name} do not report how long that took"):
        loads(LEAST.replace("{name: mqtt, connectRate: 100}", f"{{name: {name}}}"))
    with pytest.raises(ProfileError, match="connectRate"):
        loads(LEAST.replace("mqtt", name))


def test_without_a_duration() -> None:
    """0 messages take no time by themselves."""
    with pytest.raises(ProfileError, match="testDuration is missing"):
        loads(ONLY)
    assert not fits(ONLY)


@pytest.mark.parametrize(
    ("changes", "messages", "rate", "seconds"),
    [
        ({"testDuration": "2s"}, 0, 0, 2),
        ({"testDurationMinutes": 1}, 0, 0, 60),
        ({"driver.connectRate": 5}, 0, 0, 9),
        ({"producerRate": 7, "messageSize": 64}, None, 7, 9),
        ({"messages": 14, "producerRate": 7, "messageSize": 64}, 14, 7, 2),
        ({"messages": None, "producerRate": 7, "messageSize": 64}, None, 7, 9),
        ({"stages": [{"duration": "3s"}], "producerRate": 7, "messageSize": 64}, None, 7, 3),
    ],
)
def test_changes_of_a_mark(tmp_path: Path, changes: dict[str, object], messages: int | None, rate: float, seconds: int) -> None:
    """Another duration leaves them alone; messages, and what says how long they are sent, are in their place."""
    path = tmp_path / "p.yaml"
    path.write_text(LEAST)
    found = profile.override(path, changes)
    assert (found.messages, found.producer_rate, found.test_duration) == (messages, rate, seconds * SECOND)


def test_messages_0_takes_the_place_of_a_rate(tmp_path: Path) -> None:
    """As in a matrix that has cases with messages and without; the duration stays."""
    path = tmp_path / "p.yaml"
    path.write_text("name: a\nproducerRate: 5\nmessageSize: 100\ntestDuration: 3s\ndriver: {name: mqtt}\nslo: {loss: 0}\n")
    found = profile.override(path, {"messages": 0, "slo": {"connectLatency": {"p50": "1s"}}})
    assert (found.connects_only, found.producer_rate, found.test_duration) == (True, 0, 3 * SECOND)


FOLDER = Path(__file__).parents[3] / "profiles"


@pytest.mark.parametrize(
    ("security", "tls", "version"),
    [("plain", False, None), ("tls13-chacha20", True, "TLSv1.3"), ("tls12", True, "TLSv1.2"), ("tlsClientCert", True, "TLSv1.3")],
)
def test_connburst(security: str, tls: bool, version: str | None) -> None:
    """Connections alone, at the rate and over the transport that the cell is called by."""
    path = profile.find("mqtt/connburst", FOLDER)
    (one,) = profile.matrix_of(path, {"clients": "10K-clients", "security": security, "rate": "2000-a-second"})
    found = profile.override(path, one.changes)
    assert (found.producers_per_topic, found.subscriptions_per_topic, found.connect_rate) == (10_000, 0, 2000)
    assert isinstance(found.driver, MqttSettings)
    assert (found.driver.tls and found.driver.tls.version) == version
    secured = found.target.security if found.target else None
    assert bool(secured and secured.tls) == tls
    assert bool(secured and secured.auth == "tls") == (security == "tlsClientCert")


def test_the_connections_of_the_suite() -> None:
    """10 000 at a hundred a second, held for half an hour, without the sizes and bounds of the messages beside them."""
    path = profile.find("mqtt/mqttbs", FOLDER)
    (one,) = profile.matrix_of(path, {"case": "conn-tcp-10K-100"})
    found = profile.override(path, one.changes)
    assert (found.connects_only, found.producers_per_topic, found.producer_only, found.connect_rate) == (True, 10_000, True, 100)
    assert (found.test_duration, list(found.slo)) == (30 * MINUTE, ["connectLatency"])
