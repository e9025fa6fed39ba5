"""A broker with keys made by the run: two words in the profile, and no credentials."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from cached_jars import require_jars

from pytest_loadtest.brokers.starting import free_ports
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars

if TYPE_CHECKING:
    from .projects import Project

SECURED = """\
name: secured
topics: 2
producersPerTopic: 2
consumerPerSubscription: 1
messageSize: 64
producerRate: 200
testDuration: 2s
target: {security: {tls: true, auth: token}}
generator: {sendDelayP99: 5min, receiveLagP99: 5min, cpu: 5, stalled: 1}
slo: {loss: 0, throughput: 50%, sent: 50%}
"""

TESTS = """\
from pathlib import Path
import pytest

@pytest.mark.load("secured")
def test_as_it_is(load):
    (token,) = Path(".loadtest").glob("*/brokers/pulsar-*/data/security/token")
    Path("seen").write_text(token.read_text())
    load.assert_slo()

@pytest.mark.load("secured", driver={"name": "pulsar", "authentication": {"plugin": "token", "token": "no.such.token"}})
def test_with_a_token_of_my_own(load):
    pass
"""


@pytest.mark.slow
@pytest.mark.pulsar
def test_workers_authenticate_at_a_secured_pulsar(project: Project) -> None:
    """Two workers; a token in the profile takes precedence. No token is in results, output, or left behind."""
    require_jars(pulsar_jars.PULSAR)
    project.write("profiles/secured.yaml", SECURED)
    project.write("test_it.py", TESTS)
    run = project.run("-n2", "-p", "no:cacheprovider", "--load-broker-mode", "process")
    assert run.outcomes == {"passed": 1, "error": 1}
    broker = run.documents["test_as_it_is"]["broker"]
    assert (broker["url"].partition(":")[0], broker["settings"]["security"]) == (
        "pulsar+ssl",
        "TLS, token authentication",
    )
    assert run.documents["test_as_it_is"]["driver"]["applied"]["authentication"] == "token"
    assert (
        "401 Unauthorized: is the token of driver.authentication one of this broker's?" in run.out
    )
    secret = (project.path / "seen").read_text()
    kept = [path for path in project.path.glob(".loadtest/**/*") if path.is_file()]
    assert [path for path in kept if secret.encode() in path.read_bytes()] == []
    assert [path for path in kept if path.suffix in (".pem", ".key")] == []
    assert secret not in run.out
    assert "no.such.token" not in run.out


BROADCAST = """\
name: broadcast
subscriptionsPerTopic: 20
consumerPerSubscription: 1
messageSize: 64
producerRate: 20
testDuration: 2s
driver: {name: mqtt, qos: 2, tls: {version: TLSv1.3, ciphers: TLS_AES_256_GCM_SHA384}}
target: {security: {tls: subscribers}}
generator: {sendDelayP99: 5min, receiveLagP99: 5min, cpu: 5, stalled: 1}
slo: {loss: 0, throughput: 50%, sent: 50%}
"""

SUBSCRIBERS = """\
import pytest

@pytest.mark.load("broadcast")
def test_as_it_is(load):
    load.assert_slo()

@pytest.mark.load("broadcast", driver={"name": "mqtt", "tls": {"caFile": "/nowhere/ca.pem"}})
def test_keys_unreadable(load):
    pass

@pytest.mark.load("broadcast", driver={"name": "mqtt", "tls": {"caFile": "ca.pem"}})
def test_not_trusted(load):
    pass
"""


@pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)
def test_subscribers_may_connect_over_tls_and_publishers_without(project: Project) -> None:
    """Results show the open ports and the negotiated TLS; an error in the user's own key files is reported."""
    from pytest_loadtest.brokers.certificates import Authority

    project.write("profiles/broadcast.yaml", BROADCAST)
    project.write("test_it.py", SUBSCRIBERS)
    Authority("somebody else").write(project.path / "ca.pem")
    run = project.run("-n2", "-p", "no:cacheprovider", "--load-broker-mode", "process")
    assert run.outcomes == {"passed": 1, "error": 2}
    results = run.documents["test_as_it_is"]
    broker, applied = results["broker"], results["driver"]["applied"]
    assert (broker["url"].partition(":")[0], broker["subscriberUrl"].partition(":")[0]) == (
        "mqtt",
        "mqtts",
    )
    assert (broker["settings"]["security"], broker["settings"]["tls_version"]) == (
        "TLS for subscribers",
        "tlsv1.3",
    )
    assert applied["tlsNegotiated"] == "TLSv1.3 TLS_AES_256_GCM_SHA384"
    assert applied["tls"] == "certificate and host name checked"
    assert "driver.tls.caFile /nowhere/ca.pem: No such file or directory" in run.out
    assert "probe for subscribers: the broker's certificate is not trusted" in run.out
    assert "driver.tls.caFile (ca.pem) must contain the authority that signed it" in run.out
    assert [
        path for path in project.path.glob(".loadtest/**/*") if path.suffix in (".pem", ".key")
    ] == []


@pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)
def test_a_subscriber_address_without_a_broker_breaks_the_run(project: Project) -> None:
    """The error names it, with exit status and outcome of a broken run."""
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = f"target: {{url: 'mqtt://127.0.0.1:{server.getsockname()[1]}', subscriberUrl: 'mqtts://127.0.0.1:{port}'}}"
        project.write(
            "profiles/broadcast.yaml",
            BROADCAST.replace("target: {security: {tls: subscribers}}", target),
        )
        project.write("test_it.py", SUBSCRIBERS)
        run = project.run("-n0", "-k", "as_it_is")
    assert run.outcomes == {"error": 1, "deselected": 2}
    assert f"cannot reach target.subscriberUrl mqtts://127.0.0.1:{port}" in run.out
    assert "is the broker running, and the address right?" in run.out


def test_security_of_another_broker_is_a_usage_error(project: Project) -> None:
    """With file, line and remedy; the plan reports it already."""
    project.write("profiles/secured.yaml", SECURED)
    project.write("test_it.py", TESTS)
    for options in (
        ["--load-broker-mode", "embedded"],
        ["--load-plan", "--load-broker-mode", "embedded"],
    ):
        run = project.run("-n0", "-k", "as_it_is", *options)
        assert run.ret != 0
        assert (
            "profiles/secured.yaml:8: target.security is for a broker that the run starts as a process, not for --load-broker-mode"
            in run.out
        )
