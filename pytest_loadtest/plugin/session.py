"""One pytest session: the fleet that drives its load tests, and their results.

Called by the hooks in each of three kinds of process: the only one, xdist's controller, or one of
its workers. A load test that drove no load never passes, nor one that missed its objectives unless
its mark has ``judge=False``.
"""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_loadtest.errors import BrokenRun, UsageError
from pytest_loadtest.fleet.option_rows import option_or_ini
from pytest_loadtest.plugin.aggregate_hook import AggregateHook
from pytest_loadtest.plugin.allure import (
    AllureCorrections,
    allure_result,
    silence_allure,
    write_crashed,
    writes_allure,
)
from pytest_loadtest.plugin.early_runs import (
    BROKEN,
    EARLY,
    SET_UP,
    add_properties,
    begin_early,
    ensure_before_load,
    go_on,
    noting_broken,
)
from pytest_loadtest.plugin.reporting import CiReports, whose_load, write_report, xfail_names
from pytest_loadtest.plugin.selection import (
    check_load_tests,
    fixtures_of,
    load_mark,
    load_set,
    make_request,
)
from pytest_loadtest.plugin.silence import MemberSilence, reporters
from pytest_loadtest.report.ended_runs import EndedRuns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_loadtest.fixture.handle import LiveLoad
    from pytest_loadtest.fixture.services import LoadTarget
    from pytest_loadtest.fleet.link import Link
    from pytest_loadtest.fleet.local import LocalFleet
    from pytest_loadtest.fleet.messages import Request
    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.fleet.run_controller import RunController
    from pytest_loadtest.fleet.spark_fleet import SparkFleet
    from pytest_loadtest.fleet.xdist import GangController, GangWorker
    from pytest_loadtest.report.live_metrics import LiveMetrics
    from pytest_loadtest.results.load import Load

IN_CALL = pytest.StashKey[bool]()
"""There while the call of a load test runs: a report that is made then is that of a subtest."""
_ATTEMPTS = pytest.StashKey[int]()
# Not their subclasses: execnet transfers only the types themselves.
_PLAIN = (str, int, float, bool, type(None))
_LOADS: pytest.StashKey[Load | LiveLoad] = pytest.StashKey()
COMMANDS: pytest.StashKey[Mapping[str, str]] = pytest.StashKey()
"""Name of the host that each command of an execnet specification starts a worker on."""
FLEET: pytest.StashKey[SparkFleet] = pytest.StashKey()


