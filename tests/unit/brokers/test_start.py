"""The choice of a mode, and the errors if none works."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_loadtest import brokers
from pytest_loadtest.brokers import BrokerRequest
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.errors import TargetError, UsageError


def request(
    kind: str = "mqtt",
    mode: str = "auto",
    url: str | None = None,
    folder: Path = Path("unused"),
    image: str | None = None,
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
def test_modes_are_tried_in_order(
    kind: str, mode: str, url: str | None, ways: tuple[str, ...]
) -> None:
    """An address is used under auto; otherwise the requested mode, or all modes of the kind."""
    assert brokers.modes(request(kind, mode, url)) == ways


def test_an_image_runs_as_a_container_or_not_at_all() -> None:
    """No other mode takes its place under auto."""
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
    """Nothing is started."""
    with pytest.raises(UsageError, match=words):
        brokers.start(wrong, print)


def test_the_error_lists_each_mode_with_reason_and_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    monkeypatch.setattr(mosquitto, "find_mosquitto", lambda: None)
    said: list[str] = []
    with pytest.raises(TargetError) as caught:
        brokers.start(request(folder=tmp_path), said.append)
    text = str(caught.value)
    assert all(
        word in text
        for word in ("container: no Docker engine", "process: no mosquitto", "doctor --fix")
    )
    assert [line.partition(":")[0] for line in said] == [
        "mqtt broker cannot start as container",
        "mqtt broker cannot start as process",
    ]
