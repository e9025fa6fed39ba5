"""One pytest session's load tests: which fleet drives them, and what is said of them at the end.

A session is one of three things: the only process, xdist's controller, or one of its workers.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from pytest_loadtest.errors import BrokenRun, GeneratorLimited, UsageError
from pytest_loadtest.plugin import reporting
from pytest_loadtest.plugin.aggregate_hook import AggregateHook
from pytest_loadtest.plugin.reporting import CiReports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_loadtest.fixture.handle import LiveLoad
    from pytest_loadtest.fleet.link import Link
    from pytest_loadtest.fleet.local import LocalFleet
    from pytest_loadtest.fleet.messages import Request, RunResult
    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.fleet.run_controller import RunController
    from pytest_loadtest.fleet.xdist import GangController, GangWorker
    from pytest_loadtest.report.live_metrics import LiveMetrics
    from pytest_loadtest.results.load import Load

_ATTEMPTS = pytest.StashKey[int]()
_PLAIN = (str, int, float, bool, type(None))  # themselves: a type derived from them is another one to execnet
_LOADS: pytest.StashKey[Load | LiveLoad] = pytest.StashKey()
_BROKEN = pytest.StashKey[BrokenRun]()


class LoadSession:
    """The fleet of this process, made when it is needed; under xdist at once, because workers get their channel when they start."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._run_controller: RunController | None = None
        self._local: LocalFleet | None = None
        self._controller: GangController | None = None
        self._worker: GangWorker | None = None
        self._unserve: Callable[[], None] = lambda: None
        self._told = ""
        self._hook = AggregateHook(config.pluginmanager, config.rootpath)
        if "loadtest_channel" in getattr(config, "workerinput", {}):
            self._join_gang()
            return
        config.pluginmanager.register(CiReports(config, self.documents), "loadtest-ci")
        if config.pluginmanager.hasplugin("dsession"):
            self._lead_gang()

    def _join_gang(self) -> None:
        from pytest_loadtest.fleet.xdist import GangRelease, GangWorker

        self._worker = GangWorker(self._config)
        self._config.pluginmanager.register(self._worker, "loadtest-worker")
        self._config.pluginmanager.register(GangRelease(self._worker), "loadtest-release")

    def _lead_gang(self) -> None:
        from pytest_loadtest.fleet.xdist import GangController

        self._controller = GangController(self._config, self._make_run_controller())
        self._config.pluginmanager.register(self._controller, "loadtest-controller")

    def _make_run_controller(self) -> RunController:
        from pytest_loadtest.fleet.options import Options
        from pytest_loadtest.fleet.run_controller import RunController
        from pytest_loadtest.report.live import LiveLine

        options = Options.of(self._config)
        try:
            self._run_controller = RunController(options, LiveLine(self._config), self._hook, self._serve(options))
        except UsageError as error:  # the baseline is not there
            raise pytest.UsageError(str(error)) from None
        return self._run_controller

    def _serve(self, options: Options) -> LiveMetrics | None:
        """Begin to serve what ``--load-metrics`` asks for.

        :raises pytest.UsageError: its port is in use.
        """
        if options.metrics is None or self._config.option.collectonly or self._config.option.load_plan:
            return None
        from pytest_loadtest.report.live_metrics import LiveMetrics, serve

        metrics = LiveMetrics(self.documents)
        try:
            self._unserve = serve(options.metrics, metrics)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None
        return metrics

    def check(self, items: list[pytest.Item]) -> None:
        """Look at what every load test asks for, before anything is started.

        :raises pytest.UsageError: something cannot be; on a worker of xdist the controller raises it.
        """
        from pytest_loadtest.plugin.selection import check

        asking = [item for item in items if item.get_closest_marker("load") or "load" in getattr(item, "fixturenames", ())]
        if not asking:
            return
        try:
            if self._worker is None:
                self._make_run_controller()  # reads the options, so that a wrong one is an error now
            check(self._config, asking)
            self._hook.check()
        except (pytest.UsageError, UsageError) as error:
            if self._worker is None:
                raise pytest.UsageError(str(error)) from None
            self._worker.report_usage_error(str(error))
            items.clear()

    def collected(self, items: list[pytest.Item]) -> None:
        """Start Spark as soon as it is known that a load test will run. Under xdist the controller hears of it from its workers."""
        if self._run_controller is None or self._config.option.collectonly or not any(item.get_closest_marker("load") for item in items):
            return
        from pytest_loadtest.fleet.interrupts import interrupt_on_sigterm

        interrupt_on_sigterm()
        self._run_controller.spark.start()

    def pytest_keyboard_interrupt(self) -> None:
        """Ctrl-C, or SIGTERM: nothing that Spark does is waited for any more."""
        if self._run_controller is not None:
            self._run_controller.spark.interrupt()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Before xdist waits for its workers, and before JUnit's file is written."""
        if self._run_controller is not None:
            self._run_controller.spark.begin_stop()
            self._told = reporting.write(self._config, self._run_controller)

    def drive(self, item: pytest.Item) -> Any:
        """What the fixture ``load`` is worth: the finished run, or with ``live=True`` the handle that starts it."""
        from pytest_loadtest.plugin.selection import load_mark

        request, mark = self._request(item), load_mark(item)
        member = self._worker is not None and not self._worker.leads
        if not mark.live or member:  # a member runs no body that could start its share: it starts here, and waits for the lead
            load = self._lead(request, item)
            if load is not None and mark.judge:
                item.stash[_LOADS] = load
            return load
        from pytest_loadtest.fixture.handle import LiveLoad

        def run(changes: Mapping[str, Any], taking: Callable[[Link], None] | None) -> Load | None:
            asked = request_of(self._config, item, request.attempt, changes) if changes else request
            return self._lead(asked, item, taking)

        item.stash[_LOADS] = live = LiveLoad(run, judge=mark.judge)
        return live

    def _lead(self, request: Request, item: pytest.Item, taking: Callable[[Link], None] | None = None) -> Load | None:
        try:
            outcome = self._run(request, taking)
        except BrokenRun as error:
            # not the fixture record_property: it warns under JUnit's second schema, which most projects have
            said = "generator-limited" if isinstance(error, GeneratorLimited) else "no data"
            item.user_properties += [("load.outcome", said), ("load.reason", str(error))]
            item.stash[_BROKEN] = error
            raise
        return self._finished(outcome, item)

    def _run(self, request: Request, taking: Callable[[Link], None] | None) -> RunResult | None:
        if self._worker is not None:
            return self._worker.run(request, taking)
        if self._local is None:
            from pytest_loadtest.fleet.local import LocalFleet

            assert self._run_controller is not None
            self._local = LocalFleet(self._run_controller)
        return self._local.run(request, taking)

    def _finished(self, outcome: RunResult | None, item: pytest.Item) -> Load | None:
        if outcome is None:
            return None
        item.user_properties += outcome.properties
        outcome.load.ensure_judged()
        return outcome.load

    def _request(self, item: pytest.Item) -> Request:
        from pytest_loadtest.profile import setting

        attempt = item.stash[_ATTEMPTS] = item.stash.get(_ATTEMPTS, 0) + 1
        item.user_properties[:] = [
            (name, value) for name, value in item.user_properties if not name.startswith("load.")
        ]  # an earlier attempt's
        item.user_properties += [("load.set", setting(*text.partition("=")[::2])) for text in self._config.option.load_set]
        return request_of(self._config, item, attempt)

    def documents(self) -> list[dict[str, Any]]:
        """The results of every run of the session so far."""
        return [] if self._run_controller is None else self._run_controller.documents

    def summarise(self, terminalreporter: Any) -> None:
        """The summary of every run of the session."""
        if not self.documents():
            return
        from pytest_loadtest.report.terminal import summary_lines

        terminalreporter.section("load tests")
        for document in self.documents():
            for line in summary_lines(document):
                terminalreporter.write_line(line)
        for line in (*self._run_controller.outputs.unwritten, self._told) if self._run_controller is not None else ():
            if line:
                terminalreporter.write_line(line)

    def close(self) -> None:
        """Stop whatever this session started."""
        self._unserve()
        for part in (self._local, self._controller, self._run_controller):
            if part is not None:
                part.close()
        if self._run_controller is not None:
            from pytest_loadtest.fleet.interrupts import restore_sigterm

            restore_sigterm()


