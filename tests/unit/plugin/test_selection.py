"""What a load mark may say, and which tests are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_loadtest import profile as profiles
from pytest_loadtest.errors import UsageError
from pytest_loadtest.plugin.selection import LoadMark, check_load_tests, deselect_soak, load_mark, load_profile

PROFILE = "name: small\nmessageSize: 64\nproducerRate: 10\ntestDuration: 1s\ndriver: {name: loopback}\nslo: {throughput: 99%}\n"


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Load a profile, and with it numpy and the drivers' settings: pytester removes modules imported while it runs."""
    profiles.loads(PROFILE, "small.yaml")


@pytest.fixture
def rooted(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with one profile."""
    pytester.makeini("[pytest]\naddopts = -p no:xdist\n")
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
        ("'small', broker='url', target='mqtt://h:1'", LoadMark(profile="small", broker="url", target="mqtt://h:1")),
    ],
)
def test_marks(rooted: pytest.Pytester, arguments: str, mark: LoadMark) -> None:
    """The profile by position or name, the rest by name."""
    (item,) = items(rooted, f"@pytest.mark.load({arguments})\ndef test_it(load): ...")
    assert load_mark(item) == mark


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def test_it(load): ...", "has no mark: add @pytest.mark.load"),
        ("@pytest.mark.load()\ndef test_it(load): ...", "needs one profile"),
        ("@pytest.mark.load('a', 'b')\ndef test_it(load): ...", "needs one profile"),
        ("@pytest.mark.load('a', profile='a')\ndef test_it(load): ...", "needs one profile"),
        ("@pytest.mark.load('a', search=3)\ndef test_it(load): ...", "search=True"),
        ("@pytest.mark.load('small', broker='docker')\ndef test_it(load): ...", "broker"),
        ("@pytest.mark.load(3)\ndef test_it(load): ...", "profile"),
        ("@pytest.mark.load('small', live='yes')\ndef test_it(load): ...", "live"),
    ],
)
def test_wrong_marks(rooted: pytest.Pytester, source: str, said: str) -> None:
    """Each names the test and what to write."""
    (item,) = items(rooted, source)
    with pytest.raises(UsageError, match="py::test_it") as error:
        load_mark(item)
    assert said in str(error.value)


def test_profiles_are_found_from_the_root(rooted: pytest.Pytester) -> None:
    """By name in load_profiles, whatever the working folder; by path as it stands."""
    (item,) = items(rooted, "@pytest.mark.load('small')\ndef test_it(load): ...")
    profile, path = load_profile(item.config, item)
    assert (profile.name, path) == ("small", rooted.path / "profiles" / "small.yaml")


def test_every_problem_once(rooted: pytest.Pytester) -> None:
    """Problems of all tests together; the same wrong profile is told once."""
    (rooted.path / "profiles" / "wrong.yaml").write_text(PROFILE.replace("64", "1"))
    found = items(
        rooted, "@pytest.mark.load('wrong')\n@pytest.mark.parametrize('n', [1, 2])\ndef test_it(load, n): ...\ndef test_other(load): ..."
    )
    with pytest.raises(pytest.UsageError) as error:
        check_load_tests(found[0].config, found)
    text = str(error.value)
    assert text.count("wrong.yaml:2:") == 1
    assert "test_other uses the fixture" in text
    check_load_tests(found[0].config, [])


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ([], ["test_other"]),
        (["-m", "soak"], ["test_soak", "test_other"]),  # pytest's own -m does the rest
        (["test_x.py::test_soak"], ["test_soak", "test_other"]),
        (["-k", "soak"], ["test_other"]),
    ],
)
def test_soak_tests(rooted: pytest.Pytester, options: list[str], left: list[str]) -> None:
    """Left out unless -m or a node id speaks of them."""
    found = items(rooted, "@pytest.mark.soak\ndef test_soak(): ...\ndef test_other(): ...")
    config = rooted.parseconfig(*(option.replace("test_x.py", found[0].nodeid.partition("::")[0]) for option in options))
    deselect_soak(config, found)
    assert [item.name for item in found] == left


def test_paths_of_profiles(rooted: pytest.Pytester, tmp_path: Path) -> None:
    """A path may lie outside the project."""
    outside = tmp_path / "elsewhere.yaml"
    outside.write_text(PROFILE)
    (item,) = items(rooted, f"@pytest.mark.load({str(outside)!r})\ndef test_it(load): ...")
    assert load_profile(item.config, item)[1] == outside


@pytest.mark.parametrize(
    ("mark", "options", "said"),
    [
        ("", ["--load-set", "topics"], "--load-set topics: write KEY=VALUE"),
        ("", ["--load-set", "topics="], "--load-set topics: write KEY=VALUE"),
        ("", ["--load-set", "=4"], "--load-set =4: write KEY=VALUE"),
        (", search=True", ["--load-set", "producerRate=5"], "searches its rate: set search.start and search.max"),
        (
            "",
            ["--load-set", "driver.delay=1ms", "--load-driver", "other.yaml"],
            "together with --load-driver: that file has the whole section",
        ),
    ],
)
def test_settings_that_cannot_be(rooted: pytest.Pytester, mark: str, options: list[str], said: str) -> None:
    """Nothing that was asked for on the command line is quietly without effect."""
    (item,) = items(rooted, f"@pytest.mark.load('small'{mark})\ndef test_it(load): ...")
    with pytest.raises(UsageError) as error:
        load_profile(rooted.parseconfig(*options), item)
    assert said in str(error.value)


def test_settings_win_over_the_mark_and_over_the_body(rooted: pytest.Pytester) -> None:
    """Of one key given twice, the later; a search of the body's own takes its keys from there too."""
    (item,) = items(rooted, "@pytest.mark.load('small', topics=3, producerRate=7)\ndef test_it(load): ...")
    config = rooted.parseconfig("--load-set", "topics=4", "--load-set", "topics=5")
    found, _ = load_profile(config, item)
    assert (found.topics, found.producer_rate) == (5, 7)
    config = rooted.parseconfig("--load-set", "search.hold=1s")
    found, _ = load_profile(config, item, {"producerRate": 0, "search": {"hold": "9s", "start": 50}})
    assert found.search is not None
    assert (found.search.hold, found.search.start) == (10**9, 50)
