"""The example of a service under test: its faults are counted exactly, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import yaml
from running import running

from pytest_loadtest import brokers
from pytest_loadtest.commands import cli
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.message.carried import carried_heads
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.route import Carrier

from .projects import fresh
from .sessions import Session, run_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .projects import Project

pytestmark = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)
EXAMPLE = Path(__file__).parents[2] / "examples" / "order-service"
MESSAGES = 1000
"""Orders of each load."""
LOSING = ("--lose", "250", "--double", "350")
"""Of 1 000 orders 4 are lost, and 2 are confirmed twice."""
SLOW = ("--slow", "50")
"""Of 1 000 orders 20 take 25 ms longer."""
CLIENTS = ("native", "library")
OUTSIDE = ("properties", "correlationData")
"""Places of an envelope outside of the body."""
WITH_TOKEN = '{"meta": {"ref": "{{ envelope }}", "n": {{ seq }}, "at": "{{ intended }}"}}'
WITHOUT_TOKEN = '{"meta": {"ref": {{ seq }}}}'
PROFILE = """\
name: Orders are confirmed
topics: 4
route:
  input: shop/orders/{{topic}}
  output: shop/confirmed/{{topic}}
  envelope: {envelope}
{size}
{load}
drainTimeout: {drain}
driver: {{name: mqtt, qos: 1, client: {client}}}
target: {{url: "{url}"}}
generator: {{sendDelayP99: 5min, receiveLagP99: 5min, cpu: 5, stalled: 1}}
slo: {{{slo}, loss: 0, duplicates: 0, throughput: 1%, sent: 1%}}
"""
FIXTURES = """\
import os
import signal
import sys
import threading
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest

from pytest_loadtest.drivers.mqtt.paho.client import carried_value
from pytest_loadtest.message.route import Carrier

@pytest.fixture
def orders(load_service, request):
    faults = FAULTS[request.node.name.removeprefix("test_")]
    return load_service([sys.executable, SERVICE, "--url", "{url}", *faults], ready="ready")

@pytest.fixture
def visitor():
    return mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)

@pytest.fixture
def noted(request, visitor):
    # Note the envelopes of all confirmations, in the order in which the broker sends them.
    envelopes = []
    subscribed, complete = threading.Event(), threading.Event()

    def on_message(client, data, message):
        envelopes.append(
            carried_value(message.properties, Carrier.PROPERTIES)
            or carried_value(message.properties, Carrier.CORRELATION_DATA)
        )
        if len(envelopes) == MESSAGES:
            complete.set()

    visitor.on_message = on_message
    visitor.on_subscribe = lambda *_: subscribed.set()
    visitor.on_connect = lambda *_: visitor.subscribe("shop/confirmed/+", qos=1)
    visitor.connect("127.0.0.1", PORT)
    visitor.loop_start()
    assert subscribed.wait(30)
    yield
    assert complete.wait(60)
    visitor.disconnect()
    visitor.loop_stop()
    lines = [envelope.hex() for envelope in envelopes]
    Path(request.node.name + ".txt").write_text("\\n".join(lines))
"""
ORDINARY = """
@pytest.mark.load("{name}")
def test_{name}(load, orders, load_target):
    load.assert_slo()
    assert load_target.inputs == [f"shop/orders/{{topic}}" for topic in range(4)]
    assert load_target.outputs == [f"shop/confirmed/{{topic}}" for topic in range(4)]
"""
NOTED = """
@pytest.mark.load("{name}")
def test_{name}(load, orders, noted):
    load.assert_slo()
"""
VISITED = """
@pytest.mark.load("{name}", live=True)
def test_{name}(load, orders, visitor):
    load.begin()
    load.wait("200ms")
    visitor.connect("127.0.0.1", PORT)
    visitor.loop_start()
    damaged = b'{{"order": {{"ref": "~lt1~UEwB' + b"A" * 39 + b'"}}}}'
    for body in (b"{name} \\x1b[31m<b>", damaged):
        visitor.publish("shop/confirmed/2", body, qos=1).wait_for_publish(60)
    visitor.disconnect()
    visitor.loop_stop()
    load.finish().assert_slo()
"""
STOPPED = """
@pytest.mark.load("{name}", live=True)
def test_{name}(load, orders):
    os.kill(orders.pid, signal.SIGSTOP)
    load.start()
    load.assert_slo()
