"""Both plugins of the fleet on xdist, connected by channels in this process. ``tests/plugin/test_gang.py`` runs the real ones."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_loadtest.errors import NoData, WorkerError
from pytest_loadtest.fleet.link import Released
from pytest_loadtest.fleet.member import WorkerRun
from pytest_loadtest.fleet.messages import (
    AbortRun,
    Arrive,
    EndPhase,
    HostFiles,
    LoadItems,
    Release,
    TakeRole,
)
from pytest_loadtest.fleet.run_states import Concluded
from pytest_loadtest.fleet.xdist import CHANNEL, GangController, GangRelease, GangWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.fleet.link import Link
    from pytest_loadtest.fleet.messages import Request

LOAD, ORDINARY = "test_a.py::test_load", "test_a.py::test_ordinary"


class Channel:
    """One end of an execnet channel."""

    def __init__(self) -> None:
        self.peer: Channel
        self._callback: Callable[[Any], None] | None = None
        self._early: list[Any] = []
        self.closed = False

    def setcallback(self, callback: Callable[[Any], None], endmarker: Any = None) -> None:
        self._callback = callback
        while self._early:
            callback(self._early.pop(0))

    def send(self, data: bytes) -> None:
        if self.closed:
            raise OSError("cannot send to <Channel closed>")
        if self.peer._callback is None:
            self.peer._early.append(data)
        else:
            self.peer._callback(data)

    def isclosed(self) -> bool:
        return self.closed


class Item:
    """A collected test; only the load test has the mark."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid
        self.config = SimpleNamespace(hook=SimpleNamespace())

    def get_closest_marker(self, name: str) -> object:
        return True if self.nodeid == LOAD else None


ITEMS = [Item(ORDINARY), Item(LOAD)]


