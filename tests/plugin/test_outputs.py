"""Several output topics of a service, against exact truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import order_service
import pytest
from cached_jars import require_jars
from running import running

from pytest_loadtest import brokers
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .projects import Project

needs_mosquitto = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)
SERVICE = str(Path(order_service.__file__))
PROFILE = """\
name: Orders are answered
topics: 4
messageSize: 300
producerRate: 500
testDuration: 4s
drainTimeout: {drain}
{route}
generator: {{sendDelayP99: 5min, receiveLagP99: 5min, cpu: 5, stalled: 1}}
slo: {{loss: 0, duplicates: 0, outOfOrder: 0, throughput: 1%, sent: 1%}}
"""
ON_MQTT = """\
route:
  input: shop/orders/{{topic}}
  output: ["shop/confirmed/{{topic}}", "shop/rejected/{{topic}}"]
  envelope: {{in: "json:/meta/ref", out: "json:/order/ref"}}
driver: {{name: mqtt, qos: 1, client: {client}}}
target: {{url: "{url}"}}
"""
ON_PULSAR = """\
route:
  input: orders-{{topic}}
  output: ["confirmed-{{topic}}", "rejected-{{topic}}"]
  envelope: {{in: "json:/meta/ref", out: "json:/order/ref"}}
driver: {{name: pulsar, client: {client}}}
"""
TEST = """\
import sys
import pytest

@pytest.fixture
def orders(load_service, load_target):
    command = [sys.executable, {service!r}, {broker!r}, *{options!r}]
    return load_service(command, ready="ready")
"""
ONE = """
@pytest.mark.load("{name}")
def test_{name}(load, orders, load_target):
    load.assert_slo()
    assert len(load_target.outputs) == 8
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("broker") / "mosquitto"
    request = brokers.BrokerRequest(kind="mqtt", mode="process", folder=folder)
    with running(request) as broker:
        yield broker.facts.url


def write(project: Project, url: str, client: str, *options: str, drain: str = "3s") -> None:
    route = ON_MQTT.format(client=client, url=url)
    project.write("profiles/orders.yaml", PROFILE.format(route=route, drain=drain))
    command = ("--port", "{port}", *options)
    test = TEST.format(service=SERVICE, broker="mqtt", options=command)
    project.write("test_orders.py", test + ONE.format(name="orders"))


def counts_of(document: dict[str, dict[str, dict[str, int]]]) -> tuple[int, ...]:
    counts = document["measurements"]["counts"]
    names = ("received", "lost", "duplicates", "outOfOrder", "foreign")
    return tuple(counts[name] for name in names)


@needs_mosquitto
@pytest.mark.parametrize("client", ["native", "library"])
def test_an_output_may_come_on_any_of_several_topics(
    project: Project, url: str, client: str
) -> None:
    write(project, url, client, "--reject", "3", drain="1min")
    finished = project.run("-n2")
    assert finished.ret == 0, finished.out
    assert counts_of(finished.documents["test_orders"]) == (2000, 0, 0, 0, 0)


@needs_mosquitto
@pytest.mark.parametrize("client", ["native", "library"])
def test_faults_over_several_outputs_are_counted_exactly(
    project: Project, url: str, client: str
) -> None:
    write(project, url, client, "--reject", "3", "--lose", "500", "--double", "70")
    finished = project.run("-n2")
    assert finished.ret == 1, finished.out
    # 1400 is lost, not doubled: of 28 multiples of 70 no other is one of 500.
    assert counts_of(finished.documents["test_orders"]) == (1996, 4, 28, 0, 0)


@needs_mosquitto
def test_the_plan_names_all_outputs(project: Project, url: str) -> None:
    write(project, url, "native")
    finished = project.run("--load-plan")
    assert "to shop/confirmed/{topic} or shop/rejected/{topic}" in finished.out


def test_several_outputs_on_pulsar_are_counted_exactly(project: Project) -> None:
    require_jars(pulsar_jars.PULSAR)
    options = ("--url", "{url}", "--reject", "3", "--lose", "500", "--double", "700")
    test = TEST.format(service=SERVICE, broker="pulsar", options=options)
    for client in ("native", "library"):
        route = ON_PULSAR.format(client=client)
        project.write(f"profiles/{client}.yaml", PROFILE.format(route=route, drain="3s"))
        test += ONE.format(name=client)
    project.write("test_orders.py", test)
    finished = project.run("-n2", "--load-broker-mode", "process")
    assert finished.ret == 1, finished.out
    found = {name: counts_of(document) for name, document in finished.documents.items()}
    assert found == {"test_native": (1996, 4, 2, 0, 0), "test_library": (1996, 4, 2, 0, 0)}
