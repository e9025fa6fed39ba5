"""The pytest plugin: options, markers, fixtures and hooks.

pytest calls it in every process: the only one, xdist's controller, and each of its workers. Nothing heavy is imported here, because this
module is loaded by every pytest run of every project that has the package installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_loadtest.plugin.session import LoadSession
    from pytest_loadtest.results.load import Load

_SESSION: pytest.StashKey[LoadSession] = pytest.StashKey()

MARKERS = (
    (
        "load(profile, broker=None, target=None, admin=None, live=False, judge=True, search=None, matrix=None, **keys): drive a profile's"
        " load; keys override those of the profile; broker, target and admin override the options of that name"
    ),
    "soak: a load test of many hours; deselected unless selected by -m or by its node id",
)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the hooks that users may implement."""
    from pytest_loadtest.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and ini keys."""
    group = parser.getgroup("loadtest", "load tests of messaging systems")
    _add_load_options(group)
    _add_host_options(group)
    _add_target_options(group)
    _add_result_options(group)
    parser.addini(
        "load_profiles", "folder of the profiles, relative to the root folder", default="profiles"
    )
    parser.addini(
        "load_results",
        "folder for samples and results, relative to the root folder",
        default=".loadtest",
    )
    parser.addini(
        "load_baseline", default="",
        help="default of --load-baseline; a test with regression objectives (slo: regression) is no data if its baseline is missing",
    )  # fmt: skip
    parser.addini(
        "load_hosts",
        "hosts that generate load: the default of --load-hosts; a file is relative to the root folder",
        default="",
    )
    parser.addini("load_fleet", "what starts the workers: the default of --load-fleet", default="")
    parser.addini(
        "load_fleet_tls",
        "PEM file with certificate and key that encrypts the connections of --load-fleet",
        default="",
    )
    parser.addini(
        "load_samples",
        "where samples are stored: the default of --load-samples; a folder is relative to the root folder",
        default="",
    )
    parser.addini(
        "load_history",
        "file to which one line is appended for each run, relative to the root folder; default: none",
        default="",
    )


def _add_load_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--load-scale", metavar="X|auto",
        help="scale every load test by X, e.g. 0.01: its rate and what its profile lists as scalable, or the subscribers of a broadcast."
        " auto: the largest X up to 1 that this machine can carry",
    )  # fmt: skip
    group.addoption(
        "--load-duration", metavar="DURATION",
        help="shorten every load test: the longest measured phase or search step, e.g. 10s; a warm-up takes at most half of it, the"
        " confirmation of a search twice",
    )  # fmt: skip
    group.addoption(
        "--load-set", metavar="KEY=VALUE", action="append", default=[],
        help="change a key of every profile for this session, e.g. slo.endToEndLatency.p99=2s (value as in YAML; null removes the key)."
        " Overrides the mark and the matrix of a test; may be repeated",
    )  # fmt: skip
    group.addoption(
        "--load-plan",
        action="store_true",
        help="print what each load test would send and the resources it needs; run nothing",
    )
    group.addoption(
        "--load-force", action="store_true",
        help="run load tests even if their plan exceeds this machine; they are generator-limited if it cannot keep up",
    )  # fmt: skip


def _add_host_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--load-samples", metavar="URI",
        help="store samples below this URI instead of in load_results: s3://bucket/prefix, gs://, abfs://, hdfs://, or the path of a folder"
        " that all hosts share. Credentials come from the environment. Overrides the ini key load_samples",
    )  # fmt: skip
    group.addoption(
        "--load-hosts", metavar="FILE|HOST,…",
        help="generate load on these hosts: a YAML file of hosts, or names that ssh knows, e.g. build1,4*build2: one worker on build1 and"
        " four on build2. -n adds workers on this host. Overrides the ini key load_hosts",
    )  # fmt: skip
    group.addoption(
        "--load-fleet", metavar="spark[:DIRECTORY]",
        help="let Spark start the workers of -n, one in each of its slots, in a directory of its nodes with the same tests (default: the"
        " current one). Spark is the one that aggregates (--load-spark-master, --load-spark-remote). Overrides the ini key load_fleet",
    )  # fmt: skip


def _add_target_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--load-broker", choices=("auto", "url", "container", "process", "embedded"), default="auto",
        help="how to get the broker under test: url (connect to the given address), container, process (a local installation) or embedded"
        " (a stand-in without a real broker). auto (the default): the given address or image, otherwise the first of these that works",
    )  # fmt: skip
    group.addoption(
        "--load-image",
        metavar="IMAGE",
        help="container image of the broker under test, e.g. one of your own registry",
    )
    group.addoption(
        "--load-target",
        metavar="URL",
        help="address of the broker under test: pulsar://host:6650, mqtt://host:1883",
    )
    group.addoption(
        "--load-admin-url",
        metavar="URL",
        help="address of the admin REST API of the broker under test: http://host:8080",
    )
    group.addoption(
        "--load-driver", metavar="FILE",
        help="driver configuration used instead of the profile's: a file with a driver section, or an OpenMessaging Benchmark driver file",
    )  # fmt: skip


def _add_result_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--load-html",
        metavar="PATH",
        help="path of the session's HTML report (default: report.html in the session's results)",
    )
    group.addoption(
        "--load-baseline", metavar="FOLDER|FILE|last-met|none",
        help="compare each run with an earlier run of its test, from a results folder or a results.json. last-met: the newest comparable"
        " run that met its objectives, and the best before it. Overrides the ini key load_baseline; none: compare with nothing",
    )  # fmt: skip
    group.addoption(
        "--load-baseline-force", action="store_true",
        help="judge the regression objectives (slo: regression) even if the baseline is not comparable, e.g. from another machine",
    )  # fmt: skip
    group.addoption(
        "--load-history",
        metavar="FILE",
        help="append one line of JSON for each run to FILE; overrides the ini key load_history",
    )
    group.addoption(
        "--load-omb-json",
        metavar="DIR",
        help="also write each result to DIR, as OpenMessaging Benchmark's TestResult JSON",
    )
    group.addoption(
        "--load-metrics", metavar="[HOST:]PORT",
        help="serve live counters over HTTP in OpenMetrics format while load runs, e.g. for Prometheus (default host: 127.0.0.1)",
    )  # fmt: skip
    group.addoption(
        "--load-gitlab-metrics",
        metavar="FILE",
        help="write the results of the session to FILE as a GitLab metrics report",
    )
    group.addoption(
        "--load-spark-master",
        metavar="URL",
        help="Spark master that aggregates the samples (default: local[*])",
    )
    group.addoption(
        "--load-spark-remote",
        metavar="URL",
        help="Spark Connect server that aggregates the samples: sc://host:15002",
    )
    group.addoption(
        "--load-spark-conf", metavar="KEY=VALUE", action="append", default=[],
        help="set a Spark property, e.g. spark.driver.memory=8g; may be repeated",
    )  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Add the markers. On a worker of another host, which lacks the controller's folders, pytest chooses its temporary folder itself."""
    basetemp = config.option.basetemp
    if (
        "loadtest_host" in getattr(config, "workerinput", {})
        and basetemp
        and not Path(basetemp).parent.is_dir()
    ):
        config.option.basetemp = None
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Add the workers of ``--load-hosts``; start none for ``--load-plan``, which needs only their number. xdist reads its options later."""
    if (config.option.load_fleet or config.getini("load_fleet")) and not hasattr(
        config, "workerinput"
    ):
        from pytest_loadtest.plugin.spark_fleet import check_fleet

        check_fleet(config)
    if (config.option.load_hosts or config.getini("load_hosts")) and not hasattr(
        config, "workerinput"
    ):
        from pytest_loadtest.plugin.session import add_hosts

        add_hosts(config)
    if config.option.load_plan and config.pluginmanager.hasplugin("xdist"):
        from pytest_loadtest.plugin.plans import remember_workers

        remember_workers(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect soak tests that were not selected explicitly; check every load test before anything is started."""
    from pytest_loadtest.plugin.selection import deselect_soak

    deselect_soak(config, items)
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
    session.config.pluginmanager.register(
        loads, "loadtest-session"
    )  # for the hooks that get no config


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
    """The keys of the profile that this test changes: a combination of its ``matrix``, or the parameter of ``parametrize``."""
    return dict(getattr(request, "param", {}))