def request_of(config: pytest.Config, item: pytest.Item, attempt: int, changes: Mapping[str, Any] | None = None) -> Request:
    """What a load test asks for. :param changes: keys of the profile that differ, beside those of the mark.

    :raises UsageError: something that cannot be.
    """
    from pytest_loadtest import profile as profiles
    from pytest_loadtest.fleet.messages import Part, Request
    from pytest_loadtest.plugin.selection import load_mark, load_profile

    mark, (profile, path) = load_mark(item), load_profile(config, item, changes)
    return Request(
        nodeid=item.nodeid, attempt=attempt, profile=profile, source=os.path.relpath(path, config.rootpath),
        parts=tuple(Part(profile=one, payload_file=profiles.payload(one, path)) for one in profile.workloads or (profile,)),
        broker=mark.broker, target=mark.target, admin=mark.admin, security_line=profiles.line_of(path, ("target", "security")),
        broker_line=profiles.line_of(path, ("driver", "broker")),
    )  # fmt: skip


def body_returned(item: pytest.Item) -> None:
    """Raise what the run of a load test came to and its body left unjudged.

    :raises SloMissed: objectives did not hold. :raises BrokenRun: a live test has no result.
    :raises UsageError: the same, or the test drove no load at all, because its ``load`` is something else of that name.
    """
    __tracebackhide__ = True
    if not item.stash.get(_ATTEMPTS, 0):
        remedy = "rename that one, or let it ask for the fixture `load` of pytest-loadtest"
        raise UsageError(f"{item.nodeid} is marked load and drove none: its `load` is {reporting.whose_load(item)}: {remedy}")
    load = item.stash.get(_LOADS, None)
    if load is None and _BROKEN in item.stash:  # caught by a fixture of the user's; only the body of a live test may
        raise item.stash[_BROKEN]
    if load is not None:
        load.ensure_asserted()


