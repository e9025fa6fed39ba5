"""The fleet on pytest-xdist: an execnet channel for each worker, a plugin on the controller and one
on each worker.

Every worker gets every load test, and the controller gives each worker a rank in it. Rank 0 leads:
it alone runs the test by pytest's own protocol and reports it; the others, the members, run setup
and teardown of the same item, report nothing and skip its body. Messages to the controller arrive
in execnet's receiver threads; what may start a run is moved to xdist's main loop. A run starts only
when all workers that are alive have reached the test, and is reported exactly once, also when a
worker crashes, hangs or skips the test.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import time
from typing import TYPE_CHECKING, Any

import pytest

from pytest_loadtest.errors import NoData, UsageError
from pytest_loadtest.fleet.host_clocks import HostClocks
from pytest_loadtest.fleet.host_process import boot_id, different_files, file_hashes
from pytest_loadtest.fleet.interrupts import interrupt_on_sigterm
from pytest_loadtest.fleet.link import Link, Released
from pytest_loadtest.fleet.messages import (
    Again,
    Arrive,
    ClockRead,
    ControllerMessage,
    Failed,
    Finished,
    HostFiles,
    Key,
    LeadsTest,
    LoadItems,
    ReadClock,
    Release,
    Request,
    RunResult,
    SamplePart,
    SessionClosed,
    StoresSamples,
    TakeRole,
    UsageFound,
    WorkerMessage,
)
from pytest_loadtest.fleet.outputs import store_part
from pytest_loadtest.fleet.rendezvous import Rendezvous
from pytest_loadtest.fleet.scheduling import GangScheduling

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from pytest_loadtest.fleet.member import WorkerRun
    from pytest_loadtest.fleet.run_controller import RunController

CHANNEL = "loadtest_channel"
HOST = "loadtest_host"


class LedItem:
    """A load test at the controller since its lead has begun it.

    :param description: the lead's, see :class:`GangWorker`.
    """

    def __init__(self, description: Any) -> None:
        self.description = description
        self.start = time.time()
        self.since = time.monotonic()


class GangController:
    """The plugin on xdist's controller: passes messages between channels and rendezvous, wraps the
    scheduler.
    """

    def __init__(
        self,
        config: pytest.Config,
        controller: RunController,
        hosts: Mapping[str, str],
        report_crash: Callable[[Any, pytest.TestReport], None] = lambda described, report: None,
    ) -> None:
        """Connect the run controller to xdist.

        :param hosts: name of the host that each command of an execnet specification (``python=``)
            starts a worker on.
        :param report_crash: called with the lead's description of a load test and pytest's report
            of it, if the lead died.
        """
        self._config = config
        self._load_items: tuple[int, ...] = ()
        self._hosts = hosts
        self._machines: dict[str, str] = {}  # boot id of each host
        self._run_controller = controller
        self._channels: dict[str, Any] = {}
        self._nodes: list[Any] = []
        self._stop: str | None = None
        self._usage: str | None = None
        self._properties: list[tuple[str, object]] = []
        self._report_crash = report_crash
        self._led_items: dict[int, LedItem] = {}  # by index of the item
        self._crashed: pytest.TestReport | None = None
        self.rendezvous = Rendezvous(
            controller, self._send, time.monotonic_ns, self._stopping, self._kill
        )
        controller.rendezvous = self.rendezvous
        self._clocks = HostClocks(self._send, self._disconnect)
        if hosts:
            controller.clocks = self._clocks

    def pytest_configure_node(self, node: Any) -> None:
        """Give the worker a channel of its own, which works over every kind of execnet gateway."""
        name = node.gateway.id
        channel = node.gateway.newchannel()
        node.workerinput[CHANNEL] = channel
        host = self._hosts.get(node.gateway.spec.python)
        if host is not None:
            node.workerinput[HOST] = host
            self._clocks.add(name, host)
            # To a worker whose specification says popen, xdist gives the controller's import path
            # after this. The specification says so again when the worker is gone and may be started
            # anew.
            node.gateway.spec.popen = None
        self._nodes.append(node)
        with self.rendezvous.lock:
            self._channels[name] = channel
        self.rendezvous.join(name)
        channel.setcallback(lambda data: self._receive(name, pickle.loads(data)))

    def _receive(self, worker: str, message: WorkerMessage) -> None:
        match message:
            case ClockRead(number, time_there):
                self._clocks.receive(worker, number, time_there)
            case SamplePart():
                self._store(worker, message)
            case LoadItems(indexes):
                self._load_items = indexes
                if indexes:
                    self._run_controller.spark.start()
            case LeadsTest((index, _), description):
                self._led_items[index] = LedItem(description)
            case UsageFound(text):
                self._usage = text
            case HostFiles(machine, there):
                host = self._clocks.hosts[worker]
                here = file_hashes(self._config.rootpath, there)
                self._usage = (
                    self._usage
                    or self._differing_machine(host, machine)
                    or different_files(host, there, here)
                )
            case Arrive() | Again():
                self._in_main_loop(lambda: self.rendezvous.receive(worker, message))
            case _:
                self.rendezvous.receive(worker, message)

    def _differing_machine(self, host: str, machine: str) -> str | None:
        """Describe a host whose command reaches several machines, or return None: one worker of a
        host answers for the clock of all.
        """
        if self._machines.setdefault(host, machine) == machine:
            return None
        return (
            f"host {host}: its workers are on different machines, so their clocks differ: write a "
            "host for each machine"
        )

    def _store(self, worker: str, message: SamplePart) -> None:
        """Write a part of a sample file that a worker of another host sends.

        The channel waits for this, so memory is bounded.
        """
        try:
            session = self._run_controller.folder
            store_part(session, message.target, message.part, last=message.last)
        except OSError as error:
            # On use: it loads numpy, which a session without load tests must not.
            from pytest_loadtest.engine.sample_files import unwritten

            failure = unwritten(f"worker {worker}", "samples", session, error, None)
            self.rendezvous.receive(worker, Failed(message.key, failure))
        self.rendezvous.receive(worker, StoresSamples(message.key))

    def _in_main_loop(self, call: Callable[[], object]) -> None:
        """Put the call into xdist's queue, after all earlier events: one may end the session, or
        replace a worker that crashed.

        xdist calls the method ``worker_NAME`` of its session for each event; there is no public way
        to add one.
        """
        session = self._config.pluginmanager.getplugin("dsession")
        session.worker_loadtest_call = lambda call: call()
        session.queue.put(("loadtest_call", {"call": call}))

    def _send(self, worker: str, message: ControllerMessage) -> None:
        channel = self._channels.get(worker)
        if channel is not None and not channel.isclosed():
            with contextlib.suppress(OSError):  # the worker is dying; pytest_testnodedown follows
                channel.send(pickle.dumps(message))

    def _disconnect(self, host: str) -> None:
        """End the commands that connect to a host."""
        for worker, on in list(self._clocks.hosts.items()):
            if on == host:
                self._kill(worker)

    def _kill(self, worker: str) -> None:
        """End a worker's process, or its connection: xdist waits without limit for a worker that is
        connected and does not answer.
        """
        nodes = [node for node in self._nodes if node.gateway.id == worker]
        self._in_main_loop(lambda: [node.gateway._io.kill() for node in nodes])

    def _stopping(self) -> str | None:
        session = self._config.pluginmanager.getplugin("dsession")
        if self._stop or session is None or not session.shouldstop:
            return self._stop or None
        return str(session.shouldstop)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        """Raise a usage error that a worker found: from the worker, xdist would only report that
        the worker is gone.
        """
        if self._usage is not None:
            raise pytest.UsageError(self._usage)
        if self._load_items and self._config.getvalue("dist") == "each":
            raise pytest.UsageError(
                "--dist each runs every test once per worker; a load test is one run on all "
                "workers: choose another --dist"
            )
        if self._load_items:
            interrupt_on_sigterm()

    @pytest.hookimpl(wrapper=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config) -> Generator[None, Any, Any]:
        """Wrap the user's scheduler, which keeps the ordinary tests."""
        inner = yield
        if inner is None or config.getvalue("dist") == "each":
            return inner
        return GangScheduling(inner, config, lambda: self._load_items, self._led)

    def _led(self, node: Any, index: int) -> bool:
        with self.rendezvous.lock:
            runs = self.rendezvous.runs.items()
            return any(key[0] == index and run.lead == node.gateway.id for key, run in runs)

    @pytest.hookimpl(tryfirst=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Remove a worker that ended or crashed."""
        output = getattr(node, "workeroutput", {})
        self._stop = self._stop or output.get("shouldfail") or output.get("shouldstop")
        self._channels.pop(node.gateway.id, None)
        self.rendezvous.leave(node.gateway.id, self._why_gone(node, error))
        # Last, so that an exchange of times that it ends is no cause of the run's end.
        self._clocks.remove(node.gateway.id)
        self._in_main_loop(self.rendezvous.gather)

    def _why_gone(self, node: Any, error: object) -> str:
        host = self._clocks.hosts.get(node.gateway.id)
        if host is None:
            return str(error or "it ended")
        node.gateway.spec.popen = True
        return (
            f"its process on host {host} or the connection to it ended: check that the host is up "
            "and reachable"
        )

    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        """Report a load test whose lead died as an error, not as failed.

        pytest distinguishes them by the phase of the report. If the run has its results, the lead
        died in the body, and the test has failed.
        """
        collections = getattr(sched, "_collections", {}).values()
        indexes = set()
        for collection in collections:
            for index in self._load_items:
                if index < len(collection) and collection[index] == crashitem:
                    indexes.add(index)
        if not indexes:
            return
        with self.rendezvous.lock:
            runs = [
                run
                for key, run in self.rendezvous.runs.items()
                if key[0] in indexes and run.members
            ]
        if runs and runs[-1].concluded:
            report.when = "call"
        else:
            report.when = "setup"
            report.longrepr = f"no data: {report.longrepr}; it led the load run of {crashitem}"
        led = next((self._led_items[index] for index in indexes if index in self._led_items), None)
        if led is not None:
            report.start = led.start
            report.duration = time.monotonic() - led.since
            report.stop = report.start + report.duration
            self._report_crash(led.description, report)
        self._crashed = report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(
        self, report: pytest.TestReport
    ) -> Generator[None, object, object]:
        """Let the three reports of a test share its properties.

        pytest keeps them all, and each comes with a copy from the worker. The report of a load test
        whose lead died is followed by one of its teardown: pytest-html shows no test without it.
        """
        if report.user_properties == self._properties:
            report.user_properties = list(self._properties)
        self._properties = report.user_properties
        result = yield
        if report is self._crashed and report.failed:
            self._crashed = None
            self._config.hook.pytest_runtest_logreport(report=_teardown_after(report))
        return result

    def pytest_keyboard_interrupt(self) -> None:
        """Release the workers at once.

        execnet would wait five seconds for one that waits for a message or for its next test.
        """
        self.rendezvous.abort_all(NoData("interrupted"))
        for worker in list(self._channels):
            self._send(worker, SessionClosed())
        for node in self._nodes:
            node.shutdown()

    def close(self) -> None:
        self.rendezvous.close()


class GangWorker:
    """The plugin on an xdist worker."""

    def __init__(
        self, config: pytest.Config, describe: Callable[[pytest.Item], Any] = lambda item: None
    ) -> None:
        """Connect this worker to the controller.

        :param describe: describes a load test for the controller, which reports the test if this
            worker dies as its lead.
        """
        self._describe = describe
        self._channel = config.workerinput[CHANNEL]  # type: ignore[attr-defined]
        self._inbox: queue.SimpleQueue[TakeRole | Release | SessionClosed] = (
            queue.SimpleQueue()
        )  # roles, and their end
        # A live load whose body gave it up may still be running when the next test begins: it must
        # not take that one's messages.
        self._current: tuple[Key, queue.SimpleQueue[ControllerMessage]] = (
            (-1, 0),
            queue.SimpleQueue(),
        )
        self._channel.setcallback(self._receive, endmarker=SessionClosed())
        # By item: with --keep-duplicates, two have one node id.
        self._index: dict[pytest.Item, int] = {}
        self._key: Key = (-1, 0)
        self._lead: bool | None = None  # None while this worker has no role in an item
        self._in_load_test = False
        self._worker_run: WorkerRun | None = None  # of the current item, once its test has begun it
        self._attempt = 0

    def _receive(self, data: Any) -> None:
        # The end marker is not pickled.
        message: ControllerMessage = pickle.loads(data) if isinstance(data, bytes) else data
        match message:
            case ReadClock(number):
                # Answered at once, in the thread that receives: the controller measures how long
                # the answer takes.
                self._send(ClockRead(number, time.monotonic_ns()))
            case TakeRole(key):
                # An attempt that is still being set up here has ended at the controller.
                former, messages = self._current
                messages.put(Release(former))
                self._current = (key, queue.SimpleQueue())
                self._inbox.put(message)
            case SessionClosed():
                self._current[1].put(message)
                self._inbox.put(message)
            case Release():
                self._hand_over(message)
                self._inbox.put(message)
            case _:
                self._hand_over(message)

    def _hand_over(self, message: ControllerMessage) -> None:
        """Give a message to the run that it is about; others have ended here."""
        if not isinstance(message, ReadClock | SessionClosed) and message.key == self._current[0]:
            self._current[1].put(message)

    def _send(self, message: WorkerMessage) -> None:
        with contextlib.suppress(OSError):  # the controller is gone: the end marker follows
            self._channel.send(pickle.dumps(message))

    def report_usage_error(self, text: str) -> None:
        """Let the controller raise a usage error found while tests were collected."""
        self._send(UsageFound(text))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Send the indexes of the load tests: before xdist's report of the collection, on the same
        gateway, so that they arrive first.
        """
        self._index = {
            item: i for i, item in enumerate(session.items) if item.get_closest_marker("load")
        }
        if HOST in session.config.workerinput:  # type: ignore[attr-defined]
            root = session.config.rootpath
            profiles = session.config.rootpath / session.config.getini("load_profiles")
            tests = {item.path for item in session.items if item in self._index}
            paths = [
                path.relative_to(root).as_posix()
                for path in (*tests, *profiles.rglob("*.y*ml"))
                if path.is_relative_to(root)
            ]
            self._send(HostFiles(boot_id(), file_hashes(root, paths)))
        self._send(LoadItems(tuple(sorted(self._index.values()))))
        if self._index:
            interrupt_on_sigterm()

    def gather(self, item: pytest.Item) -> None:
        """Wait until this worker has a role in the item, or is released from it."""
        if item in self._index:
            self._in_load_test = True
            self._key = (self._index[item], 0)
            self._attempt = 0
            self._send(Arrive(self._key))
            self._await_role()
            if self.leads:
                self._send(LeadsTest(self._key, self._describe(item)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Leave the test to pytest's own protocol on the lead; take part as a member and report
        nothing on the others.
        """
        if item not in self._index or self.leads:
            return None
        while self._lead is not None:
            self._run_as_member(item, nextitem)
            self._await_role()
        return True

    def _await_role(self) -> None:
        message = self._next_role()
        self._key = message.key
        self._lead = message.lead if isinstance(message, TakeRole) else None
        self._worker_run = None

    def _await_rerun(self) -> None:
        """Wait for the role in a rerun; the release from the attempt before may come first."""
        message = self._next_role()
        while isinstance(message, Release) and message.key != self._key:
            message = self._next_role()
        self._key = message.key
        self._lead = message.lead if isinstance(message, TakeRole) else None

    def _next_role(self) -> TakeRole | Release:
        """Wait for a role in the current item, or the release from it."""
        while True:
            message = self._inbox.get()
            if isinstance(message, SessionClosed):
                self._inbox.put(message)  # for the next items too
                return Release(self._key)
            if message.key[0] == self._key[0]:
                return message

    def _run_as_member(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        from _pytest.runner import runtestprotocol  # private, but pytest-rerunfailures calls it too

        # The body, of any kind of item: only the lead runs it.
        item.runtest = lambda: None  # type: ignore[method-assign]
        try:
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
        except pytest.fail.Exception:
            # From pytest-timeout's timer, which expires here between two phases when the lead's
            # does. An error in a fixture's teardown is reported by the lead.
            reports = []
            with contextlib.suppress(Exception):
                item.session._setupstate.teardown_exact(nextitem)
        _cancel_timer(item)
        if self._worker_run is None or not self._worker_run.driven:
            reasons = [report.longreprtext for report in reports if not report.passed]
            text = "\n".join(reasons) or "its fixture `load` was not set up"
            # A run that fixtures have begun has no results before its load: the lead's test may be
            # skipped too.
            kind = NoData if self._worker_run is None else UsageError
            self._send(Failed(self._key, kind(f"it took no part: {text[-4000:]}")))

    @property
    def leads(self) -> bool:
        """True if this worker leads the current item."""
        return bool(self._lead)

    @property
    def is_member(self) -> bool:
        """True while this worker has a load test as its current item and does not report it."""
        return self._in_load_test and not self.leads

    def run(
        self, request: Request, on_link: Callable[[Link], None] | None = None
    ) -> RunResult | None:
        """Take part in the run of the current item; return its result on the lead, None on the
        others.

        :param on_link: called with this worker's connection before the run begins.
        :raises BrokenRun, UsageError: see :class:`~pytest_loadtest.fleet.member.WorkerRun`.
        """
        worker_run = self.begin(request)
        if on_link is not None:
            on_link(worker_run.link)
        try:
            return worker_run.drive()
        except Released:
            return None

    def begin(self, request: Request) -> WorkerRun:
        """Begin this worker's part in the run of the current item, before its load."""
        if self.leads and self._attempt:  # a rerun: call the others back
            self._key = (self._key[0], self._attempt)
            self._send(Again(self._key))
            self._await_rerun()
        from pytest_loadtest.fleet.member import WorkerRun

        self._attempt += 1
        key, messages = self._current
        if key != self._key:  # a rerun has begun meanwhile
            messages = queue.SimpleQueue()
            messages.put(Release(self._key))
        link = Link(self._send, messages, self._key)
        self._worker_run = WorkerRun(link, request, lead=self.leads)
        return self._worker_run

    def finished(self, item: pytest.Item) -> None:
        """Release the members when the lead has finished the item, including its reruns."""
        if item in self._index and self.leads:
            self._send(Finished(self._key))
        self._in_load_test = False


class GangRelease:
    """Wraps the whole protocol of an item: gathers the workers before it, releases them after it.

    A plugin of its own, because a class can implement each hook only once, and :class:`GangWorker`
    implements this one already. It must be registered after all others: their wrappers of the
    protocol begin when the worker has its role.
    """

    def __init__(self, worker: GangWorker) -> None:
        self._worker = worker

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._worker.gather(item)  # before other plugins' timers start
        try:
            return (yield)
        finally:
            self._worker.finished(item)


def _cancel_timer(item: pytest.Item) -> None:
    """Cancel the timer of pytest-timeout on a member that has finished; the lead has its own.

    The hook is meant for other plugins.
    """
    cancel = getattr(item.config.hook, "pytest_timeout_cancel_timer", None)
    if cancel is not None:
        cancel(item=item)


def _teardown_after(report: pytest.TestReport) -> pytest.TestReport:
    """Make the report of a teardown that follows the report of a crash."""
    teardown = pytest.TestReport(
        nodeid=report.nodeid,
        location=report.location,
        keywords={},
        outcome="passed",
        longrepr=None,
        when="teardown",
        start=report.stop,
        stop=report.stop,
    )
    # The worker, by which JUnit finds the test.
    teardown.node = report.node  # type: ignore[attr-defined]
    return teardown
