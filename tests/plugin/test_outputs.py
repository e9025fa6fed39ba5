"""Several output topics, and several outputs for each input, of a service, against exact truth."""

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
  outputs: {outputs}
  envelope: {{in: "json:/meta/ref", out: "json:/order/ref"}}
driver: {{name: mqtt, qos: 1, client: {client}}}
target: {{url: "{url}"}}
"""
ON_PULSAR = """\
route:
  input: orders-{{topic}}
  output: ["confirmed-{{topic}}", "rejected-{{topic}}"]
  outputs: 2
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


def write(
    project: Project,
    url: str,
    client: str,
    *options: str,
    drain: str = "3s",
    outputs: int | str = 1,
    more: str = "",
) -> None:
    route = ON_MQTT.format(client=client, url=url, outputs=outputs) + more
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


# Of 2000 orders every 100th lacks its second output, every 70th has one more: 700 and 1400 have two.
FAULTS = ("--copies", "2", "--drop", "100", "--double", "70")


@needs_mosquitto
@pytest.mark.parametrize("client", ["native", "library"])
def test_two_outputs_for_each_input_are_counted_exactly(
    project: Project, url: str, client: str
) -> None:
    write(project, url, client, *FAULTS, outputs=2)
    finished = project.run("-n2")
    assert finished.ret == 1, finished.out
    document = finished.documents["test_orders"]
    assert counts_of(document) == (4000 - 18, 18, 26, 0, 0)
    latency = document["measurements"]["latencies"]["endToEnd"]
    assert (latency["samples"], latency["neverCame"]) == (3982, 18)
    assert document["measurements"]["outputs"] == 2


@needs_mosquitto
def test_all_outputs_are_met(project: Project, url: str) -> None:
    write(project, url, "native", "--copies", "2", outputs=2, drain="1min")
    finished = project.run("-n2")
    assert finished.ret == 0, finished.out
    document = finished.documents["test_orders"]
    assert counts_of(document) == (4000, 0, 0, 0, 0)
    # In units of inputs: 500/s, less what came after the end of the phase.
    assert document["measurements"]["throughput"] <= 500


@needs_mosquitto
def test_four_outputs_of_half_of_the_inputs_do_not_hide_the_other_half(
    project: Project, url: str
) -> None:
    """As many copies come as are due."""
    write(project, url, "native", "--copies", "4", "--lose", "2", outputs=2)
    finished = project.run("-n2")
    assert finished.ret == 1, finished.out
    assert counts_of(finished.documents["test_orders"]) == (2000, 2000, 2000, 0, 0)


@needs_mosquitto
def test_outputs_at_consumers_of_several_workers_are_counted_together(
    project: Project, url: str
) -> None:
    shared = "subscriptionsPerTopic: 2\nconsumerPerSubscription: 2\n"
    write(project, url, "native", *FAULTS, outputs=2, more=shared)
    profile = project.path / "profiles" / "orders.yaml"
    profile.write_text(profile.read_text().replace(" outOfOrder: 0,", ""))
    finished = project.run("-n3")
    assert finished.ret == 1, finished.out
    counts = finished.documents["test_orders"]["measurements"]["counts"]
    assert (counts["received"], counts["lost"], counts["duplicates"]) == (2 * 3982, 36, 52)


@needs_mosquitto
@pytest.mark.parametrize(
    ("choose", "within", "status", "outcome"),
    [
        # 400 of 2000: with 99 % certainty 17.8 % to 22.4 %.
        ("5", "3%", 0, "met"),
        ("2", "3%", 1, "missed"),
        ("5", "1%", 1, "no data"),
    ],
)
def test_the_share_of_a_service_that_chooses_is_judged_by_its_interval(
    project: Project, url: str, choose: str, within: str, status: int, outcome: str
) -> None:
    outputs = f"{{share: 20%, within: {within}}}"
    write(project, url, "native", "--choose", choose, "--double", "100", outputs=outputs)
    profile = project.path / "profiles" / "orders.yaml"
    slo = "slo: {duplicates: 20, outOfOrder: 0, sent: 1%}"
    profile.write_text(profile.read_text().partition("slo:")[0] + slo)
    finished = project.run("-n2")
    assert finished.ret == status, finished.out
    document = finished.documents["test_orders"]
    assert document["verdict"]["outcome"] == outcome
    measured = document["measurements"]
    chosen = 2000 // int(choose)
    # Every 100th order is one of the chosen, and comes twice.
    counts = measured["counts"]
    assert (counts["received"], counts["lost"], counts["duplicates"]) == (chosen, None, 20)
    assert (measured["answered"], measured["outputs"]) == (chosen, 1)
    latency = measured["latencies"]["endToEnd"]
    assert (latency["samples"], latency["neverCame"]) == (chosen, 0)
    written = f"{chosen:,}".replace(",", " ")
    assert f"{written} of 2 000 due at most (percentiles are of those that came)" in finished.out
    share = next(one for one in document["verdict"]["findings"] if one["name"] == "outputShare")
    assert f"{written} of 2 000 have an output" in share["text"]


@needs_mosquitto
def test_the_plan_names_all_outputs(project: Project, url: str) -> None:
    write(project, url, "native")
    finished = project.run("--load-plan")
    assert "to shop/confirmed/{topic} or shop/rejected/{topic}" in finished.out
    write(project, url, "native", outputs=2)
    assert ", 2 outputs for each input" in project.run("--load-plan").out


@pytest.mark.slow
def test_several_outputs_on_pulsar_are_counted_exactly(project: Project) -> None:
    require_jars(pulsar_jars.PULSAR)
    options = ("--url", "{url}", "--reject", "3", *FAULTS)
    test = TEST.format(service=SERVICE, broker="pulsar", options=options)
    for client in ("native", "library"):
        route = ON_PULSAR.format(client=client)
        project.write(f"profiles/{client}.yaml", PROFILE.format(route=route, drain="3s"))
        test += ONE.format(name=client)
    project.write("test_orders.py", test)
    finished = project.run("-n2", "--load-broker-mode", "process")
    assert finished.ret == 1, finished.out
    found = {name: counts_of(document) for name, document in finished.documents.items()}
    counted = (3982, 18, 26, 0, 0)
    assert found == {"test_native": counted, "test_library": counted}
