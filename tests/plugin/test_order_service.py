"""The example of a service under test: its faults are counted exactly, and nothing else."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import paho.mqtt.client as mqtt
import pytest
from cached_jars import require_jars
from running import running

from pytest_loadtest import brokers
from pytest_loadtest.commands import cli
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.mqtt.paho.client import carried_value
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars
from pytest_loadtest.message.carried import carried_heads
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.route import Carrier

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
  envelope: {envelope}
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
    envelope: str = '{in: "json:/meta/ref", out: "json:/order/ref"}',
    faults: tuple[str, ...] = (),
) -> None:
    text = PROFILE.format(url=url, client=client, drain=drain, size=size, envelope=envelope)
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


VISITED = """\
import sys
import paho.mqtt.client as mqtt
import pytest

@pytest.fixture
def orders(load_service):
    return load_service([sys.executable, {service!r}, "--url", "{{url}}"], ready="ready")

@pytest.mark.load("orders", live=True)
def test_orders(load, orders):
    load.begin()
    load.wait("1s")
    visitor = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    visitor.connect("127.0.0.1", {port})
    visitor.loop_start()
    damaged = b'{{"order": {{"ref": "~lt1~UEwB' + b"A" * 39 + b'"}}}}'
    for body in (b"theirs \\x1b[31m<b>", damaged):
        visitor.publish("shop/confirmed/2", body, qos=1).wait_for_publish(60)
    visitor.disconnect()
    load.finish().assert_slo()
