"""A tap on the input of a service, and its backlog there: what takes the time is named, verdicts and counts stay."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import order_service
import pytest
from cached_jars import require_jars
from running import running
from session_parts import status_of, summary_of
from tcp_relay import relay

from pytest_loadtest import brokers
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars
from pytest_loadtest.values.quantities import MILLISECOND

from .projects import fresh

if TYPE_CHECKING:
    from .projects import Finished, Project
    from .sessions import Session

needs_mosquitto = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)
PROFILE = """\
name: {name}
topics: 4
messageSize: 300
producerRate: 900
testDuration: 1s
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
IMPORTS = """\
import sys
import pytest
"""
TEST = """
@pytest.fixture
def service_{name}(load_service):
    return load_service([sys.executable, {service!r}, *{options!r}], ready="ready")

@pytest.mark.load("{name}")
def test_{name}(load, service_{name}):
    load.assert_slo()
"""
ALONE = """
@pytest.mark.load("loopback")
def test_loopback(load):
    assert load.samples.tap.count_rows() == {rows}
    load.assert_slo()
"""
SERVICE = str(Path(order_service.__file__))
SENT = 900
FAILED = 1  # the exit status of pytest if a test has failed


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Run the load tests on the loopback, and those on mosquitto if it is here, in one session.

    The relay delays by 25 ms in each direction of each connection, those of the service too.
    """
    folder = tmp_path_factory.mktemp("taps")
    with ExitStack() as stack:
        project = stack.enter_context(fresh(folder))
        tests = [write_loopback(project)]
        if mosquitto.find_mosquitto() is not None:
            request = brokers.BrokerRequest(
                kind="mqtt", mode="process", folder=folder / "mosquitto"
            )
            broker = stack.enter_context(running(request))
            port = urlsplit(broker.facts.url).port or 0
            slow_port = stack.enter_context(relay(port, delay=0.025))
            durable = "cleanStart: false, sessionExpiry: 1min, clientIdPrefix: mine"
            tests += [
                write_mqtt(project, "native", port, "client: native", "--wait", "0.025"),
                write_mqtt(project, "library", port, "client: library", "--wait", "0.025"),
                write_mqtt(project, "slow_broker", slow_port, "client: native"),
                write_mqtt(project, "durable", port, f"client: native, {durable}"),
            ]
        project.write("test_orders.py", IMPORTS + "".join(tests))
        session = project.run("-n2")
    assert session.ret == FAILED, session.out
    return session


def write_loopback(project: Project) -> str:
    """Write the profile of the loopback, and return its load test."""
    more = "subscriptionsPerTopic: 2\ndriver: {name: loopback, delay: 5ms, service: %s}"
    service = "{lose: 100, double: 70, slow: 1, slowBy: 25ms, threads: 99}"
    topics = ("orders/{topic}", "confirmed/{topic}")
    write(project, "loopback", *topics, more % service, envelope="body")
    return ALONE.format(rows=SENT)


def write_mqtt(project: Project, name: str, port: int, driver: str, *options: str) -> str:
    """Write a profile for mosquitto, and return its load test.

    :param driver: keys of the driver.
    :param options: of the service.
    """
    target = f'target: {{url: "mqtt://127.0.0.1:{port}"}}'
    more = f"driver: {{name: mqtt, qos: 1, {driver}}}\n{target}\n"
    write(project, name, "shop/orders/{topic}", "shop/confirmed/{topic}", more)
    command = ("mqtt", "--port", "{port}", *options)
    return TEST.format(name=name, service=SERVICE, options=command)


def write(
    project: Project, name: str, orders: str, confirmed: str, more: str, *, envelope: str = JSON
) -> None:
    text = PROFILE.format(
        name=name, orders=orders, confirmed=confirmed, more=more, envelope=envelope
    )
    project.write(f"profiles/{name}.yaml", text)


def parts_of(finished: Finished, test: str, deliveries: int = SENT) -> dict[str, Any]:
    """Return the parts of the latency of a load test, whose means add up.

    :param test: its node id, or its name in ``test_orders.py``.
    """
    name = test.rpartition("::")[2]
    nodeid = test if "::" in test else f"test_orders.py::{test}"
    latencies: dict[str, Any] = finished.documents[name]["measurements"]["latencies"]
    parts = {name: latencies[name] for name in ("toTap", "afterTap", "pastTap", "ownPastTap")}
    assert {part["samples"] for part in parts.values()} == {deliveries}
    assert parts["toTap"]["total"] + parts["afterTap"]["total"] == parts["pastTap"]["total"]
    assert " end-to-end on average: " in summary_of(finished.out, nodeid)
    return parts


def test_a_tap_on_the_loopback_sees_inputs_that_the_service_loses(finished: Finished) -> None:
    """Two subscriptions, two workers: what is lost, doubled and late is counted as without a tap."""
    assert status_of(finished, "test_loopback") == FAILED
    document = finished.documents["test_loopback"]
    counts = document["measurements"]["counts"]
    names = ("sent", "received", "lost", "duplicates", "foreign")
    # Input 700 is one of the 9 and of the 12, and has one output.
    received = 2 * (SENT - 8)
    assert [counts[name] for name in names] == [SENT, received, 2 * 8, 2 * 11, 0]
    assert document["measurements"]["latencies"]["endToEnd"]["samples"] == received
    parts = parts_of(finished, "test_loopback", received)
    assert parts["toTap"]["minimum"] >= 5 * MILLISECOND
    assert parts["pastTap"]["minimum"] >= 30 * MILLISECOND
    assert parts["afterTap"]["mean"] >= 25 * MILLISECOND
    assert finished.report is not None
    page = Path(finished.report).read_text(encoding="utf-8")
    assert page.count("<caption>Where the time went") == len(finished.documents)


@needs_mosquitto
@pytest.mark.parametrize("client", ["native", "library"])
def test_a_slow_service_on_mosquitto_is_told_from_its_broker(
    finished: Finished, client: str
) -> None:
    test = f"test_{client}"
    assert status_of(finished, test) == 0
    assert parts_of(finished, test)["afterTap"]["mean"] >= 25 * MILLISECOND


@needs_mosquitto
def test_a_slow_broker_on_mosquitto_is_told_from_the_service(finished: Finished) -> None:
    assert status_of(finished, "test_slow_broker") == 0
    parts = parts_of(finished, "test_slow_broker")
    assert parts["toTap"]["minimum"] >= 50 * MILLISECOND
    assert parts["pastTap"]["minimum"] >= 100 * MILLISECOND


@needs_mosquitto
def test_a_tap_leaves_durable_sessions_alone(finished: Finished) -> None:
    """The run's consumers continue their sessions, which have the client ids of the profile."""
    assert status_of(finished, "test_durable") == 0
    parts_of(finished, "test_durable")


