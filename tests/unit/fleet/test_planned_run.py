"""The answers of a planned run to its members' steps: messages and instants in, messages out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from builders.planned_runs import MEMBERS, planned_run, ready_run

from pytest_loadtest.brokers.base import BrokerFacts
from pytest_loadtest.drivers.base import DriverFacts
from pytest_loadtest.errors import TargetError
from pytest_loadtest.fleet.messages import (
    AwaitVerdict,
    CleanUp,
    ClientsClosed,
    ClientsMade,
    ConnectFrom,
    ConsumersConnected,
    Continue,
    NextPhases,
    PhaseDone,
    SampleHost,
    Shares,
    TargetPrepared,
    WorkerLocation,
)
from pytest_loadtest.fleet.setup_steps import BeginLoad
from pytest_loadtest.metrics.clocks import ClockLine
from pytest_loadtest.schedule.changes import Change

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.fleet.planned_run import PlannedRun
    from pytest_loadtest.fleet.rendezvous import StepAnswers

FACTS = DriverFacts(client="c", version="1")
START = 5_000_000_000
LINE = ClockLine(at=0, offset=7)


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_workload_is_the_sole_user_of_a_target_that_no_other_one_has(
    is_shared: bool, tmp_path: Path
) -> None:
    """``run.json`` says so: a broker counts the drops of all its users together."""
    planned = planned_run(tmp_path)
    facts = BrokerFacts(name="mosquitto", version="1", mode="process", url="mqtt://127.0.0.1:1")
    first, second = (SimpleNamespace(facts=facts, number=number) for number in (1, 2))
    planned.set_brokers([first, first if is_shared else second])  # type: ignore[list-item]
    assert planned.workloads[0].broker is first
    files = [workload.run_file() for workload in planned.workloads]
    assert [file.sole_user for file in files] == [not is_shared] * 2


def began(planned: PlannedRun) -> StepAnswers:
    """Return the answers with which the first phase of each workload begins; nothing is sampled."""
    following = [script.next() for script in planned.scripts]
    answers = planned.begin_phases(MEMBERS, following, START)
    for workload in planned.workloads:
        planned.observing.end(workload)
    return answers


def test_each_member_gets_its_share_of_each_workload(tmp_path: Path) -> None:
    """With the line of its clock and its addresses, if it has its own."""
    planned = ready_run(tmp_path)
    planned.clocks.lines = {"gw1": LINE}
    first, second = planned.assign(MEMBERS, (9,), {"gw1": ("127.0.0.2",)}).by_rank
    assert isinstance(first, Shares)
    assert isinstance(second, Shares)
    assert [share.workload for share in first.assignments] == ["", "two words"]
    for shares, worker, line, sources in (
        (first, "gw0", None, ()),
        (second, "gw1", LINE, ("127.0.0.2",)),
    ):
        for share in shares.assignments:
            assert (share.worker, share.clock, share.sources) == (worker, line, sources)
            assert share.bounds == (9,)


def test_the_facts_of_the_lead_are_those_of_its_workloads(tmp_path: Path) -> None:
    planned = planned_run(tmp_path)
    brought = [TargetPrepared((FACTS, DriverFacts(client="d", version="2"))), TargetPrepared(None)]
    answers = planned.answer(MEMBERS, brought, 0, print)
    assert answers.by_rank == (Continue(), Continue())
    clients = [workload.facts and workload.facts.client for workload in planned.workloads]
    assert clients == ["c", "d"]


def test_connections_count_from_the_instant_that_was_given(tmp_path: Path) -> None:
    planned = planned_run(tmp_path)
    brought = [ClientsMade("producers", "")] * 2
    early = planned.answer(MEMBERS, brought, 0, print).by_rank
    late = planned.answer(MEMBERS, brought, 1000, print).by_rank
    assert isinstance(early[0], ConnectFrom)
    assert late == (ConnectFrom(early[0].instant + 1000),) * 2


def test_one_worker_of_another_host_samples_it(tmp_path: Path) -> None:
    """There is no other host here: nobody has to sample."""
    here = WorkerLocation(pid=1, processes="p", network="n")
    answers = ready_run(tmp_path).answer(MEMBERS, [ConsumersConnected(here)] * 2, 0, print)
    assert answers.by_rank == (SampleHost(None), SampleHost(None))


def test_members_get_the_next_phase_of_each_workload_at_one_instant(tmp_path: Path) -> None:
    """Each with the line of its own clock."""
    planned = ready_run(tmp_path)
    planned.clocks.lines = {"gw1": LINE}
    answers = began(planned)
    assert sorted(answers.drains) == ["", "two words"]
    for answer, line in zip(answers.by_rank, (None, LINE), strict=True):
        assert isinstance(answer, NextPhases)
        assert answer.phases is not None
        for phase in answer.phases:
            assert phase is not None
            assert (phase.start, phase.clock) == (START, line)


def test_a_workload_without_a_phase_has_no_drain_and_no_report(tmp_path: Path) -> None:
    """It waits for the others."""
    planned = ready_run(tmp_path)
    planned.scripts[0].wait(1)  # type: ignore[union-attr]
    answers = began(planned)
    assert sorted(answers.drains) == ["two words"]
    for answer in answers.by_rank:
        assert isinstance(answer, NextPhases)
        assert answer.phases is not None
        assert [phase is None for phase in answer.phases] == [True, False]
    reports = planned.reports([PhaseDone(1, (None, None))] * 2)
    assert reports == [[], []]
    planned.end_phases(reports)


def test_a_target_that_is_gone_at_the_end_is_an_error(tmp_path: Path) -> None:
    planned = ready_run(tmp_path)
    planned.workloads[1].broker.failure = lambda: "killed"  # type: ignore[union-attr,method-assign]
    brought = [ClientsClosed((FACTS, FACTS))] * 2
    with pytest.raises(TargetError, match="went away: killed"):
        planned.answer(MEMBERS, brought, 0, print)


class Dead:
    """Services of which one has ended."""

    noted_deaths = ("service s.py exited with status 3",)

    def deaths(self) -> tuple[str, ...]:
        return self.noted_deaths

    def check(self) -> None:
        raise TargetError(f"before the load began, {self.noted_deaths[0]}")


def test_a_load_does_not_begin_without_services(tmp_path: Path) -> None:
    """A run without services of its own has none that could have ended."""
    planned = ready_run(tmp_path)
    assert planned.answer(MEMBERS, [BeginLoad()] * 2, 0, print).by_rank == (Continue(),) * 2
    planned.services = Dead()  # type: ignore[assignment]
    with pytest.raises(TargetError, match=r"before the load began, service s\.py exited"):
        planned.answer(MEMBERS, [BeginLoad()] * 2, 0, print)


def test_services_that_ended_before_the_end_of_a_phase_are_in_the_file_of_the_run(
    tmp_path: Path,
) -> None:
    """That of each workload; what ends later, when the clients are closed, is not."""
    planned = ready_run(tmp_path)
    planned.end_phases([[], []])
    assert planned.workloads[0].run_file().ended_services == ()
    planned.services = Dead()  # type: ignore[assignment]
    planned.answer(MEMBERS, [ClientsClosed((FACTS, FACTS))] * 2, 0, print)
    assert planned.workloads[0].run_file().ended_services == ()
    planned.end_phases([[], []])
    for workload in planned.workloads:
        assert workload.run_file().ended_services == Dead.noted_deaths


@pytest.mark.parametrize(
    ("unanswered", "went_away"), [(True, None), (False, "it hangs"), (False, None)]
)
def test_the_lead_learns_whether_a_target_is_silent(
    unanswered: bool, went_away: str | None, tmp_path: Path
) -> None:
    """Then its topics may stay."""
    planned = ready_run(tmp_path)
    planned.workloads[1].unanswered = unanswered
    planned.workloads[1].went_away = went_away
    answers = planned.answer(MEMBERS, [ClientsClosed((FACTS, FACTS))] * 2, 0, print)
    assert answers.by_rank == (CleanUp(unanswered or went_away is not None),) * 2


def test_a_phase_without_watch_is_not_changed(tmp_path: Path) -> None:
    planned = ready_run(tmp_path)
    began(planned)
    assert planned.look(planned.workload(""), [], START + 1) is None


def test_a_watch_gets_the_time_since_the_start_of_the_phase(tmp_path: Path) -> None:
    planned = ready_run(tmp_path)
    began(planned)
    elapsed: list[int] = []

    class Watch:
        spans = ()

        def look(self, _progress: object, at: int) -> None:
            elapsed.append(at)

    planned.watches["two words"] = Watch()  # type: ignore[assignment]
    planned.look(planned.workload("two words"), [], START + 3)
    assert elapsed == [3]


@pytest.mark.parametrize("paused", [None, False])
def test_a_watch_does_not_end_a_phase_again_and_still_resumes_its_consumers(
    paused: bool | None, tmp_path: Path
) -> None:
    """The body of the test has ended it, with ``load.stop()``."""
    planned = ready_run(tmp_path)
    began(planned)
    workload = planned.workload("")
    end = Change(at=9, end=paused is None, paused=paused)

    class Watch:
        spans = ()

        def look(self, _progress: object, _at: int) -> Change:
            return end

    planned.watches[""] = Watch()  # type: ignore[assignment]
    assert planned.look(workload, [], START + 1) is end
    workload.current.changes += [Change(at=3, rate=1.0)]
    assert planned.look(workload, [], START + 1) is end
    workload.current.changes += [Change(at=5, end=True)]
    assert planned.look(workload, [], START + 1) is (None if end.end else end)


def test_a_step_that_needs_the_session_is_not_answered_here(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no answer"):
        planned_run(tmp_path).answer(MEMBERS, [AwaitVerdict()] * 2, 0, print)
