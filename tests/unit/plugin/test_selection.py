"""The arguments of a load mark, and the selection of tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_loadtest import profile as profiles
from pytest_loadtest.errors import UsageError
from pytest_loadtest.plugin.selection import (
    LoadMark,
    check_load_tests,
    deselect_soak,
    load_mark,
    load_profile,
)

PROFILE = (
    "name: small\nmessageSize: 64\nproducerRate: 10\ntestDuration: 1s\ndriver: {name: loopback}\n"
    "slo: {throughput: 99%}\n"
)


PARAMETER = "@pytest.mark.parametrize('m', [pytest.param(1, marks=pytest.mark.load('varied'))])\n"


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Load a profile, and with it numpy and the drivers' settings.

    pytester removes modules imported while it runs.
    """
    profiles.loads(PROFILE, "small.yaml")


@pytest.fixture
def rooted(pytester: pytest.Pytester) -> pytest.Pytester:
    """Return a folder with one profile.

    Its sessions do not collect the garbage of this process five times each, which would take a
    second.
    """
    pytester.makeini("[pytest]\naddopts = -p no:xdist -p no:unraisableexception -p no:asyncio\n")
    pytester.mkdir("profiles")
    (pytester.path / "profiles" / "small.yaml").write_text(PROFILE)
    return pytester


def items(pytester: pytest.Pytester, source: str) -> list[pytest.Item]:
    return pytester.getitems("import pytest\n" + source)


@pytest.mark.parametrize(
    ("arguments", "mark"),
    [
        ("'small'", LoadMark(profile="small")),
        ("profile='small', live=True", LoadMark(profile="small", live=True)),
        (
            "'small', broker_mode='url', target='mqtt://h:1', admin_url='http://h'",
            LoadMark(profile="small", broker_mode="url", target="mqtt://h:1", admin_url="http://h"),
        ),
        (
            "'small', broker='url', admin='http://h'",
            LoadMark(profile="small", broker_mode="url", admin_url="http://h"),
        ),
    ],
)
def test_a_mark_has_its_profile_by_position_or_name(
    rooted: pytest.Pytester, arguments: str, mark: LoadMark
) -> None:
    """All other arguments by name."""
    (item,) = items(rooted, f"@pytest.mark.load({arguments})\ndef test_it(load): ...")
    assert load_mark(item) == mark


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def test_it(load): ...", "has no mark: add @pytest.mark.load"),
        ("@pytest.mark.load()\ndef test_it(load): ...", "needs one profile"),
        ("@pytest.mark.load('a', 'b')\ndef test_it(load): ...", "needs one profile"),
        ("@pytest.mark.load('a', profile='a')\ndef test_it(load): ...", "needs one profile"),
        ("@pytest.mark.load('a', search=3)\ndef test_it(load): ...", "search=True"),
        (
            "@pytest.mark.load('small', broker_mode='docker')\ndef test_it(load): ...",
            "broker_mode='docker'",
        ),
        (
            "@pytest.mark.load('small', broker='url', broker_mode='url')\ndef test_it(load): ...",
            "has broker and broker_mode, which are the same: remove broker",
        ),
        ("@pytest.mark.load(3)\ndef test_it(load): ...", "profile"),
        ("@pytest.mark.load('small', live='yes')\ndef test_it(load): ...", "live"),
        (
            "@pytest.mark.load('small')\n@pytest.mark.load('other')\ndef test_it(load): ...",
            "has several marks load, and",
        ),
        (
            "@pytest.mark.load('small')\n" + PARAMETER + "def test_it(load, m): ...",
            "has several marks load, and",
        ),
    ],
)
def test_a_wrong_mark_is_an_error_that_names_the_test_and_the_remedy(
    rooted: pytest.Pytester, source: str, text: str
) -> None:
    (item,) = items(rooted, source)
    with pytest.raises(UsageError, match="py::test_it") as error:
        load_mark(item)
    assert text in str(error.value)


CLASSES = """\
class TestBase:
    pytestmark = pytest.mark.load("of base")
    def test_it(self, load): ...
    @pytest.mark.load("of test")
    def test_own(self, load): ...
class TestDerived(TestBase):
    pytestmark = pytest.mark.load("of derived")
class TestSame(TestBase):
    pytestmark = pytest.mark.load("of base")
"""


def test_the_mark_of_a_derived_class_does_not_replace_that_of_its_base(
    rooted: pytest.Pytester,
) -> None:
    """pytest would use that of the base class. A mark of the test itself goes before both."""
    profiles = {}
    for item in items(rooted, CLASSES):
        try:
            profiles[item.nodeid.partition("::")[2]] = load_mark(item).profile
        except UsageError as error:
            profiles[item.nodeid.partition("::")[2]] = str(error).partition(" has ")[2]
    assert profiles == {
        "TestBase::test_it": "of base",
        "TestBase::test_own": "of test",
        "TestDerived::test_own": "of test",
        "TestDerived::test_it": "several marks load from TestDerived and its base classes,"
        " and only one would apply: keep one",
        "TestSame::test_it": "of base",
        "TestSame::test_own": "of test",
    }


