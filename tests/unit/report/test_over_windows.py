"""Windows and drift in ``results.json``, in the terminal and in JUnit."""

from __future__ import annotations

import jsonschema
import numpy as np
from builders.documents import FACTS
from builders.measurements import MS, Limits, histogram, made

from pytest_loadtest.metrics.stretches import Stretches, of_parts
from pytest_loadtest.report import junit, terminal
from pytest_loadtest.report.document import Document, build_document, dumps, results_schema
from pytest_loadtest.report.over_windows import MOST
from pytest_loadtest.results.load import Load, SloMissed
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.slo import Verdict, evaluate, parse

SECTION = {
    "window": "10s", "endToEndLatency": {"p99": "100ms"}, "violations": "1%", "throughput": {"min": "99%"},
    "drift": {"endToEndLatency.p99": "20%"},
}  # fmt: skip


def stretches(latencies: list[int | None]) -> Stretches:
    """Ten seconds each, of a thousand messages; None: none of them came."""
    parts = [None if ms is None else histogram(np.full(1000, ms * MS)) for ms in latencies]
    found, at = of_parts(parts), np.arange(len(parts))
    came = np.array([0 if part is None else part.n for part in parts])
    return Stretches(
        start=at * 10 * SECOND, end=(at + 1) * 10 * SECOND, begin=at, after=at + 1, offered=np.full(len(parts), 1000), received=came,
        in_time=came, subscriptions=1, latencies={} if found is None else {"end_to_end": found},
    )  # fmt: skip


def verdict(latencies: list[int | None]) -> Verdict:
    tenths = stretches([20, 30])
    return evaluate(parse(SECTION), made(windows=stretches(latencies), tenths=tenths), Limits())


def document(latencies: list[int | None]) -> Document:
    found = build_document(FACTS, verdict(latencies), made())
    jsonschema.validate(found, results_schema())
    assert dumps(found)
    return found


def test_each_window_is_listed() -> None:
    """When it was, what was observed, and how it came out; the worst stands for all."""
    finding = document([20, 500, None])["verdict"]["findings"][0]
    assert finding["windows"] == {
        "width": 10 * SECOND, "violations": 0.01, "number": 3, "missed": 2, "generatorLimited": 0, "noData": 0,
        "listed": [
            {"start": 0, "end": 10 * SECOND, "observed": finding["windows"]["listed"][0]["observed"], "outcome": "met"},
            {"start": 10 * SECOND, "end": 20 * SECOND, "observed": finding["windows"]["listed"][1]["observed"], "outcome": "missed"},
            {"start": 20 * SECOND, "end": 30 * SECOND, "observed": None, "outcome": "missed"},
        ],
    }  # fmt: skip
    assert (finding["observed"], finding["shown"]["observed"]) == (None, "never at 0:00:20")
    assert finding["shown"]["over"] == "missed in 2 of 3 windows"


def test_of_many_windows_those_are_listed_that_are_not_met() -> None:
    """A thousand of them at most: the counts tell the rest."""
    windows = document([20] * 3000 + [500] * (MOST + 10))["verdict"]["findings"][0]["windows"]
    assert (windows["number"], windows["missed"], len(windows["listed"])) == (3000 + MOST + 10, MOST + 10, MOST)
    assert windows["listed"][0]["start"] == 30_000 * SECOND
    assert document([20] * 1500)["verdict"]["findings"][0]["windows"]["listed"] == []


def test_drift_tells_both_tenths() -> None:
    """Beside the change, which is what its bounds are about."""
    finding = next(one for one in document([20])["verdict"]["findings"] if one["name"] == "drift.endToEndLatency.p99")
    assert (finding["unit"], finding["maximum"], finding["outcome"]) == ("ratio", 0.2, "missed")
    assert finding["tenths"]["last"] / finding["tenths"]["first"] - 1 == finding["observed"]
    assert finding["tenths"]["unit"] == "ns"


def test_one_line_says_it_everywhere() -> None:
    """Terminal, JUnit, and what ``assert_slo()`` raises."""
    found = document([20, 500, 20])
    line = next(line for line in terminal.summary_lines(found) if " endToEndLatency.p99 " in line)
    assert line.split() == [
        "✗", "endToEndLatency.p99", "500", "ms", "at", "0:00:10", "<=", "100", "ms", "in", "each", "10.0", "s,", "but", "1", "%", "of", "them",
        "3", "000", "missed", "in", "1", "of", "3", "windows",
    ]  # fmt: skip
    text = "missed in 1 of 3 windows, 33.33 % > 1 %; worst 500 ms at 0:00:10"
    properties = dict(junit.junit_properties(found))
    assert properties["load.objective.endToEndLatency.p99"].endswith(text)
    try:
        Load(profile_name="made", measurements=made(), verdict=verdict([20, 500, 20])).assert_slo()
    except SloMissed as missed:
        assert f"in each 10.0 s: {text}" in str(missed)
    else:
        raise AssertionError
