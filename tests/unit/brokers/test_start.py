"""How a way to a broker is chosen, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_loadtest import brokers
from pytest_loadtest.brokers import BrokerRequest
from pytest_loadtest.drivers.mqtt import mosquitto
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
