"""The whole page: text, tables, charts, and nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import random
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from builders.documents import (
    BACKLOG,
    BOTTLENECK,
    FACTS,
    PEAK,
    as_json,
    changed,
    document,
    from_json,
    stage,
)
from builders.measurements import made_bucket, made_series, spread
from builders.report import made_soak
from builders.results import Page, put, run, shown

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report.build import build_document
from pytest_loadtest.report.document import RunDocument, TimelineChange, TimelineSection
from pytest_loadtest.report.find_results import ReadRun, ResultSet
from pytest_loadtest.report.hdr import encode_coarse_counts
from pytest_loadtest.report.html import page
from pytest_loadtest.report.html.charts import POINTS
from pytest_loadtest.verdict.slo import Outcome, Verdict

LOOSE = {"endToEndLatency": {"p99": "1s"}}


NASTY = "</script><script>alert('1')</script> \"<b>&amp;\" <!-- '"


def broken(outcome: Outcome, *reasons: str) -> RunDocument:
    """Return the document of a run that was given up."""
    return build_document(FACTS, Verdict(outcome=outcome, findings=(), reasons=reasons), None)


BROKEN = broken(Outcome.NO_DATA, "worker gw1 died")


def test_a_broken_run_has_no_chart() -> None:
    found = shown(run(BROKEN))
    assert found.charts == {}
    assert not any(tag == "figure" for tag, _ in found.tags)


def test_a_run_that_ended_before_its_clients_reported_has_a_page() -> None:
    unknown = broken(Outcome.NO_DATA, "interrupted")
    unknown = replace(unknown, driver={}, broker={})
    assert "interrupted" in shown(run(unknown)).reads


def test_every_part_of_a_run_has_its_chapter() -> None:
    """The run has a search, stages, size buckets, topics, a backlog, a broadcast, connections and a bottleneck."""
    topics = tuple(made_bucket(f"topic {number}", lost=number % 7) for number in range(30))
    made = document(
        {"buckets": {"0-256": {"loss": 0}}, **LOOSE},
        parts={"peak": PEAK, "stages": (stage("ramp"), stage("spike", publish=None)), "backlog": BACKLOG, "bottleneck": BOTTLENECK},
        buckets=(made_bucket("0-256", lost=3), made_bucket("256-1KB")), topics=topics, broadcasts=True, completion=spread(1, 9), spread=spread(1, 4),
        connect=spread(1, 9), subscribe=spread(1, 9), series=made_series(60), duration=60_000_000_000,
    )  # fmt: skip
    found = shown(run(made, steps={1: document(LOOSE), 2: document()}))
    assert set(found.charts) == {
        "rates", "latency", "curve", "broadcast", "opening", "buckets", "topics", "stages", "search", "delivered", "cpu", "memory", "workers",
    }  # fmt: skip
    titles = {
        "Search for the highest rate",
        "Stages",
        "Size buckets",
        "Topics",
        "Backlog",
        "Broker and bottleneck",
        "Generator",
        "Environment",
    }
    assert [title for title in titles if title not in found.words] == []
    assert "peak 19 843 msg/s, held for 60.0 s; 20 240 msg/s was missed" in found.reads
    assert "bottleneck broker CPU: mosquitto's busiest thread used 0.97 of a core" in found.reads
    assert "1 048 576 deliveries, 1.00 GiB, built in 32.0 s, drained in 8.00 s" in found.reads
    assert [row[0] for row in found.rows if row[0].startswith("topic ")][:11] == [
        *(f"topic {n}" for n in (6, 13, 20, 27, 5, 12, 19, 26, 4, 11)),
        "topic 6",
    ]


@pytest.mark.parametrize(
    ("measured", "due"),
    [
        ({}, "received of 100 000 due"),
        ({"outputs": 2}, "received of 200 000 due"),
        ({"answered": (7,)}, "received of at most 100 000 due"),
    ],
)
def test_the_way_of_messages_ends_with_what_was_due(measured: dict[str, int], due: str) -> None:
    """Of a service that sends several outputs for each input, or chooses which it answers."""
    text = shown(run(document(**measured))).text
    assert due in " ".join(text.split())


def test_a_chart_shows_the_figures_of_the_results() -> None:
    made = document()
    found, series = shown(run(made)), as_json(made)["measurements"]["series"]
    assert {line["role"]: line["values"] for line in found.charts["rates"]["series"]} == {
        name: series[name] for name in ("offered", "sent", "acked", "received")
    }
    assert {line["role"]: line["values"] for line in found.charts["latency"]["series"]} == {
        name: series[key]
        for name, key in (("p50", "endToEndP50"), ("p99", "endToEndP99"), ("max", "endToEndMax"))
    }


def test_markup_in_results_is_escaped() -> None:
    """It may be in a test's id, a note, a reason, a stage, a topic or a setting."""
    made = document(
        LOOSE, facts={"test": NASTY, "profile_name": NASTY, "notes": (NASTY,), "broker": {"name": NASTY, "settings": {NASTY: NASTY}}},
        parts={"stages": (stage(NASTY),), "timeline": TimelineSection(stages=(), changes=(TimelineChange(at=0, text=NASTY),), restarts=(), stalls=(), blocked=())},
        topics=(made_bucket(NASTY), made_bucket("other")),
    )  # fmt: skip
    made = changed(made, "verdict/reasons", [NASTY])
    found, plain = shown(run(made)), shown(run(document(LOOSE)))
    assert (len(found.scripts), len(found.styles)) == (len(plain.scripts), len(plain.styles))
    assert "b" not in {tag for tag, _ in found.tags}
    assert found.reads.count(" ".join(NASTY.split())) >= 6
    assert found.data["bands"]["run-1"][0]["label"] == NASTY
    assert NASTY in [line["label"] for line in found.charts["stages"]["series"]]