class LoadSession:
    """The fleet of this process, made on demand.

    Under xdist at once, because workers get their channel when they start.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._run_controller: RunController | None = None
        self._local: LocalFleet | None = None
        self._controller: GangController | None = None
        self._worker: GangWorker | None = None
        self._stop_serving: Callable[[], None] = lambda: None
        self._report_line = ""
        self._hook = AggregateHook(config.pluginmanager, config.rootpath)
        if writes_allure(config):
            AllureCorrections().register(config)
        if "loadtest_channel" in getattr(config, "workerinput", {}):
            self._join_gang()
            return
        config.pluginmanager.register(CiReports(config, self.ended), "loadtest-ci")
        if config.pluginmanager.hasplugin("dsession"):
            self._lead_gang()

    def _join_gang(self) -> None:
        from pytest_loadtest.fleet.xdist import GangWorker

        if writes_allure(self._config):
            self._worker = GangWorker(self._config, allure_result)
        else:
            self._worker = GangWorker(self._config)
        self._config.pluginmanager.register(self._worker, "loadtest-worker")

    def _complete_gang(self, worker: GangWorker) -> None:
        """Register the plugins that must be around all others, when all others are registered."""
        from pytest_loadtest.fleet.xdist import GangRelease

        def is_member() -> bool:
            return worker.is_member

        silence = MemberSilence(self._config, is_member)
        silence.begin()
        if writes_allure(self._config):
            silence_allure(self._config, is_member)
        self._config.pluginmanager.register(silence, "loadtest-silence")
        self._config.pluginmanager.register(GangRelease(worker), "loadtest-release")

    def _lead_gang(self) -> None:
        from pytest_loadtest.fleet.xdist import GangController

        def report_crash(described: Any, report: pytest.TestReport) -> None:
            if described is not None:
                write_crashed(described, report)

        hosts = self._config.stash.get(COMMANDS, {})
        self._controller = GangController(
            self._config, self._make_run_controller(), hosts, report_crash
        )
        self._config.pluginmanager.register(self._controller, "loadtest-controller")

    def _make_run_controller(self) -> RunController:
        from pytest_loadtest.fleet.options import Options
        from pytest_loadtest.fleet.run_controller import RunController
        from pytest_loadtest.report.live import LiveLine

        try:
            options = Options.of(self._config)
            fleet = self._config.stash.get(FLEET, None)
            self._run_controller = RunController(
                options, LiveLine(self._config), self._hook, self._serve(options), fleet
            )
        except UsageError as error:  # an address, the baseline, a port in use
            raise pytest.UsageError(str(error)) from None
        return self._run_controller

    def _serve(self, options: Options) -> LiveMetrics | None:
        """Start the server of ``--load-metrics``, if requested.

        :raises UsageError: its port is in use.
        """
        if (
            options.metrics is None
            or self._config.option.collectonly
            or self._config.option.load_plan
        ):
            return None
        from pytest_loadtest.report.live_metrics import LiveMetrics, serve

        metrics = LiveMetrics(lambda: self.ended().outcomes())
        self._stop_serving = serve(options.metrics, metrics)
        return metrics

    def check(self, items: list[pytest.Item]) -> None:
        """Check every load test before anything is started.

        :raises pytest.UsageError: one is wrong; for a worker of xdist the controller raises it.
        """
        load_tests = [
            item for item in items if item.get_closest_marker("load") or fixtures_of(item)
        ]
        if not load_tests:
            return
        try:
            if self._worker is None:
                self._make_run_controller()  # checks the options
            check_load_tests(self._config, load_tests)
            self._hook.check()
            reporters(self._config)
        except (pytest.UsageError, UsageError) as error:
            if self._worker is None:
                raise pytest.UsageError(str(error)) from None
            self._worker.report_usage_error(str(error))
            items.clear()

    def collected(self, items: list[pytest.Item]) -> None:
        """Start Spark as soon as a load test is certain to run.

        Under xdist the workers report their load tests to the controller.
        """
        has_load_tests = any(item.get_closest_marker("load") for item in items)
        if self._config.option.collectonly or not has_load_tests:
            return
        if self._worker is not None:
            self._complete_gang(self._worker)
        if self._run_controller is None:
            return
        from pytest_loadtest.fleet.interrupts import interrupt_on_sigterm

        interrupt_on_sigterm()
        self._run_controller.spark.start()

    @pytest.hookimpl(trylast=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Kill Spark on Ctrl-C or SIGTERM, instead of waiting for it.

        After the runs were given up, so that this is their reason.
        """
        if self._run_controller is not None:
            self._run_controller.spark.interrupt()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Stop Spark before xdist waits for its workers, unless Spark runs them.

        Write the report before JUnit's file, which names it.
        """
        controller = self._run_controller
        if controller is not None:
            if FLEET not in self._config.stash:
                controller.spark.begin_stop()
            controller.stopwatch.begin("report")
            self._report_line = write_report(self._config, controller)
            controller.stopwatch.begin("end")

    def drive(self, item: pytest.Item) -> Any:
        """Return the value of the fixture ``load``.

        It is the result of the finished run, or with ``live=True`` the handle that starts
        it.
        """
        early = item.stash.get(EARLY, None)
        request = self._request(item) if early is None else early.request
        item.stash[SET_UP] = True
        mark = load_mark(item)
        is_member = self._worker is not None and not self._worker.leads
        # Members run no body that could start their share: they start here and wait for the lead.
        if not mark.live or is_member:
            load = self._lead(request, item)
            if load is not None and mark.judge:
                item.stash[_LOADS] = load
                if self._config.getoption("setuponly", False):  # there is no call to judge it
                    ensure_judged(item)
            return load
        from pytest_loadtest.fixture.handle import LiveLoad

        def run(changes: Mapping[str, Any], on_link: Callable[[Link], None] | None) -> Load | None:
            changed = request
            if changes and early is not None:
                raise UsageError(
                    "load.find_peak(): the run was planned for load_target: write search=True in"
                    " the mark, or search={…}, and call load.start()"
                )
            if changes:
                changed = make_request(self._config, item, request.attempt, changes)
            return self._lead(changed, item, on_link)

        item.stash[_LOADS] = live = LiveLoad(run, judge=mark.judge)
        return live

    def _lead(
        self, request: Request, item: pytest.Item, on_link: Callable[[Link], None] | None = None
    ) -> Load | None:
        early = item.stash.get(EARLY, None)
        with noting_broken(item):
            if early is None:
                result = self._fleet().run(request, on_link)
            else:
                result = go_on(early, on_link)
        if result is None:
            return None
        # Every test has the same names, and pytest keeps them until the session ends.
        add_properties(item, [(sys.intern(name), value) for name, value in result.properties])
        try:
            result.load.ensure_judged()
        except BrokenRun as error:
            item.stash[BROKEN] = error
            raise
        return result.load

    def _fleet(self) -> GangWorker | LocalFleet:
        """Return what drives load in this process."""
        if self._worker is not None:
            return self._worker
        if self._local is None:
            from pytest_loadtest.fleet.local import LocalFleet

            assert self._run_controller is not None
            self._local = LocalFleet(self._run_controller)
        return self._local

    def target(self, item: pytest.Item) -> LoadTarget:
        """Return the value of the fixture ``load_target``: begin the run, but not its load."""
        ensure_before_load(item, "load_target")
        return begin_early(item, self._request(item), self._fleet().begin)

    def _request(self, item: pytest.Item) -> Request:
        from pytest_loadtest.profile import setting

        attempt = item.stash[_ATTEMPTS] = item.stash.get(_ATTEMPTS, 0) + 1
        for key, value in load_set(self._config.option.load_set).items():
            add_properties(item, [("load.set", setting(key, value))])
        return make_request(self._config, item, attempt)

    def ended(self) -> EndedRuns:
        """Return the runs of the session that have ended."""
        return EndedRuns() if self._run_controller is None else self._run_controller.documents

    def summarise(self, terminalreporter: Any) -> None:
        """Print the summary of every run of the session, as much as the verbosity asks for."""
        controller = self._run_controller
        if controller is None or not controller.documents:
            return
        from pytest_loadtest.report import terminal

        verbosity = self._config.get_verbosity()
        lines = terminal.brief_lines
        if verbosity > 0:
            lines = terminal.summary_lines
        elif verbosity < 0:
            lines = terminal.quiet_lines
        if verbosity >= 0:
            terminalreporter.section("load tests")
        # Each document is read from its file, and can be large: once, and one after the other.
        outcomes = []
        reduced = 0
        for document in controller.documents:
            outcomes.append(document.verdict.outcome)
            reduced += document.scale is not None
            for line in lines(document):
                terminalreporter.write_line(line)
        terminalreporter.write_line(terminal.session_line(outcomes, reduced))
        for line in (*controller.outputs.unwritten, self._report_line):
            if line:
                terminalreporter.write_line(line)
        if verbosity > 1:
            from pytest_loadtest.observe.processes import process_start

            parts = controller.stopwatch.text(process_start())
            terminalreporter.write_line(f"time       {parts}")

    def close(self) -> None:
        """Stop everything that this session started."""
        self._stop_serving()
        for part in (
            self._local,
            self._controller,
            self._config.stash.get(FLEET, None),
            self._run_controller,
        ):
            if part is not None:
                part.close()
        if self._run_controller is not None:
            from pytest_loadtest.fleet.interrupts import restore_sigterm

            restore_sigterm()


def add_hosts(config: pytest.Config) -> None:
    """Add the workers of ``--load-hosts`` to those that xdist starts.

    :raises pytest.UsageError: the hosts cannot be read or reached, or xdist is disabled.
    """
    from pytest_loadtest.fleet.hosts import (
        host_commands,
        host_shares,
        hosts_of,
        probe_hosts,
        worker_specs,
    )
    from pytest_loadtest.fleet.options import HOSTS

    if not config.pluginmanager.hasplugin("xdist"):
        raise pytest.UsageError(
            "--load-hosts: workers on other hosts are workers of pytest-xdist,"
            " which is disabled here"
        )
    try:
        text, _ = option_or_ini(config, "load_hosts")
        folder = config.invocation_params.dir
        if config.option.load_hosts is None:
            folder = config.rootpath
        hosts = hosts_of(text, folder)
        facts = probe_hosts(hosts)
        elsewhere = [name for name, host in facts.items() if host.node != platform.node()]
        if elsewhere and config.pluginmanager.hasplugin("rerunfailures"):
            raise UsageError(
                "--load-hosts: the workers of pytest-rerunfailures connect to 127.0.0.1,"
                f" where they do not find it on host {elsewhere[0]}: add -p no:rerunfailures"
            )
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    local = local_workers(config)
    config.option.numprocesses = None
    config.option.tx = worker_specs(hosts, local)
    if config.option.dist == "no":
        config.option.dist = "load"
    config.stash[COMMANDS] = host_commands(hosts)
    config.stash[HOSTS] = host_shares(hosts, facts, local)
    # A worker whose host is gone cannot be started again, and xdist would crash on it.
    if config.option.maxworkerrestart is None:
        config.option.maxworkerrestart = "0"


def local_workers(config: pytest.Config) -> int:
    """Return the number of workers that xdist's option ``-n`` requests."""
    number = config.option.numprocesses
    if number in ("auto", "logical"):
        number = config.hook.pytest_xdist_auto_num_workers(config=config)
    return int(number or 0)


