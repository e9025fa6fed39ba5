"""The history of runs: one short JSON line for each, in a file for git or object storage.

A line has what a trend needs and no secret: start, test, profile, outcome, the figures with their
noise, and digests that tell which lines are comparable. Lines are only appended, each in one write
to a file opened for appending, so sessions that run at the same time can share it.
"""

from __future__ import annotations

import errno
import json
import os
from itertools import chain, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report.comparable import comparable_key, profile_key
from pytest_loadtest.report.figures import (
    broker_cores,
    figures,
    generator_cores,
    latency_percentiles,
    measure_noise,
)
from pytest_loadtest.report.sections import format_figure, known_of, mark, titled
from pytest_loadtest.report.tables import Table, terminal_lines
from pytest_loadtest.report.terminal import ASCII_BLOCKS, BLOCKS, spark_cells
from pytest_loadtest.values.wording import counted, scale_word, with_version
from pytest_loadtest.verdict.grammar import LATENCY, REGRESSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.measurements_section import MeasurementsSection
    from pytest_loadtest.report.verdict_section import FindingEntry


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
    "started", "test", "profile", "workload", "outcome", "scale", "broker", "package", "profileKey",
    "comparableKey", "objectives", "figures", "units", "cpuPerMessage",
))  # fmt: skip
"""The keys that a trend reads; a line without one of them was cut or written by something else."""


def history_line(document: RunDocument) -> Line:
    """Return the line of a run."""
    values = {}
    units = {}
    for name, figure in figures(document).items():
        if name in KEPT and figure.value is not None:
            values[name] = figure.value
            units[name] = figure.unit
    noise = measure_noise(document, latency_percentiles(values)).errors
    errors = {name: float(f"{error:.3g}") for name, error in noise.items()}
    objectives = [
        _objective(finding)
        for finding in document.verdict.findings
        if not finding.implicit and finding.metric != REGRESSION
    ]
    broker = None
    if document.broker:
        broker = with_version(document.broker["name"], document.broker["version"])
    digest = None
    costs = None
    if document.measurements is not None:
        digest = comparable_key(document)
        costs = _cpu_per_message(document, document.measurements)
    return {
        "version": VERSION,
        "started": document.started,
        "test": document.test,
        "profile": document.profile.name,
        "workload": document.workload,
        "outcome": document.verdict.outcome,
        "scale": document.scale and document.scale.factor,
        "broker": broker,
        "package": document.versions.get("pytest-loadtest"),
        "profileKey": profile_key(document),
        "comparableKey": digest,
        "objectives": objectives,
        "figures": values,
        "units": units,
        "errors": errors,
        "cpuPerMessage": costs,
    }


def _objective(finding: FindingEntry) -> dict[str, Any]:
    name = finding.name
    if finding.windows:
        # The observed value is the worst window's, not the run's own figure of that name.
        name += " (worst window)"
    keys = ("unit", "minimum", "maximum", "observed", "outcome")
    return {key: getattr(finding, key) for key in keys} | {"name": name}


def append_history(path: Path, lines: list[Line]) -> None:
    """Append lines in one write, after the last line even if that was cut.

    :raises OSError: the file cannot be written, or not all.
    """
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
    """Return the lines of a file in their order, and the number of invalid ones.

    A line of another version is invalid, too.

    :raises UsageError: the file cannot be read.
    """
    try:
        # splitlines() would also cut a line within a name, at U+2028 for example.
        texts = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    lines = []
    invalid = 0
    for text in filter(str.strip, texts):
        line = _line(text)
        if line is None:
            invalid += 1
        else:
            lines.append(line)
    return lines, invalid


def _line(text: str) -> Line | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    if isinstance(line, dict) and line.get("version") == VERSION and line.keys() >= _KEYS:
        return line
    return None


