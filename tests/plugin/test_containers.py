"""Brokers in containers of a real engine: they are driven, and no container is left, whichever process dies."""

from __future__ import annotations

import re
import signal
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from listening import other_addresses
from podman import IMAGE, NoEngineError, Podman
from waiting_for import wait_until

from pytest_loadtest import brokers
from pytest_loadtest.brokers import java
from pytest_loadtest.brokers.starting import listens
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars
from pytest_loadtest.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .projects import Project

SECONDS = 60.0  # the longest that anything may take to go
until = partial(wait_until, seconds=SECONDS)
request = partial(brokers.BrokerRequest, kind="mqtt", mode="auto", image=IMAGE)

PROFILE = """\
name: {name}
topics: 2
producersPerTopic: 2
messageSize: 64
producerRate: 200
testDuration: 1s
driver: {driver}
generator: {{sendDelayP99: 5s, receiveLagP99: 5s, cpu: 5, stalled: 1}}
slo: {{throughput: 1%, sent: 1%}}
"""
OMB_DRIVER = """\
name: Pulsar
driverClass: io.openmessaging.benchmark.driver.pulsar.PulsarBenchmarkDriver
client:
  persistence:
    ensembleSize: 3
    writeQuorum: 3
    ackQuorum: 2
"""
TESTS = """\
import os, signal, time
from pathlib import Path

import pytest

@pytest.mark.load("mqtt")
def test_mqtt(load):
    load.assert_slo()
    assert load.measurements.counts.lost == 0

@pytest.mark.load("pulsar", broker_mode="container")
def test_pulsar(load):
    load.assert_slo()
    assert load.measurements.counts.lost == 0

@pytest.mark.load("mqtt", live=True, testDuration="60s")
def test_engine_dies(load):
    load.begin()
    os.kill(int(os.environ["ENGINE_PID"]), signal.SIGKILL)
    load.finish()

@pytest.mark.load("mqtt", live=True, testDuration="60s")
def test_pytest_dies(load):
    while not Path("engine-is-back").exists():
        time.sleep(0.05)
    load.begin()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    """Start the engine once."""
    if mosquitto.find_mosquitto() is None:
        pytest.skip("mosquitto is not installed: apt-get install mosquitto")
    try:
        made = Podman()
    except NoEngineError as error:
        pytest.skip(f"no container engine: {error}")
    yield made
    made.close()


@pytest.fixture
def engine(podman: Podman, monkeypatch: pytest.MonkeyPatch) -> Iterator[Podman]:
    """Return the address of the engine; no test may leave it a container."""
    monkeypatch.setenv("DOCKER_HOST", podman.host)
    yield podman
    # The end of a broker does not wait for a busy engine: its guard removes the container meanwhile.
    until(lambda: podman.containers() == [], "removal of the containers")


def test_brokers_in_containers_are_driven_and_removed(engine: Podman, project: Project) -> None:
    """Both brokers are driven, by ``--load-image`` and by ``target.image``; a killed engine is no data, a killed pytest leaves no
    container."""
    with_pulsar = (
        java.find() is not None
        and pulsar_jars.PULSAR.version in pulsar_jars.PULSAR.cached_versions()
    )
    project.write("profiles/mqtt.yaml", PROFILE.format(name="mqtt", driver="{name: mqtt}"))
    project.write(
        "profiles/pulsar.yaml",
        PROFILE.format(name="pulsar", driver="omb.yaml") + f"target: {{image: {IMAGE}}}\n",
    )
    project.write("profiles/omb.yaml", OMB_DRIVER)
    project.write("test_it.py", TESTS)
    project.environment["ENGINE_PID"] = str(engine.pid)
    started = project.start(
        "--load-image", IMAGE, *([] if with_pulsar else ["--deselect", "test_it.py::test_pulsar"])
    )
    try:
        died = ".loadtest/*/*test_engine_dies*/**/results.json"
        wait_until(
            lambda: [*project.path.glob(died)] or started.poll() is not None,
            "the end of the run",
            seconds=240,
        )
        engine.kill()  # nothing is left to kill but a process that nobody waited for
        engine.start()
    finally:
        project.write("engine-is-back", "")
        done = project.finish(started, timeout=60)
    until(lambda: engine.containers() == [], "removal of the containers")
    until(lambda: project.survivors() == [], "end of the guards")

    assert done.ret == -signal.SIGKILL
    outcomes = {name: document["verdict"]["outcome"] for name, document in done.documents.items()}
    assert outcomes == {"test_mqtt": "met", "test_engine_dies": "no data"} | (
        {"test_pulsar": "met"} if with_pulsar else {}
    )
    assert (
        "has an unknown state, the engine at unix://"
        in done.documents["test_engine_dies"]["verdict"]["reasons"][0]
    )
    assert done.documents["test_mqtt"]["broker"]["settings"]["image"] == IMAGE
    if with_pulsar:
        document = done.documents["test_pulsar"]
        assert (document["broker"]["mode"], document["broker"]["version"]) == (
            "container",
            pulsar_jars.PULSAR.version,
        )
        bookies = {f"persistence.{key}" for key in ("ensembleSize", "writeQuorum", "ackQuorum")}
        assert set(document["driver"]["not_applied"]) == bookies | {"ioThreads"}


def test_broker_in_a_container_restarts_and_its_death_is_reported(
    engine: Podman, tmp_path: Path
) -> None:
    """It restarts on its ports; when it ends, the error has its exit status, and its log is kept."""
    asked = request(folder=tmp_path / "broker", settings={"log_type": "all"})
    broker = brokers.start(asked, lambda _: None)
    try:
        assert (broker.facts.name, broker.facts.mode) == ("mosquitto", "container")
        broker.restart(kill=True)
        assert broker.failure() is None
        (container,) = engine.containers()
        engine.kill_container(container)
        until(
            lambda: re.search(
                rf"container {container} is \w+, exit status 137$", broker.failure() or ""
            ),
            "exit status of SIGKILL",
        )
    finally:
        broker.stop()
    assert "mosquitto version" in (asked.folder / "broker.log").read_text()


def test_only_this_machine_reaches_a_container(engine: Podman, tmp_path: Path) -> None:
    """Its port is published on 127.0.0.1, and on no other address of this machine: bridges and networks."""
    broker = brokers.start(request(folder=tmp_path), lambda _: None)
    try:
        assert len(engine.containers()) == 1
        port = urlsplit(broker.facts.url).port
        assert port is not None
        others = other_addresses()
        assert others, "the container's own bridge has an address"
        assert listens("127.0.0.1", port)
        assert not [address for address in others if listens(address, port)]
    finally:
        broker.stop()


def test_a_container_of_a_remote_engine_is_reached_by_its_address_with_a_warning(
    engine: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is given another address of this machine than loopback."""
    from testcontainers.core.config import testcontainers_config

    host, said = other_addresses()[0], list[str]()
    monkeypatch.setattr(testcontainers_config, "tc_host_override", host)
    broker = brokers.start(request(folder=tmp_path), said.append)
    try:
        port = urlsplit(broker.facts.url).port
        assert (broker.facts.url, broker.facts.local) == (f"mqtt://{host}:{port}", False)
        assert (
            f"mosquitto requires no password and can be reached at {broker.facts.url} from every network of that machine"
            in said
        )
        assert broker.facts.settings["published on"] == "every address, without authentication"
    finally:
        broker.stop()


def test_containers_of_a_dead_engine_are_named_and_removed_when_it_is_back(
    engine: Podman, tmp_path: Path
) -> None:
    """They outlive it; stopping the broker does not wait for it."""
    said: list[str] = []
    broker = brokers.start(request(folder=tmp_path), said.append)
    engine.kill()
    try:
        broker.stop()
        assert len(engine.containers()) == 1
    finally:
        engine.start()
    assert re.search(
        r"the container is still at unix://.* once the engine answers: docker rm -f \$\(docker ps -aqf label=\S+\)$",
        said[-1],
    )
    until(lambda: engine.containers() == [], "removal of what was left")


def test_missing_image_is_named_with_its_remedy(engine: Podman, tmp_path: Path) -> None:
    """No other broker is used instead; the error names both ways to set another image."""
    remedy = r"--load-image IMAGE, or target: \{image: IMAGE\} in the profile"
    with pytest.raises(
        TargetError,
        match=rf"container: the engine has no image 127\.0\.0\.1:1/none:1 and cannot pull it.*{remedy}",
    ):
        brokers.start(request(folder=tmp_path, image="127.0.0.1:1/none:1"), lambda _: None)
