"""The history of runs: one short JSON line for each, in a file that can be kept in git or in object storage.

A line has what a trend needs and nothing secret: when, of which test and profile, the outcome, the figures with their noise, and digests by
which lines can be told to be comparable. Lines are only ever added, in one write to a file opened for appending, so that sessions beside
each other may share it.
"""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report.figures import broker_cores, figures, measure_noise
from pytest_loadtest.values.wording import with_version
from pytest_loadtest.verdict import comparable
from pytest_loadtest.verdict.regression import LATENCY, REGRESSION

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.report.document import Document

VERSION: Final = 1
KEPT: Final = (*(f"{LATENCY}.{statistic}" for statistic in ("p50", "p99", "p99.9")), "publishLatency.p99", "throughput", "peak")
"""Figures of every line; objectives stand beside them."""
Line = dict[str, Any]


def history_line(document: Document) -> Line:
    """The line of a run."""
    broker, measured = document["broker"], document["measurements"]
    kept = {name: figure for name, figure in figures(document).items() if name in KEPT and figure.value is not None}
    values = {name: figure.value for name, figure in kept.items()}
    return {
        "version": VERSION,
        "started": document["started"],
        "test": document["test"],
        "profile": document["profile"]["name"],
        "workload": document["workload"],
        "outcome": document["verdict"]["outcome"],
        "scale": None if document["scale"] is None else document["scale"]["factor"],
        "broker": with_version(broker["name"], broker["version"]) if broker else None,
        "package": document["versions"].get("pytest-loadtest"),
        "profileKey": comparable.profile_key(document),
        "comparableKey": None if measured is None else comparable.key(document),
        "objectives": [
            {key: finding[key] for key in ("unit", "minimum", "maximum", "observed", "outcome")} | {"name": _name(finding)}
            for finding in document["verdict"]["findings"]
            if not finding["implicit"] and finding["metric"] != REGRESSION
        ],
        "figures": values,
        "units": {name: figure.unit for name, figure in kept.items()},
        "errors": {name: float(f"{error:.3g}") for name, error in measure_noise(document, _percentiles(values)).errors.items()},
        "cpuPerMessage": None if measured is None else _cpu(document, measured),
    }


def _name(finding: Document) -> str:
    """What is observed of an objective in windows is the worst of them, and not the run's own figure of that name."""
    name: str = finding["name"]
    return f"{name} (worst window)" if finding.get("windows") else name


def append_history(path: Path, lines: list[Line]) -> None:
    """Add lines in one write. :raises OSError: the file cannot be written, or not all of it."""
    text = "".join(json.dumps(one, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n" for one in lines)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        data = text.encode()
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def read_history(path: Path) -> tuple[list[Line], int]:
    """The lines of a file in its order, and how many of it are none.

    :raises UsageError: it cannot be read.
    """
    try:
        texts = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    found = [_line(text) for text in texts if text.strip()]
    return [one for one in found if one is not None], found.count(None)


def _line(text: str) -> Line | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("version") == VERSION and "test" in found else None


def _percentiles(values: dict[str, float | None]) -> list[str]:
    return [name for name in values if name.startswith(f"{LATENCY}.p")]


def _cpu(document: Document, measured: Document) -> dict[str, float | None]:
    """ns a message, of those sent (or, where nobody sends, received)."""
    messages = measured["counts"]["sent"] or measured["counts"]["received"]
    cores = {
        "broker": broker_cores(document),
        "generator": sum(worker["cpu"] for worker in measured["workers"]) if measured["workers"] else None,
    }
    return {
        who: None if used is None or not messages else float(f"{used * measured['duration'] / messages:.4g}") for who, used in cores.items()
    }