def _cpu_per_message(
    document: RunDocument, measured: MeasurementsSection
) -> dict[str, float | None]:
    """Return ns of CPU per message sent (or, if the run sends none, received)."""
    messages = measured.counts["sent"] or measured.counts["received"]
    costs: dict[str, float | None] = {
        "broker": broker_cores(document),
        "generator": generator_cores(measured),
    }
    for side, cores in costs.items():
        if cores is not None and messages:
            costs[side] = float(f"{cores * measured.duration / messages:.4g}")
        else:
            costs[side] = None
    return costs


# The trend: one series for each figure of each test, for the terminal, for ``--json`` and for
# charts.

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
    """Return an entry for each test, profile and workload, newest first.

    It has the runs, and a row of values for each figure. ``changed``: the runs (by number, from 0)
    that are not comparable with the one before, with the known differences.
    """
    groups: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line["test"], line["profile"], line["workload"] or ""), []).append(line)
    series = [_series(_in_time(runs)) for runs in groups.values()]
    # A run that never began has no start.
    return sorted(
        series,
        key=lambda test: max(filter(None, test["started"]), default=""),
        reverse=True,
    )


def _in_time(runs: Iterable[Line]) -> list[Line]:
    """Sort runs by their start.

    One that never began stays behind the run before it in the file, which was written in order of
    the ends.
    """
    last = ""
    dated = []
    for run in runs:
        last = run["started"] or last
        dated.append((last, run))
    return [run for _, run in sorted(dated, key=itemgetter(0))]


def _series(runs: Sequence[Line]) -> dict[str, Any]:
    newest = runs[-1]
    return {
        "test": newest["test"],
        "profile": newest["profile"],
        "workload": newest["workload"],
        "scale": newest["scale"],
        "started": list(map(itemgetter("started"), runs)),
        "outcomes": list(map(itemgetter("outcome"), runs)),
        "changed": _changes(runs),
        "rows": list(_objective_rows(runs)) + list(_figure_rows(runs)),
    }


def _changes(runs: Sequence[Line]) -> list[dict[str, Any]]:
    """Return the runs that are not comparable with the one before."""
    measured = [(at, run) for at, run in enumerate(runs) if run["comparableKey"] is not None]
    changes = []
    for (_, before), (at, after) in pairwise(measured):
        if before["comparableKey"] != after["comparableKey"]:
            changes.append({"run": at, "what": _differences(before, after)})
    return changes


def _newest_bounds(runs: Sequence[Line]) -> dict[str, dict[str, Any]]:
    """Return the objectives as the newest run that has them bounds them, by name."""
    return {bound["name"]: bound for run in runs for bound in run["objectives"]}


def _bounded_now(runs: Sequence[Line]) -> set[str]:
    """Return the names of the objectives of the newest run that was measured."""
    for run in reversed(runs):
        if run["comparableKey"] is not None:
            return {bound["name"] for bound in run["objectives"]}
    return set()


def _objective_rows(runs: Sequence[Line]) -> Iterator[dict[str, Any]]:
    """Yield a row for each objective but throughput: a figure, whose bound may be a share.

    Runs that did not have the objective have the figure, if it is one. A bound that the newest run
    no longer has is left out.
    """
    bounded = _bounded_now(runs)
    for name, bound in _newest_bounds(runs).items():
        if name == "throughput":
            continue
        unit = bound["unit"]
        values = []
        for run in runs:
            # A row has the unit of its newest value; values in another unit are missing.
            observed = _in_units(run, {name: unit})
            for entry in run["objectives"]:
                if entry["unit"] == unit:
                    observed[entry["name"]] = entry["observed"]
            values.append(observed.get(name))
        if name in bounded:
            yield _row(name, unit, values, bound["minimum"], bound["maximum"])
        else:
            yield _row(name, unit, values)


def _figure_rows(runs: Sequence[Line]) -> Iterator[dict[str, Any]]:
    """Yield a row for each figure that is no objective, then the CPU per message of both sides."""
    shown = _newest_bounds(runs).keys() - {"throughput"}
    units = {name: unit for run in runs for name, unit in run["units"].items()}
    figures = [_in_units(run, units) for run in runs]
    costs = [_costs(run) for run in runs]
    for values in (figures, costs):
        for name in dict.fromkeys(chain.from_iterable(values)):
            if name not in shown:
                yield _row(name, units.get(name, "ns"), [by_name.get(name) for by_name in values])


