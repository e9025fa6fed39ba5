"""The history of runs: one short JSON line for each, in a file that can be kept in git or in object storage.

A line has what a trend needs and no secret: start, test, profile, outcome, the figures with their noise, and digests that tell which lines
are comparable. Lines are only appended, each in one write to a file opened for appending, so sessions that run at the same time can share
it.
"""

from __future__ import annotations

import errno
import json
import os
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report.comparable import comparable_key, profile_key
from pytest_loadtest.report.figures import broker_cores, figures, generator_cores, measure_noise
from pytest_loadtest.report.sections import aligned, format_figure, mark, titled
from pytest_loadtest.report.terminal import ASCII_BLOCKS, BLOCKS
from pytest_loadtest.values.wording import counted, scale_word, with_version
from pytest_loadtest.verdict.grammar import LATENCY, REGRESSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_loadtest.report.document import RunDocument


VERSION: Final = 1
KEPT: Final = (
    *(f"{LATENCY}.{statistic}" for statistic in ("p50", "p99", "p99.9")),
    "publishLatency.p99",
    "throughput",
    "peak",
)
"""Figures of every line, in addition to the objectives."""
Line = dict[str, Any]
_KEYS: Final = frozenset((
    "started", "test", "profile", "workload", "outcome", "scale", "broker", "package", "profileKey", "comparableKey", "objectives",
    "figures", "units", "cpuPerMessage",
))  # fmt: skip
"""The keys that a trend reads; a line without one of them was cut or written by something else."""


def history_line(document: RunDocument) -> Line:
    """Return the line of a run."""
    broker, measured = document.broker, document.measurements
    kept = {
        name: figure
        for name, figure in figures(document).items()
        if name in KEPT and figure.value is not None
    }
    values = {name: figure.value for name, figure in kept.items()}
    percentiles = [name for name in values if name.startswith(f"{LATENCY}.p")]
    return {
        "version": VERSION,
        "started": document.started,
        "test": document.test,
        "profile": document.profile.name,
        "workload": document.workload,
        "outcome": document.verdict.outcome,
        "scale": None if document.scale is None else document.scale.factor,
        "broker": with_version(broker["name"], broker["version"]) if broker else None,
        "package": document.versions.get("pytest-loadtest"),
        "profileKey": profile_key(document),
        "comparableKey": None if measured is None else comparable_key(document),
        "objectives": [
            {
                "unit": finding.unit, "minimum": finding.minimum, "maximum": finding.maximum, "observed": finding.observed,
                "outcome": finding.outcome,
                # the observed value of an objective in windows is the worst window's, not the run's own figure of that name
                "name": f"{finding.name} (worst window)" if finding.windows else finding.name,
            }
            for finding in document.verdict.findings
            if not finding.implicit and finding.metric != REGRESSION
        ],
        "figures": values,
        "units": {name: figure.unit for name, figure in kept.items()},
        "errors": {name: float(f"{error:.3g}") for name, error in measure_noise(document, percentiles).errors.items()},
        "cpuPerMessage": _cpu_per_message(document),
    }  # fmt: skip


def append_history(path: Path, lines: list[Line]) -> None:
    """Append lines in one write, after the last line even if that was cut. :raises OSError: the file cannot be written, or not all."""
    text = "".join(
        json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
        for line in lines
    )
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        is_cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        data = f"{chr(10) if is_cut else ''}{text}".encode()
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def read_history(path: Path) -> tuple[list[Line], int]:
    """Return the lines of a file in their order, and the number of those that are invalid or of another version.

    :raises UsageError: the file cannot be read.
    """
    try:
        texts = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    lines = [_line(text) for text in texts if text.strip()]
    return [line for line in lines if line is not None], lines.count(None)


def _line(text: str) -> Line | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return (
        line
        if isinstance(line, dict) and line.get("version") == VERSION and line.keys() >= _KEYS
        else None
    )


def _cpu_per_message(document: RunDocument) -> dict[str, float | None] | None:
    """Return ns of CPU per message sent (or, if the run sends none, received)."""
    measured = document.measurements
    if measured is None:
        return None
    messages = measured.counts["sent"] or measured.counts["received"]
    cores = {"broker": broker_cores(document), "generator": generator_cores(measured)}
    return {
        who: None
        if used is None or not messages
        else float(f"{used * measured.duration / messages:.4g}")
        for who, used in cores.items()
    }


# The trend: one series for each figure of each test, for the terminal, for ``--json`` and for charts.

MOST = 60
"""The largest number of runs in a row of the table: the newest."""
_CPU = {"broker": "brokerCpuPerMessage", "generator": "generatorCpuPerMessage"}
_CHANGES = {
    "profileKey": "the profile",
    "scale": "scale",
    "broker": "the broker",
    "package": "pytest-loadtest",
}