MATRIX = (
    "@pytest.mark.load('varied')\n@pytest.mark.parametrize('load_matrix', [{'messageSize': 99}],"
    " indirect=True)\n"
)


@pytest.mark.parametrize(
    ("marks", "argument", "sizes"),
    [
        (MATRIX, "load_matrix", [99]),
        ("@pytest.mark.load('varied')\n@pytest.mark.parametrize('m', [1])\n", "m", [64, 128]),
        (PARAMETER, "m", None),
    ],
)
def test_a_matrix_is_never_left_out(
    rooted: pytest.Pytester, marks: str, argument: str, sizes: list[int] | None
) -> None:
    """A mark of pytest.param comes too late for it, which is an error."""
    (rooted.path / "profiles" / "varied.yaml").write_text(
        PROFILE + "matrix: {messageSize: [64, 128]}\n"
    )
    found = items(rooted, f"{marks}def test_it(load, {argument}): ...")
    if sizes is None:
        with pytest.raises(
            UsageError,
            match=r"py::test_it\[1\]: the matrix of .*varied.yaml needs the mark load at the"
            r" function",
        ):
            load_profile(found[0].config, found[0])
    else:
        assert [load_profile(item.config, item)[0].message_size for item in found] == sizes


def test_profiles_are_found_from_the_root(rooted: pytest.Pytester) -> None:
    """By name in load_profiles, independent of the working folder; by path as it is."""
    (item,) = items(rooted, "@pytest.mark.load('small')\ndef test_it(load): ...")
    profile, path = load_profile(item.config, item)
    assert (profile.name, path) == ("small", rooted.path / "profiles" / "small.yaml")


def test_all_problems_are_reported_together_and_each_once(rooted: pytest.Pytester) -> None:
    (rooted.path / "profiles" / "wrong.yaml").write_text(PROFILE.replace("64", "1"))
    found = items(
        rooted,
        "@pytest.mark.load('wrong')\n@pytest.mark.parametrize('n', [1, 2])\n"
        "def test_it(load, n): ...\ndef test_other(load): ...",
    )
    with pytest.raises(pytest.UsageError) as error:
        check_load_tests(found[0].config, found)
    text = str(error.value)
    assert text.count("wrong.yaml:2:") == 1
    first, _, other = (item.nodeid for item in found)
    assert f"\n  in {first} and 1 other test\n{other} uses the fixture" in text
    check_load_tests(found[0].config, [])


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ([], ["test_other"]),
        (["-m", "soak"], ["test_soak", "test_other"]),  # pytest's own -m does the rest
        (["-m", "load or soak"], ["test_soak", "test_other"]),
        (["-m", "load and soak"], ["test_soak", "test_other"]),
        (["-m", "(load and not nightly) and soak"], ["test_soak", "test_other"]),
        (["-m", "not soak_cluster"], ["test_other"]),
        (["-m", "load and not soak_cluster"], ["test_other"]),
        (["-m", "not soak"], ["test_other"]),
        (["test_x.py::test_soak"], ["test_soak", "test_other"]),
        ([".", "test_x.py::test_so"], ["test_other"]),
        ([".", "x.py::test_soak"], ["test_other"]),
        ([".", "test_y.py::test_it[test_x.py::test_soak/]"], ["test_other"]),
        (["-k", "soak"], ["test_other"]),
    ],
)
def test_soak_tests_are_deselected_unless_named(
    rooted: pytest.Pytester, options: list[str], left: list[str]
) -> None:
    """By -m or by their node id."""
    marks = "@pytest.mark.load('small')\n@pytest.mark.soak\n"
    found = items(rooted, f"{marks}def test_soak(load): ...\ndef test_other(): ...")
    config = rooted.parseconfig(
        *(option.replace("test_x.py", found[0].nodeid.partition("::")[0]) for option in options)
    )
    deselect_soak(config, found)
    assert [item.name for item in found] == left