"""


@pytest.mark.parametrize("client", ["native", "library"])
def test_the_first_bytes_of_messages_that_cannot_be_read_are_reported(
    project: Project, url: str, client: str
) -> None:
    write(project, url, client=client)
    text = (project.path / "profiles" / "orders.yaml").read_text()
    project.write("profiles/orders.yaml", text.replace("slo: {", "slo: {foreign: 1, corrupt: 1, "))
    service = str(EXAMPLE / "orders_mqtt.py")
    port = url.rpartition(":")[2]
    project.write("test_orders.py", VISITED.format(service=service, port=port))
    finished = project.run("-n2")
    assert finished.ret == 0, finished.out
    measured = finished.documents["test_orders"]["measurements"]
    assert (measured["counts"]["foreign"], measured["counts"]["corrupt"]) == (1, 1)
    foreign, corrupt = measured["strays"]
    assert 0 < foreign.pop("at") <= corrupt.pop("at")
    assert foreign == {
        "kind": "foreign",
        "topic": "shop/confirmed/2",
        "size": 15,
        "beginning": r"theirs \x1b[31m<b>",
    }
    assert corrupt["beginning"].startswith('{"order": {"ref": "~lt1~UEwBAAAA')
    assert "\x1b" not in finished.out
    assert r"foreign on shop/confirmed/2, 15 B: theirs \x1b[31m<b>; corrupt on" in finished.out
    (page,) = project.path.rglob("*.html")
    assert r"theirs \x1b[31m&lt;b&gt;" in page.read_text()


OUTSIDE = pytest.mark.parametrize("envelope", ["properties", "correlationData"])


@OUTSIDE
@pytest.mark.parametrize("client", ["native", "library"])
def test_an_envelope_outside_of_the_body_goes_through_a_service(
    project: Project, url: str, client: str, envelope: str
) -> None:
    """The template has no token; what the service loses and doubles is counted exactly."""
    faults = ("--lose", "500", "--double", "700")
    size = "payload: {template: order.json}"
    write(project, url, client=client, drain="3s", size=size, envelope=envelope, faults=faults)
    project.write("profiles/order.json", '{"meta": {"ref": {{ seq }}}}')
    finished = project.run("-n2")
    assert finished.ret == 1, finished.out
    document = finished.documents["test_orders"]
    counts = document["measurements"]["counts"]
    assert (counts["received"], counts["lost"], counts["duplicates"]) == (1996, 4, 2)
    assert (counts["foreign"], counts["corrupt"]) == (0, 0)
    assert document["plan"]["meanSize"] == len('{"meta": {"ref": ') + 13 + len("}}")


@OUTSIDE
def test_orders_that_take_longer_and_overtake_each_other_are_counted(
    project: Project, url: str, envelope: str
) -> None:
    """25 ms more for every 100th order: with one thread it is slow, with two it is out of order."""
    size = "payload: {template: order.json}"
    write(project, url, size=size, envelope=envelope, faults=("--slow", "100"))
    project.write("profiles/order.json", '{"meta": {"ref": {{ seq }}}}')
    slow = project.run("-n2").documents["test_orders"]["measurements"]
    assert (slow["counts"]["lost"], slow["counts"]["outOfOrder"]) == (0, 0)
    assert slow["latencies"]["endToEnd"]["maximum"] >= 25_000_000
    write(project, url, size=size, envelope=envelope, faults=("--slow", "100", "--threads", "2"))
    with visitor(url) as confirmed:
        overtaken = project.run("-n2").documents["test_orders"]["measurements"]["counts"]
    assert (overtaken["lost"], overtaken["duplicates"]) == (0, 0)
    assert overtaken["outOfOrder"] == late(confirmed) > 0


@contextmanager
def visitor(url: str) -> Iterator[list[bytes]]:
    """Collect the envelopes of all confirmations, in the order in which the broker sends them."""
    values: list[bytes] = []
    subscribed = threading.Event()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)

    def on_message(_client: object, _data: object, message: mqtt.MQTTMessage) -> None:
        values.append(
            carried_value(message.properties, Carrier.PROPERTIES)
            or carried_value(message.properties, Carrier.CORRELATION_DATA)
        )

    client.on_message = on_message
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_connect = lambda *_: client.subscribe("shop/confirmed/+", qos=1)
    host, _, port = url.removeprefix("mqtt://").partition(":")
    client.connect(host, int(port))
    client.loop_start()
    assert subscribed.wait(30)
    yield values
    client.disconnect()
    client.loop_stop()


def late(values: list[bytes]) -> int:
    """Return the number of messages that come after a later one of their stream."""
    carrier = Carrier.CORRELATION_DATA if len(values[0]) == HEAD else Carrier.PROPERTIES
    heads = carried_heads(carrier, values)
    latest: dict[int, int] = {}
    count = 0
    for stream, seq in zip(
        heads.view("<u4")[:, 2].tolist(), heads.view("<u8")[:, 2].tolist(), strict=True
    ):
        count += seq < latest.get(stream, -1)
        latest[stream] = max(seq, latest.get(stream, -1))
    return count


def test_the_plan_says_where_the_envelope_travels(project: Project, url: str) -> None:
    write(project, url, envelope="{in: correlationData, out: properties}")
    finished = project.run("--load-plan")
    places = "in correlationData (35 B beside the body), out properties (61 B beside the body)"
    assert places in finished.out


def test_a_template_with_a_token_that_travels_elsewhere_is_an_error_before_load(
    project: Project, url: str
) -> None:
    write(project, url, size="payload: {template: order.json}", envelope="properties")
    project.write("profiles/order.json", '{"n": {{ seq }},\n "ref": "{{ envelope }}"}')
    finished = project.run("-n2")
    assert finished.ret == 1
    where = "order.json:2: has {{ envelope }}, and the envelope is in properties: remove it"
    assert where in finished.out


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
        written = text.format(
            url=url,
            client="native",
            drain="1min",
            size="messageSize: 300",
            envelope='{in: "json:/meta/ref", out: "json:/order/ref"}',
        )
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
    options += ["--load-set=slo.throughput=1%", "--load-set=slo.sent=1%"]
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
    finished = project.run("loadtests/test_orders.py", "-n2", *options)
    assert finished.ret == 0, finished.out
    counts = finished.documents["test_orders_are_confirmed"]["measurements"]["counts"]
    assert (counts["sent"], counts["received"]) == (2000, 2000)


ON_PULSAR = """\
name: Orders are confirmed
topics: 4
route:
  input: orders-{{topic}}
  output: confirmed-{{topic}}
  envelope: properties
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
from pathlib import Path
import pulsar
import pytest

@pytest.fixture
def orders(request, load_service, load_target):
    assert load_target.inputs[3] == "persistent://public/default/orders-3"
    assert load_target.outputs[3] == "persistent://public/default/confirmed-3"
    assert load_target.admin_url is not None
    command = [sys.executable, {service!r}, "--url", "{{url}}", *request.param]
    return load_service(command, ready="ready")

