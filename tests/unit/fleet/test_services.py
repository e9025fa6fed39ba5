"""The services of one run: numbered, looked at, and stopped together."""

from __future__ import annotations

import socket
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.brokers.process import has_ended
from pytest_loadtest.errors import NoData, TargetError, UsageError
from pytest_loadtest.fleet.service_request import ServiceRequest
from pytest_loadtest.fleet.services import Services
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def request(text: str, ready: str | int = "ready", seconds: int = 60) -> ServiceRequest:
    return ServiceRequest(
        command=(sys.executable, "-c", text), ready=ready, timeout=seconds * SECOND
    )


STEADY = request("import time; print('ready'); time.sleep(1000)")
SHORT = request("print('ready')")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    made = Services(tmp_path, tmp_path)
    yield made
    made.stop()


def test_each_request_starts_a_process_with_a_log_of_its_own(
    services: Services, tmp_path: Path
) -> None:
    started = [services.start(STEADY, print) for _ in range(2)]
    assert [service.log for service in started] == [
        tmp_path / "service-1/service.log",
        tmp_path / "service-2/service.log",
    ]
    assert services.pids == {
        started[0].name: started[0].pid,
        f"{started[0].name} 2": started[1].pid,
    }
    assert not any(has_ended(service.pid) for service in started)
    services.check()
    services.stop()
    assert all(has_ended(service.pid) for service in started)
    assert services.deaths() == ()


def test_services_have_names_of_their_own_also_if_one_is_named_like_a_number(
    services: Services, tmp_path: Path
) -> None:
    pids = []
    for name in ("orders 2", "orders", "orders", "orders 2"):
        script = tmp_path / name
        script.write_text("#!/bin/sh\necho ready\nexec sleep 1000\n")
        script.chmod(0o755)
        asked = ServiceRequest(command=(str(script),), ready="ready", timeout=60 * SECOND)
        pids.append(services.start(asked, print).pid)
    names = ("orders 2", "orders", "orders 3", "orders 2 2")
    assert services.pids == dict(zip(names, pids, strict=True))


def test_a_service_that_has_ended_is_an_error_before_the_load(services: Services) -> None:
    """Those that run are not named."""
    services.start(STEADY, print)
    short = services.start(SHORT, print)
    while not has_ended(short.pid):
        threading.Event().wait(0.001)
    assert services.noted_deaths == ()
    (death,) = services.deaths()
    assert "exited with status 0" in death
    assert services.noted_deaths == (death,)
    with pytest.raises(TargetError, match="before the load began, service .* exited with status 0"):
        services.check()


def test_a_port_that_another_process_listens_on_tells_nothing(services: Services) -> None:
    """The service would seem ready, and the load would go to the other process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(UsageError, match=f"another process listens on port {port}"):
            services.start(request("", port), print)


def test_a_port_that_the_service_opens_makes_it_ready(services: Services) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    text = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(1000)"
    assert not has_ended(services.start(request(text, port), print).pid)


def test_nothing_is_started_for_a_run_that_is_over(services: Services, tmp_path: Path) -> None:
    services.stop()
    with pytest.raises(NoData, match="ended before its service was started"):
        services.start(STEADY, print)
    assert list(tmp_path.iterdir()) == []


def test_a_service_that_starts_while_its_run_ends_is_stopped(services: Services) -> None:
    """Its start ends with an error, long before its timeout."""
    errors: list[Exception] = []

    def start() -> None:
        try:
            services.start(request("import time; time.sleep(1000)"), print)
        except TargetError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    while not services._processes:
        threading.Event().wait(0.001)
    services.stop()
    thread.join(30)
    assert [str(error) for error in errors] == [
        f"service {services._processes[0].name} was stopped before it was ready"
    ]
    assert has_ended(services._processes[0].pid)