"""


class LoadTest(NamedTuple):
    """A load test through the service, by the name of its profile."""

    name: str
    client: str = "native"
    load: str = "producerRate: 1000\ntestDuration: 1s"
    drain: str = "1min"
    size: str = "messageSize: 300"
    envelope: str = '{in: "json:/meta/ref", out: "json:/order/ref"}'
    faults: tuple[str, ...] = ()
    slo: str = "outOfOrder: 0"
    body: str = ORDINARY


# A load test that disturbs the load needs time before and after.
TWO_SECONDS = "producerRate: 500\ntestDuration: 2s"
LATE = "endToEndLatency: {p50: 30s, p98.5: 24ms}"
TEMPLATE = "payload: {template: order.json}"
LOAD_TESTS = [
    *(LoadTest(f"met_{client}", client=client) for client in CLIENTS),
    *(LoadTest(f"faulty_{client}", client=client, drain="3s", faults=LOSING) for client in CLIENTS),
    *(
        LoadTest(
            f"visited_{client}",
            client=client,
            load=TWO_SECONDS,
            slo="foreign: 1, corrupt: 1, outOfOrder: 0",
            body=VISITED,
        )
        for client in CLIENTS
    ),
    *(
        LoadTest(
            f"{envelope}_{client}",
            client=client,
            drain="3s",
            size=TEMPLATE,
            envelope=envelope,
            faults=LOSING,
        )
        for client in CLIENTS
        for envelope in OUTSIDE
    ),
    *(
        LoadTest(f"slow_{envelope}", size=TEMPLATE, envelope=envelope, faults=SLOW)
        for envelope in OUTSIDE
    ),
    *(
        LoadTest(
            f"overtaking_{envelope}",
            size=TEMPLATE,
            envelope=envelope,
            faults=(*SLOW, "--threads", "2"),
            body=NOTED,
        )
        for envelope in OUTSIDE
    ),
    LoadTest("late", faults=SLOW, slo=f"{LATE}, outOfOrder: 0"),
    LoadTest("overtaken", faults=(*SLOW, "--threads", "2"), slo=f"{LATE}, outOfOrder: 0"),
    LoadTest("stopped", drain="1s", load="producerRate: 500\ntestDuration: 3s", body=STOPPED),
    LoadTest("template", size="payload: {template: token.json}"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("broker") / "mosquitto"
    request = brokers.BrokerRequest(kind="mqtt", mode="process", folder=folder)
    with running(request) as broker:
        yield broker.facts.url


def write(project: Project, url: str, load_tests: Sequence[LoadTest]) -> None:
    """Write a profile for each load test, and all load tests into one module."""
    for load_test in load_tests:
        fields = load_test._asdict()
        del fields["body"]
        project.write(f"profiles/{load_test.name}.yaml", PROFILE.format(url=url, **fields))
    project.write("profiles/order.json", WITHOUT_TOKEN)
    project.write("profiles/token.json", WITH_TOKEN)
    constants = {
        "SERVICE": str(EXAMPLE / "orders_mqtt.py"),
        "PORT": int(url.rpartition(":")[2]),
        "MESSAGES": MESSAGES,
        "FAULTS": {load_test.name: load_test.faults for load_test in load_tests},
    }
    lines = [f"{name} = {value!r}\n" for name, value in constants.items()]
    bodies = [load_test.body.format(name=load_test.name) for load_test in load_tests]
    project.write("test_orders.py", "".join([*lines, FIXTURES, *bodies]))


@pytest.fixture(scope="module")
def session(url: str, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Run all load tests on mosquitto in one session of one process.

    Sessions on Pulsar, and those of ``test_outputs.py`` and ``test_taps.py``, have two workers.
    """
    with fresh(tmp_path_factory.mktemp("session")) as project:
        write(project, url, LOAD_TESTS)
        ended = run_all(project, "-n0")
    assert ended.finished.ret == 1, ended.finished.out
    return ended


@pytest.mark.parametrize("client", CLIENTS)
def test_a_service_that_confirms_each_order_is_met(session: Session, client: str) -> None:
    assert session.ending(f"met_{client}") == set()
    counts = session.counts(f"met_{client}")
    assert (counts["sent"], counts["received"]) == (MESSAGES, MESSAGES)
    assert (counts["lost"], counts["duplicates"], counts["outOfOrder"]) == (0, 0, 0)


