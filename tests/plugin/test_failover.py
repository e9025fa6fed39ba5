"""Failover as a user tests it: a live test kills the active one of two Artemis brokers, and its backup goes on with every message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cached_jars import skip_without_jars

from pytest_loadtest.drivers.mqtt import artemis

from .projects import DISTURBED

if TYPE_CHECKING:
    from .projects import Finished, Project

pytestmark = [pytest.mark.artemis, skip_without_jars(artemis.JARS)]

CLIENTS = 2 * 2 + 2  # producers and consumers of the profile
PAIR = DISTURBED.format(
    name="pair", slo="{loss: 0, failed: 0, sent: 1%, throughput: 1%}",
    more="driver: {name: mqtt, broker: artemis, qos: 1, cleanStart: false, sessionExpiry: 1h}\nbroker: {brokers: 2}",
)  # fmt: skip
TESTS = """\
import pytest

@pytest.mark.load("pair", live=True)
def test_failover(load):
    load.begin()
    load.wait("1s")
    load.kill_broker(1)
    load.wait("1s")
BACK    load.start_broker(1)
BACK    load.kill_broker(2)
BACK    load.wait("1s")
    load.stop().assert_slo()
"""


def accounted(run: Finished, failovers: int) -> dict[str, Any]:
    """Check the verdict and the counts of every message and connection; return the results."""
    assert run.outcomes == {"passed": 1}
    document = run.documents["test_failover"]
    counts, driver = document["measurements"]["counts"], document["driver"]
    assert document["verdict"]["outcome"] == "met"
    assert counts["offered"] == counts["sent"] == counts["acked"] == counts["received"] > 0
    assert (counts["lost"], counts["failed"], counts["dropped"], counts["foreign"]) == (0, 0, 0, 0)
    # All copies beyond the first: clients sent them again, or the broker did, which Artemis does not flag.
    assert counts["duplicates"] >= counts["duplicatesOfResent"]
    ended = [count for text, count in driver["incidents"].items() if text.startswith("connection ")]
    assert (
        driver["losses"]
        == document["measurements"]["latencies"]["reconnect"]["samples"]
        == sum(ended)
    )
    # A client that was not back yet when the second broker was killed lost one connection.
    assert CLIENTS <= driver["losses"] <= failovers * CLIENTS
    assert all(
        text.startswith(("connection ", "reconnect failed: ")) for text in driver["incidents"]
    ), "e.g. a forgotten session"
    return document


@pytest.mark.slow
def test_a_backup_takes_over_and_the_first_broker_takes_over_again(project: Project) -> None:
    """One process, plain connections. Both outages are in summary and results; broker 2 stays down, broker 1 came back."""
    project.write("profiles/pair.yaml", PAIR)
    project.write("test_it.py", TESTS.replace("BACK", ""))
    run = project.run("-n0", "-p", "no:cacheprovider", "--load-broker-mode", "process")
    document = accounted(run, failovers=2)
    first, second = document["broker"]["restarts"]
    assert (first["node"], second["node"], second["ready"], second["readyAt"]) == (
        "broker 1",
        "broker 2",
        None,
        None,
    )
    assert 10**9 <= first["down"] < first["ready"] <= second["down"]
    lines = [
        line.split() for line in run.out.splitlines() if line.startswith("  broker     broker ")
    ]
    assert [(words[2], words[3], words[-1]) for words in lines] == [
        ("1", "ended", "later"),
        ("2", "ended", "again"),
    ]
    settings = document["broker"]["settings"]
    assert (settings["ha-policy"], settings["brokers"], settings["persistence-enabled"]) == (
        "shared-store",
        "2",
        "true",
    )


@pytest.mark.slow
def test_the_backup_takes_over_with_tls_on_two_workers(project: Project) -> None:
    """The backup has the same keys: clients check the certificate and show their own at both. No key is left behind."""
    project.write("profiles/pair.yaml", PAIR + "target: {security: {tls: true, auth: tls}}\n")
    project.write(
        "test_it.py", "\n".join(line for line in TESTS.splitlines() if "BACK" not in line)
    )
    run = project.run("-n2", "-p", "no:cacheprovider", "--load-broker-mode", "process")
    document = accounted(run, failovers=1)
    (outage,) = document["broker"]["restarts"]
    assert (outage["node"], outage["ready"]) == ("broker 1", None)
    assert document["broker"]["url"].count(":") == 3 and document["broker"]["url"].startswith(
        "mqtts://127.0.0.1:"
    )
    assert document["broker"]["settings"]["security"] == "TLS, tls authentication"
    assert document["driver"]["applied"]["tlsNegotiated"].startswith("TLSv1.3 ")
    assert [
        path for path in project.path.glob(".loadtest/**/*") if path.suffix in (".pem", ".key")
    ] == []