def faulty(*faults):
    return pytest.mark.parametrize("orders", [faults], ids=["-"], indirect=True)

@faulty()
@pytest.mark.load("native")
def test_native(load, orders):
    load.assert_slo()

@faulty()
@pytest.mark.load("library")
def test_library(load, orders):
    load.assert_slo()

@faulty("--lose", "500", "--double", "700")
@pytest.mark.load("native")
def test_losing(load, orders):
    load.assert_slo()

@faulty("--slow", "100")
@pytest.mark.load("native")
def test_slow(load, orders):
    load.assert_slo()

@faulty("--slow", "100", "--threads", "2")
@pytest.mark.load("library", live=True)
def test_overtaking(load, orders, load_target):
    client = pulsar.Client(load_target.url)
    visitor = client.subscribe(load_target.outputs, "visitor")

    def note_order():
        tokens = [visitor.receive(60_000).properties()["loadtest"] for _ in range(2000)]
        Path("confirmed.txt").write_text("\\n".join(tokens))
        client.close()

    load.before_cleanup(note_order)
    load.start().assert_slo()
"""


def test_faults_of_a_service_on_pulsar_are_counted_exactly(project: Project) -> None:
    """The run starts one broker for all tests, and a service for each. The envelope is a property.

    The files that ``init`` writes run as they are, but for a shorter load.
    """
    require_jars(pulsar_jars.PULSAR)
    assert cli.main(["init", str(project.path), "--service", "--broker", "pulsar"]) == cli.OK
    for client in ("native", "library"):
        project.write(f"profiles/{client}.yaml", ON_PULSAR.format(client=client))
    project.write(
        "profiles/order.json", '{"number": {{ seq }}, "article": "{{ pick("tea", "rice") }}"}'
    )
    project.write("test_orders.py", BOTH.format(service=str(EXAMPLE / "orders_pulsar.py")))
    options = [f"--load-set={key}={value}" for key, value in BUSY.items()]
    options.append("--load-set=slo.endToEndLatency.p50=5min")
    options += ["--load-set=slo.throughput=1%", "--load-set=slo.sent=1%"]
    finished = project.run("-n2", "--load-broker-mode", "process", *options)
    assert finished.ret == 1, finished.out
    counted = {}
    for name, document in finished.documents.items():
        counts = document["measurements"]["counts"]
        assert (counts["foreign"], counts["corrupt"]) == (0, 0)
        counted[name] = (counts["received"], counts["lost"], counts["duplicates"])
    assert counted == {
        "test_native[-]": (2000, 0, 0),
        "test_library[-]": (2000, 0, 0),
        "test_losing[-]": (1996, 4, 2),
        "test_slow[-]": (2000, 0, 0),
        "test_overtaking[-]": (2000, 0, 0),
        "test_orders_are_confirmed": (2000, 0, 0),
    }
    outcome = finished.documents["test_orders_are_confirmed"]["verdict"]["outcome"]
    assert outcome == "met", finished.out
    measured = {name: document["measurements"] for name, document in finished.documents.items()}
    assert measured["test_slow[-]"]["latencies"]["endToEnd"]["maximum"] >= 25_000_000
    assert measured["test_slow[-]"]["counts"]["outOfOrder"] == 0
    # A subscription of its own gets each topic in the same order.
    confirmed = (project.path / "confirmed.txt").read_bytes().split()
    assert measured["test_overtaking[-]"]["counts"]["outOfOrder"] == late(confirmed) > 0


@pytest.mark.slow
def test_the_load_test_on_pulsar_starts_broker_and_service(project: Project) -> None:
    """As the README of the example says, with a shorter load."""
    require_jars(pulsar_jars.PULSAR)
    shutil.copytree(EXAMPLE, project.path, dirs_exist_ok=True)
    options = [f"--load-set={key}={value}" for key, value in BUSY.items()]
    tests = "loadtests/test_orders_pulsar.py"
    finished = project.run(tests, "-n2", "--load-broker-mode", "process", *options)
    assert finished.ret == 0, finished.out
    counts = finished.documents["test_orders_are_confirmed"]["measurements"]["counts"]
    assert (counts["sent"], counts["received"]) == (2000, 2000)