CLIENTS = ("native", "library")
PREPARED = """\
import sys
import pytest
from pytest_loadtest.drivers.pulsar.admin import Admin
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings

@pytest.mark.load("topics")
def test_topics(load, load_target):
    admin = Admin(load_target.admin_url, PulsarSettings())
    for client in {clients}:
        for number in range(4):
            admin.create_topic(f"persistent://public/default/{{client}}-orders-{{number}}", 1)
"""
LEFT = """
    admin = Admin(load_target.admin_url, PulsarSettings())
    assert [admin.subscriptions(topic) for topic in load_target.inputs] == [["orders"]] * 4
"""
TOPICS = """\
name: topics
messageSize: 64
producerRate: 10
testDuration: 100ms
driver: {name: pulsar}
generator: {sendDelayP99: 5min, receiveLagP99: 5min, cpu: 5, stalled: 1}
slo: {throughput: 1%, sent: 1%}
"""


def write_on_pulsar(project: Project) -> list[str]:
    """Write a load test with a tap for each client; a load test before them creates their topics.

    A run deletes topics that it creates, with their subscriptions.
    """
    project.write("profiles/topics.yaml", TOPICS)
    tests = [PREPARED.format(clients=CLIENTS)]
    for client in CLIENTS:
        driver = f"driver: {{name: pulsar, client: {client}}}"
        name = f"tap_{client}"
        write(project, name, f"{client}-orders-{{topic}}", f"{client}-confirmed-{{topic}}", driver)
        # Pulsar may deliver an order to the tap some ten milliseconds after the service has it.
        command = ("pulsar", "--url", "{url}", "--prefix", f"{client}-", "--wait", "0.5")
        test = TEST.format(name=name, service=SERVICE, options=command) + LEFT.lstrip("\n")
        tests.append(test.replace("(load, ", "(load, load_target, "))
    project.write("test_taps.py", "".join(tests))
    return ["test_taps.py"]


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_tap_on_pulsar_leaves_no_subscription(on_pulsar: Session, client: str) -> None:
    """The input topics exist without the run; the load test looks at their subscriptions."""
    test = f"test_taps.py::test_tap_{client}"
    assert on_pulsar.ending(test) == set(), on_pulsar.finished.out
    parts = parts_of(on_pulsar.finished, test)
    assert parts["afterTap"]["mean"] >= 25 * MILLISECOND


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
    test = TEST.format(name="orders", service=SERVICE, options=command)
    project.write("test_orders.py", IMPORTS + test)
    finished = project.run("-n2", "--load-broker-mode", "process")
    assert finished.ret == 1, finished.out
    document = finished.documents["test_orders"]
    assert document["verdict"]["outcome"] == "missed"
    limit = document["bottleneck"]
    sides = {side["conclusion"]: side["evidence"] for side in (limit, *limit["also"])}
    assert "service order_service.py used 0." in sides["service waits"]
    assert not sides.keys() & {"service CPU", "service not reading"}
    assert limit["columns"]["sys.heap"]
