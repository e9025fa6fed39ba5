"""Marked tests: each drives load, or is an error with the reason; broken runs under xfail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .projects import ALONE_OR_TWO

if TYPE_CHECKING:
    from .projects import Finished, Project

CONFTEST = """\
import pytest

@pytest.fixture
def load():
    return 1
"""
FOREIGN = """\
import pytest

@pytest.mark.load("smoke")
def test_fixture_of_a_conftest(load): ...

@pytest.mark.load("smoke")
@pytest.mark.parametrize("load", [1, 2])
def test_parameter(load): ...

@pytest.mark.load("smoke")
def test_skipped(load):
    pytest.skip("not today")
"""
OWN = """\
import pytest

@pytest.fixture
def prepared(load):
    return load

class TestOverridden:
    @pytest.fixture
    def load(self, load):
        return load

    @pytest.mark.load("smoke")
    def test_passes_ours_on(self, load):
        load.assert_slo()

@pytest.mark.load("smoke")
def test_asks_by_another_fixture(prepared):
    prepared.assert_slo()
"""
BROKEN = """\
import pytest
from pytest_loadtest.errors import NoData
from pytest_loadtest.results.load import SloMissed

@pytest.mark.xfail
@pytest.mark.load("few")
def test_expected(load): ...

@pytest.mark.xfail(strict=True, reason="a reason")
@pytest.mark.load("few")
def test_strict(load): ...

@pytest.mark.xfail(raises=NoData)
@pytest.mark.load("few")
def test_named(load): ...

@pytest.mark.xfail(raises=SloMissed)
@pytest.mark.load("few")
def test_another_named(load): ...

@pytest.mark.xfail
@pytest.mark.load("missed")
def test_missed(load): ...
"""
CAUGHT = """\
import pytest
from pytest_loadtest.errors import NoData

@pytest.fixture
def skipping(request):
    try:
        request.getfixturevalue("load")
    except NoData:
        pytest.skip("not today")

@pytest.mark.load("few")
def test_skipped(skipping, load): ...

@pytest.mark.load("few", judge=False)
def test_not_to_be_judged_and_skipped(skipping, load): ...

class TestOverridden:
    @pytest.fixture
    def load(self, request):
        try:
            return request.getfixturevalue("load")
        except NoData:
            return None

    @pytest.mark.load("few")
    def test_passes_none_on(self, load): ...
"""


def tags(run: Finished) -> dict[str, str]:
    """Return the outcome of each test in JUnit."""
    found = {
        case.get("name"): [
            child.tag for child in case if child.tag in ("failure", "error", "skipped")
        ]
        for case in run.junit
    }
    return {str(name): " ".join(of_test) for name, of_test in found.items()}


@pytest.mark.parametrize("workers", ALONE_OR_TWO)
def test_a_marked_test_whose_load_is_another_fixture_is_an_error(
    project: Project, workers: str
) -> None:
    """The error names the other fixture or parameter: of a conftest, a class or parametrize."""
    project.profile("smoke", duration="500ms", slo="{sent: 1%, throughput: 1%}")
    project.write("foreign/conftest.py", CONFTEST)
    project.write("foreign/test_foreign.py", FOREIGN)
    project.write("test_own.py", OWN)
    run = project.run(workers, "-p", "no:cacheprovider")
    assert tags(run) == {
        "test_fixture_of_a_conftest": "error", "test_parameter[1]": "error", "test_parameter[2]": "error", "test_skipped": "skipped",
        "test_passes_ours_on": "", "test_asks_by_another_fixture": "",
    }  # fmt: skip
    assert run.ret == 1
    assert (
        "is marked load but drove no load: its `load` is the fixture at foreign/conftest.py:3"
        in run.out
    )
    assert "is marked load but drove no load: its `load` is a parameter of `parametrize`" in run.out


@pytest.mark.parametrize("workers", ALONE_OR_TWO)
def test_a_broken_run_is_an_error_under_xfail_too(project: Project, workers: str) -> None:
    """Unless the mark names the exception: xfail expects a missed objective, not missing data."""
    project.profile(
        "few", duration="500ms", slo="{endToEndLatency: {p99.99: 1s}, sent: 1%, throughput: 1%}"
    )
    project.missed_profile(duration="500ms")
    project.write("test_it.py", BROKEN)
    run = project.run(workers, "-p", "no:cacheprovider")
    assert tags(run) == {
        "test_expected": "error", "test_strict": "error", "test_named": "skipped", "test_another_named": "error", "test_missed": "skipped",
    }  # fmt: skip
    assert (run.ret, run.outcomes) == (1, {"error": 3, "xfailed": 2})


@pytest.mark.parametrize("workers", ALONE_OR_TWO)
def test_a_fixture_that_catches_the_error_of_a_broken_run_hides_it_from_nobody(
    project: Project, workers: str
) -> None:
    """Whether it skips the test or lets its body run."""
    project.profile(
        "few", duration="500ms", slo="{endToEndLatency: {p99.99: 1s}, sent: 1%, throughput: 1%}"
    )
    project.write("test_it.py", CAUGHT)
    run = project.run(workers, "-p", "no:cacheprovider")
    assert tags(run) == {
        "test_skipped": "error", "test_not_to_be_judged_and_skipped": "error", "test_passes_none_on": "error",
    }  # fmt: skip
    assert "p99.99 needs" in "".join(run.case("test_skipped").itertext())
    assert run.ret == 1