class Session:
    """xdist's session on the controller: carries out the events of its queue at once, or keeps them for :meth:`run`."""

    def __init__(self) -> None:
        self.queue: Any = self
        self.shouldstop: object = False
        self.worker_loadtest_call: Callable[..., None]
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.held = False

    def put(self, event: tuple[str, dict[str, Any]]) -> None:
        self._events.put(event)
        if not self.held:
            self.run()

    def run(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                name, arguments = self._events.get_nowait()
                getattr(self, f"worker_{name}")(**arguments)


class Gang:
    """A controller with workers ``gw0``, ``gw1``, …, which have collected :data:`ITEMS`."""

    def __init__(self, workers: int, dist: str = "load", host: str | None = None) -> None:
        """:param host: name of the workers' host; None: the controller's."""
        self.host = host
        self.session, self.spark_started, self.broken = Session(), 0, list[Exception]()
        self.run_controller: Any = SimpleNamespace(
            spark=SimpleNamespace(start=self._start),
            gave_up=lambda run, error: self.broken.append(error),
            ended=lambda run: None,
            rendezvous=None,
            clocks=None,
        )
        config: Any = SimpleNamespace(
            pluginmanager=SimpleNamespace(getplugin=lambda _: self.session),
            getvalue=lambda _: dist,
            rootpath=Path(),
        )
        self.controller = GangController(
            config, self.run_controller, {} if host is None else {"command": host}
        )
        self.nodes = [self._node(f"gw{i}") for i in range(workers)]
        self.workers = [GangWorker(SimpleNamespace(workerinput=node.theirs)) for node in self.nodes]  # type: ignore[arg-type]

    def _start(self) -> None:
        self.spark_started += 1

    def _node(self, name: str) -> Any:
        ours, theirs = Channel(), Channel()
        ours.peer, theirs.peer = theirs, ours
        node = SimpleNamespace(
            gateway=SimpleNamespace(
                id=name,
                newchannel=lambda: ours,
                spec=SimpleNamespace(python=None if self.host is None else "command"),
            ),
            workerinput={},
            shut=0,
            theirs={CHANNEL: theirs},
        )
        node.shutdown = lambda: setattr(node, "shut", node.shut + 1)
        self.controller.pytest_configure_node(node)
        assert node.workerinput[CHANNEL] is ours
        return node

    def collect(self) -> None:
        session: Any = SimpleNamespace(items=ITEMS, config=SimpleNamespace(workerinput={}))
        for worker in self.workers:
            worker.pytest_collection_finish(session)

    def gather(self, *workers: int) -> list[threading.Thread]:
        """Let these workers reach the load test; they wait in threads."""
        threads = [
            threading.Thread(target=self.workers[i].gather, args=(ITEMS[1],), daemon=True)
            for i in workers
        ]
        for thread in threads:
            thread.start()
        return threads


@pytest.fixture
def gang(monkeypatch: pytest.MonkeyPatch) -> Gang:
    monkeypatch.setattr("pytest_loadtest.fleet.xdist.interrupt_on_sigterm", lambda: None)
    made = Gang(2)
    made.collect()
    return made


def joined(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(10)
    return not any(thread.is_alive() for thread in threads)


def test_the_first_worker_leads_once_all_have_reached_the_load_test(gang: Gang) -> None:
    """An ordinary test is left to pytest on both."""
    waiting = gang.gather(1)
    gang.workers[0].gather(ITEMS[0])  # type: ignore[arg-type]
    assert not any(worker.leads for worker in gang.workers)
    assert joined(gang.gather(0) + waiting)
    assert [worker.leads for worker in gang.workers] == [True, False]
    assert gang.workers[0].pytest_runtest_protocol(ITEMS[1], None) is None  # type: ignore[arg-type]
    assert [worker.is_member for worker in gang.workers] == [False, True]
    assert gang.controller._led(gang.nodes[0], 1)
    assert not gang.controller._led(gang.nodes[1], 1)


def test_members_are_released_when_the_lead_has_finished_the_protocol(gang: Gang) -> None:
    assert joined(gang.gather(0, 1))
    protocol = GangRelease(gang.workers[0]).pytest_runtest_protocol(ITEMS[0])  # type: ignore[arg-type]
    next(protocol)
    gang.workers[0].finished(ITEMS[1])  # type: ignore[arg-type]
    gang.workers[1].finished(ITEMS[1])  # type: ignore[arg-type]  # a member's end releases nobody
    gang.workers[1]._await_role()
    assert gang.workers[1]._lead is None


def test_spark_starts_when_a_worker_reports_load_tests(gang: Gang) -> None:
    assert gang.spark_started == 2  # start() does nothing the second time


def test_a_usage_error_of_a_worker_is_raised_by_the_controller(gang: Gang) -> None:
    """xdist alone would only report that the worker is gone."""
    gang.controller.pytest_xdist_node_collection_finished()
    gang.workers[1].report_usage_error("profiles/a.yaml:1:1: wrong")
    with pytest.raises(pytest.UsageError, match=r"^profiles/a.yaml:1:1: wrong$"):
        gang.controller.pytest_xdist_node_collection_finished()


def test_a_host_whose_workers_are_on_two_machines_is_a_usage_error() -> None:
    """One of them answers for the clock of both."""
    gang = Gang(2, host="h1")
    for worker, machine in zip(gang.workers, ("7af0", "7af0"), strict=True):
        worker._send(HostFiles(machine, {}))
    gang.controller.pytest_xdist_node_collection_finished()
    gang.workers[1]._send(HostFiles("91c2", {}))
    with pytest.raises(pytest.UsageError, match="host h1: its workers are on different machines"):
        gang.controller.pytest_xdist_node_collection_finished()


def test_dist_each_is_a_usage_error_if_there_are_load_tests() -> None:
    """Without any, the mode works and keeps its own scheduler."""
    gang, inner = Gang(1, dist="each"), object()
    gang.controller.pytest_xdist_node_collection_finished()
    made = gang.controller.pytest_xdist_make_scheduler(SimpleNamespace(getvalue=lambda _: "each"))  # type: ignore[arg-type]
    next(made)
    with pytest.raises(StopIteration) as end:
        made.send(inner)
    assert end.value.value is inner
    gang.controller._receive("gw0", LoadItems((1,)))
    with pytest.raises(pytest.UsageError, match="--dist each runs every test once per worker"):
        gang.controller.pytest_xdist_node_collection_finished()


def test_no_run_starts_after_the_event_that_ends_the_session(gang: Gang) -> None:
    """Arrivals wait in xdist's queue behind earlier events, one of which may be a failed test under -x."""
    gang.session.held = True
    for worker in gang.workers:
        worker._send(Arrive((1, 0)))
    gang.session.shouldstop = "stopping after 1 failures"
    gang.session.run()
    assert [worker._inbox.get(timeout=10) for worker in gang.workers] == [Release((1, 0))] * 2


def test_a_worker_that_goes_down_ends_the_run(gang: Gang) -> None:
    """The others get the cause, and its channel is not written to again."""
    assert joined(gang.gather(0, 1))
    gang.controller.pytest_testnodedown(gang.nodes[1], "Not properly terminated")
    (error,) = gang.broken
    assert isinstance(error, WorkerError)
    assert str(error) == "load worker gw1 went down: Not properly terminated"
    assert list(gang.controller._channels) == ["gw0"]


def test_the_loss_of_a_worker_on_another_host_is_the_cause_of_what_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An exchange of times with it fails at the same moment."""
    monkeypatch.setattr("pytest_loadtest.fleet.xdist.interrupt_on_sigterm", lambda: None)
    gang = Gang(2, host="h1")
    for node in gang.nodes:
        node.gateway.spec.popen = None
        gang.controller._receive(node.gateway.id, Arrive((1, 0)))
    clocks = gang.controller._clocks
    remove = clocks.remove

    def ending(worker: str) -> str | None:
        gang.controller.rendezvous.abort_all(NoData("worker gw1 of host h1 is gone"))
        return remove(worker)

    monkeypatch.setattr(clocks, "remove", ending)
    gang.controller.pytest_testnodedown(gang.nodes[1], "crashed")
    (error,) = gang.broken
    assert str(error).startswith("load worker gw1 went down: its process on host h1 or")
    assert clocks.hosts == {"gw0": "h1"}


def test_a_load_test_whose_lead_crashed_is_an_error_and_an_ordinary_test_fails(gang: Gang) -> None:
    """pytest tells errors from failures by the phase of the report. A lead that crashed in the body, with results, fails its test."""
    scheduler = SimpleNamespace(_collections={"gw0": [ORDINARY, LOAD]})
    assert joined(gang.gather(0, 1))
    for nodeid, when in ((LOAD, "setup"), (ORDINARY, "call")):
        report: Any = SimpleNamespace(when="call", longrepr="worker 'gw0' crashed")
        gang.controller.pytest_handlecrashitem(nodeid, report, scheduler)
        assert report.when == when
        assert ("no data: worker 'gw0' crashed; it led the load run" in report.longrepr) == (
            nodeid == LOAD
        )
    gang.controller.rendezvous.runs[1, 0].state = Concluded(None)
    report = SimpleNamespace(when="???", longrepr="worker 'gw0' crashed")
    gang.controller.pytest_handlecrashitem(LOAD, report, scheduler)
    assert (report.when, report.longrepr) == ("call", "worker 'gw0' crashed")


def test_the_report_of_a_crashed_lead_has_the_time_since_it_began_and_its_description() -> None:
    """A report of the teardown follows it; an ordinary test's crash has neither."""
    gang, crashes, reports = Gang(2), list[Any](), list[Any]()
    gang.controller._report_crash = lambda description, report: crashes.append(
        (description, report.start, report.duration)
    )
    gang.controller._config.hook = SimpleNamespace(
        pytest_runtest_logreport=lambda *, report: reports.append(report)
    )  # type: ignore[misc]
    for worker in gang.workers:
        worker._describe = lambda item: f"described {item.nodeid}"
    gang.collect()
    before = time.time()
    assert joined(gang.gather(0, 1))
    for nodeid in (ORDINARY, LOAD):
        report: Any = pytest.TestReport(
            nodeid, ("test_a.py", None, "test_a.py"), {}, "failed", "worker 'gw0' crashed", "???"
        )  # type: ignore[arg-type]
        report.node = gang.nodes[0]
        gang.controller.pytest_handlecrashitem(
            nodeid, report, SimpleNamespace(_collections={"gw0": [ORDINARY, LOAD]})
        )
        for _ in gang.controller.pytest_runtest_logreport(report):
            pass
    ((description, start, duration),) = crashes
    assert description == f"described {LOAD}"
    assert before <= start <= start + duration <= time.time() + 1
    (teardown,) = reports
    assert (teardown.nodeid, teardown.when, teardown.outcome, teardown.node) == (
        LOAD,
        "teardown",
        "passed",
        gang.nodes[0],
    )


def test_an_interrupt_releases_workers_that_wait(gang: Gang) -> None:
    """At once, for this load test and for those that follow; the nodes are shut down."""
    waiting = gang.gather(1)
    gang.controller.pytest_keyboard_interrupt()
    assert joined(waiting)
    assert gang.workers[1].pytest_runtest_protocol(ITEMS[1], None) is True  # type: ignore[arg-type]
    assert joined(gang.gather(1))
    assert [node.shut for node in gang.nodes] == [1, 1]


def test_a_load_that_was_given_up_takes_no_message_of_the_next_one(
    gang: Gang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body of a live test gave it up, and its thread still runs in a user's function, when the next test begins."""
    links: list[Link] = []
    monkeypatch.setattr(WorkerRun, "drive", lambda self: links.append(self.link))
    assert joined(gang.gather(0, 1))
    worker, request = gang.workers[0], cast("Request", None)
    worker.run(request)
    gang.controller._send(
        "gw0", AbortRun((1, 0), NoData("the test ended while its load was running"))
    )
    worker._key, worker._attempt = (2, 0), 0  # as for the next item
    gang.controller._send("gw0", TakeRole((2, 0), lead=True))
    worker._await_role()
    worker.run(request)
    gang.controller._send("gw0", EndPhase((2, 0), "", "measure"))
    with pytest.raises(NoData, match="the test ended while its load was running"):
        links[0].process_messages()
    assert links[1].ended(("", "measure"))


def test_a_member_that_is_still_in_the_setup_of_an_earlier_attempt_is_released(gang: Gang) -> None:
    """Its lead has begun a rerun: the member's run has ended, whether it had begun it or not."""
    assert joined(gang.gather(0, 1))
    worker, request = gang.workers[1], cast("Request", None)
    begun = worker.begin(request)
    gang.controller._send("gw1", TakeRole((1, 1), lead=False))
    for late in (begun, worker.begin(request)):
        with pytest.raises(Released):
            late.prepare()
    worker._await_role()
    worker.begin(request).link.process_messages()


def test_a_controller_that_is_gone_does_not_raise_on_its_workers(gang: Gang) -> None:
    """Nor a worker that is gone on the controller."""
    gang.nodes[0].theirs[CHANNEL].closed = True
    gang.workers[0].report_usage_error("too late")
    gang.controller.pytest_xdist_node_collection_finished()
    gang.controller._channels["gw1"].closed = True
    gang.controller._send("gw1", AbortRun((1, 0), NoData("x")))
    gang.controller._send("gw7", AbortRun((1, 0), NoData("x")))
