"""A line for each run, and the trend of them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from builders.documents import PEAK, as_json, changed, document
from builders.runs import run_of, wandering

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report import history
from pytest_loadtest.report.document import ScaleSection
from pytest_loadtest.report.history import build_trend, spark_cells, trend_table

RUN = run_of(wandering(1), {"endToEndLatency": {"p99": "100ms"}})


def test_a_line_has_figures_noise_and_objectives() -> None:
    """It has no address, no setting and no host."""
    line = history.history_line(RUN)
    assert (line["test"], line["outcome"], line["broker"]) == (RUN.test, "met", "Pulsar 4.2.4")
    assert (
        line["figures"]["endToEndLatency.p99"]
        == as_json(RUN)["measurements"]["latencies"]["endToEnd"]["percentiles"]["p99"]
    )
    assert 0 < line["errors"]["endToEndLatency.p99"] < 0.2
    assert [(one["name"], one["maximum"]) for one in line["objectives"]] == [
        ("endToEndLatency.p99", 100_000_000)
    ]
    text = json.dumps(line)
    assert "6650" not in text
    assert len(text) < 1500


def test_a_broken_run_has_a_line_without_figures() -> None:
    broken = replace(RUN, measurements=None, broker={})
    line = history.history_line(broken)
    assert (line["figures"], line["cpuPerMessage"], line["comparableKey"]) == ({}, None, None)


def test_a_row_of_a_trend_has_one_unit() -> None:
    """That of the newest run: a bound was a number of messages, then a share; the peak was in messages, then in bytes."""
    runs = [
        history.history_line(run_of(wandering(1), {"duplicates": bound}, counts={"duplicates": 5}))
        for bound in (10, "1%")
    ]
    for day, (run, unit) in enumerate(zip(runs, ("msg/s", "B/s"), strict=True), 1):
        run |= {"started": f"2026-12-0{day}", "figures": {"peak": 1000.0}, "units": {"peak": unit}}
    (found,) = build_trend(runs)
    rows = {row["name"]: (row["unit"], row["values"]) for row in found["rows"]}
    assert rows["duplicates"] == ("ratio", [None, 5e-5])
    assert rows["peak"] == ("B/s", [None, 1000.0])


@pytest.mark.parametrize(
    ("bounded", "bound"), [((False, True), 100_000_000), ((True, False), None)]
)
def test_a_figure_that_became_or_was_an_objective_keeps_its_row(
    bounded: tuple[bool, bool], bound: int | None
) -> None:
    """Only the newest run says whether it has a bound."""
    runs = []
    for day, is_bounded in enumerate(bounded, 1):
        slo = {"endToEndLatency": {"p99": "100ms"}} if is_bounded else {"throughput": "90%"}
        run = history.history_line(run_of(wandering(1), slo))
        runs.append(run | {"started": f"2026-12-0{day}"})
    (found,) = build_trend(runs)
    (row,) = [row for row in found["rows"] if row["name"] == "endToEndLatency.p99"]
    first, last = row["values"]
    assert first == last is not None
    assert row["maximum"] == bound


def test_concurrent_sessions_append_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda i: history.append_history(
                    path, [history.history_line(document()) | {"i": i}]
                ),
                range(40),
            )
        )
    lines, wrong = history.read_history(path)
    assert (sorted(line["i"] for line in lines), wrong) == (list(range(40)), 0)


def test_invalid_lines_are_counted(tmp_path: Path) -> None:
    """Half a line, a line of another version, a note."""
    path = tmp_path / "history.jsonl"
    history.append_history(path, [history.history_line(RUN)])
    with path.open("a") as file:
        file.write('{"version": 99}\nnote\n{"ver\n\n')
    lines, wrong = history.read_history(path)
    assert (len(lines), wrong) == (1, 3)
    with pytest.raises(UsageError):
        history.read_history(tmp_path / "gone")
    with pytest.raises(OSError, match="directory"):
        history.append_history(tmp_path, [])


def test_a_name_with_a_line_separator_does_not_cut_its_line(tmp_path: Path) -> None:
    """JSON has U+2028 and U+0085 as they are, and str.splitlines() ends a line at each."""
    path = tmp_path / "history.jsonl"
    test = "test_a.py::test_a[one\u2028two\u0085three]"
    history.append_history(path, [history.history_line(RUN) | {"test": test}])
    (line,), wrong = history.read_history(path)
    assert (line["test"], wrong) == (test, 0)


def test_a_line_that_was_cut_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    """The disk was full, or the session was killed while it wrote."""
    path = tmp_path / "history.jsonl"
    path.write_text('{"version":1,"started":"2026', encoding="utf-8")
    history.append_history(path, [history.history_line(RUN)])
    lines, wrong = history.read_history(path)
    assert (len(lines), wrong) == (1, 1)


def test_a_line_without_all_its_keys_is_invalid(tmp_path: Path) -> None:
    """A trend reads them all."""
    path = tmp_path / "history.jsonl"
    whole = history.history_line(RUN)
    for key in sorted(history._KEYS):
        history.append_history(
            path, [{name: value for name, value in whole.items() if name != key}]
        )
    assert history.read_history(path) == ([], len(history._KEYS))


def test_a_run_that_never_began_stays_at_its_place() -> None:
    """It has no time; at the front it would be the oldest run, and its test the newest."""
    line = history.history_line(RUN)
    broken = line | {"started": None, "outcome": "no data", "figures": {}, "comparableKey": None}
    days = [line | {"started": f"2026-12-0{day}T00:00:00+00:00"} for day in (1, 2, 3)]
    other = [run | {"test": "other", "started": f"2026-12-09T0{at}"} for at, run in enumerate(days)]
    newest, found = build_trend([days[2], days[0], broken, days[1], *other])
    assert found["started"] == [days[0]["started"], None, days[1]["started"], days[2]["started"]]
    assert found["outcomes"][1] == "no data"
    assert newest["test"] == "other"


def test_the_trend_of_scaled_runs_says_so() -> None:
    found = build_trend(
        [history.history_line(replace(RUN, scale=ScaleSection(factor=0.1, changes={})))]
    )
    assert next(iter(trend_table(found))).startswith(
        f"{RUN.test} · profile {RUN.profile.name} · SCALED ×0.1 · 1 run"
    )


def test_a_trend_is_a_row_for_each_figure() -> None:
    """Runs are in order of time, whatever the order of the file; a change of comparability is marked."""
    line = history.history_line(RUN)
    later = line | {
        "started": "2026-12-01T00:00:00+00:00",
        "broker": "Pulsar 4.3.0",
        "comparableKey": "other",
        "outcome": "missed",
    }
    between = line | {
        "started": "2026-11-30T00:00:00+00:00",
        "comparableKey": None,
        "figures": {},
        "objectives": [],
        "outcome": "no data",
    }
    (found,) = build_trend([later, line, between])
    assert found["outcomes"] == ["met", "no data", "missed"]
    assert found["changed"] == [{"run": 2, "what": "the broker Pulsar 4.2.4 → Pulsar 4.3.0"}]
    row = next(row for row in found["rows"] if row["name"] == "endToEndLatency.p99")
    assert row["values"][1] is None
    assert (row["maximum"], row["unit"]) == (100_000_000, "ns")
    text = "\n".join(trend_table([found]))
    assert "3 runs, 2026-11-21 to 2026-12-01" in text
    assert "✓?│✗" in text
    assert (
        "│ from 2026-12-01T00:00:00+00:00 on: the broker Pulsar 4.2.4 → Pulsar 4.3.0 changed"
        in text
    )
    assert all(
        character.isascii()
        for character in "\n".join(trend_table([found], unicode=False))
        .replace("·", "")
        .replace("→", "")
        .replace("µ", "")
    )


@pytest.mark.parametrize(("unit", "told"), [("msg/s", "19.8 k msg/s"), ("B/s", "19.4 KiB/s")])
def test_a_trend_has_the_unit_of_the_run(unit: str, told: str) -> None:
    """A peak is in messages or in bytes."""
    searched = changed(replace(RUN, peak=document(parts={"peak": PEAK}).peak), "peak/unit", unit)
    (found,) = build_trend([history.history_line(searched)])
    units = {row["name"]: row["unit"] for row in found["rows"]}
    assert (units["peak"], units["throughput"], units["generatorCpuPerMessage"]) == (
        unit,
        "msg/s",
        "ns",
    )
    assert [line for line in trend_table([found]) if line.split()[:1] == ["peak"] and told in line]


def test_a_sparkline_scales_to_the_largest_value() -> None:
    """A missing value is a gap."""
    assert "".join(spark_cells([0, 1, None, 2], "abc")) == "ab c"
    assert spark_cells([], "abc") == []
