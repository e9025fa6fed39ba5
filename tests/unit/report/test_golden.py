"""Every output of every kind of run, compared with files that are kept: a change of a text, a key or a number is a change of a file.

To renew a file, delete it, run the tests, and read the difference before it is committed.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from base64 import b64decode
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builders.comparisons import comparisons
from builders.kinds import KINDS, as_text
from builders.results import Page
from builders.run_file import made_run_file

from pytest_loadtest.brokers.base import Restart
from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.outages import Outages
from pytest_loadtest.fleet.wall_clock import WallClock
from pytest_loadtest.message.size_mix import SizeMix
from pytest_loadtest.metrics.clocks import ClockFit, ClockLine
from pytest_loadtest.metrics.offering import PlannedLoad, PlannedSizes, PlannedStage, PlannedStep
from pytest_loadtest.pipeline.run_file import RUN_FILE, RunClock, RunFile, RunStage
from pytest_loadtest.report import omb
from pytest_loadtest.report.ci import Location, github_summary, gitlab_metrics, workflow_commands
from pytest_loadtest.report.comparison_markdown import comparison_markdown
from pytest_loadtest.report.document import dumps
from pytest_loadtest.report.find_results import ReadRun, ResultSet
from pytest_loadtest.report.history import build_trend, history_line, trend_table
from pytest_loadtest.report.html.page import page_html
from pytest_loadtest.report.junit import junit_properties
from pytest_loadtest.report.terminal import summary_lines
from pytest_loadtest.schedule.changes import Aborted

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument

GOLDEN = Path(__file__).parent / "golden"
HISTOGRAM = re.compile(r'"(HISTFAA[A-Za-z0-9+/=]+)"')


def check(name: str, text: str) -> None:
    """Compare a text with its file; a file that is missing is written."""
    file = GOLDEN / name
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        pytest.fail(f"{file} was missing: read it, then add it")
    assert text == file.read_text(encoding="utf-8")


@cache
def made(kind: str) -> RunDocument:
    return KINDS[kind]()


def plain(text: str) -> str:
    """Return JSON with the digest of each histogram: releases of zlib compress the same bytes in different ways."""
    return HISTOGRAM.sub(lambda found: f'"{digest(found[1])}"', text)


def digest(histogram: str) -> str:
    data = b64decode(histogram)
    return hashlib.sha256(zlib.decompress(data[8:])).hexdigest()[:16]


def shortened(value: Any) -> Any:
    """Return a digest for a curve of hundreds of points."""
    if isinstance(value, dict) and value:
        return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
    return value


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_unchanged(kind: str) -> None:
    check(f"{kind}.results.json", plain(dumps(made(kind))))


@pytest.mark.parametrize("kind", KINDS)
def test_the_outputs_for_other_tools_are_unchanged(kind: str) -> None:
    """JUnit properties, the result of OMB, the metrics of GitLab, the line of the history."""
    run = made(kind)
    try:
        result: Any = {name: shortened(value) for name, value in omb.test_result(run).items()}
    except NoData as error:
        result = str(error)
    texts = {
        "junit": junit_properties(run),
        "omb": result,
        "gitlab": gitlab_metrics([run]).splitlines(),
        "history": history_line(run),
    }
    check(f"{kind}.tools.json", as_text(texts))


@pytest.mark.parametrize("kind", KINDS)
def test_the_outputs_for_people_are_unchanged(kind: str) -> None:
    """The terminal, in Unicode and in ASCII, the summary and the annotations of GitHub."""
    run = made(kind)
    place = Location(file="loadtests/test_smoke.py", line=7, failed=True)
    texts = [
        *summary_lines(run),
        *summary_lines(run, unicode=False),
        github_summary([run]),
        *workflow_commands([run], {run.test: place}),
    ]
    check(f"{kind}.txt", "\n".join(texts) + "\n")


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_unchanged(kind: str) -> None:
    """The page without scripts and styles; charts as a digest of each."""
    run = made(kind)
    steps = {2: made("missed"), 3: run} if run.peak is not None else {}
    read = ReadRun(session="20261121-030000-1", attempt=2, document=run, steps=steps)
    html = page_html(ResultSet(runs=[read], unreadable=["x: cannot be read"]))
    page = Page(html)
    main = html.partition("<body>")[2].partition('<script type="application/json"')[0]
    main = re.sub(r"Made by pytest-loadtest \S+", "Made by pytest-loadtest", main)
    charts = {
        name: hashlib.sha256(json.dumps(chart).encode()).hexdigest()[:16]
        for name, chart in page.data["charts"].items()
    }
    check(f"{kind}.html", main + as_text([charts, page.data["bands"]]))


def test_the_reports_of_a_session_are_unchanged() -> None:
    """All runs together: they are sorted, counted and cut."""
    runs = [made(kind) for kind in KINDS]
    named = [
        replace(run, test=f"{run.test}[{kind}]") for kind, run in zip(KINDS, runs, strict=True)
    ]
    series = build_trend(map(history_line, runs))
    texts = [
        gitlab_metrics(named),
        github_summary(named),
        github_summary(named, 9_000),
        *workflow_commands(named, {}),
        *trend_table(series),
        *trend_table(series, unicode=False),
        as_text(series),
    ]
    check("session.txt", "\n".join(texts) + "\n")


def test_a_comparison_for_a_pull_request_is_unchanged() -> None:
    """Every relation of two runs; then with too little room for all."""
    tests = list(comparisons().values())
    problems = ["b/results.json is not valid JSON"]
    check("comparison.md", comparison_markdown(tests, problems))
    check("comparison-cut.md", comparison_markdown(tests, problems, 9_000))


def whole_run() -> RunFile:
    """Return a run on two hosts with every part that ``run.json`` can have."""
    outages = Outages(0)
    outages._restarts += [
        Restart(down=3_020_000_000, ready=7_130_000_000),
        Restart(node="bookie 2", down=9_000_000_000, ready=None),
    ]
    clock = WallClock(0)
    clock.offset = 1_795_230_000_000_000_000
    least = made_run_file()
    broker = {"name": "Pulsar", "version": "4.2.4", "restarts": outages.document(clock)}
    line = ClockLine(at=0, offset=5, drift=1e-6)
    fit = ClockFit(line=line, error=70_000, round_trip=9_000, exchanges=40, holds=True)
    mix = SizeMix(mean=100.0, variance=0.0, smallest=100, largest=100)
    planned = PlannedLoad(
        in_bytes=False, steps=(PlannedStep(length=10**9, rate=5.0),), stages=(PlannedStage(name="a", start=0),),
        sizes=(PlannedSizes(at=0, mix=mix),),
    )  # fmt: skip
    return replace(
        least, workload="telemetry", facts=replace(least.facts, broker=broker), aborted=Aborted(reason="late"), planned=planned,
        stages=(RunStage(name="a", start=0, duration=5, slo={"loss": 0}, rate=1.0),), ended=True, within_hosts=True,
        clocks=(RunClock(worker="h1-1", host="h1", used=line, fit=fit),), samples="s3://bucket/run",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["least", "whole"])
def test_run_files_are_unchanged(name: str, tmp_path: Path) -> None:
    run = made_run_file() if name == "least" else whole_run()
    run.write(tmp_path)
    check(f"{name}.{RUN_FILE}", (tmp_path / RUN_FILE).read_text(encoding="utf-8"))
    assert RunFile.read(tmp_path) == run