@pytest.mark.parametrize("client", CLIENTS)
def test_what_the_service_loses_and_doubles_is_counted_exactly(
    session: Session, client: str
) -> None:
    name = f"faulty_{client}"
    assert session.ending(name) == {"failure"}
    assert session.document(name)["verdict"]["outcome"] == "missed"
    counts = session.counts(name)
    assert (counts["lost"], counts["duplicates"]) == (4, 2)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_first_bytes_of_messages_that_cannot_be_read_are_reported(
    session: Session, client: str
) -> None:
    name = f"visited_{client}"
    assert session.ending(name) == set()
    measured = session.measurements(name)
    assert (measured["counts"]["foreign"], measured["counts"]["corrupt"]) == (1, 1)
    foreign, corrupt = measured["strays"]
    assert 0 < foreign["at"] <= corrupt["at"]
    size = len(f"{name} \x1b[31m<b>")
    beginning = rf"{name} \x1b[31m<b>"
    assert foreign == {
        "at": foreign["at"],
        "kind": "foreign",
        "topic": "shop/confirmed/2",
        "size": size,
        "beginning": beginning,
    }
    assert corrupt["beginning"].startswith('{"order": {"ref": "~lt1~UEwBAAAA')
    out = session.finished.out
    assert "\x1b" not in out
    assert f"foreign on shop/confirmed/2, {size} B: {beginning}; corrupt on" in out
    (page,) = session.folder.rglob("*.html")
    assert rf"{name} \x1b[31m&lt;b&gt;" in page.read_text()


@pytest.mark.parametrize("envelope", OUTSIDE)
@pytest.mark.parametrize("client", CLIENTS)
def test_an_envelope_outside_of_the_body_goes_through_a_service(
    session: Session, client: str, envelope: str
) -> None:
    """The template has no token; what the service loses and doubles is counted exactly."""
    name = f"{envelope}_{client}"
    assert session.ending(name) == {"failure"}
    counts = session.counts(name)
    assert (counts["received"], counts["lost"], counts["duplicates"]) == (MESSAGES - 4, 4, 2)
    assert (counts["foreign"], counts["corrupt"]) == (0, 0)
    mean_size = session.document(name)["plan"]["meanSize"]
    assert mean_size == len('{"meta": {"ref": ') + 13 + len("}}")


@pytest.mark.parametrize("envelope", OUTSIDE)
def test_orders_that_take_longer_and_overtake_each_other_are_counted(
    session: Session, envelope: str
) -> None:
    """25 ms more for every 50th order: with one thread it is slow, with two it is out of order."""
    slow = session.measurements(f"slow_{envelope}")
    assert (slow["counts"]["lost"], slow["counts"]["outOfOrder"]) == (0, 0)
    assert slow["latencies"]["endToEnd"]["maximum"] >= 25_000_000
    name = f"overtaking_{envelope}"
    overtaken = session.counts(name)
    assert (overtaken["lost"], overtaken["duplicates"]) == (0, 0)
    noted = (session.folder / f"test_{name}.txt").read_text().split()
    envelopes = [bytes.fromhex(line) for line in noted]
    assert len(envelopes) == MESSAGES
    assert overtaken["outOfOrder"] == late(envelopes) > 0


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
    write(project, url, [LoadTest("met", envelope="{in: correlationData, out: properties}")])
    finished = project.run("--load-plan")
    places = "in correlationData (35 B beside the body), out properties (61 B beside the body)"
    assert places in finished.out


def test_a_template_with_a_token_that_travels_elsewhere_is_an_error_before_load(
    project: Project, url: str
) -> None:
    write(project, url, [LoadTest("met", size=TEMPLATE, envelope="properties")])
    project.write("profiles/order.json", '{"n": {{ seq }},\n "ref": "{{ envelope }}"}')
    finished = project.run("-n0")
    assert finished.ret == 1
    where = "order.json:2: has {{ envelope }}, and the envelope is in properties: remove it"
    assert where in finished.out


def test_orders_that_are_overtaken_or_slow_are_missed_and_nothing_else(session: Session) -> None:
    """Every 50th of 1 000 orders takes 25 ms longer; a second thread goes on in the meantime."""
    missed = {}
    for name in ("overtaken", "late"):
        assert session.ending(name) == {"failure"}
        counts = session.counts(name)
        assert (counts["received"], counts["lost"], counts["duplicates"]) == (MESSAGES, 0, 0)
        findings = session.document(name)["verdict"]["findings"]
        missed[name] = {f["name"] for f in findings if f["outcome"] == "missed"}
    assert session.counts("late")["outOfOrder"] == 0
    # An order that is overtaken counts once; whatever the threads do to others adds to it.
    assert session.counts("overtaken")["outOfOrder"] > 0
    assert missed == {
        "overtaken": {"outOfOrder", "endToEndLatency.p98.5"},
        "late": {"endToEndLatency.p98.5"},
    }


