"""The exchanges of times between the controller and other hosts, with hosts that answer from another clock, late, or never."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet import host_clocks
from pytest_loadtest.fleet.host_clocks import BURST, SMALL_BURST, HostClock, HostClocks
from pytest_loadtest.fleet.messages import ReadClock
from pytest_loadtest.metrics.clocks import ClockLine

if TYPE_CHECKING:
    from pytest_loadtest.fleet.messages import ControllerMessage
    from pytest_loadtest.metrics.clocks import ClockFit

OFFSET = 100_000_000_000_000


def answering(clocks: list[HostClocks], offsets: dict[str, int]) -> object:
    """What sends questions to workers which answer at once, by clocks that are ahead by so much, ns."""

    def send(worker: str, message: ControllerMessage) -> None:
        assert isinstance(message, ReadClock)
        now = time.monotonic_ns() + offsets[worker]
        threading.Thread(target=clocks[0].receive, args=(worker, message.number, now)).start()

    return send


def test_the_offset_of_each_host_is_found() -> None:
    """Within the stated error, also for two workers of one host, of which one answers."""
    holder: list[HostClocks] = []
    clocks = HostClocks(answering(holder, {"h1-1": OFFSET, "h1-2": OFFSET, "h2-1": -OFFSET}))  # type: ignore[arg-type]
    holder.append(clocks)
    for worker, host in (("h1-1", "h1"), ("h1-2", "h1"), ("h2-1", "h2")):
        clocks.add(worker, host)
    clocks.ask()
    fits = clocks.fits()
    assert fits["h1-1"] == fits["h1-2"]
    assert fits["h1-1"].exchanges == BURST
    assert abs(fits["h1-1"].line.offset - OFFSET) <= fits["h1-1"].error
    assert abs(fits["h2-1"].line.offset + OFFSET) <= fits["h2-1"].error


def test_a_host_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the run is no data."""
    monkeypatch.setattr(host_clocks, "TIMEOUT", 0.01)
    clocks = HostClocks(lambda worker, message: None)
    clocks.add("h1-1", "h1")
    with pytest.raises(NoData, match="host h1 .worker h1-1. did not answer"):
        clocks.ask()


def test_a_late_answer_is_not_taken_for_that_of_the_next_question() -> None:
    """Its round trip would be too short, and its offset wrong."""
    holder: list[HostClocks] = []

    def send(worker: str, message: ControllerMessage) -> None:
        assert isinstance(message, ReadClock)
        holder[0].receive(worker, message.number - 1, 5)
        holder[0].receive(worker, message.number, time.monotonic_ns() + OFFSET)

    clocks = HostClocks(send)
    holder.append(clocks)
    clocks.add("h1-1", "h1")
    clocks.ask(3)
    assert abs(clocks.fits()["h1-1"].line.offset - OFFSET) <= clocks.fits()["h1-1"].error


def test_a_worker_that_is_gone_answers_no_more() -> None:
    """It may be removed twice."""
    clocks = HostClocks(lambda worker, message: None)
    clocks.add("h1-1", "h1")
    clocks.remove("h1-1")
    clocks.remove("h1-1")
    clocks.ask()  # there is nobody to wait for


