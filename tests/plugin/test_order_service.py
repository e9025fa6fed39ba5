"""The example of a service under test: its faults are counted exactly, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cached_jars import require_jars
from running import running

from pytest_loadtest import brokers
from pytest_loadtest.commands import cli
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .projects import Project

pytestmark = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)
EXAMPLE = Path(__file__).parents[2] / "examples" / "order-service"
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
import sys
import pytest

@pytest.fixture
def orders(load_service):
    command = [sys.executable, {service!r}, "--url", "{{url}}", *{faults!r}]
    return load_service(command, ready="ready")

@pytest.mark.load("orders")
def test_orders(load, orders, load_target):
    load.assert_slo()
    assert load_target.inputs == [f"shop/orders/{{topic}}" for topic in range(4)]
    assert load_target.outputs == [f"shop/confirmed/{{topic}}" for topic in range(4)]
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("broker") / "mosquitto"
    request = brokers.BrokerRequest(kind="mqtt", mode="process", folder=folder)
    with running(request) as broker:
        yield broker.facts.url


def write(
    project: Project,
    url: str,
    *,
    client: str = "native",
    drain: str = "1min",
    size: str = "messageSize: 300",
    faults: tuple[str, ...] = (),
) -> None:
    text = PROFILE.format(url=url, client=client, drain=drain, size=size)
    project.write("profiles/orders.yaml", text)
    test = TEST.format(service=str(EXAMPLE / "orders_mqtt.py"), faults=faults)
    project.write("test_orders.py", test)


@pytest.mark.parametrize("client", ["native", "library"])
def test_a_service_that_confirms_each_order_is_met(project: Project, url: str, client: str) -> None:
    write(project, url, client=client)
    finished = project.run("-n2")
    assert finished.ret == 0, finished.out
    counts = finished.documents["test_orders"]["measurements"]["counts"]
    assert (counts["sent"], counts["received"]) == (2000, 2000)
    assert (counts["lost"], counts["duplicates"], counts["outOfOrder"]) == (0, 0, 0)


@pytest.mark.parametrize("client", ["native", "library"])
def test_what_the_service_loses_and_doubles_is_counted_exactly(
    project: Project, url: str, client: str
) -> None:
    faults = ("--lose", "500", "--double", "700")
    write(project, url, client=client, drain="3s", faults=faults)
    finished = project.run("-n2")
    assert finished.ret == 1, finished.out
    document = finished.documents["test_orders"]
    assert document["verdict"]["outcome"] == "missed"
    counts = document["measurements"]["counts"]
    assert (counts["lost"], counts["duplicates"]) == (4, 2)


FAULTS = """\
import sys
import pytest

FAULTS = {{
    "overtaking": ["--slow", "50", "--threads", "2"],
    "slow": ["--slow", "50"],
}}

@pytest.fixture
def orders(load_service, request):
    faults = FAULTS[request.node.originalname.removeprefix("test_")]
    return load_service([sys.executable, {service!r}, "--url", "{{url}}", *faults], ready="ready")

@pytest.mark.load("overtaking")
def test_overtaking(load, orders):
    load.assert_slo()

@pytest.mark.load("slow")
def test_slow(load, orders):
    load.assert_slo()
"""


def test_orders_that_are_overtaken_or_slow_are_missed_and_nothing_else(
    project: Project, url: str
) -> None:
    """Every 50th of 2 000 orders takes 25 ms longer; a second thread goes on in the meantime."""
    slo = "slo: {{endToEndLatency: {{p50: 30s, p98.5: 24ms}}, outOfOrder: 0,"
    text = PROFILE.replace("slo: {{", slo).replace("outOfOrder: 0, throughput", "throughput")
    for name in ("overtaking", "slow"):
        written = text.format(url=url, client="native", drain="1min", size="messageSize: 300")
        project.write(f"profiles/{name}.yaml", written)
    project.write("test_orders.py", FAULTS.format(service=str(EXAMPLE / "orders_mqtt.py")))
    finished = project.run("-n2")
    assert finished.ret == 1, finished.out
    missed = {}
    order = {}
    for name, document in finished.documents.items():
        counts = document["measurements"]["counts"]
        assert (counts["received"], counts["lost"], counts["duplicates"]) == (2000, 0, 0)
        order[name] = counts["outOfOrder"]
        findings = document["verdict"]["findings"]
        missed[name] = {f["name"] for f in findings if f["outcome"] == "missed"}
    assert order["test_slow"] == 0
    # An order that is overtaken counts once; whatever the threads do to others adds to it.
    assert order["test_overtaking"] > 0
    assert missed == {
        "test_overtaking": {"outOfOrder", "endToEndLatency.p98.5"},
        "test_slow": {"endToEndLatency.p98.5"},
    }


@pytest.mark.parametrize("broker", ["loopback", "mqtt"])
def test_a_new_project_with_a_service_runs(project: Project, url: str, broker: str) -> None:
    assert cli.main(["init", str(project.path), "--service", "--broker", broker]) == cli.OK
    options = [f"--load-set={key}={value}" for key, value in BUSY.items()]
    options.append("--load-set=slo.endToEndLatency.p50=5min")
    options.append("--load-set=slo.throughput=1%")
    if broker != "loopback":
        options += ["--load-target", url]
    finished = project.run("-n2", *options)
    assert finished.ret == 0, finished.out
    counts = finished.documents["test_orders_are_confirmed"]["measurements"]["counts"]
    assert (counts["received"], counts["outOfOrder"], counts["foreign"]) == (2000, 0, 0)


STOPPED = """\
import os
import signal
import sys
import pytest

