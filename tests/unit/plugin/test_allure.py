"""Allure's results of load tests, with and without a crash, and the duration of the load."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_loadtest.plugin.allure import AllureCorrections, allure_result, write_crashed

TESTS = """\
import allure
import pytest

@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("keys", [{"qos": 1}, {"qos": 2}], ids=["one", "two"])
def test_varied(keys, size): ...

@allure.severity(allure.severity_level.CRITICAL)
@allure.epic("orders")
class TestOrders:
    @allure.title("All orders arrive")
    @allure.tag("nightly", "slow")
    def test_arrive(self): ...
"""


class Described:
    """A plugin that keeps the description of each test."""

    def __init__(self) -> None:
        self.results: list[Any] = []

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.results.append(allure_result(item))


class Crashes(Described):
    """A plugin that writes each test as crashed instead of a result of its own."""

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        report: Any = SimpleNamespace(
            longrepr="no data: worker 'gw0' crashed\nwhile running",
            when="teardown",
            start=1.0005,
            stop=3.25,
        )
        write_crashed(self.results[-1], report)


def identity(result: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a result by which Allure recognises a test."""
    labels = sorted(
        (label["name"], label["value"])
        for label in result["labels"]
        if label["name"] not in ("host", "thread", "language", "package")
    )
    keys = ("name", "fullName", "testCaseId", "historyId")
    return {key: result[key] for key in keys} | {
        "labels": labels,
        "parameters": result.get("parameters", []),
    }


def test_a_crashed_test_is_the_same_test_in_the_report(pytester: pytest.Pytester) -> None:
    """Otherwise Allure would show it as another test, without history.

    It is broken, with pytest's text and times.
    """
    pytester.makeini(
        "[pytest]\naddopts = -p no:xdist -p no:unraisableexception -p no:asyncio -p"
        " no:cacheprovider\n"
    )
    pytester.makepyfile(TESTS)
    pytester.inline_run("--alluredir=allure", plugins=[Crashes()])
    results = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in pytester.path.glob("allure/*-result.json")
    ]
    crashed = [result for result in results if result["status"] == "broken"]
    own = [result for result in results if result["status"] == "passed"]
    assert len(own) == len(crashed) == 5

    def name_of(result: dict[str, Any]) -> str:
        return f"{result['fullName']}{result['historyId']}"

    assert [identity(result) for result in sorted(crashed, key=name_of)] == [
        identity(result) for result in sorted(own, key=name_of)
    ]
    assert {
        (result["start"], result["stop"], result["statusDetails"]["message"]) for result in crashed
    } == {(1000, 3250, "no data: worker 'gw0' crashed")}


def duration_after_setup(monkeypatch: pytest.MonkeyPatch, marker: object) -> AllureCorrections:
    """Return the plugin after the setup of a load test (1 s to 2 s) and another test (3 s to 8 s)."""
    times = iter([1.0, 2.0, 3.0, 8.0])
    monkeypatch.setattr("pytest_loadtest.plugin.allure.time.time", lambda: next(times))
    duration = AllureCorrections()
    for mark in (True, marker):
        item: Any = SimpleNamespace(get_closest_marker=lambda name, mark=mark: mark)
        for _ in duration.pytest_runtest_setup(item):
            pass
    return duration


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (8001, 8002, (3000, 8002)),  # Allure begins a test with its body
        (3001, 3001, (3000, 8000)),  # and does not end one whose setup failed
    ],
)
def test_the_duration_of_a_load_test_begins_with_its_setup(
    monkeypatch: pytest.MonkeyPatch, start: int, stop: int, expected: tuple[int, int]
) -> None:
    """For one result: the next is that of another test."""
    duration = duration_after_setup(monkeypatch, marker=True)
    result, other = SimpleNamespace(start=start, stop=stop), SimpleNamespace(start=9000, stop=9001)
    duration.report_result(result)
    duration.report_result(other)
    assert (result.start, result.stop) == expected
    assert (other.start, other.stop) == (9000, 9001)


def test_an_ordinary_test_keeps_the_duration_of_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a load test that had no result."""
    duration, result = (
        duration_after_setup(monkeypatch, marker=None),
        SimpleNamespace(start=8001, stop=8002),
    )
    duration.report_result(result)
    assert (result.start, result.stop) == (8001, 8002)


@pytest.mark.parametrize(("when", "status"), [("call", "failed"), ("setup", "broken")])
def test_an_outcome_that_a_skip_would_have_hidden_is_that_of_the_report(
    monkeypatch: pytest.MonkeyPatch, when: str, status: str
) -> None:
    """For one result: the next is that of another test."""
    corrections = duration_after_setup(monkeypatch, marker=True)
    report: Any = SimpleNamespace(when=when, longrepr="1 missed\n  p99", hidden_by_skip=True)
    other: Any = SimpleNamespace(when="call", longrepr="of the body")
    corrections.pytest_runtest_logreport(report)
    corrections.pytest_runtest_logreport(other)
    result = SimpleNamespace(start=8001, stop=8002, status="skipped")
    corrections.report_result(result)
    assert result.status == status
    details: Any = result.statusDetails  # type: ignore[attr-defined]
    assert (details.message, details.trace) == ("1 missed", "1 missed\n  p99")
    next_result = SimpleNamespace(start=9000, stop=9001, status="passed")
    corrections.report_result(next_result)
    assert next_result.status == "passed"
