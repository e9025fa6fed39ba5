"""The controller's answers at meetings, without workers, targets and Spark."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from builders.planned_runs import MEMBERS, planned_run, ready_run

from pytest_loadtest.brokers.process import has_ended
from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.messages import (
    ClientsMade,
    ConnectFrom,
    PhaseDone,
)
from pytest_loadtest.fleet.options import Options
from pytest_loadtest.fleet.run_controller import RunController
from pytest_loadtest.fleet.run_states import GivenUp, Run
from pytest_loadtest.fleet.service_request import (
    STOP_SERVICES,
    Service,
    ServiceRequest,
    ServiceStarted,
)
from pytest_loadtest.fleet.services import Services
from pytest_loadtest.fleet.setup_steps import StartService
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Announcements:
    """A live line that keeps what it is to show."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def announce(self, text: str, *, quiet: bool = False) -> None:
        self.lines.append(text)


def connecting(
    folder: Path, producers: int, client: str = "native"
) -> tuple[RunController, Run, list[str]]:
    """Return a controller with a run of two workloads, ``""`` and ``two words``, on two workers; and its announcements."""
    live = Announcements()
    run = Run((0, 0), members=MEMBERS)
    controller = RunController(Options(results=folder), live)  # type: ignore[arg-type]
    controller._planned[run.key] = planned_run(folder, producers, client)
    return controller, run, live.lines


def instants(controller: RunController, run: Run, clients: str, workload: str = "") -> list[int]:
    """Return the instant from which each worker's connections count."""
    answers = controller.answer(run, [ClientsMade(clients, workload)] * 2).by_rank
    return [answer.instant for answer in answers if isinstance(answer, ConnectFrom)]


@pytest.mark.parametrize(
    ("clients", "workload", "producers", "announced"),
    [
        ("producers", "", 600, ["t: connecting 600 producers at 100/s, which takes 6.00 s"]),
        (
            "producers",
            "two words",
            600,
            ["t: connecting 600 producers at 100/s, which takes 6.00 s"],
        ),
        ("producers", "", 400, []),
        ("consumers", "", 600, []),
    ],
)
def test_all_workers_connect_from_one_instant_soon_and_long_connecting_is_announced(
    clients: str, workload: str, producers: int, announced: list[str], tmp_path: Path
) -> None:
    """Late enough for all workers to have made their clients; the one consumer is not announced."""
    controller, run, lines = connecting(tmp_path, producers)
    before = time.monotonic_ns()
    first, second = instants(controller, run, clients, workload)
    assert first == second > before + 200_000_000
    assert lines == announced


def test_workers_get_time_to_make_clients_before_the_first_connection(tmp_path: Path) -> None:
    """Half a millisecond for each client of the library; otherwise the first connections would be late before they are dialled."""
    controller, run, _ = connecting(tmp_path, 10_000, "library")
    before = time.monotonic_ns()
    assert instants(controller, run, "producers")[0] > before + 5_000 * 550_000


def test_a_run_that_breaks_has_results_with_the_reason(tmp_path: Path) -> None:
    """One document for each workload; an error before the run was planned has none."""
    controller, run, _ = connecting(tmp_path, 1)
    controller.gave_up(Run((1, 0)), NoData("too early"))
    assert not controller.documents
    controller.gave_up(run, NoData("gw1 went down"))
    verdicts = [document.verdict for document in controller.documents]
    assert [(verdict.outcome, list(verdict.reasons)) for verdict in verdicts] == [
        ("no data", ["gw1 went down"])
    ] * 2
    assert all((tmp_path / str(i) / "measure" / "results.json").is_file() for i in range(2))


@pytest.mark.parametrize(
    "damage",
    [
        "a file in place of its folder",
        "a folder in place of its telemetry",
        "telemetry that is no JSON",
    ],
)
def test_damaged_results_do_not_hide_why_a_run_broke(tmp_path: Path, damage: str) -> None:
    """What cannot be read is missing, what cannot be written is a warning."""
    controller, run, _ = connecting(tmp_path, 1)
    if "file" in damage:
        (tmp_path / "0").write_text("")
    elif "JSON" in damage:
        (tmp_path / "0" / "measure").mkdir(parents=True)
        (tmp_path / "0" / "measure" / "telemetry.json").write_text("{")
    else:
        (tmp_path / "0" / "measure" / "telemetry.json").mkdir(parents=True)
    controller.gave_up(run, NoData("gw1 went down"))
    assert [document.verdict.reasons for document in controller.documents] == [
        ("gw1 went down",)
    ] * 2
    assert len(controller.outputs.unwritten) == ("file" in damage)


STEADY = "import os, time; print('ready'); time.sleep(1000)"
SHORT = "print('ready')"


def serving(folder: Path, *texts: str) -> tuple[RunController, Run, list[Service]]:
    """Return a controller with a run that has started a service from each text."""
    controller, run, lines = connecting(folder, 1)
    controller._planned[run.key].services = Services(folder / "logs", folder)
    started = []
    for text in texts:
        request = ServiceRequest(
            command=(sys.executable, "-c", text), ready="ready", timeout=60 * SECOND
        )
        answers = controller.answer(run, [StartService(request)] * 2).by_rank
        assert answers == (answers[0],) * 2
        assert isinstance(answers[0], ServiceStarted)
        started.append(answers[0].service)
    assert len(lines) == len(texts)
    return controller, run, started


def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.001)


def test_a_service_is_started_once_for_all_workers_and_stopped_by_a_command(
    tmp_path: Path,
) -> None:
    """Each service of a run has a process; the answer to the command comes when they are gone."""
    controller, run, started = serving(tmp_path, STEADY, STEADY)
    pids = [service.pid for service in started]
    assert len(set(pids)) == 2
    assert not any(map(has_ended, pids))
    assert controller.command(run, STOP_SERVICES, None)() == STOP_SERVICES
    assert all(map(has_ended, pids))
    assert controller.command(Run((9, 9)), STOP_SERVICES, None)() == STOP_SERVICES


@pytest.mark.parametrize("end", ["its run ends", "the session ends"])
def test_services_that_no_test_stops_are_stopped_with_the_run(end: str, tmp_path: Path) -> None:
    """The lead died, for example."""
    controller, run, (service,) = serving(tmp_path, STEADY)
    if end == "its run ends":
        controller.ended(run)
        wait_for(lambda: has_ended(service.pid))
    controller.close()
    assert has_ended(service.pid)


def test_a_run_that_breaks_says_which_of_its_services_had_ended(tmp_path: Path) -> None:
    """As far as the watch has seen it: the lock must not wait for a process."""
    controller, run, (service,) = serving(tmp_path, SHORT)
    wait_for(lambda: has_ended(service.pid))
    for workload in controller._planned[run.key].workloads:
        workload.check_broker = lambda: None  # type: ignore[method-assign]
    controller.check(run)
    controller.gave_up(run, NoData("gw1 went down"))
    for document in controller.documents:
        assert len([note for note in document.notes if "exited with status 0" in note]) == 1
        assert document.verdict.reasons == ("gw1 went down",)
    controller.close()


def test_a_run_that_breaks_while_its_next_phase_is_made_leaves_no_sampler(tmp_path: Path) -> None:
    """As when a worker dies while a step of a search is judged: the samplers of the run were ended before that phase began."""
    controller, run, _ = connecting(tmp_path, 1)
    controller._planned[run.key] = ready_run(tmp_path)
    run.state = GivenUp(NoData("gw1 went down"))
    controller.answer(run, [PhaseDone(1, (None, None))] * 2)
    assert [thread for thread in threading.enumerate() if thread.name == "loadtest-sampler"] == []
