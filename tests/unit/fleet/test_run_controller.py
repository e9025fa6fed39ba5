"""The controller's answers at meetings, without workers, targets and Spark."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from builders.plans import made

from pytest_loadtest import profile as profiles
from pytest_loadtest.brokers.base import BrokerFacts
from pytest_loadtest.drivers.base import DriverFacts
from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.host_clocks import BURST, RECENT, SMALL_BURST, HostClocks
from pytest_loadtest.fleet.messages import (
    ClientsMade,
    ConnectFrom,
    Part,
    PhaseDone,
    ReadClock,
    Request,
)
from pytest_loadtest.fleet.options import Options
from pytest_loadtest.fleet.run_controller import PlannedRun, RunController
from pytest_loadtest.fleet.run_states import GivenUp, Run
from pytest_loadtest.fleet.scripts import PlannedScript
from pytest_loadtest.fleet.workload_run import WorkloadRun

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.fleet.messages import ControllerMessage

TEXT = """\
name: a
messages: 0
producersPerTopic: {producers}
testDuration: 1s
driver: {{name: mqtt, client: {client}, connectRate: 100}}
slo: {{connectLatency: {{mean: 1s}}}}
"""


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
    options = Options(results=folder)
    profile = profiles.loads(TEXT.format(producers=producers, client=client), "p.yaml")
    part, live = Part(profile=profile), Announcements()
    workloads = [
        WorkloadRun(
            name=name,
            part=part,
            plan=made(profile),
            root=folder / str(i),
            nonce=1,
            test="t",
            source="p",
            run="r",
            workers=("gw0", "gw1"),
        )
        for i, name in enumerate(("", "two words"))
    ]
    request = Request(nodeid="t", attempt=1, profile=profile, parts=(part, part), source="p")
    run = Run((0, 0), members=("gw0", "gw1"))
    controller = RunController(options, live)  # type: ignore[arg-type]
    controller._planned[run.key] = PlannedRun(request=request, workloads=workloads)
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


def test_a_workload_without_a_phase_keeps_the_line_of_its_samples(tmp_path: Path) -> None:
    """The other workload goes on, on clocks that were related anew: the first one's samples were stamped by the earlier line."""
    controller, run, _ = connecting(tmp_path, 1)
    planned = controller._planned[run.key]

    def send(worker: str, message: ControllerMessage) -> None:
        assert isinstance(message, ReadClock)
        clocks.receive(worker, message.number, time.monotonic_ns())

    clocks = HostClocks(send)
    clocks.add("gw1", "h1")
    controller.clocks = clocks
    first, second = planned.workloads
    controller._relate_clocks(planned, ())
    assert (first.host_clocks, second.host_clocks) == ((), ())
    controller._relate_clocks(planned, [first, second])
    kept = first.host_clocks
    assert [clock.host for clock in kept] == ["h1"]
    controller._relate_clocks(planned, [second])
    assert first.host_clocks == kept
    assert second.host_clocks != kept


def test_a_phase_does_not_begin_with_an_old_relation_of_clocks(tmp_path: Path) -> None:
    """Judging a step of a search takes seconds, in which a clock may be slewed: times are exchanged again, and count from there."""
    controller, run, _ = connecting(tmp_path, 1)
    planned = controller._planned[run.key]
    asked = list[int]()

    def send(worker: str, message: ControllerMessage) -> None:
        asked.append(time.monotonic_ns())
        assert isinstance(message, ReadClock)
        clocks.receive(worker, message.number, asked[-1])

    controller.clocks = clocks = HostClocks(send)
    clocks.add("gw1", "h1")
    controller._relate_clocks(planned, ())
    assert len(asked) == BURST
    planned.clocks_since -= RECENT
    controller._renew_clocks(planned)
    assert len(asked) == BURST + SMALL_BURST
    assert planned.clocks_since <= asked[BURST]
    planned.clocks_since = time.monotonic_ns()
    controller._renew_clocks(planned)
    assert len(asked) == BURST + SMALL_BURST


def test_a_run_that_breaks_while_its_next_phase_is_made_leaves_no_sampler(tmp_path: Path) -> None:
    """As when a worker dies while a step of a search is judged: the samplers of the run were ended before that phase began."""
    controller, run, _ = connecting(tmp_path, 1)
    planned = controller._planned[run.key]
    facts = BrokerFacts(name="loopback", version="1", mode="url", url="mqtt://127.0.0.1:1")
    for workload in planned.workloads:
        workload.broker = SimpleNamespace(facts=facts, failure=lambda: None)  # type: ignore[assignment]
        workload.facts = DriverFacts(client="c", version="1")
    planned.scripts = [PlannedScript(workload) for workload in planned.workloads]
    run.state = GivenUp(NoData("gw1 went down"))
    controller.answer(run, [PhaseDone(1, (None, None))] * 2)
    assert [thread for thread in threading.enumerate() if thread.name == "loadtest-sampler"] == []