def test_a_service_that_stands_still_is_the_bottleneck(session: Session) -> None:
    """What waits in its sockets is not taken for the run's own consumers."""
    assert session.ending("stopped") == {"error"}
    document = session.document("stopped")
    assert document["verdict"]["outcome"] == "no data"
    assert document["bottleneck"]["conclusion"] == "service not reading"
    assert "service orders_mqtt.py was stopped by a signal" in document["bottleneck"]["evidence"]
    assert document["bottleneck"]["also"] == []


def test_a_service_reads_messages_of_a_template(session: Session) -> None:
    assert session.ending("template") == set()
    measured = session.measurements("template")
    assert measured["counts"]["received"] == MESSAGES
    assert [bucket["name"] for bucket in measured["buckets"]] == ["token.json"]


def test_the_plan_names_the_topics_of_the_service(project: Project, url: str) -> None:
    write(project, url, [LoadTest("met")])
    finished = project.run("--load-plan")
    assert "shop/orders/{topic} through the service under test to shop/confirmed" in finished.out


BUSY = {
    "generator.sendDelayP99": "5min",
    "generator.receiveLagP99": "5min",
    "generator.cpu": "5",
    "generator.stalled": "1",
    "slo.endToEndLatency.p99": "5min",
    "producerRate": "1000",
    "testDuration": "1s",
}
"""What the load test of the example is run with on a busy machine."""
BUSY_NEW = BUSY | {
    "warmupDuration": "0s",
    "slo.endToEndLatency.p50": "5min",
    "slo.throughput": "1%",
    "slo.sent": "1%",
}
"""The same for the load test that ``init`` writes."""


def set_options(settings: dict[str, str]) -> list[str]:
    return [f"--load-set={key}={value}" for key, value in settings.items()]


def shorten(path: Path) -> None:
    """Change a profile as the options of :data:`BUSY_NEW` do.

    Options would change those of other modules in the same session, too.
    """
    changed = yaml.safe_load(path.read_text(encoding="utf-8"))
    for key, text in BUSY_NEW.items():
        section = changed
        *outer, name = key.split(".")
        for part in outer:
            section = section.setdefault(part, {})
        section[name] = yaml.safe_load(text)
    path.write_text(yaml.safe_dump(changed), encoding="utf-8")


NEW = "test_confirmed.py::test_orders_are_confirmed"
OF_EXAMPLE = "example/loadtests/test_orders.py::test_orders_are_confirmed"
OF_EXAMPLE_ON_PULSAR = "example/loadtests/test_orders_pulsar.py::test_orders_are_confirmed"
ON_PULSAR_FILES = ["test_orders.py", "test_confirmed.py", "example/loadtests/test_orders_pulsar.py"]