@pytest.fixture
def orders(load_service):
    return load_service([sys.executable, {service!r}, "--url", "{{url}}"], ready="ready")

@pytest.mark.load("orders", live=True)
def test_orders(load, orders):
    os.kill(orders.pid, signal.SIGSTOP)
    load.start()
    load.assert_slo()
"""


def test_a_service_that_stands_still_is_the_bottleneck(project: Project, url: str) -> None:
    """What waits in its sockets is not taken for the run's own consumers."""
    write(project, url, drain="1s")
    project.write("test_orders.py", STOPPED.format(service=str(EXAMPLE / "orders_mqtt.py")))
    finished = project.run("-n2")
    assert finished.ret == 1, finished.out
    document = finished.documents["test_orders"]
    assert document["verdict"]["outcome"] == "no data"
    assert document["bottleneck"]["conclusion"] == "service not reading"
    assert "service orders_mqtt.py was stopped by a signal" in document["bottleneck"]["evidence"]
    assert document["bottleneck"]["also"] == []


def test_a_service_reads_messages_of_a_template(project: Project, url: str) -> None:
    write(project, url, size="payload: {template: order.json}")
    project.write(
        "profiles/order.json",
        '{"meta": {"ref": "{{ envelope }}", "n": {{ seq }}, "at": "{{ intended }}"}}',
    )
    finished = project.run("-n2")
    assert finished.ret == 0, finished.out
    document = finished.documents["test_orders"]
    assert document["measurements"]["counts"]["received"] == 2000
    assert [bucket["name"] for bucket in document["measurements"]["buckets"]] == ["order.json"]


def test_the_plan_names_the_topics_of_the_service(project: Project, url: str) -> None:
    write(project, url)
    finished = project.run("--load-plan")
    assert "shop/orders/{topic} through the service under test to shop/confirmed" in finished.out


BUSY = {
    "generator.sendDelayP99": "5min",
    "generator.receiveLagP99": "5min",
    "generator.cpu": "5",
    "generator.stalled": "1",
    "slo.endToEndLatency.p99": "5min",
    "producerRate": "500",
    "testDuration": "4s",
}
"""What the load test of the example is run with on a busy machine."""


def test_the_load_test_of_the_example_starts_broker_and_service(project: Project) -> None:
    """As its README says, with a shorter load."""
    shutil.copytree(EXAMPLE, project.path, dirs_exist_ok=True)
    options = [f"--load-set={key}={value}" for key, value in BUSY.items()]
    finished = project.run("loadtests/", "-n2", *options)
    assert finished.ret == 0, finished.out
    counts = finished.documents["test_orders_are_confirmed"]["measurements"]["counts"]
    assert (counts["sent"], counts["received"]) == (2000, 2000)


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
generator: {{sendDelayP99: 5min, receiveLagP99: 5min, cpu: 5, stalled: 1}}
slo: {{loss: 0, duplicates: 0, outOfOrder: 0, throughput: 1%, sent: 1%}}
"""
BOTH = """\
import sys
import pytest

@pytest.fixture
def orders(load_service, load_target):
    assert load_target.inputs[3] == "persistent://public/default/orders-3"
    assert load_target.outputs[3] == "persistent://public/default/confirmed-3"
    assert load_target.admin_url is not None
    command = [sys.executable, {service!r}, "--url", "{{url}}", "--lose", "500", "--double", "700"]
    return load_service(command, ready="ready")

@pytest.mark.load("native")
def test_native(load, orders):
    load.assert_slo()

@pytest.mark.load("library")
def test_library(load, orders):
    load.assert_slo()
"""


def test_faults_of_a_service_on_pulsar_are_counted_exactly(project: Project) -> None:
    """The run starts one broker for both clients, and a service for each."""
    require_jars(pulsar_jars.PULSAR)
    for client in ("native", "library"):
        project.write(f"profiles/{client}.yaml", ON_PULSAR.format(client=client))
    project.write("profiles/order.json", '{"meta": {"ref": "{{ envelope }}"}, "n": {{ seq }}}')
    project.write("test_orders.py", BOTH.format(service=str(EXAMPLE / "orders_pulsar.py")))
    finished = project.run("-n2", "--load-broker-mode", "process")
    assert finished.ret == 1, finished.out
    counted = {}
    for name, document in finished.documents.items():
        counts = document["measurements"]["counts"]
        counted[name] = (counts["received"], counts["lost"], counts["duplicates"])
    assert counted == {"test_native": (1996, 4, 2), "test_library": (1996, 4, 2)}
