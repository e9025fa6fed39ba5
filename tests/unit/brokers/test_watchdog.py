"""The process that owns one broker, here a shell: how it ends it, restarts it and reports both."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_loadtest.brokers import watchdog


class Owned:
    """A watchdog with a command. Use as a context manager: it kills the watchdog's command if a test fails."""

    def __init__(self, *command: str, options: tuple[str, ...] = ()) -> None:
        line = [sys.executable, "-I", "-S", watchdog.__file__, *options, "--", *command]
        self.process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def __enter__(self) -> Owned:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=30)

    def report(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def send(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()


def test_the_exit_status_of_a_broker_is_reported() -> None:
    """A broker that ends by itself ends its watchdog."""
    with Owned("sh", "-c", "exit 3") as owned:
        assert owned.report().keys() == {"pid"}
        assert owned.report() == {"exit": 3}


def test_stop_sends_sigterm() -> None:
    """The broker may end in order."""
    with Owned("sleep", "60") as owned:
        owned.report()
        owned.send("stop")
        assert owned.report() == {"exit": -signal.SIGTERM}


def test_the_end_of_the_controller_kills_the_broker() -> None:
    """The end of file on the pipe is all that a killed controller leaves."""
    with Owned("sleep", "60") as owned:
        owned.report()
        assert owned.process.stdin is not None
        owned.process.stdin.close()
        assert owned.report() == {"exit": -signal.SIGKILL}
        owned.process.stdin = None


def test_a_restart_runs_the_same_command_in_a_new_process() -> None:
    """Its report has the new process's id."""
    with Owned("sleep", "60") as owned:
        first = owned.report()["pid"]
        owned.send("restart 5.0")
        assert owned.report()["pid"] != first
        owned.send("stop")
        assert owned.report() == {"exit": -signal.SIGTERM}


def test_the_data_folder_is_removed_at_the_end(tmp_path: Path) -> None:
    """The broker's log and configuration are not in it."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "journal").touch()
    with Owned("true", options=("--data", str(tmp_path / "data"))):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("linked", [False, True])
def test_a_removed_folder_leaves_no_link(linked: bool, tmp_path: Path) -> None:
    """A link to the data, as in a changed root, goes with the folder; a second removal is no error."""
    target, folder = tmp_path / "target", tmp_path / "data"
    target.mkdir()
    (target / "journal").touch()
    folder.symlink_to(target) if linked else target.rename(folder)
    watchdog.remove_folder(str(folder))
    watchdog.remove_folder(str(folder))
    assert list(tmp_path.iterdir()) == []


def test_a_port_with_a_listener_is_not_free() -> None:
    """A restart waits for the port until the old broker has closed it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not watchdog.free(port)
    assert watchdog.free(port)