def forget(item: pytest.Item) -> None:
    """Let the result of a load test go: pytest keeps its items until the session ends."""
    if _LOADS in item.stash:
        del item.stash[_LOADS]
    if _BROKEN in item.stash:
        del item.stash[_BROKEN]


def settle(report: pytest.TestReport, error: BaseException, item: pytest.Item) -> None:
    """Make a broken run an error with a text for people; xdist and JUnit take it from the report.

    An expected failure is a missed objective. That nothing is known about the target is expected only where ``xfail(raises=…)`` names it.
    """
    if hasattr(report, "wasxfail"):  # whatever the body made of a run that broke
        error = item.stash.get(_BROKEN, None) or getattr(item.stash.get(_LOADS, None), "unheard_error", None) or error
    if isinstance(error, (BrokenRun, UsageError)):
        if hasattr(report, "wasxfail"):
            if reporting.xfail_names(item, error):
                return
            del report.wasxfail
            report.outcome = "failed"
        report.longrepr = str(error)
        if report.when == "call":
            report.when = "setup"
    elif isinstance(error, AssertionError) and type(error).__name__ == "SloMissed":
        report.longrepr = str(error)


def plain(properties: Iterable[tuple[str, object]]) -> list[tuple[str, object]]:
    """The properties of a test as xdist's channel carries them: what is neither text nor a number, a duration for one, as JUnit has it."""
    return [(name, value if type(value) in _PLAIN else str(value)) for name, value in properties]