def ensure_judged(item: pytest.Item) -> None:
    """Judge a load test whose body has returned, as far as the body did not.

    :raises SloMissed: objectives were missed. :raises BrokenRun: the run broke.
    :raises UsageError: a live load was not started or finished, or the test drove no load, because
        its ``load`` is another fixture.
    """
    __tracebackhide__ = True
    if SET_UP not in item.stash:
        raise UsageError(
            f"{item.nodeid} is marked load but drove no load: its `load` is {whose_load(item)}:"
            " rename that one, or let it use the fixture `load` of pytest-loadtest"
        )
    load = item.stash.get(_LOADS, None)
    # Only the body of a live test may catch the error; here a fixture did.
    if load is None and BROKEN in item.stash:
        raise item.stash[BROKEN]
    if load is not None:
        load.ensure_asserted()


def _hidden_by_skip(item: pytest.Item) -> BaseException | None:
    """Return the error of a load test that was skipped after its load had begun.

    None if it was met, if no load had begun, or if a subtest alone was skipped. A fixture that
    catches the error of a broken run and skips does not hide it.

    A skip means that there is nothing to judge. With a load, it counts as much as a body that
    returns.
    """
    load = item.stash.get(_LOADS, None)
    # Only the handle of a live test knows it; any other has driven its load in the setup.
    began = getattr(load, "began", SET_UP in item.stash)
    if not began or IN_CALL in item.stash:
        return None
    try:
        ensure_judged(item)
    except (BrokenRun, UsageError, AssertionError) as error:
        return error
    return None