@pytest.fixture(scope="module")
def untargeted(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Run a new project on the loopback and the example on MQTT in one session."""
    with fresh(tmp_path_factory.mktemp("untargeted")) as project:
        assert cli.main(["init", str(project.path), "--service", "--broker", "loopback"]) == cli.OK
        shutil.copytree(EXAMPLE, project.path / "example")
        files = [test.partition("::")[0] for test in (NEW, OF_EXAMPLE)]
        return run_all(project, "-n0", *files, *set_options(BUSY_NEW))


@pytest.fixture(scope="module")
def targeted(url: str, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Run a new project on a broker that runs already."""
    with fresh(tmp_path_factory.mktemp("targeted")) as project:
        assert cli.main(["init", str(project.path), "--service", "--broker", "mqtt"]) == cli.OK
        return run_all(project, *set_options(BUSY_NEW), "--load-target", url)


@pytest.mark.parametrize("broker", ["loopback", "mqtt"])
def test_a_new_project_with_a_service_runs(request: pytest.FixtureRequest, broker: str) -> None:
    fixtures = {"loopback": "untargeted", "mqtt": "targeted"}
    ended: Session = request.getfixturevalue(fixtures[broker])
    assert ended.finished.ret == 0, ended.finished.out
    counts = ended.documents[NEW]["measurements"]["counts"]
    assert (counts["received"], counts["outOfOrder"], counts["foreign"]) == (MESSAGES, 0, 0)


def test_the_load_test_of_the_example_starts_broker_and_service(untargeted: Session) -> None:
    """As its README says, with a shorter load."""
    assert untargeted.finished.ret == 0, untargeted.finished.out
    counts = untargeted.documents[OF_EXAMPLE]["measurements"]["counts"]
    assert (counts["sent"], counts["received"]) == (MESSAGES, MESSAGES)


ON_PULSAR = """\
name: Orders are confirmed
topics: 4
route:
  input: orders-{{topic}}
  output: confirmed-{{topic}}
  envelope: properties
payload: {{template: order.json}}
producerRate: 1000
testDuration: 1s
drainTimeout: {drain}
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

@faulty("--slow", "50")
@pytest.mark.load("native")
def test_slow(load, orders):
    load.assert_slo()

@faulty("--slow", "50", "--threads", "2")
@pytest.mark.load("library", live=True)
def test_overtaking(load, orders, load_target):
    client = pulsar.Client(load_target.url)
    visitor = client.subscribe(load_target.outputs, "visitor")

    def note_order():
        tokens = [visitor.receive(60_000).properties()["loadtest"] for _ in range(1000)]
        Path("confirmed.txt").write_text("\\n".join(tokens))
        client.close()

    load.before_cleanup(note_order)
    load.start().assert_slo()

# The last one: it waits all of drainTimeout for what is lost, and a broker that has just started answers seconds late.
@faulty("--lose", "250", "--double", "350")
@pytest.mark.load("losing")
def test_losing(load, orders):
    load.assert_slo()
"""


def write_on_pulsar(project: Project) -> list[str]:
    """Write the load tests on Pulsar, each with its service, and return their files."""
    assert cli.main(["init", str(project.path), "--service", "--broker", "pulsar"]) == cli.OK
    shutil.copytree(EXAMPLE, project.path / "example")
    shorten(project.path / "profiles/confirmed.yaml")
    shorten(project.path / "example/loadtests/orders_pulsar.yaml")
    for client in CLIENTS:
        project.write(f"profiles/{client}.yaml", ON_PULSAR.format(client=client, drain="1min"))
    project.write("profiles/losing.yaml", ON_PULSAR.format(client="native", drain="15s"))
    project.write(
        "profiles/order.json", '{"number": {{ seq }}, "article": "{{ pick("tea", "rice") }}"}'
    )
    service = str(EXAMPLE / "orders_pulsar.py")
    project.write("test_orders.py", BOTH.format(service=service))
    return ON_PULSAR_FILES


@pytest.mark.slow
def test_faults_of_a_service_on_pulsar_are_counted_exactly(on_pulsar: Session) -> None:
    """The run starts one broker for all tests, and a service for each. The envelope is a property.

    The files that ``init`` writes run as they are, but for a shorter load.
    """
    assert on_pulsar.finished.ret == 1, on_pulsar.finished.out
    counted = {}
    for test, document in on_pulsar.documents.items():
        if test.partition("::")[0] not in ON_PULSAR_FILES:
            continue
        counts = document["measurements"]["counts"]
        assert (counts["foreign"], counts["corrupt"]) == (0, 0)
        counted[test] = (counts["received"], counts["lost"], counts["duplicates"])
    assert counted == {
        "test_orders.py::test_losing[-]": (MESSAGES - 4, 4, 2),
        "test_orders.py::test_slow[-]": (MESSAGES, 0, 0),
        "test_orders.py::test_overtaking[-]": (MESSAGES, 0, 0),
        NEW: (MESSAGES, 0, 0),
        OF_EXAMPLE_ON_PULSAR: (MESSAGES, 0, 0),
    }
    outcome = on_pulsar.documents[NEW]["verdict"]["outcome"]
    assert outcome == "met", on_pulsar.finished.out
    slow = on_pulsar.measurements("slow[-]")
    assert slow["latencies"]["endToEnd"]["maximum"] >= 25_000_000
    assert slow["counts"]["outOfOrder"] == 0
    # A subscription of its own gets each topic in the same order.
    confirmed = (on_pulsar.folder / "confirmed.txt").read_bytes().split()
    assert on_pulsar.counts("overtaking[-]")["outOfOrder"] == late(confirmed) > 0


@pytest.mark.slow
def test_the_load_test_on_pulsar_starts_broker_and_service(on_pulsar: Session) -> None:
    """As the README of the example says, with a shorter load."""
    assert on_pulsar.ending(OF_EXAMPLE_ON_PULSAR) == set(), on_pulsar.finished.out
    counts = on_pulsar.documents[OF_EXAMPLE_ON_PULSAR]["measurements"]["counts"]
    assert (counts["sent"], counts["received"]) == (MESSAGES, MESSAGES)
