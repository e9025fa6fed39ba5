"""A service under test as a process: when it is ready, how it ended, and that nothing of it is left."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.brokers.process import has_ended
from pytest_loadtest.brokers.service import ServiceProcess, _Output
from pytest_loadtest.brokers.starting import free_ports
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAITS = "import sys; print('ready'); sys.stdin = open(sys.argv[1]); sys.stdin.read(); print('bye'); sys.exit(3)"
"""A service that ends with status 3 once another process opens and closes the pipe of its argument."""


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def start(folder: Path, *command: str, **env: str) -> ServiceProcess:
    arguments = [sys.executable, "-c", *command]
    return ServiceProcess("s.py", arguments, folder=folder / "service-1", cwd=folder, env=env)


@pytest.fixture
def waiting(tmp_path: Path, pipe: Path) -> Iterator[ServiceProcess]:
    service = start(tmp_path, WAITS, str(pipe))
    yield service
    service.stop()


def test_a_service_runs_in_its_folder_with_its_environment_until_it_is_stopped(
    tmp_path: Path,
) -> None:
    """Its log is kept."""
    text = "import os, time; print(os.getcwd(), os.environ['COLOUR'], 'ready'); time.sleep(1000)"
    service = start(tmp_path, text, COLOUR="blue")
    service.wait("ready", 60 * SECOND, print)
    assert not has_ended(service.pid)
    service.stop()
    service.stop()
    assert has_ended(service.pid)
    assert service.death() is None
    assert service.log.read_text(encoding="utf-8") == f"{tmp_path} blue ready\n"


def test_the_death_of_a_service_has_its_status_and_the_end_of_its_log(
    waiting: ServiceProcess, pipe: Path
) -> None:
    """Known as soon as the process is gone, not when its watchdog looks for it; and once for all."""
    waiting.wait("ready", 60 * SECOND, print)
    assert (waiting.death(), waiting.noted_death) == (None, None)
    with pipe.open("w"):
        pass
    while not has_ended(waiting.pid):
        threading.Event().wait(0.001)
    death = waiting.death()
    assert death is not None
    assert death.startswith("service s.py exited with status 3, ")
    assert death.endswith(" s after its start; its log ends with: ready | bye")
    assert waiting.death() == waiting.noted_death == death
    waiting.stop()
    assert waiting.death() == death


def test_a_service_that_is_stopped_while_it_starts_is_not_waited_for(tmp_path: Path) -> None:
    service = start(tmp_path, "import time; time.sleep(1000)")
    service.stop()
    with pytest.raises(TargetError, match=r"service s\.py was stopped before it was ready"):
        service.wait("ready", 60 * SECOND, print)


def test_a_service_that_is_not_ready_in_time_is_told_what_did_not_come(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    missing = {"hello": "its output has no 'hello'", port: f"nothing listens on port {port}"}
    service = start(tmp_path, "import time; time.sleep(1000)")
    for ready, message in missing.items():
        late = rf"service s\.py was not ready after 0 s: {message}; load_service\(…, timeout=…\)"
        with pytest.raises(TargetError, match=late):
            service.wait(ready, 0, print)


def test_a_command_that_cannot_be_run_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="load_service: could not run /no/such: FileNotFoundErr"):
        ServiceProcess("such", ["/no/such"], folder=tmp_path / "1", cwd=tmp_path, env={})


def test_a_text_is_found_in_parts_of_an_output(tmp_path: Path) -> None:
    """Each byte is read once; a text may begin in one part and end in the next."""
    log = tmp_path / "log"
    output = _Output(log)
    answers = []
    with log.open("wb", buffering=0) as stream:
        for part in (b"", b"xrea", b"", b"d", b"yx", b""):
            stream.write(part)
            answers.append(output.has("ready"))
    assert answers == [False, False, False, False, True, False]