@pytest.fixture
def load(request: pytest.FixtureRequest, load_matrix: dict[str, Any]) -> Load:
    """The result of the load that the test's profile describes. The load is driven before the body runs.

    With ``@pytest.mark.load(live=True)`` the body drives it: ``load.start()`` returns the result.
    """
    __tracebackhide__ = True
    result: Any = request.config.stash[_SESSION].drive(request.node)
    if hasattr(result, "close"):
        request.addfinalizer(result.close)
    return result  # type: ignore[no-any-return]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Judge what the body did not, as part of the call, so that xfail, ``--pdb`` and reports treat a miss like any failure."""
    __tracebackhide__ = True
    result = yield
    # A method of unittest.TestCase returns, and its exceptions are kept here (private) for the report.
    if item.get_closest_marker("load") and not getattr(item, "_excinfo", None):
        from pytest_loadtest.plugin.session import ensure_judged

        ensure_judged(item)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a broken run as pytest's *error* with a readable message; convert properties to types that xdist can transfer."""
    report = yield
    if item.get_closest_marker("load"):
        from pytest_loadtest.plugin.session import forget, plain, report_error

        report.user_properties = plain(report.user_properties)
        if call.excinfo is not None:
            report_error(report, call.excinfo.value, item)
        if call.when == "teardown":
            forget(item)
    return report


def pytest_assertrepr_compare(
    config: pytest.Config, op: str, left: object, right: object
) -> list[str] | None:
    """Explain a failed comparison such as ``load.end_to_end.p99 <= ms(50)``: by how much the value is over."""
    if (
        type(left).__module__ != "pytest_loadtest.values.units"
        and type(right).__module__ != "pytest_loadtest.values.units"
    ):
        return None
    from pytest_loadtest.values.units import compare_lines

    return compare_lines(op, left, right)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return a line with the options that change load tests, if there are any."""
    from pytest_loadtest.values.addresses import masked

    options = [(name, config.getoption(f"load_{name}")) for name in ("scale", "duration", "target")]
    if config.option.load_set:
        from pytest_loadtest.profile import setting

        options += [("set", setting(*text.partition("=")[::2])) for text in config.option.load_set]
    text = ", ".join(f"{name} {masked(value)}" for name, value in options if value)
    return [f"loadtest: {text}, results in {config.getini('load_results')}"] if text else []


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