def build_trend(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Return an entry for each test, profile and workload, newest first: its runs, and a row of values for each figure.

    ``changed``: the runs (by number, from 0) that are not comparable with the one before, with the known differences.
    """
    groups: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line["test"], line["profile"], line["workload"] or ""), []).append(line)
    series = [_series(_in_time(runs)) for runs in groups.values()]
    return sorted(
        series, key=lambda test: max(started or "" for started in test["started"]), reverse=True
    )


def _in_time(runs: Iterable[Line]) -> list[Line]:
    """Sort runs by their start. One that never began stays behind the run before it in the file, which was written in order of the ends."""
    last, dated = "", []
    for run in runs:
        last = run["started"] or last
        dated.append((last, run))
    return [run for _, run in sorted(dated, key=itemgetter(0))]


def _series(runs: Sequence[Line]) -> dict[str, Any]:
    measured = [(at, run) for at, run in enumerate(runs) if run["comparableKey"] is not None]
    bounds = {objective["name"]: objective for run in runs for objective in run["objectives"]}
    units = {name: unit for run in runs for name, unit in run["units"].items()}
    # A row has the unit of its newest value; values in another unit are missing.
    objectives = [
        {
            one["name"]: one["observed"]
            for one in run["objectives"]
            if one["unit"] == bounds[one["name"]]["unit"]
        }
        for run in runs
    ]
    figures = [
        {
            name: value
            for name, value in run["figures"].items()
            if run["units"].get(name) == units.get(name)
        }
        for run in runs
    ]
    costs = [
        {_CPU[who]: cost for who, cost in (run["cpuPerMessage"] or {}).items()} for run in runs
    ]
    rows = {
        name: (bound["unit"], objectives) for name, bound in bounds.items() if name != "throughput"
    }
    for kind in (figures, costs):
        rows |= {
            name: (units.get(name, "ns"), kind)
            for values in kind
            for name in values
            if name not in rows
        }
    return {
        **{key: runs[-1][key] for key in ("test", "profile", "workload", "scale")},
        "started": [run["started"] for run in runs],
        "outcomes": [run["outcome"] for run in runs],
        "changed": [
            {"run": at, "what": _differences(before, after)}
            for (_, before), (at, after) in pairwise(measured)
            if before["comparableKey"] != after["comparableKey"]
        ],
        "rows": [
            {
                "name": name, "unit": unit, "values": [by_name.get(name) for by_name in values],
                "minimum": bounds[name]["minimum"] if name in bounds and name != "throughput" else None,
                "maximum": bounds[name]["maximum"] if name in bounds and name != "throughput" else None,
            }
            for name, (unit, values) in rows.items()
        ],
    }  # fmt: skip


def _differences(before: Line, after: Line) -> str:
    """Return the differences of two runs as text, as far as the lines have them."""
    changed = [(key, word) for key, word in _CHANGES.items() if before[key] != after[key]]
    texts = [
        word if key == "profileKey" else f"{word} {before[key]} → {after[key]}"
        for key, word in changed
    ]
    return ", ".join(texts) or "broker's settings, client, workers or machine"


def trend_title(test: dict[str, Any]) -> str:
    """Return test, profile and workload, and the scale of the newest run if it was scaled."""
    scale = "" if test["scale"] is None else f" · {scale_word(test['scale']).upper()}"
    return titled(test["test"], test["profile"], test["workload"]) + scale


def trend_table(series: Sequence[dict[str, Any]], *, unicode: bool = True) -> Iterable[str]:
    """Yield a sparkline for each figure of each test, newest runs last; a bar marks runs that are not comparable with those before."""
    for test in series:
        yield from _test_table(test, unicode)


def _test_table(test: dict[str, Any], unicode: bool) -> Iterable[str]:
    runs, first = counted(len(test["started"]), "run"), max(len(test["started"]) - MOST, 0)
    left_out = f", the newest {MOST} shown" if first else ""
    title = trend_title(test)
    yield f"{title} · {runs}, {_day(test['started'][0])} to {_day(test['started'][-1])}{left_out}"
    breaks = [change["run"] for change in test["changed"]]
    bar = "│" if unicode else "|"
    outcomes = [mark(outcome, unicode)[0] for outcome in test["outcomes"]]
    cells = [
        ("", "", "newest", "lowest", "highest", "bound"),
        ("outcome", _spark_row(outcomes, first, breaks, bar), test["outcomes"][-1], "", "", ""),
    ]
    for row in test["rows"]:
        known = [value for value in row["values"] if value is not None]
        if known:
            blocks = spark_cells(row["values"], BLOCKS if unicode else ASCII_BLOCKS)
            ends = (
                format_figure(value, row["unit"])
                for value in (row["values"][-1], min(known), max(known))
            )
            cells.append((row["name"], _spark_row(blocks, first, breaks, bar), *ends, _bound(row)))
    yield from (f"  {line}" for line in aligned(cells, "<<>>><"))
    for change in test["changed"]:
        if change["run"] >= first:
            yield f"  {bar} from {test['started'][change['run']]} on: {change['what']} changed"
    yield ""


def spark_cells(values: Sequence[float | None], blocks: str) -> list[str]:
    """Return a character for each value, from 0 to the largest; a space for missing ones."""
    top = max((value for value in values if value is not None), default=0) or 1
    return [
        " "
        if value is None
        else blocks[min(int(max(value, 0) / top * len(blocks)), len(blocks) - 1)]
        for value in values
    ]


def _spark_row(characters: Sequence[str], first: int, breaks: Sequence[int], bar: str) -> str:
    return "".join(
        (bar if at in breaks and at > first else "") + cell
        for at, cell in enumerate(characters)
        if at >= first
    )


def _day(started: str | None) -> str:
    return (started or "?")[:10]


def _bound(row: dict[str, Any]) -> str:
    sides = ((">=", row["minimum"]), ("<=", row["maximum"]))
    return " and ".join(
        f"{sign} {format_figure(bound, row['unit'])}" for sign, bound in sides if bound is not None
    )