def test_a_worker_that_dies_while_it_is_asked_ends_no_other_worker_of_its_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its host answers by the next one, also if that one replaces it."""
    monkeypatch.setattr(host_clocks, "TIMEOUT", 1)
    holder: list[HostClocks] = []
    answer = answering(holder, {"h1-1": OFFSET})
    disconnected: list[str] = []

    def send(worker: str, message: ControllerMessage) -> None:
        if worker == "h1-2":  # it is dead, and xdist reports that a moment later
            threading.Timer(0.01, holder[0].remove, [worker]).start()
        else:
            answer(worker, message)  # type: ignore[operator]

    clocks = HostClocks(send, disconnected.append)
    holder.append(clocks)
    clocks.add("h1-1", "h1")
    clocks.add("h1-2", "h1")
    with pytest.raises(NoData, match="worker h1-2 of host h1 is gone"):
        clocks.ask_under_load()
    clocks.ask()
    assert disconnected == []


def test_a_host_clock_shows_the_time_of_the_controller() -> None:
    """Whatever line it has at the moment."""
    clock = HostClock(ClockLine(at=0, offset=OFFSET))
    before = time.monotonic_ns() - OFFSET
    assert before <= clock() <= time.monotonic_ns() - OFFSET
    clock.line = ClockLine(at=0, offset=0)
    assert clock.until(time.monotonic_ns() + 10**12) <= 10**12


class Hosts:
    """Hosts whose clocks are ahead of the controller's, and may be set; they answer while they are asked."""

    def __init__(self, *names: str) -> None:
        self.ahead = dict.fromkeys(names, OFFSET)
        self.answers = 0
        self.slow = 0
        self.clocks = HostClocks(self._send)
        for name in names:
            self.clocks.add(f"{name}-1", name)

    def _send(self, worker: str, message: ControllerMessage) -> None:
        assert isinstance(message, ReadClock)
        self.answers += 1
        until = time.monotonic_ns() + (self.slow if self.answers % SMALL_BURST else 0)
        while time.monotonic_ns() < until:
            time.sleep(0)
        self.clocks.receive(
            worker, message.number, time.monotonic_ns() + self.ahead[worker.partition("-")[0]]
        )

    def phase(self, *, set_clock: int = 0, host: str = "h1") -> ClockFit:
        """Ask as in a phase in whose middle the clock of a host is set."""
        began = self.clocks.ask()
        for number in range(8):
            if number == 4:
                self.ahead[host] += set_clock
            self.clocks.ask_under_load()
        self.clocks.ask()
        return self.clocks.fits(began)["h1-1"]


def test_a_small_burst_under_load_keeps_its_fastest_exchange() -> None:
    """A day of load has hundreds of thousands of them. That the first two are slow does not matter."""
    hosts = Hosts("h1")
    hosts.slow = 3_000_000
    hosts.clocks.ask_under_load()
    assert hosts.answers == SMALL_BURST
    fit = hosts.clocks.fits(0)["h1-1"]
    assert fit.exchanges == 1
    assert fit.round_trip < 3_000_000


def test_a_clock_that_is_set_under_load_has_no_relation_in_this_phase() -> None:
    """The one of another host has, and so has the next phase: it is related by what came after."""
    hosts = Hosts("h1", "h2")
    assert not hosts.phase(set_clock=500_000_000).holds
    assert hosts.clocks.fits(0)["h2-1"].holds
    following = hosts.clocks.fits()["h1-1"]
    assert following.holds
    assert abs(following.line.offset - hosts.ahead["h1"]) <= following.error
    assert hosts.phase().holds


def test_a_clock_that_is_set_before_the_small_burst_of_a_phase_is_related_by_it_alone() -> None:
    """The phase begins with the new time, and would not notice that it was set: the exchanges of the burst before are of the old one."""
    hosts = Hosts("h1")
    hosts.clocks.ask()
    hosts.ahead["h1"] += 1_600_000_000
    began = hosts.clocks.ask(SMALL_BURST)
    fit = hosts.clocks.fits()["h1-1"]
    assert hosts.clocks.fits(began)["h1-1"].holds
    assert abs(fit.line.offset - hosts.ahead["h1"]) <= fit.error
    assert fit.error < 1_000_000_000


def test_a_burst_under_load_does_not_wait_for_another_one() -> None:
    """The thread that makes the burst between two phases may be at it still: exchanges at the same time would delay each other."""
    answering, answer = threading.Event(), threading.Event()

    def send(worker: str, message: ControllerMessage) -> None:
        assert isinstance(message, ReadClock)
        answering.set()
        assert answer.wait(10)
        clocks.receive(worker, message.number, time.monotonic_ns())

    clocks = HostClocks(send)
    clocks.add("h1-1", "h1")
    between = threading.Thread(target=clocks.ask)
    between.start()
    assert answering.wait(10)
    clocks.ask_under_load()
    answer.set()
    between.join()
    assert clocks.fits(0)["h1-1"].exchanges == BURST
