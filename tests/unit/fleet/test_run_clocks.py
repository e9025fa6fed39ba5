"""When a run exchanges times with other hosts, and by which lines its samples are stamped."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from builders.planned_runs import planned_run

from pytest_loadtest.fleet.host_clocks import BURST, RECENT, SMALL_BURST, HostClocks
from pytest_loadtest.fleet.messages import ReadClock
from pytest_loadtest.fleet.run_clocks import RunClocks

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.fleet.messages import ControllerMessage


def two_hosts() -> tuple[HostClocks, list[int]]:
    """Return the clocks of a host with one worker, which answers at once; and when it was asked."""
    asked: list[int] = []

    def send(worker: str, message: ControllerMessage) -> None:
        asked.append(time.monotonic_ns())
        assert isinstance(message, ReadClock)
        clocks.receive(worker, message.number, asked[-1])

    clocks = HostClocks(send)
    clocks.add("gw1", "h1")
    return clocks, asked


def test_a_run_on_one_host_exchanges_no_times(tmp_path: Path) -> None:
    clocks = RunClocks()
    workloads = planned_run(tmp_path).workloads
    clocks.relate(workloads)
    clocks.renew(10 * RECENT)
    assert (clocks.hosts, clocks.lines, workloads[0].host_clocks) == ({}, {}, ())


def test_a_workload_without_a_phase_keeps_the_line_of_its_samples(tmp_path: Path) -> None:
    """The other workload goes on, on clocks that were related anew: the first one's samples were stamped by the earlier line."""
    clocks = RunClocks(two_hosts()[0])
    first, second = planned_run(tmp_path).workloads
    clocks.relate(())
    assert (first.host_clocks, second.host_clocks) == ((), ())
    clocks.relate([first, second])
    kept = first.host_clocks
    assert [clock.host for clock in kept] == ["h1"]
    clocks.relate([second])
    assert first.host_clocks == kept
    assert second.host_clocks != kept


def test_a_phase_does_not_begin_with_an_old_relation_of_clocks() -> None:
    """Judging a step of a search takes seconds, in which a clock may be slewed: times are exchanged again, and count from there."""
    host_clocks, asked = two_hosts()
    clocks = RunClocks(host_clocks)
    clocks.relate(())
    assert len(asked) == BURST
    before = clocks.lines
    clocks.renew(clocks.since + RECENT)
    assert len(asked) == BURST
    clocks.renew(clocks.since + RECENT + 1)
    assert len(asked) == BURST + SMALL_BURST
    assert clocks.since <= asked[BURST]
    assert clocks.lines.keys() == before.keys() == {"gw1"}
    assert clocks.lines is not before