def test_the_policy_allows_only_the_pages_own_scripts_and_styles() -> None:
    """Each is allowed by its hash, and no network."""
    found = shown(run(document()))
    (policy,) = [
        attributes["content"]
        for _, attributes in found.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    allowed = set(re.findall(r"'(sha256-[^']+)'", policy))
    assert allowed == {
        f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
        for text in [*found.scripts, *found.styles]
    }
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


def test_nothing_is_loaded_and_no_style_is_inline() -> None:
    found = shown(run(document()))
    assert [
        attributes
        for _, attributes in found.tags
        if {"style", "src", "onclick", "onload"} & set(attributes)
    ] == []
    assert [
        attributes["href"]
        for _, attributes in found.tags
        if not attributes.get("href", "#").startswith("#")
    ] == []
    assert "link" not in {tag for tag, _ in found.tags}


def test_a_report_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Its folder is made, and no temporary file is left."""
    file = tmp_path / "out" / "report.html"
    put(tmp_path / "results", document())
    for _ in range(2):
        page.write_page([tmp_path / "results"], file)
    assert [path.name for path in file.parent.iterdir()] == ["report.html"]
    assert Page(file.read_text(encoding="utf-8")).charts


def test_a_folder_without_runs_has_no_report(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        page.write_page([tmp_path], tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_sections_missing_in_older_results_are_not_measured() -> None:
    old = as_json(
        document(LOOSE, facts={"broker": {"name": "x"}}, parts={"stages": (stage("ramp"),)})
    )
    for node in (old["measurements"], *(part["measurements"] for part in old["stages"])):
        for key in ("opening", "delayedIndex", "overTime"):
            node.pop(key, None)
        for key in ("missing", "blocked"):
            node["series"].pop(key, None)
        node["counts"].pop("outOfDueOrder")
    for key in ("timeline", "bottleneck"):
        old.pop(key, None)
    found = shown(replace(run(document()), document=from_json(old | {"version": 3})))
    assert {"rates", "latency", "curve", "stages"} <= set(found.charts)
    assert "broker and bottleneck: not measured (nothing was sampled)" in found.reads


DAY, TOPICS, BLOCKS = 86_400, 1000, 1000


LIMIT = 3_000_000  # bytes


COLUMNS = 40


def of_a_day() -> Any:
    """Return a day with every second measured, different blocks and topics, and events all the time."""
    drawn = random.Random(7)
    made = as_json(document(duration=DAY * 1_000_000_000))
    measured = made["measurements"]
    rates = {
        name: [drawn.randint(90_000, 110_000) for _ in range(DAY)]
        for name in ("offered", "sent", "acked", "received")
    }
    times = {
        name: [drawn.randint(10**6, 10**9) for _ in range(DAY)]
        for name in ("endToEndP50", "endToEndP99", "endToEndMax")
    }
    measured["series"] = {
        **rates,
        **times,
        "missing": [drawn.randint(-3, 3) for _ in range(DAY)],
        "blocked": rates["offered"],
    }
    blocks = [
        encode_coarse_counts(
            {drawn.randint(1500, 2600): drawn.randint(1, 10**6) for _ in range(400)}
        )
        for _ in range(20)
    ]
    measured["overTime"] = {
        "block": 87 * 1_000_000_000,
        "endToEnd": [blocks[at % 20] for at in range(BLOCKS)],
    }
    (part,) = measured["intervals"]
    measured["intervals"] = [part] * (DAY // 10)
    (topic,) = measured["topics"]
    bare = {**topic["endToEnd"], "histogram": None}
    measured["topics"] = [
        {
            **topic,
            "name": f"persistent://tenant/namespace/topic-{at}",
            "lost": drawn.randint(0, 10**6),
            "endToEnd": bare,
        }
        for at in range(TOPICS)
    ]
    columns = {
        f"worker gw{at}.busiestWanted": [drawn.random() for _ in range(DAY)]
        for at in range(COLUMNS // 2)
    }
    columns |= {
        name: [drawn.random() * 1e9 for _ in range(DAY)]
        for name in (
            "broker.cpu",
            "broker.memory",
            "broker.written",
            "sys.backlog",
            "sys.publishLatency",
        )
    }
    made["bottleneck"] = {
        "conclusion": "broker CPU", "evidence": "much", "also": [], "missing": [], "cost": 0.01, "time": [at * 10**9 for at in range(DAY)], "columns": columns,
    }  # fmt: skip
    spans = [{"start": at * 10**9, "end": (at + 1) * 10**9} for at in range(0, 1000, 2)]
    stalls = [{"worker": f"gw{worker}", **span} for worker in range(16) for span in spans]
    made["timeline"] = {
        "stages": [],
        "changes": [],
        "restarts": [],
        "stalls": stalls,
        "blocked": spans,
    }
    measured["lost"] = [
        {"topic": at % TOPICS, "subscription": 0, "stream": at, "first": 0, "last": at}
        for at in range(10_000)
    ]
    return made


@pytest.mark.slow
def test_a_day_of_a_thousand_topics_fits_in_3_mb() -> None:
    """Every chart has few enough points, and the true extremes."""
    made = of_a_day()
    text = page.page_html(
        ResultSet(
            runs=[ReadRun(session="monday", attempt=1, document=from_json(made), steps={})],
            unreadable=[],
        )
    )
    assert len(text.encode()) <= LIMIT
    found = Page(text)
    for name in ("rates", "latency", "lost", "cpu", "workers"):
        assert all(len(line["values"]) <= POINTS for line in found.charts[name]["series"])
    series = made["measurements"]["series"]
    for line, key in zip(
        found.charts["latency"]["series"],
        ("endToEndP50", "endToEndP99", "endToEndMax"),
        strict=True,
    ):
        assert (max(line["values"]), min(line["low"])) == (max(series[key]), min(series[key]))
    received = next(line for line in found.charts["rates"]["series"] if line["role"] == "received")
    assert (max(received["values"]), min(received["low"])) == (
        max(series["received"]),
        min(series["received"]),
    )
    assert len({row[0] for row in found.rows if "topic-" in row[0]}) == TOPICS
    assert sum(count for _, _, count in found.charts["heat"]["cells"]) > 0


VENDOR = files("pytest_loadtest.report.html").joinpath("vendor")


def test_vendored_files_have_the_hashes_in_version():
    named = dict(
        reversed(line.split()) for line in VENDOR.joinpath("VERSION").read_text().splitlines()[2:]
    )
    assert {file.name for file in VENDOR.iterdir()} == {"VERSION", *named}
    assert {
        name: hashlib.sha256(VENDOR.joinpath(name).read_bytes()).hexdigest() for name in named
    } == named


def test_vendored_files_have_version_and_licence():
    assert (
        VENDOR.joinpath("VERSION")
        .read_text()
        .startswith("uplot 1.6.32, https://www.npmjs.com/package/uplot, MIT")
    )
    assert "v1.6.32" in VENDOR.joinpath("uPlot.iife.min.js").read_text()[:100]
    assert "MIT License" in VENDOR.joinpath("LICENSE").read_text()


def test_seven_tests_have_less_than_700_kb() -> None:
    """Each has a minute of measured seconds, samples and events."""
    runs = [run(replace(made_soak(60, seed=seed), test=f"a.py::test_{seed}")) for seed in range(7)]
    text = page.page_html(ResultSet(runs=runs, unreadable=[]))
    assert len(text.encode()) < 700_000
