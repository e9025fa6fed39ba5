"""The example of a service under test: its faults are counted exactly, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cached_jars import require_jars
from running import running

from pytest_loadtest import brokers
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .projects import Project

pytestmark = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)
EXAMPLES = Path(__file__).parents[2] / "examples" / "order-service"
PROFILE = """\
name: Orders are confirmed
topics: 4
route:
  input: shop/orders/{{topic}}
  output: shop/confirmed/{{topic}}
  envelope: {{in: "json:/meta/ref", out: "json:/order/ref"}}
{size}
producerRate: 500
testDuration: 4s
drainTimeout: {drain}
driver: {{name: mqtt, qos: 1, client: {client}}}
target: {{url: "{url}"}}
generator: {{sendDelayP99: 5min, receiveLagP99: 5min, cpu: 5, stalled: 1}}
slo: {{loss: 0, duplicates: 0, outOfOrder: 0, throughput: 1%, sent: 1%}}
"""
TEST = """\
import pytest

@pytest.mark.load("orders")
def test_orders(load):
    load.assert_slo()
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("broker") / "mosquitto"
    request = brokers.BrokerRequest(kind="mqtt", mode="process", folder=folder)
    with running(request) as broker:
        yield broker.facts.url


@contextmanager
def serving(url: str, *faults: str) -> Iterator[None]:
    """Run the service for this broker with these faults."""
    address = ["orders_mqtt.py", "--port", url.rpartition(":")[2]]
    if url.startswith("pulsar:"):
        address = ["orders_pulsar.py", "--url", url]
    command = [sys.executable, str(EXAMPLES / address[0]), *address[1:], *faults]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        try:
            assert service.stdout.readline() == "ready\n"
            yield
        finally:
            service.terminate()


def write(
    project: Project,
    url: str,
    *,
    client: str = "native",
    drain: str = "1min",
    size: str = "messageSize: 300",
) -> None:
    text = PROFILE.format(url=url, client=client, drain=drain, size=size)
    project.write("profiles/orders.yaml", text)
    project.write("test_orders.py", TEST)


@pytest.mark.parametrize("client", ["native", "library"])
def test_a_service_that_confirms_each_order_is_met(project: Project, url: str, client: str) -> None:
    write(project, url, client=client)
    with serving(url):
        finished = project.run("-n2")
    assert finished.ret == 0, finished.out
    counts = finished.documents["test_orders"]["measurements"]["counts"]
    assert (counts["sent"], counts["received"]) == (2000, 2000)
    assert (counts["lost"], counts["duplicates"], counts["outOfOrder"]) == (0, 0, 0)


@pytest.mark.parametrize("client", ["native", "library"])
def test_what_the_service_loses_and_doubles_is_counted_exactly(
    project: Project, url: str, client: str
) -> None:
    write(project, url, client=client, drain="3s")
    with serving(url, "--lose", "500", "--double", "700"):
        finished = project.run("-n2")
    assert finished.ret == 1, finished.out
    document = finished.documents["test_orders"]
    assert document["verdict"]["outcome"] == "missed"
    counts = document["measurements"]["counts"]
    assert (counts["lost"], counts["duplicates"]) == (4, 2)


def test_a_service_reads_messages_of_a_template(project: Project, url: str) -> None:
    write(project, url, size="payload: {template: order.json}")
    project.write(
        "profiles/order.json",
        '{"meta": {"ref": "{{ envelope }}", "n": {{ seq }}, "at": "{{ intended }}"}}',
    )
    with serving(url):
        finished = project.run("-n2")
    assert finished.ret == 0, finished.out
    document = finished.documents["test_orders"]
    assert document["measurements"]["counts"]["received"] == 2000
    assert [bucket["name"] for bucket in document["measurements"]["buckets"]] == ["order.json"]


def test_the_plan_names_the_topics_of_the_service(project: Project, url: str) -> None:
    write(project, url)
    finished = project.run("--load-plan")
    assert "shop/orders/{topic} through the service under test to shop/confirmed" in finished.out


ON_PULSAR = """\
name: Orders are confirmed
topics: 4
route:
  input: orders-{{topic}}
  output: confirmed-{{topic}}
  envelope: {{in: "json:/meta/ref", out: "json:/order/ref"}}
payload: {{template: order.json}}
producerRate: 500
testDuration: 4s
drainTimeout: 3s
driver: {{name: pulsar, client: {client}}}
target: {{url: "{url}", adminUrl: "{admin}"}}
generator: {{sendDelayP99: 5min, receiveLagP99: 5min, cpu: 5, stalled: 1}}
slo: {{loss: 0, duplicates: 0, outOfOrder: 0, throughput: 1%, sent: 1%}}
"""
BOTH = """\
import pytest

@pytest.mark.load("native")
def test_native(load):
    load.assert_slo()

@pytest.mark.load("library")
def test_library(load):
    load.assert_slo()
"""


def test_faults_of_a_service_on_pulsar_are_counted_exactly(
    project: Project, tmp_path: Path
) -> None:
    """One broker and one service for both clients: the second run begins at message 2001."""
    require_jars(pulsar_jars.PULSAR)
    request = brokers.BrokerRequest(kind="pulsar", mode="process", folder=tmp_path / "pulsar")
    with running(request) as broker:
        admin = broker.facts.admin_url
        for client in ("native", "library"):
            text = ON_PULSAR.format(client=client, url=broker.facts.url, admin=admin)
            project.write(f"profiles/{client}.yaml", text)
        project.write("profiles/order.json", '{"meta": {"ref": "{{ envelope }}"}, "n": {{ seq }}}')
        project.write("test_orders.py", BOTH)
        with serving(broker.facts.url, "--lose", "500", "--double", "700"):
            finished = project.run("-n2")
    assert finished.ret == 1, finished.out
    counted = {}
    for name, document in finished.documents.items():
        counts = document["measurements"]["counts"]
        counted[name] = (counts["received"], counts["lost"], counts["duplicates"])
    # Order 3500 is lost and doubled, so that it is confirmed once.
    assert counted == {"test_native": (1996, 4, 2), "test_library": (1997, 3, 2)}