def _in_units(run: Line, units: dict[str, str]) -> dict[str, float]:
    """Return the figures of a run that have the unit of their newest value."""
    own = run["units"]
    figures = run["figures"].items()
    return {name: value for name, value in figures if own.get(name) == units.get(name)}


def _costs(run: Line) -> dict[str, float | None]:
    costs = run["cpuPerMessage"] or {}
    return {_CPU[side]: cost for side, cost in costs.items()}


def _row(
    name: str,
    unit: str,
    values: list[float | None],
    minimum: float | None = None,
    maximum: float | None = None,
) -> dict[str, Any]:
    return {"name": name, "unit": unit, "values": values, "minimum": minimum, "maximum": maximum}


def _differences(before: Line, after: Line) -> str:
    """Return the differences of two runs as text, as far as the lines have them."""
    texts = []
    for key, word in _CHANGES.items():
        if before[key] != after[key]:
            values = "" if key == "profileKey" else f" {before[key]} → {after[key]}"
            texts.append(word + values)
    return ", ".join(texts) or "broker's settings, client, workers or machine"


def trend_title(test: dict[str, Any]) -> str:
    """Return test, profile and workload, and the scale of the newest run if it was scaled."""
    title = titled(test["test"], test["profile"], test["workload"])
    return title if test["scale"] is None else f"{title} · {scale_word(test['scale']).upper()}"


def trend_table(series: Sequence[dict[str, Any]], *, unicode: bool = True) -> Iterable[str]:
    """Yield a sparkline for each figure of each test, newest runs last.

    A bar marks runs that are not comparable with those before.
    """
    for test in series:
        yield from _test_table(test, unicode)


def _test_table(test: dict[str, Any], unicode: bool) -> Iterable[str]:
    started = test["started"]
    first = max(len(started) - MOST, 0)
    left_out = f", the newest {MOST} shown" if first else ""
    span = f"{_day(started[0])} to {_day(started[-1])}"
    yield f"{trend_title(test)} · {counted(len(started), 'run')}, {span}{left_out}"

    bar = "│" if unicode else "|"
    breaks = {change["run"] for change in test["changed"]}
    outcomes = [mark(outcome, unicode)[0] for outcome in test["outcomes"]]
    spark = _spark_row(outcomes, first, breaks, bar)
    rows = [("outcome", spark, test["outcomes"][-1], "", "", "")]
    for row in test["rows"]:
        if known_of(row["values"]):
            blocks = spark_cells(row["values"], BLOCKS if unicode else ASCII_BLOCKS)
            spark = _spark_row(blocks, first, breaks, bar)
            rows.append((row["name"], spark, *newest_lowest_highest(row), _bound(row)))
    head = ("", "", "newest", "lowest", "highest", "bound")
    yield from terminal_lines(Table(head=head, align="<<>>><", rows=rows))

    for change in test["changed"]:
        if change["run"] >= first:
            yield f"  {bar} from {started[change['run']]} on: {change['what']} changed"
    yield ""


def newest_lowest_highest(row: dict[str, Any]) -> tuple[str, str, str]:
    """Return the text of the newest value of a row, and of its lowest and highest one."""
    values = row["values"]
    known = known_of(values)
    newest, lowest, highest = (
        format_figure(value, row["unit"]) for value in (values[-1], min(known), max(known))
    )
    return newest, lowest, highest


def _spark_row(characters: Sequence[str], first: int, breaks: set[int], bar: str) -> str:
    text = ""
    for at in range(first, len(characters)):
        if at in breaks and at > first:
            text += bar
        text += characters[at]
    return text


def _day(started: str | None) -> str:
    return (started or "?")[:10]


def _bound(row: dict[str, Any]) -> str:
    texts = []
    for sign, bound in ((">=", row["minimum"]), ("<=", row["maximum"])):
        if bound is not None:
            texts.append(f"{sign} {format_figure(bound, row['unit'])}")
    return " and ".join(texts)