def forget(item: pytest.Item) -> None:
    """Release the result of a load test: pytest keeps its items until the session ends."""
    keys: tuple[pytest.StashKey[Any], ...] = (_LOADS, BROKEN, EARLY, SET_UP)
    for key in keys:
        if key in item.stash:
            del item.stash[key]


def report_error(report: pytest.TestReport, error: BaseException, item: pytest.Item) -> None:
    """Turn the report of a broken run into an error with a readable text.

    xdist and JUnit read the text from the report.

    xfail expects a missed objective; a broken run, which proves nothing about the target, only if
    ``xfail(raises=…)`` names its class.
    """
    if report.skipped and not hasattr(report, "wasxfail"):
        hidden = _hidden_by_skip(item)
        if hidden is None:
            return
        # A miss is a failure of the call, even if a fixture called pytest.skip() after the load.
        error = hidden
        report.outcome = "failed"
        report.when = "call"
        report.hidden_by_skip = True  # type: ignore[attr-defined]
    if hasattr(report, "wasxfail"):  # the body may have raised another error after the run broke
        unreported = getattr(item.stash.get(_LOADS, None), "unreported_error", None)
        error = item.stash.get(BROKEN, None) or unreported or error
    if isinstance(error, (BrokenRun, UsageError)):
        if hasattr(report, "wasxfail"):
            if xfail_names(item, error):
                return
            del report.wasxfail
            report.outcome = "failed"
        report.longrepr = str(error)
        if report.when == "call":
            report.when = "setup"
    elif isinstance(error, AssertionError) and type(error).__name__ == "SloMissed":
        report.longrepr = str(error)


def plain(properties: Iterable[tuple[str, object]]) -> list[tuple[str, object]]:
    """Return the properties with values that xdist can transfer.

    Others than texts and numbers, e.g. durations, become text, as in JUnit.
    """
    # pytest keeps the three reports of every test: they share the pairs
    pairs = []
    for pair in properties:
        name, value = pair
        pairs.append(pair if type(value) in _PLAIN else (name, str(value)))
    return pairs
