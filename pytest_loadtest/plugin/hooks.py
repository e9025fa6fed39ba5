"""The pytest plugin: options, markers, fixtures and hooks.

pytest calls it in every process: the only one, xdist's controller, and each of its workers. Nothing
heavy is imported here, because this module is loaded by every pytest run of every project that has
the package installed.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_loadtest.fixture.services import LoadService, LoadTarget
    from pytest_loadtest.plugin.session import LoadSession
    from pytest_loadtest.results.load import Load

_SESSION: pytest.StashKey[LoadSession] = pytest.StashKey()

MARKERS = (
    (
        "load(profile, broker_mode=None, target=None, admin_url=None, live=False, judge=True,"
        " search=None, matrix=None, **keys): drive a profile's load; keys override those of the"
        " profile; broker_mode, target and admin_url override the options of that name"
    ),
    "soak: a load test of many hours; deselected unless selected by -m or by its node id",
)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the hooks that users may implement."""
    from pytest_loadtest.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and ini keys."""
    from pytest_loadtest.fleet.option_rows import ROWS

    group = parser.getgroup("loadtest", "load tests of messaging systems")
    for row in ROWS:
        row.add(parser, group)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Add the markers.

    On a worker of another host, which lacks the controller's folders, pytest chooses its temporary
    folder itself.
    """
    basetemp = config.option.basetemp
    is_elsewhere = "loadtest_host" in getattr(config, "workerinput", {})
    if basetemp and is_elsewhere and not Path(basetemp).parent.is_dir():
        config.option.basetemp = None
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Add the workers of ``--load-hosts``; start none for ``--load-plan``.

    A plan needs only their number. xdist reads its options later.
    """
    from pytest_loadtest.fleet.option_rows import option_or_ini

    fleet, _ = option_or_ini(config, "load_fleet")
    hosts, _ = option_or_ini(config, "load_hosts")
    is_worker = hasattr(config, "workerinput")
    if fleet and not is_worker:
        from pytest_loadtest.plugin.spark_fleet import check_fleet

        check_fleet(config)
    if hosts and not is_worker:
        from pytest_loadtest.plugin.session import add_hosts

        add_hosts(config)
    if config.option.load_plan and config.pluginmanager.hasplugin("xdist"):
        from pytest_loadtest.plugin.plans import remember_workers

        remember_workers(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect soak tests that were not selected explicitly.

    Check every load test before anything is started.
    """
    from pytest_loadtest.plugin.selection import deselect_soak, set_up_load_last

    deselect_soak(config, items)
    set_up_load_last(items)
    config.stash[_SESSION].check(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start Spark in the background as soon as there are load tests."""
    if not session.config.option.load_plan:
        session.config.stash[_SESSION].collected(session.items)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Make the session before xdist starts its workers: each worker needs its channel."""
    from pytest_loadtest.plugin.session import LoadSession
    from pytest_loadtest.plugin.spark_fleet import start_fleet

    start_fleet(session.config)
    loads = session.config.stash[_SESSION] = LoadSession(session.config)
    # For the hooks that get no config.
    session.config.pluginmanager.register(loads, "loadtest-session")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Print the plans for ``--load-plan`` instead of running tests."""
    if not session.config.option.load_plan:
        return None
    from pytest_loadtest.plugin.plans import print_plans

    print_plans(session)
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test for each combination of a profile's ``matrix``."""
    if "load" in metafunc.fixturenames:
        from pytest_loadtest.plugin.selection import parametrize

        parametrize(metafunc)


@pytest.fixture
def load_matrix(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The keys of the profile that this test changes.

    They are a combination of its ``matrix``, or the parameter of ``parametrize``.
    """
    return dict(getattr(request, "param", {}))


@pytest.fixture
def load(request: pytest.FixtureRequest, load_matrix: dict[str, Any]) -> Load:
    """The result of the load that the test's profile describes.

    The load is driven before the body runs.

    With ``@pytest.mark.load(live=True)`` the body drives it: ``load.start()`` returns the result.
    """
    __tracebackhide__ = True
    result: Any = request.config.stash[_SESSION].drive(request.node)
    if hasattr(result, "close"):
        request.addfinalizer(result.close)
    return result  # type: ignore[no-any-return]


@pytest.fixture
def load_target(request: pytest.FixtureRequest) -> LoadTarget:
    """The target of the load, before the load begins: its addresses, and the run's topics.

    They are those of this test's run.
    """
    __tracebackhide__ = True
    from pytest_loadtest.plugin.early_runs import end_early

    request.addfinalizer(partial(end_early, request.node))
    return request.config.stash[_SESSION].target(request.node)


@pytest.fixture
def load_service(request: pytest.FixtureRequest, load_target: LoadTarget) -> LoadService:
    """Starts a service under test, before the load begins, once for all workers."""
    from pytest_loadtest.fixture.services import LoadService
    from pytest_loadtest.plugin.early_runs import start_service

    return LoadService(load_target, partial(start_service, request.node))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin an attempt of a load test: it may end before it has a run of its own."""
    if item.get_closest_marker("load"):
        from pytest_loadtest.plugin.early_runs import remove_properties

        remove_properties(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Judge what the body did not, as part of the call.

    So xfail, ``--pdb`` and reports treat a miss like any failure.
    """
    __tracebackhide__ = True
    if not item.get_closest_marker("load"):
        return (yield)
    from pytest_loadtest.plugin.session import IN_CALL, ensure_judged

    item.stash[IN_CALL] = True
    try:
        result = yield
    finally:
        del item.stash[IN_CALL]
    # A method of unittest.TestCase returns, and its exceptions are kept here (private) for the
    # report.
    if not getattr(item, "_excinfo", None):
        ensure_judged(item)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a broken run as pytest's *error* with a readable message.

    Convert properties to types that xdist can transfer.
    """
    mark = item.get_closest_marker("load")
    fails = call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception)
    if mark and fails and item.config.pluginmanager.hasplugin("timeout"):
        # All workers have one timeout: when the first one is over, so are soon those of the others,
        # whose reports say that the run was given up. pytest-timeout ends its timer after a report
        # of a failure, and within one it would end the session. That of a skipped test goes on.
        item.ihook.pytest_timeout_cancel_timer(item=item)
    report = yield
    if mark:
        from pytest_loadtest.plugin.session import forget, plain, report_error

        report.user_properties = plain(report.user_properties)
        # Only pytest's report sets that of a method of unittest.TestCase.
        if call.excinfo is not None:
            report_error(report, call.excinfo.value, item)
        if call.when == "teardown":
            forget(item)
    return report


def pytest_assertrepr_compare(
    config: pytest.Config, op: str, left: object, right: object
) -> list[str] | None:
    """Explain a failed comparison such as ``load.end_to_end.p99 <= ms(50)``: the excess."""
    modules = {type(left).__module__, type(right).__module__}
    if "pytest_loadtest.values.units" not in modules:
        return None
    from pytest_loadtest.values.units import compare_lines

    return compare_lines(op, left, right)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return a line with the options that change load tests, if there are any."""
    from pytest_loadtest.values.addresses import masked

    options = [(name, config.getoption(f"load_{name}")) for name in ("scale", "duration", "target")]
    if config.option.load_set:
        from pytest_loadtest.profile import setting

        for text in config.option.load_set:
            key, _, value = text.partition("=")
            options.append(("set", setting(key, value)))
    shown = [f"{name} {masked(value)}" for name, value in options if value]
    if not shown:
        return []
    return [f"loadtest: {', '.join(shown)}, results in {config.getini('load_results')}"]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print a summary of every run, on the controller."""
    session = config.stash.get(_SESSION, None)
    if session is not None:
        session.summarise(terminalreporter)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop brokers and Spark, however the session ends."""
    session = config.stash.get(_SESSION, None)
    if session is not None:
        session.close()
