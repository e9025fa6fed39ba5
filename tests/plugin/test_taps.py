"""A tap on the input of a service, and its backlog there: what takes the time is named, verdicts and counts stay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import order_service
import pytest
from cached_jars import require_jars
from running import running
from tcp_relay import relay

from pytest_loadtest import brokers
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars
from pytest_loadtest.drivers.pulsar.admin import Admin
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.values.quantities import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .projects import Finished, Project

needs_mosquitto = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)
PROFILE = """\
name: Orders are confirmed
topics: 4
messageSize: 300
producerRate: 300
testDuration: 3s
drainTimeout: 10s
route:
  input: {orders}
  output: {confirmed}
  envelope: {envelope}
  tap: true
{more}
generator: {{sendDelayP99: 5min, receiveLagP99: 5min, cpu: 5, stalled: 1}}
slo: {{loss: 0, duplicates: 0, throughput: 1%, sent: 1%}}
"""
JSON = '{in: "json:/meta/ref", out: "json:/order/ref"}'
TEST = """\
import sys
import pytest

@pytest.fixture
def orders(load_service):
    return load_service([sys.executable, {service!r}, *{options!r}], ready="ready")

@pytest.mark.load("orders")
def test_orders(load, orders):
    load.assert_slo()
"""
ALONE = """\
import pytest

@pytest.mark.load("orders")
def test_orders(load):
    assert load.samples.tap.count_rows() == {rows}
    load.assert_slo()
"""
SENT = 900


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a mosquitto."""
    folder = tmp_path_factory.mktemp("broker") / "mosquitto"
    request = brokers.BrokerRequest(kind="mqtt", mode="process", folder=folder)
    with running(request) as broker:
        yield urlsplit(broker.facts.url).port or 0


def write_mqtt(project: Project, port: int, client: str, *options: str, more: str = "") -> None:
    target = f'target: {{url: "mqtt://127.0.0.1:{port}"}}'
    driver = f"driver: {{name: mqtt, qos: 1, client: {client}}}"
    write(project, "shop/orders/{topic}", "shop/confirmed/{topic}", f"{driver}\n{target}\n{more}")
    command = ("mqtt", "--port", "{port}", *options)
    test = TEST.format(service=str(Path(order_service.__file__)), options=command)
    project.write("test_orders.py", test)


def write(project: Project, orders: str, confirmed: str, more: str, envelope: str = JSON) -> None:
    text = PROFILE.format(orders=orders, confirmed=confirmed, more=more, envelope=envelope)
    project.write("profiles/orders.yaml", text)


def parts_of(finished: Finished, deliveries: int = SENT) -> dict[str, Any]:
    """Return the parts of the latency, whose means add up."""
    document = finished.documents["test_orders"]
    latencies: dict[str, Any] = document["measurements"]["latencies"]
    parts = {name: latencies[name] for name in ("toTap", "afterTap", "pastTap", "ownPastTap")}
    assert {part["samples"] for part in parts.values()} == {deliveries}
    assert parts["toTap"]["total"] + parts["afterTap"]["total"] == parts["pastTap"]["total"]
    assert " end-to-end on average: " in finished.out
    return parts


def test_a_tap_on_the_loopback_sees_inputs_that_the_service_loses(project: Project) -> None:
    """Two subscriptions, two workers: what is lost, doubled and late is counted as without a tap."""
    more = "subscriptionsPerTopic: 2\ndriver: {name: loopback, delay: 5ms, service: %s}"
    service = "{lose: 100, double: 70, slow: 1, slowBy: 25ms, threads: 99}"
    write(project, "orders/{topic}", "confirmed/{topic}", more % service, "body")
    project.write("test_orders.py", ALONE.format(rows=SENT))
    finished = project.run("-n2")
    assert finished.ret == 1, finished.out
    document = finished.documents["test_orders"]
    counts = document["measurements"]["counts"]
    names = ("sent", "received", "lost", "duplicates", "foreign")
    # Input 700 is one of the 9 and of the 12, and has one output.
    received = 2 * (SENT - 8)
    assert [counts[name] for name in names] == [SENT, received, 2 * 8, 2 * 11, 0]
    assert document["measurements"]["latencies"]["endToEnd"]["samples"] == received
    parts = parts_of(finished, received)
    assert parts["toTap"]["minimum"] >= 5 * MILLISECOND
    assert parts["pastTap"]["minimum"] >= 30 * MILLISECOND
    assert parts["afterTap"]["mean"] >= 25 * MILLISECOND
    page = next(project.path.glob(".loadtest/*/report.html")).read_text()
    assert "Where the time went" in page


