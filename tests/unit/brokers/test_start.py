"""How a way to a broker is chosen, and what is said when there is none."""

from __future__ import annotations

import pickle
import socket
import time
from pathlib import Path

import pytest

from pytest_loadtest import brokers
from pytest_loadtest.brokers import BrokerRequest, docker_engine, starting
from pytest_loadtest.brokers.base import UnavailableError
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars
from pytest_loadtest.errors import TargetError, UsageError


def request(
    kind: str = "mqtt", mode: str = "auto", url: str | None = None, folder: Path = Path("unused"), image: str | None = None
) -> BrokerRequest:
    return BrokerRequest(kind=kind, mode=mode, url=url, folder=folder, image=image)


@pytest.mark.parametrize(
    ("kind", "mode", "url", "ways"),
    [
        ("pulsar", "auto", None, ("container", "process", "embedded")),
        ("mqtt", "auto", None, ("container", "process")),
        ("pulsar", "auto", "pulsar://h", ("url",)),
        ("pulsar", "process", "pulsar://h", ("process",)),
        ("pulsar", "embedded", None, ("embedded",)),
        ("loopback", "auto", None, ("process",)),
        ("loopback", "container", None, ("process",)),
        ("loopback", "auto", "loopback://h:1", ("url",)),
    ],
)
def test_ways(kind: str, mode: str, url: str | None, ways: tuple[str, ...]) -> None:
    """An address wins under auto; otherwise the wanted way, or all that this kind has, in order."""
    assert brokers.modes(request(kind, mode, url)) == ways


def test_an_image_runs_as_a_container_or_not_at_all() -> None:
    """Under auto no other broker takes its place where it cannot be run."""
    assert brokers.modes(request(image="mosquitto:mine")) == ("container",)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (request("kafka"), "kafka"),
        (request(mode="magic"), "magic"),
        (request(mode="url"), "--load-target"),
        (request(mode="embedded"), "embedded"),
    ],
)
def test_impossible_requests_are_usage_errors(wrong: BrokerRequest, words: str) -> None:
    """What cannot be is named before anything is started."""
    with pytest.raises(UsageError, match=words):
        brokers.start(wrong, print)


def test_nothing_works_says_what_was_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error lists each way with its reason and its remedy."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    monkeypatch.setattr(mosquitto, "find_binary", lambda: None)
    said: list[str] = []
    with pytest.raises(TargetError) as caught:
        brokers.start(request(folder=tmp_path), said.append)
    text = str(caught.value)
    assert all(word in text for word in ("container: no Docker engine", "process: no mosquitto", "doctor --fix"))
    assert len(said) == 2


def test_pulsar_without_maven_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cached jars and no mvn: the way is not there, and the remedy is named."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="doctor --fix"):
        pulsar_jars.PULSAR.resolve("4.2.4", print)


def test_a_silent_engine_is_given_up_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that accepts and never answers costs its time-out, not a minute."""
    assert docker_engine.ENGINE_SECONDS < 30
    monkeypatch.setattr(docker_engine, "ENGINE_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        begun = time.monotonic()
        with pytest.raises(UnavailableError, match="no Docker engine answers"):
            docker_engine.require_engine()
        assert time.monotonic() - begun < 30


def test_unavailable_survives_pickling() -> None:
    """Errors cross from workers to the controller."""
    error = pickle.loads(pickle.dumps(UnavailableError("no x", "get x")))
    assert (error.reason, error.remedy, str(error)) == ("no x", "get x", "no x; get x")


class Dying:
    """A broker that ends at once with the given last words."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.abandoned = False

    def failure(self) -> str | None:
        return "exited with status 1"

    def tail(self) -> str:
        return self.words

    def stop(self) -> None:
        raise AssertionError("its log has to be kept")

    def abandon(self) -> None:
        self.abandoned = True


def test_death_before_ready_carries_the_log() -> None:
    """A broker that ends while we wait is reported with its last words, and its log is kept."""
    dying = Dying("bad option\nunknown key")
    with pytest.raises(TargetError, match=r"x did not start: exited with status 1\nbad option\nunknown key"):
        starting.wait_ready(dying, lambda: False, name="x", seconds=60, progress=print)
    assert dying.abandoned


def test_taken_port_is_tried_again() -> None:
    """Only a port that somebody took leads to another attempt, and not for ever."""
    attempts: list[tuple[int, ...]] = []

    def launch(ports: tuple[int, ...]) -> starting.StartedBroker:
        attempts.append(ports)
        starting.wait_ready(Dying("Error: Address already in use"), lambda: False, name="x", seconds=60, progress=print)
        raise AssertionError

    with pytest.raises(starting.PortTakenError):
        starting.on_free_ports(2, launch)
    assert len(attempts) == starting.ATTEMPTS
    assert all(len(set(ports)) == 2 for ports in attempts)
