"""The gang on pytest-xdist: an execnet channel per worker, the plugin on the controller and the plugin on each worker.

Every worker gets every load test. They meet, the controller gives each a rank; rank 0 leads: it alone runs the test by pytest's own
protocol and reports it, the others run setup and teardown of the same item in silence and skip its body.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import time
from typing import TYPE_CHECKING, Any

import pytest

from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.interrupts import heed_sigterm
from pytest_loadtest.fleet.link import Key, Link, Message, Released
from pytest_loadtest.fleet.rendezvous import Rendezvous, Role
from pytest_loadtest.fleet.scheduling import GangScheduling

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pytest_loadtest.fleet.messages import Request, RunResult
    from pytest_loadtest.fleet.run_controller import RunController

CHANNEL = "loadtest_channel"


class GangController:
    """xdist's controller side: hands messages between channels and coordinator, wraps the scheduler."""

    def __init__(self, config: pytest.Config, controller: RunController) -> None:
        self._config, self._load_items = config, list[int]()
        self._conductor = controller
        self._channels: dict[str, Any] = {}
        self._nodes: list[Any] = []
        self._stop: str | None = None
        self._usage: str | None = None
        self.rendezvous = Rendezvous(controller, self._send, time.monotonic_ns, self._stopping)
        controller.rendezvous = self.rendezvous

    def pytest_configure_node(self, node: Any) -> None:
        """Give the worker a channel of its own: public execnet API, works over every kind of gateway."""
        name, channel = node.gateway.id, node.gateway.newchannel()
        node.workerinput[CHANNEL] = channel
        self._nodes.append(node)
        with self.rendezvous.lock:
            self._channels[name] = channel
        self.rendezvous.join(name)
        channel.setcallback(lambda data: self._receive(name, pickle.loads(data)))

    def _receive(self, worker: str, message: Message) -> None:
        if message[0] == "items":
            self._load_items = message[2]
            if self._load_items:
                self._conductor.aggregation.start()
        elif message[0] == "usage":
            self._usage = message[2]
        elif message[0] in ("arrive", "again"):
            self._in_main_loop(lambda: self.rendezvous.receive(worker, message))
        else:
            self.rendezvous.receive(worker, message)

    def _in_main_loop(self, call: Callable[[], None]) -> None:
        """Call it from xdist's queue, after all earlier events in it: one may end the session, or replace a worker that crashed."""
        session: Any = self._config.pluginmanager.getplugin("dsession")
        session.worker_loadtest_call = lambda call: call()
        session.queue.put(("loadtest_call", {"call": call}))

    def _send(self, worker: str, message: Message) -> None:
        channel = self._channels.get(worker)
        if channel is not None and not channel.isclosed():
            with contextlib.suppress(OSError):  # it dies just now; pytest_testnodedown follows
                channel.send(pickle.dumps(message))

    def _stopping(self) -> str | None:
        session = self._config.pluginmanager.getplugin("dsession")
        return self._stop or (str(session.shouldstop) if session is not None and session.shouldstop else None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        """A usage error that a worker found: raised here, because xdist would say of it no more than that the worker is gone."""
        if self._usage is not None:
            raise pytest.UsageError(self._usage)
        if self._load_items and self._config.getvalue("dist") == "each":
            raise pytest.UsageError("--dist each runs every test once per worker; a load test is one run of all: choose another --dist")
        if self._load_items:
            heed_sigterm()

    @pytest.hookimpl(wrapper=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config) -> Generator[None, Any, Any]:
        """Whatever scheduler the user chose keeps the ordinary tests."""
        inner = yield
        if inner is None or config.getvalue("dist") == "each":
            return inner
        return GangScheduling(inner, config, lambda: self._load_items, self._led)

    def _led(self, node: Any, index: int) -> bool:
        with self.rendezvous.lock:
            runs = [run for key, run in self.rendezvous.runs.items() if key[0] == index and run.members]
            return any(run.members[0] == node.gateway.id for run in runs)

    @pytest.hookimpl(tryfirst=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A worker is gone, by itself or for good."""
        output = getattr(node, "workeroutput", {})
        self._stop = self._stop or output.get("shouldfail") or output.get("shouldstop")
        self._channels.pop(node.gateway.id, None)
        self.rendezvous.leave(node.gateway.id, str(error or "it ended"))
        self._in_main_loop(self.rendezvous.gather)

    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        """A load test whose lead died is broken, not failed: an error, as pytest tells them apart by the phase."""
        if crashitem in self._load_nodeids(sched):
            report.when = "setup"
            report.longrepr = f"no data: {report.longrepr}; it led the load run of {crashitem}"

    def _load_nodeids(self, sched: Any) -> set[str]:
        collections = getattr(sched, "_collections", {})
        return {collection[i] for collection in collections.values() for i in self._load_items if i < len(collection)}

    def pytest_keyboard_interrupt(self) -> None:
        """Release the workers at once: execnet would let one that waits, for a message or for its next test, wait five more seconds."""
        self.rendezvous.abort_all(NoData("interrupted"))
        for worker in list(self._channels):
            self._send(worker, ("closed", None, None))
        for node in self._nodes:
            node.shutdown()

    def close(self) -> None:
        self.rendezvous.close()


class GangWorker:
    """xdist's worker side."""

    def __init__(self, config: pytest.Config) -> None:
        self._channel = config.workerinput[CHANNEL]  # type: ignore[attr-defined]
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._channel.setcallback(self._take, endmarker=("closed", None, None))
        self._index: dict[str, int] = {}
        self._key: Key = (-1, 0)
        self._role: Role | None = None
        self._taken = False
        self._attempt = 0

    def _take(self, data: Any) -> None:
        self._inbox.put(pickle.loads(data) if isinstance(data, bytes) else data)  # the end marker comes as it is

    def _send(self, message: Message) -> None:
        with contextlib.suppress(OSError):  # the controller is gone: the inbox says so
            self._channel.send(pickle.dumps(message))

    def refuse(self, text: str) -> None:
        """What the tests ask for cannot be; the controller says so."""
        self._send(("usage", None, text))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Before xdist's own report of the collection, on the same gateway, so that it arrives first."""
        self._index = {item.nodeid: i for i, item in enumerate(session.items) if item.get_closest_marker("load")}
        self._send(("items", None, sorted(self._index.values())))
        if self._index:
            heed_sigterm()

    def gather(self, item: pytest.Item) -> None:
        """Wait for the gang: until this worker has its role in the item, or is released from it."""
        if item.nodeid in self._index:
            self._key, self._attempt = (self._index[item.nodeid], 0), 0
            self._send(("arrive", self._key, None))
            self._await_role()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Lead the test by pytest's own protocol, or play a part in it and report nothing."""
        if item.nodeid not in self._index or self.leads:
            return None
        while self._role is not None:
            self._play(item, nextitem)
            self._await_role()
        return True

    def _await_role(self) -> None:
        what, self._key, role = self._hear("role", "release")
        self._role, self._taken = (role if what == "role" else None), False

    def _hear(self, *names: str) -> tuple[str, Key, Any]:
        while True:
            name, key, arg = self._inbox.get()
            if name == "closed":
                self._inbox.put((name, key, arg))  # for the items that follow
                return "release", self._key, None
            if name in names and key is not None and key[0] == self._key[0]:
                return name, key, arg

    def _play(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        from _pytest.runner import runtestprotocol  # private, and what pytest-rerunfailures calls too

        try:
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
        except pytest.fail.Exception:  # pytest-timeout's timer, which goes off here when the lead's does, between two phases
            reports = []
            with contextlib.suppress(Exception):  # whatever a fixture's end says here, the lead reports
                item.session._setupstate.teardown_exact(nextitem)
        _cancel_timer(item)
        if not self._taken:
            said = [report.longreprtext for report in reports if not report.passed] or ["its fixture `load` was not set up"]
            self._send(("failed", self._key, NoData("it took no part: " + "\n".join(said)[-4000:])))

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """The body of a load test runs on the lead alone."""
        member = pyfuncitem.nodeid in self._index and self._role is not None and not self._role.lead
        return True if member else None

    @property
    def leads(self) -> bool:
        """Whether this worker leads the item that runs."""
        return self._role is not None and self._role.lead

    def run(self, request: Request, taking: Callable[[Link], None] | None = None) -> RunResult | None:
        """This worker's part; the outcome on the lead, None on the others.

        :param taking: gets this worker's line once there is one.

        :raises BrokenRun, UsageError: see :func:`take_part`.
        """
        assert self._role is not None
        if self._role.lead and self._attempt:  # a rerun: call the others back
            self._key = (self._key[0], self._attempt)
            self._send(("again", self._key, None))
            _, self._key, self._role = self._hear("role")
        from pytest_loadtest.fleet.member import take_part

        self._attempt += 1
        self._taken = True
        link = Link(self._send, self._inbox, self._key)
        if taking is not None:
            taking(link)
        try:
            return take_part(link, request, lead=self._role.lead)
        except Released:
            self._inbox.put(("release", self._key, None))  # the protocol waits for it too
            return None

    def finished(self, item: pytest.Item) -> None:
        """The lead is through with the item, reruns included: the others may go on."""
        if item.nodeid in self._index and self.leads:
            self._send(("finished", self._key, None))


class GangRelease:
    """Runs around the whole protocol of an item: gathers the workers before it, releases them after it.

    A plugin of its own, because pytest allows one hook of a name in a class, and :class:`GangWorker` has this one already.
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
    """This worker has played its part; the lead has a timer of its own. The hook is pytest-timeout's, for plugins like this one."""
    cancel = getattr(item.config.hook, "pytest_timeout_cancel_timer", None)
    if cancel is not None:
        cancel(item=item)