@needs_mosquitto
@pytest.mark.parametrize("client", ["native", "library"])
def test_a_slow_service_on_mosquitto_is_told_from_its_broker(
    project: Project, port: int, client: str
) -> None:
    write_mqtt(project, port, client, "--wait", "0.025")
    finished = project.run("-n2")
    assert finished.ret == 0, finished.out
    parts = parts_of(finished)
    assert parts["afterTap"]["mean"] >= 25 * MILLISECOND


@needs_mosquitto
def test_a_slow_broker_on_mosquitto_is_told_from_the_service(project: Project, port: int) -> None:
    """25 ms in each direction of each connection, those of the service too."""
    with relay(port, delay=0.025) as slow:
        write_mqtt(project, slow, "native")
        finished = project.run("-n2")
    assert finished.ret == 0, finished.out
    parts = parts_of(finished)
    assert parts["toTap"]["minimum"] >= 50 * MILLISECOND
    assert parts["pastTap"]["minimum"] >= 100 * MILLISECOND


@needs_mosquitto
def test_a_tap_leaves_durable_sessions_alone(project: Project, port: int) -> None:
    """The run's consumers continue their sessions, which have the client ids of the profile."""
    write_mqtt(project, port, "native")
    profile = project.path / "profiles" / "orders.yaml"
    text = profile.read_text()
    durable = "qos: 1, cleanStart: false, sessionExpiry: 1min, clientIdPrefix: mine"
    profile.write_text(text.replace("qos: 1", durable))
    finished = project.run("-n2")
    assert finished.ret == 0, finished.out
    parts_of(finished)


@pytest.mark.parametrize("client", ["native", pytest.param("library", marks=pytest.mark.slow)])
def test_a_tap_on_pulsar_leaves_no_subscription(
    project: Project, client: str, tmp_path: Path
) -> None:
    """The input topics exist without the run."""
    require_jars(pulsar_jars.PULSAR)
    request = brokers.BrokerRequest(kind="pulsar", mode="process", folder=tmp_path / "pulsar")
    with running(request) as broker:
        admin_url = broker.facts.admin_url
        assert admin_url is not None
        admin = Admin(admin_url, PulsarSettings())
        topics = [f"persistent://public/default/orders-{number}" for number in range(4)]
        for topic in topics:
            admin.create_topic(topic, 1)
        target = f'target: {{url: "{broker.facts.url}", adminUrl: "{admin_url}"}}'
        driver = f"driver: {{name: pulsar, client: {client}}}\n{target}"
        write(project, "orders-{topic}", "confirmed-{topic}", driver)
        command = ("pulsar", "--url", "{url}", "--wait", "0.025")
        test = TEST.format(service=str(Path(order_service.__file__)), options=command)
        project.write("test_orders.py", test)
        finished = project.run("-n2")
        assert finished.ret == 0, finished.out
        assert [admin.subscriptions(topic) for topic in topics] == [["orders"]] * 4
    assert parts_of(finished)["afterTap"]["mean"] >= 25 * MILLISECOND


WAITS = """\
name: Orders wait
topics: 4
messageSize: 300
producerRate: 200
testDuration: 12s
drainTimeout: 1s
route: {input: "orders-{topic}", output: "confirmed-{topic}", envelope: ENVELOPE}
driver: {name: pulsar}
generator: {sendDelayP99: 5min, receiveLagP99: 5min, cpu: 5, stalled: 1}
slo: {loss: 0, throughput: 1%, sent: 1%}
"""


@pytest.mark.slow
def test_a_service_that_sleeps_on_pulsar_is_named_as_the_one_that_waits(project: Project) -> None:
    """It takes 40 of 200 orders a second."""
    require_jars(pulsar_jars.PULSAR)
    project.write("profiles/orders.yaml", WAITS.replace("ENVELOPE", JSON))
    command = ("pulsar", "--url", "{url}", "--work", "0.025")
    test = TEST.format(service=str(Path(order_service.__file__)), options=command)
    project.write("test_orders.py", test)
    finished = project.run("-n2", "--load-broker-mode", "process")
    assert finished.ret == 1, finished.out
    document = finished.documents["test_orders"]
    assert document["verdict"]["outcome"] == "missed"
    limit = document["bottleneck"]
    sides = {side["conclusion"]: side["evidence"] for side in (limit, *limit["also"])}
    assert "service order_service.py used 0." in sides["service waits"]
    assert not sides.keys() & {"service CPU", "service not reading"}
    assert limit["columns"]["sys.heap"]
