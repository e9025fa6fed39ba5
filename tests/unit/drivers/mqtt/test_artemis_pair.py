"""The pair of Artemis brokers, without starting any."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pytest_loadtest.brokers.starting import free_ports
from pytest_loadtest.drivers.mqtt.artemis_pair import _Ready


def test_a_broker_is_ready_when_it_serves_or_waits_for_the_one_that_does(tmp_path: Path) -> None:
    """Waiting is in its log; what an earlier process wrote there does not count."""
    log, child, (own,) = (
        tmp_path / "broker.log",
        SimpleNamespace(pid=1, log=tmp_path / "broker.log"),
        free_ports(1),
    )
    with socket.create_server(("127.0.0.1", 0)) as other:
        ready = _Ready(child, [own], [other.getsockname()[1]])  # type: ignore[arg-type]
        said: list[Any] = []
        for text in (
            "AMQ221000: starting\n",
            "AMQ221034: Waiting indefinitely to obtain primary lock\n",
        ):
            with log.open("a") as lines:
                lines.write(text)
            said.append(ready())
        child.pid = 2
        said.append(ready())
        with log.open("a") as lines:
            lines.write(
                "AMQ221109: Backup Server started; waiting for primary to fail before activating\n"
            )
        said.append(ready())
    assert (said, ready()) == ([False, True, False, True], False), "nobody serves at the end"
    with socket.create_server(("127.0.0.1", own)):
        assert ready()