def test_a_path_is_relative_to_the_test_file_and_to_the_root(
    rooted: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Independent of the folder where pytest is started, which counts too.

    An error names the test and all places.
    """
    source = "import pytest\n@pytest.mark.load('load/a.yaml')\ndef test_it(load): ..."
    below, started = rooted.path / "below", rooted.path / "started"
    for folder in (below, started):
        folder.mkdir()
    (below / "test_below.py").write_text(source)
    (item,) = rooted.genitems([rooted.getpathnode(below / "test_below.py")])
    monkeypatch.chdir(started)
    config = rooted.parseconfig("--rootdir", str(rooted.path), str(below))
    assert config.invocation_params.dir == started
    with pytest.raises(pytest.UsageError) as caught:
        check_load_tests(config, [item])
    places = [
        folder / "load/a.yaml" for folder in (below, rooted.path, started, rooted.path / "profiles")
    ]
    looked = f"looked at {places[0]}, {places[1]}, {places[2]} and {places[3]}"
    assert str(caught.value) == f"no profile file load/a.yaml: {looked}\n  in {item.nodeid}"
    for place in reversed(places):
        place.parent.mkdir(parents=True)
        place.write_text(PROFILE)
        assert load_profile(config, item)[1] == place


def test_a_profile_may_lie_outside_the_project(rooted: pytest.Pytester, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere.yaml"
    outside.write_text(PROFILE)
    (item,) = items(rooted, f"@pytest.mark.load({str(outside)!r})\ndef test_it(load): ...")
    assert load_profile(item.config, item)[1] == outside


@pytest.mark.parametrize(
    ("mark", "options", "text"),
    [
        ("", ["--load-set", "topics"], "--load-set topics: write KEY=VALUE"),
        ("", ["--load-set", "topics="], "--load-set topics: write KEY=VALUE"),
        ("", ["--load-set", "=4"], "--load-set =4: write KEY=VALUE"),
        (
            ", search=True",
            ["--load-set", "producerRate=5"],
            "searches its rate: set search.start and search.max",
        ),
        (
            "",
            ["--load-set", "driver.delay=1ms", "--load-driver", "other.yaml"],
            "together with --load-driver: that file has the whole section",
        ),
        (
            "",
            ["--load-set", "workloads.a.driver.delay=1ms", "--load-driver", "other.yaml"],
            "together with --load-driver: that file has the whole section",
        ),
        (
            ", **{'driver.delay': '1ms'}",
            ["--load-driver", "other.yaml"],
            "driver.delay (--load-set, the test, or a matrix) together with --load-driver",
        ),
        (
            ", driver={'name': 'loopback'}",
            ["--load-driver", "other.yaml"],
            "driver (--load-set, the test, or a matrix) together with --load-driver",
        ),
    ],
)
def test_a_setting_without_effect_is_a_usage_error(
    rooted: pytest.Pytester, mark: str, options: list[str], text: str
) -> None:
    """No option on the command line is silently ignored."""
    (item,) = items(rooted, f"@pytest.mark.load('small'{mark})\ndef test_it(load): ...")
    with pytest.raises(UsageError) as error:
        load_profile(rooted.parseconfig(*options), item)
    assert text in str(error.value)


def test_a_workload_may_have_the_name_of_the_section(rooted: pytest.Pytester) -> None:
    (rooted.path / "other.yaml").write_text("name: loopback\n")
    (rooted.path / "profiles" / "both.yaml").write_text(
        f"{PROFILE}workloads: [{{name: driver}}, {{name: rider}}]\n"
    )
    (item,) = items(rooted, "@pytest.mark.load('both')\ndef test_it(load): ...")
    options = ("--load-set", "workloads.driver.producerRate=20", "--load-driver", "other.yaml")
    loaded, _ = load_profile(rooted.parseconfig(*options), item)
    assert [workload.producer_rate for workload in loaded.workloads] == [20, 10]


@pytest.mark.parametrize("variant", [{"driver.delay": "1ms"}, {"driver": {"name": "loopback"}}])
def test_a_variant_of_the_driver_is_not_replaced_by_a_driver_file(
    rooted: pytest.Pytester, variant: dict[str, object]
) -> None:
    """Else the test and its results would have the name of a variant that did not run."""
    (rooted.path / "other.yaml").write_text("name: loopback\n")
    (item,) = items(
        rooted,
        f"@pytest.mark.parametrize('load_matrix', [{variant}], indirect=True)\n"
        "@pytest.mark.load('small')\ndef test_it(load): ...",
    )
    config = rooted.parseconfig("--load-driver", str(rooted.path / "other.yaml"))
    with pytest.raises(UsageError, match=r"^driver.* a matrix\) together with --load-driver"):
        load_profile(config, item)


def test_settings_override_the_mark_and_the_body(rooted: pytest.Pytester) -> None:
    """The later of two values for one key wins; also for the keys of a search in the body."""
    (item,) = items(
        rooted, "@pytest.mark.load('small', topics=3, producerRate=7)\ndef test_it(load): ..."
    )
    config = rooted.parseconfig("--load-set", "topics=4", "--load-set", "topics=5")
    found, _ = load_profile(config, item)
    assert (found.topics, found.producer_rate) == (5, 7)
    config = rooted.parseconfig("--load-set", "search.hold=1s")
    found, _ = load_profile(
        config, item, {"producerRate": 0, "search": {"hold": "9s", "start": 50}}
    )
    assert found.search is not None
    assert (found.search.hold, found.search.start) == (10**9, 50)
