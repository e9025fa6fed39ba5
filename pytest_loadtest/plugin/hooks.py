"""The pytest plugin: options, markers, fixtures and hooks. It forwards and decides nothing.

Nothing heavy is imported here: this module is loaded by every pytest run of every project that has the package installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_loadtest.plugin.session import LoadSession
    from pytest_loadtest.results.load import Load

_SESSION: pytest.StashKey[LoadSession] = pytest.StashKey()

MARKERS = (
    "load(profile, broker=None, target=None, admin=None, live=False, judge=True, search=None, matrix=None, **keys): drive a profile's load",
    "soak: a load test of many hours; deselected unless -m or its node id asks for it",
)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Hooks of ours for users to implement."""
    from pytest_loadtest.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options and ini keys, one group."""
    group = parser.getgroup("loadtest", "load tests of messaging systems")
    group.addoption(
        "--load-scale", metavar="X|auto",
        help="multiply rates (and what profiles call scalable), or the subscribers of a broadcast, by X; auto: what this machine can carry",
    )  # fmt: skip
    group.addoption(
        "--load-duration", metavar="DURATION",
        help="longest measured phase or search step, e.g. 10s; warm-up: half of it, confirmation: twice",
    )  # fmt: skip
    group.addoption(
        "--load-set", metavar="KEY=VALUE", action="append", default=[],
        help="a key of the profiles, dotted as in the mark, with a value as in YAML; wins over mark and matrix; may be repeated",
    )  # fmt: skip
    group.addoption("--load-plan", action="store_true", help="print what each load test would send and need, and run nothing")
    group.addoption("--load-force", action="store_true", help="run even a plan that this machine cannot carry; the run is still judged")
    group.addoption(
        "--load-broker", choices=("auto", "url", "container", "process", "embedded"), default="auto",
        help="how a target comes to be: an address, a container, a process here, an embedded stand-in; auto takes the first that works",
    )  # fmt: skip
    group.addoption("--load-image", metavar="IMAGE", help="container image of the broker under test, as of a registry of your own")
    group.addoption("--load-target", metavar="URL", help="address of the broker under test: pulsar://host:6650, mqtt://host:1883")
    group.addoption("--load-admin-url", metavar="URL", help="admin REST address of the broker under test: http://host:8080")
    group.addoption(
        "--load-driver", metavar="FILE", help="an OMB driver file, or one with a profile's driver section, in place of the profile's own"
    )
    group.addoption("--load-html", metavar="PATH", help="write the session's report there (default: report.html in its folder of results)")
    group.addoption(
        "--load-baseline", metavar="FOLDER|FILE|last-met|none",
        help="hold each run against an earlier one of its test: of a results folder, of a results.json, or the newest comparable met one"
        " and the best of those before it; wins over the ini key load_baseline",
    )  # fmt: skip
    group.addoption(
        "--load-baseline-force", action="store_true", help="judge slo: regression also beside a baseline that is not comparable"
    )
    group.addoption(
        "--load-history", metavar="FILE", help="add a line of JSON for each run to this file; wins over the ini key load_history"
    )
    group.addoption("--load-omb-json", metavar="DIR", help="write each result there too, as the OpenMessaging Benchmark's TestResult JSON")
    group.addoption("--load-metrics", metavar="[HOST:]PORT", help="serve live counters there while load runs, as OpenMetrics; loopback")
    group.addoption(
        "--load-gitlab-metrics", metavar="FILE", help="write the session's results there, as GitLab's metrics report (OpenMetrics)"
    )
    group.addoption("--load-spark-master", metavar="URL", help="Spark master that aggregates samples (default: local[*])")
    group.addoption("--load-spark-remote", metavar="URL", help="Spark Connect server that aggregates samples: sc://host:15002")
    group.addoption("--load-spark-conf", metavar="KEY=VALUE", action="append", default=[], help="Spark setting; may be repeated")
    parser.addini("load_profiles", "folder of the profiles, from the root", default="profiles")
    parser.addini("load_results", "folder of samples and results, from the root", default=".loadtest")
    parser.addini(
        "load_baseline",
        "what --load-baseline is without the option; a test with slo: regression is no data without one",
        default="",
    )
    parser.addini("load_history", "file that gets a line for each run, from the root; none unless given", default="")


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """``--load-plan`` needs no workers, only their number; xdist reads its options after this."""
    if config.option.load_plan and config.pluginmanager.hasplugin("xdist"):
        from pytest_loadtest.plugin.plans import remember_workers

        remember_workers(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave soak tests out unless asked for; check what each load test asks for before anything is started."""
    from pytest_loadtest.plugin.selection import deselect_soak

    deselect_soak(config, items)
    config.stash[_SESSION].check(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spark starts while the rest gets ready."""
    if not session.config.option.load_plan:
        session.config.stash[_SESSION].collected(session.items)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Before xdist starts its workers: each needs its channel."""
    from pytest_loadtest.plugin.session import LoadSession

    loads = session.config.stash[_SESSION] = LoadSession(session.config)
    session.config.pluginmanager.register(loads, "loadtest-session")  # for the one hook that is given no config


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """With ``--load-plan``: print and run nothing."""
    if not session.config.option.load_plan:
        return None
    from pytest_loadtest.plugin.plans import print_plans

    print_plans(session)
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A profile's ``matrix`` is one test for each combination."""
    if "load" in metafunc.fixturenames:
        from pytest_loadtest.plugin.selection import parametrize

        parametrize(metafunc)


@pytest.fixture
def load_matrix(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The keys of the profile that this test changes: a combination of its ``matrix``, or what ``parametrize`` says."""
    return dict(getattr(request, "param", {}))


@pytest.fixture
def load(request: pytest.FixtureRequest, load_matrix: dict[str, Any]) -> Load:
    """The result of the load that the test's profile describes; driven before the body runs.

    With ``@pytest.mark.load(live=True)`` the body drives it: ``load.start()`` returns the result.
    """
    __tracebackhide__ = True
    result: Any = request.config.stash[_SESSION].drive(request.node)
    if hasattr(result, "close"):
        request.addfinalizer(result.close)
    return result  # type: ignore[no-any-return]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """What the body left unjudged is the call's own failure, so that xfail, ``--pdb`` and reports see it as any other."""
    __tracebackhide__ = True
    result = yield
    if item.get_closest_marker("load"):
        from pytest_loadtest.plugin.session import body_returned

        body_returned(item)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A broken run is pytest's *error*, wherever it shows, and its message is for people. xdist can carry whatever the body recorded."""
    report = yield
    if item.get_closest_marker("load"):
        from pytest_loadtest.plugin.session import forget, plain, settle

        report.user_properties = plain(report.user_properties)
        if call.excinfo is not None:
            settle(report, call.excinfo.value, item)
        if call.when == "teardown":
            forget(item)
    return report


def pytest_assertrepr_compare(config: pytest.Config, op: str, left: object, right: object) -> list[str] | None:
    """``load.end_to_end.p99 <= ms(50)`` says by how much it is over."""
    if type(left).__module__ != "pytest_loadtest.values.units" and type(right).__module__ != "pytest_loadtest.values.units":
        return None
    from pytest_loadtest.values.units import compare_lines

    return compare_lines(op, left, right)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """How load tests will run, where there is something to say."""
    from pytest_loadtest.values.addresses import masked

    said = [(name, config.getoption(f"load_{name}")) for name in ("scale", "duration", "target")]
    if config.option.load_set:
        from pytest_loadtest.profile import setting

        said += [("set", setting(*text.partition("=")[::2])) for text in config.option.load_set]
    text = ", ".join(f"{name} {masked(value)}" for name, value in said if value)
    return [f"loadtest: {text}, results in {config.getini('load_results')}"] if text else []


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """A summary of every run, on the controller."""
    session = config.stash.get(_SESSION, None)
    if session is not None:
        session.summarise(terminalreporter)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop brokers and Spark on every way out."""
    session = config.stash.get(_SESSION, None)
    if session is not None:
        session.close()
