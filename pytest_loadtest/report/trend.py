"""A history as one series for each figure of each test: for the terminal, for ``--json``, and for whoever draws it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pytest_loadtest.report.compared import format_figure
from pytest_loadtest.report.sections import aligned, mark, titled
from pytest_loadtest.report.terminal import ASCII_BLOCKS, BLOCKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_loadtest.report.history import Line

MOST = 60
"""Runs in a row of the table: the newest."""
_CPU = {"broker": "brokerCpuPerMessage", "generator": "generatorCpuPerMessage"}
_CHANGES = {"profileKey": "the profile", "scale": "scale", "broker": "the broker", "package": "pytest-loadtest"}


def build_trend(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Of each test, profile and workload, by the time of its newest run: its runs, and a row of values for each figure.

    ``changed``: the runs (by number, from 0) that cannot be compared with the one before, each with what is known to differ.
    """
    groups: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line["test"], line["profile"], line["workload"] or ""), []).append(line)
    series = [_series(sorted(runs, key=_started)) for runs in groups.values()]
    return sorted(series, key=lambda one: str(one["started"][-1]), reverse=True)


def _started(line: Line) -> str:
    return line["started"] or ""


def _series(runs: Sequence[Line]) -> dict[str, Any]:
    measured = [(at, run) for at, run in enumerate(runs) if run["comparableKey"] is not None]
    bounds = {one["name"]: one for run in runs for one in run["objectives"]}
    objectives = [{one["name"]: one["observed"] for one in run["objectives"]} for run in runs]
    figures = [run["figures"] for run in runs]
    costs = [{_CPU[who]: cost for who, cost in (run["cpuPerMessage"] or {}).items()} for run in runs]
    wanted = {name: (one["unit"], objectives) for name, one in bounds.items() if name != "throughput"}
    units = {name: unit for run in runs for name, unit in run["units"].items()}
    for kind in (figures, costs):
        wanted |= {name: (units.get(name, "ns"), kind) for one in kind for name in one if name not in wanted}
    return {
        **{key: runs[-1][key] for key in ("test", "profile", "workload")},
        "started": [run["started"] for run in runs],
        "outcomes": [run["outcome"] for run in runs],
        "changed": [{"run": at, "what": _what(before, after)} for (_, before), (at, after) in pairwise(measured) if _unlike(before, after)],
        "rows": [
            {
                "name": name, "unit": unit, "values": [one.get(name) for one in values],
                "minimum": bounds[name]["minimum"] if name in bounds and name != "throughput" else None,
                "maximum": bounds[name]["maximum"] if name in bounds and name != "throughput" else None,
            }
            for name, (unit, values) in wanted.items()
        ],
    }  # fmt: skip


def _unlike(before: Line, after: Line) -> bool:
    return bool(before["comparableKey"] != after["comparableKey"])


def _what(before: Line, after: Line) -> str:
    """In words, as far as a line keeps it."""
    found = []
    for key, word in _CHANGES.items():
        if before[key] != after[key]:
            found.append(word if key == "profileKey" else f"{word} {before[key]} → {after[key]}")
    return ", ".join(found) or "broker's settings, client, workers or machine"


def trend_table(series: Sequence[dict[str, Any]], *, unicode: bool = True) -> Iterable[str]:
    """A sparkline for each figure of each test, newest runs last; a bar stands where what decides comparability changed."""
    for one in series:
        yield from _of_one(one, unicode)


def _of_one(one: dict[str, Any], unicode: bool) -> Iterable[str]:
    many, first = len(one["started"]), max(len(one["started"]) - MOST, 0)
    runs = f"{many} runs" if many > 1 else "1 run"
    left_out = f", the newest {MOST} shown" if first else ""
    title = titled(one["test"], one["profile"], one["workload"])
    yield f"{title} · {runs}, {_day(one['started'][0])} to {_day(one['started'][-1])}{left_out}"
    breaks = [change["run"] for change in one["changed"]]
    bar = "│" if unicode else "|"
    outcomes = [mark(outcome, unicode)[0] for outcome in one["outcomes"]]
    cells = [
        ("", "", "newest", "lowest", "highest", "bound"),
        ("outcome", _row(outcomes, first, breaks, bar), one["outcomes"][-1], "", "", ""),
    ]
    for row in one["rows"]:
        known = [value for value in row["values"] if value is not None]
        if known:
            blocks = spark_cells(row["values"], BLOCKS if unicode else ASCII_BLOCKS)
            ends = (format_figure(value, row["unit"]) for value in (row["values"][-1], min(known), max(known)))
            cells.append((row["name"], _row(blocks, first, breaks, bar), *ends, _bound(row)))
    yield from (f"  {line}" for line in aligned(cells, "<<>>><"))
    for change in one["changed"]:
        if change["run"] >= first:
            yield f"  {bar} from {one['started'][change['run']]} on: {change['what']} changed"
    yield ""


def spark_cells(values: Sequence[float | None], blocks: str) -> list[str]:
    """A character for each value, from 0 to the largest; a space where there is none."""
    top = max((value for value in values if value is not None), default=0) or 1
    return [" " if value is None else blocks[min(int(max(value, 0) / top * len(blocks)), len(blocks) - 1)] for value in values]


def _row(characters: Sequence[str], first: int, breaks: Sequence[int], bar: str) -> str:
    return "".join((bar if at in breaks and at > first else "") + one for at, one in enumerate(characters) if at >= first)


def _day(started: str | None) -> str:
    return (started or "?")[:10]


def _bound(row: dict[str, Any]) -> str:
    sides = ((">=", row["minimum"]), ("<=", row["maximum"]))
    return " and ".join(f"{sign} {format_figure(bound, row['unit'])}" for sign, bound in sides if bound is not None)
