"""The contents of a container, as far as they can be tested without an engine."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.brokers import container
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.pulsar import broker as pulsar_container
from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def test_pulsar_advertises_the_address_and_port_that_clients_use() -> None:
    """It listens on all addresses of the container."""
    plan = pulsar_container.pulsar_plan(
        image="registry.example/pulsar:4",
        ports=(7001, 7002),
        settings={"journalSyncData": "true"},
        host="docker.example",
    )
    conf = plan.env["LOADTEST_CONF"].splitlines()
    assert plan.image == "registry.example/pulsar:4"
    assert (plan.url, plan.admin_url) == (
        "pulsar://docker.example:7001",
        "http://docker.example:7002",
    )
    assert {
        "brokerServicePort=7001",
        "webServicePort=7002",
        "bindAddress=0.0.0.0",
        "advertisedAddress=docker.example",
        "journalSyncData=true",
    } <= set(conf)
    assert plan.env["PULSAR_STANDALONE_CONF"] == "/tmp/standalone.conf"
    assert "bin/pulsar standalone" in plan.command[-1]


def test_mosquitto_listens_on_all_addresses_of_the_container() -> None:
    """It runs with the image's own user."""
    plan = mosquitto.mosquitto_plan(
        image="mosquitto:2", ports=(7001,), settings={"max_queued_messages": "0"}, host="127.0.0.1"
    )
    conf = plan.env["LOADTEST_CONF"].splitlines()
    assert (plan.image, plan.url, plan.admin_url, plan.ports) == (
        "mosquitto:2",
        "mqtt://127.0.0.1:7001",
        None,
        (7001,),
    )
    assert {"listener 7001 0.0.0.0", "max_queued_messages 0"} <= set(conf)
    assert not any(line.startswith("user ") for line in conf)


@pytest.mark.parametrize(
    ("host", "address"), [("127.0.0.1", "127.0.0.1"), ("docker.example", None), ("192.0.2.7", None)]
)
def test_only_a_remote_engine_publishes_ports_on_every_address(
    host: str, address: str | None
) -> None:
    """The broker has no password, so only this machine can reach the broker of a local engine."""
    assert (
        mosquitto.mosquitto_plan(image="mosquitto:2", ports=(7001,), settings={}, host=host).address
        == address
    )
    assert (
        pulsar_container.pulsar_plan(
            image="pulsar:4", ports=(7001, 7002), settings={}, host=host
        ).address
        == address
    )


def test_the_command_writes_the_configuration_unchanged(tmp_path: Path) -> None:
    """A shell writes it before the broker starts, with quotes, percent signs and dollars."""
    conf = "a 'b' \"c\"\n%s $HOME `x` \\n\n"
    shell = container.with_conf(str(tmp_path / "conf"), f"cat {tmp_path}/conf")
    answer = subprocess.run(
        shell,
        env={"LOADTEST_CONF": conf, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == conf


def test_without_a_listener_no_broker_is_ready() -> None:
    assert not mosquitto.mosquitto_ready(
        mosquitto.mosquitto_plan(image="mosquitto:2", ports=(1,), settings={}, host="127.0.0.1")
    )
    assert not pulsar_container.container_ready(
        pulsar_container.pulsar_plan(
            image="registry.example/pulsar:4", ports=(1, 2), settings={}, host="127.0.0.1"
        )
    )


def test_settings_that_the_run_chooses_are_rejected() -> None:
    """The rule is the same for processes."""
    with pytest.raises(UsageError, match="brokerServicePort"):
        pulsar_container.pulsar_plan(
            image="registry.example/pulsar:4",
            ports=(1, 2),
            settings={"brokerServicePort": "6650"},
            host="h",
        )


def test_the_default_image_is_the_brokers_own() -> None:
    """A requested version is its tag."""
    assert (pulsar_container.default_image(None), mosquitto.mosquitto_image(None)) == (
        "apachepulsar/pulsar:4.2.4",
        "eclipse-mosquitto:2",
    )
    assert pulsar_container.default_image("4.0.0") == "apachepulsar/pulsar:4.0.0"
