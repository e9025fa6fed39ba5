"""The page as its reader finds it: words, tables, charts, and nothing from anywhere else."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from builders.documents import BACKLOG, BOTTLENECK, FACTS, PEAK, document, stage
from builders.measurements import made_bucket, made_series, spread
from builders.results import Page, put, run, shown

from pytest_loadtest.errors import UsageError
from pytest_loadtest.metrics.opening import Opening
from pytest_loadtest.report.build import build_document
from pytest_loadtest.report.find_results import Found, ReadRun
from pytest_loadtest.report.hdr import encode_coarse_counts
from pytest_loadtest.report.html import page
from pytest_loadtest.report.html.charts import POINTS
from pytest_loadtest.verdict.slo import Outcome, Verdict

LOOSE = {"endToEndLatency": {"p99": "1s"}}
NASTY = "</script><script>alert('1')</script> \"<b>&amp;\" <!-- '"


def broken(outcome: Outcome, *reasons: str) -> dict[str, Any]:
    """A run that was given up."""
    return build_document(FACTS, Verdict(outcome=outcome, findings=(), reasons=reasons), None)


BROKEN = broken(Outcome.NO_DATA, "worker gw1 died")
CONNECTED = Opening(alone=True, connections=500, rate=None, took=2_000_000_000, busiest="gw0", cpu=0.5, begun_late=None, in_time=None)


@pytest.mark.parametrize(
    ("made", "outcome", "words"),
    [
        (document(LOOSE), "met", ["endToEndLatency.p99", "19.8 ms", "<= 1.00 s", "100 000"]),
        (document(), "missed", ["endToEndLatency.p99 19.8 ms > 15.0 ms: over by 32 %"]),
        (document(end_to_end=spread(1, 20, 5)), "no data", ["p99 needs 1 000 samples, there are 5", "not known", "too few"]),
        (
            broken(Outcome.GENERATOR_LIMITED, "the generator", "lower the rate"),
            "generator-limited",
            ["Because the generator lower the rate"],
        ),
        (BROKEN, "no data", ["worker gw1 died", "the run broke before anything could be measured", "rates and latencies: not measured"]),
    ],
)
def test_a_page_of_each_outcome(made: dict[str, Any], outcome: str, words: list[str]) -> None:
    """Says it in the overview, in the contents and at the run, with its figures."""
    found = shown(run(made))
    assert next(row[1] for row in found.rows if row[0] == made["test"]) == outcome
    assert f"1 run: 1 {outcome}." in found.reads
    assert sum(attributes.get("data-outcome") == outcome for _, attributes in found.tags) >= 3
    assert [word for word in words if word not in found.reads] == []


def test_a_broken_run_has_no_chart() -> None:
    """And nothing that looks like a measurement."""
    found = shown(run(BROKEN))
    assert found.charts == {}
    assert not any(tag == "figure" for tag, _ in found.tags)


def test_all_that_a_run_may_have() -> None:
    """Search, stages, size buckets, topics, backlog, broadcast, connections, bottleneck: each has its chapter and charts."""
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
        "What ran",
    }
    assert [title for title in titles if title not in found.words] == []
    assert "peak 19 843 msg/s, held for 60.0 s; 20 240 msg/s was missed" in found.reads
    assert "bottleneck broker CPU: mosquitto's busiest thread used 0.97 of a core" in found.reads
    assert "1 048 576 deliveries, 1.00 GiB, built in 32.0 s, drained in 8.00 s" in found.reads
    assert [row[0] for row in found.rows if row[0].startswith("topic ")][:11] == [
        *(f"topic {n}" for n in (6, 13, 20, 27, 5, 12, 19, 26, 4, 11)),
        "topic 6",
    ]


def test_every_chart_has_its_place() -> None:
    """Once, with its title and its sentence in words."""
    found = shown(run(document()), run(document(LOOSE)))
    places = [attributes["data-chart"] for tag, attributes in found.tags if tag == "figure"]
    assert sorted(places) == sorted(found.data["charts"])
    for chart in found.data["charts"].values():
        assert chart["title"] in found.reads
        assert chart["summary"] in found.reads
    assert set(found.data["bands"]) == {"run-1", "run-2"}


def test_a_chart_shows_the_figures_of_the_results() -> None:
    """Second by second."""
    made = document()
    found = shown(run(made))
    assert {line["role"]: line["values"] for line in found.charts["rates"]["series"]} == {
        name: made["measurements"]["series"][name] for name in ("offered", "sent", "acked", "received")
    }
    assert {line["role"]: line["values"] for line in found.charts["latency"]["series"]} == {
        name: made["measurements"]["series"][key] for name, key in (("p50", "endToEndP50"), ("p99", "endToEndP99"), ("max", "endToEndMax"))
    }


def test_what_was_not_measured_is_said() -> None:
    """Never zero, never an empty chart."""
    found = shown(run(document(publish=None, end_to_end=None, counts={"received": 0, "received_in_time": 0, "out_of_order": None})))
    rows = {row[0]: row for row in found.rows}
    assert set(rows["publish"][1:]) == {"not measured"}
    assert rows["out of order"][1] == "not applicable"
    assert rows["delivered"][1] == "none"
    assert [line["label"] for line in found.charts["curve"]["series"]] == ["send delay", "own send delay"]


def test_a_run_without_subscriptions() -> None:
    """What came in is not applicable, not nothing."""
    found = shown(run(document(LOOSE, subscriptions=0, end_to_end=None, counts={"received": 0, "received_in_time": 0})))
    rows = {row[0]: row for row in found.rows}
    assert (rows["received"][1], rows["lost"][1], rows["delivered"][1]) == (
        "not applicable",
        "not applicable",
        "nowhere (nothing subscribes)",
    )
    assert "received" not in [line["label"] for line in found.charts["rates"]["series"]]


def test_a_run_of_connections_alone() -> None:
    """Has no rates and no messages, and says so."""
    found = shown(run(document({}, opening=CONNECTED, connect=spread(1, 9), subscribe=spread(1, 9), publish=None, end_to_end=None)))
    assert set(found.charts) == {"opening"}
    assert "messages: not applicable: the run had connections and no messages" in found.reads
    assert "500, as fast as they came" in found.reads


def test_lost_and_doubled_are_shown_when_they_were() -> None:
    """By the second of the intended time, with the ranges; what cannot be known is said."""
    made = document(counts={"lost": 20, "duplicates": 3})
    assert "when messages were lost or doubled: not measured" in shown(run(made)).reads
    made["measurements"]["series"]["missing"] = [0, 12, 8, 0, -3, 0, 0, 0, 0, 0]
    found = shown(run(made))
    assert {line["role"]: line["values"] for line in found.charts["lost"]["series"]} == {
        "lost": [0, 12, 8, 0, 0, 0, 0, 0, 0, 0], "duplicates": [0, 0, 0, 0, 3, 0, 0, 0, 0, 0],
    }  # fmt: skip
    assert "missing 20 in 2 seconds; too many 3 in 1 seconds." in found.reads
    assert ["3", "0", "0", "100", "119"] in found.rows
    assert [band["kind"] for band in found.data["bands"]["run-1"]] == ["lost"]


def test_a_search_is_rate_against_latency() -> None:
    """Each step where its rate and its p99 are, in order of rate; one whose results are gone has a place but no latency."""
    steps = {1: document(LOOSE), 3: document(LOOSE)}
    found = shown(run(document(LOOSE, parts={"peak": PEAK}), steps=steps)).charts["search"]
    p99 = steps[1]["measurements"]["latencies"]["endToEnd"]["percentiles"]["p99"]
    assert found["xs"] == [10_000, 19_843, 20_240]
    assert [(mark["x"], mark["y"], mark["outcome"]) for mark in found["marks"]] == [
        (10_000, p99, "met"),
        (19_843, p99, "met"),
        (20_240, None, "missed"),
    ]
    assert [(bound["label"], bound["x"], bound["y"]) for bound in found["bounds"]] == [
        ("endToEndLatency.p99 <= 1.00 s", None, 1_000_000_000), ("peak 19 843 msg/s", 19_843, None),
    ]  # fmt: skip


def test_a_step_of_few_messages_stands_at_its_maximum() -> None:
    """Its p99 cannot be told."""
    few = document(LOOSE, end_to_end=spread(1, 20, 500))
    found = shown(run(document(LOOSE, parts={"peak": PEAK}), steps={1: few})).charts["search"]
    assert found["marks"][0]["y"] == few["measurements"]["latencies"]["endToEnd"]["maximum"]


def test_nothing_that_can_be_read() -> None:
    """Is a page too, and says so."""
    found = shown(unreadable=("x/results.json: cannot be read",))
    assert "0 runs: none that can be read." in found.words
    assert found.charts == {}


def test_scaled_runs_say_so() -> None:
    """In the overview and at the run."""
    found = shown(run(document(facts={"scale": 0.001, "scaling": {"rate": "10 M → 10 k msg/s"}})))
    assert found.reads.count("says nothing about the full load") >= 2
    assert found.rows[1][3] == "×0.001"
    assert "SCALED ×0.001 (rate 10 M → 10 k msg/s)" in found.reads


def test_attempts_and_workloads_are_told_apart() -> None:
    """By what differs."""
    found = shown(run(document(), attempt=2), run(document(facts={"workload": "telemetry"})))
    assert f"{FACTS.test} · attempt 2" in found.words
    assert f"{FACTS.test} · workload telemetry" in found.words


def test_results_that_cannot_be_read_are_named() -> None:
    """A page of the others says which."""
    assert (
        "Results that cannot be read x/results.json: cannot be read"
        in shown(run(document()), unreadable=("x/results.json: cannot be read",)).reads
    )


def test_nothing_that_was_written_is_taken_for_markup() -> None:
    """A test's id, a note, a reason, a stage, a topic, a setting."""
    made = document(
        LOOSE, facts={"test": NASTY, "profile_name": NASTY, "notes": (NASTY,), "broker": {"name": NASTY, "settings": {NASTY: NASTY}}},
        parts={"stages": (stage(NASTY),), "timeline": {"stages": [], "changes": [{"at": 0, "text": NASTY}], "restarts": [], "stalls": [], "blocked": []}},
        topics=(made_bucket(NASTY), made_bucket("other")),
    )  # fmt: skip
    made["verdict"]["reasons"] = [NASTY]
    found, plain = shown(run(made)), shown(run(document(LOOSE)))
    assert (len(found.scripts), len(found.styles)) == (len(plain.scripts), len(plain.styles))
    assert "b" not in {tag for tag, _ in found.tags}
    assert found.reads.count(" ".join(NASTY.split())) >= 6
    assert found.data["bands"]["run-1"][0]["label"] == NASTY
    assert NASTY in [line["label"] for line in found.charts["stages"]["series"]]


def test_the_policy_allows_the_pages_own_scripts_and_styles_alone() -> None:
    """Each by its hash, and nothing of the network."""
    found = shown(run(document()))
    (policy,) = [attributes["content"] for _, attributes in found.tags if attributes.get("http-equiv") == "Content-Security-Policy"]
    allowed = set(re.findall(r"'(sha256-[^']+)'", policy))
    assert allowed == {
        f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}" for text in [*found.scripts, *found.styles]
    }
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


def test_nothing_is_loaded_and_no_style_is_inline() -> None:
    """A file by itself, under a strict policy."""
    found = shown(run(document()))
    assert [attributes for _, attributes in found.tags if {"style", "src", "onclick", "onload"} & set(attributes)] == []
    assert [attributes["href"] for _, attributes in found.tags if not attributes.get("href", "#").startswith("#")] == []
    assert "link" not in {tag for tag, _ in found.tags}


def test_links_and_labels_lead_somewhere() -> None:
    """To an id that there is, once."""
    found = shown(run(document()), run(document(LOOSE)))
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = {attributes["href"][1:] for tag, attributes in found.tags if tag == "a"} | {
        a["aria-labelledby"] for _, a in found.tags if "aria-labelledby" in a
    }
    assert wanted <= set(ids)


def test_tables_are_for_everybody() -> None:
    """Each has a caption; heads say of what."""
    found = shown(run(document()))
    tags = [tag for tag, _ in found.tags]
    assert tags.count("table") == tags.count("caption") > 5
    assert {attributes["scope"] for tag, attributes in found.tags if tag == "th"} == {"col", "row"}
    assert [tag for tag in ("header", "nav", "main", "h1") if tags.count(tag) != 1] == []


def test_a_report_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Its folder is made; nothing else is left there."""
    file = tmp_path / "out" / "report.html"
    put(tmp_path / "results", document())
    for _ in range(2):
        page.write_page([tmp_path / "results"], file)
    assert [path.name for path in file.parent.iterdir()] == ["report.html"]
    assert Page(file.read_text(encoding="utf-8")).charts


def test_a_folder_without_runs_has_no_report(tmp_path: Path) -> None:
    """And no empty file."""
    with pytest.raises(UsageError):
        page.write_page([tmp_path], tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_older_results_are_read() -> None:
    """What they lack is not measured."""
    old = document(LOOSE, facts={"broker": {"name": "x"}}, parts={"stages": (stage("ramp"),)})
    for node in (old["measurements"], *(part["measurements"] for part in old["stages"])):
        for key in ("opening", "delayedIndex", "overTime"):
            node.pop(key, None)
        for key in ("missing", "blocked"):
            node["series"].pop(key, None)
        node["counts"].pop("outOfDueOrder")
    for key in ("timeline", "bottleneck"):
        old.pop(key, None)
    found = shown(replace(run(document()), document=json.loads(json.dumps(old)) | {"version": 3}))
    assert {"rates", "latency", "curve", "stages"} <= set(found.charts)
    assert "broker and bottleneck: not measured (nothing was sampled)" in found.reads


DAY, TOPICS, BLOCKS = 86_400, 1000, 1000
LIMIT = 3_000_000  # bytes
COLUMNS = 40


def of_a_day() -> dict[str, Any]:
    """Every second measured, every block and topic different, trouble all the time."""
    drawn = random.Random(7)
    made = document(duration=DAY * 1_000_000_000)
    measured = made["measurements"]
    rates = {name: [drawn.randint(90_000, 110_000) for _ in range(DAY)] for name in ("offered", "sent", "acked", "received")}
    times = {name: [drawn.randint(10**6, 10**9) for _ in range(DAY)] for name in ("endToEndP50", "endToEndP99", "endToEndMax")}
    measured["series"] = {**rates, **times, "missing": [drawn.randint(-3, 3) for _ in range(DAY)], "blocked": rates["offered"]}
    blocks = [encode_coarse_counts({drawn.randint(1500, 2600): drawn.randint(1, 10**6) for _ in range(400)}) for _ in range(20)]
    measured["overTime"] = {"block": 87 * 1_000_000_000, "endToEnd": [blocks[at % 20] for at in range(BLOCKS)]}
    (part,) = measured["intervals"]
    measured["intervals"] = [part] * (DAY // 10)
    (topic,) = measured["topics"]
    bare = {**topic["endToEnd"], "histogram": None}
    measured["topics"] = [
        {**topic, "name": f"persistent://tenant/namespace/topic-{at}", "lost": drawn.randint(0, 10**6), "endToEnd": bare}
        for at in range(TOPICS)
    ]
    columns = {f"worker gw{at}.busiestWanted": [drawn.random() for _ in range(DAY)] for at in range(COLUMNS // 2)}
    columns |= {
        name: [drawn.random() * 1e9 for _ in range(DAY)]
        for name in ("broker.cpu", "broker.memory", "broker.written", "sys.backlog", "sys.publishLatency")
    }
    made["bottleneck"] = {
        "conclusion": "broker CPU", "evidence": "much", "also": [], "missing": [], "cost": 0.01, "time": [at * 10**9 for at in range(DAY)], "columns": columns,
    }  # fmt: skip
    spans = [{"start": at * 10**9, "end": (at + 1) * 10**9} for at in range(0, 1000, 2)]
    stalls = [{"worker": f"gw{worker}", **span} for worker in range(16) for span in spans]
    made["timeline"] = {"stages": [], "changes": [], "restarts": [], "stalls": stalls, "blocked": spans}
    made["lost"] = [{"topic": at % TOPICS, "subscription": 0, "stream": at, "first": 0, "last": at} for at in range(10_000)]
    return made


def test_a_day_of_a_thousand_topics() -> None:
    """At most 3 MB; every chart has points that can be drawn, and the extremes are the true ones."""
    made = of_a_day()
    text = page.page_html(Found(runs=[ReadRun(session="monday", attempt=1, document=made, steps={})], unreadable=[]))
    assert len(text.encode()) <= LIMIT
    found = Page(text)
    for name in ("rates", "latency", "lost", "cpu", "workers"):
        assert all(len(line["values"]) <= POINTS for line in found.charts[name]["series"])
    series = made["measurements"]["series"]
    for line, key in zip(found.charts["latency"]["series"], ("endToEndP50", "endToEndP99", "endToEndMax"), strict=True):
        assert (max(line["values"]), min(line["low"])) == (max(series[key]), min(series[key]))
    received = next(line for line in found.charts["rates"]["series"] if line["role"] == "received")
    assert (max(received["values"]), min(received["low"])) == (max(series["received"]), min(series["received"]))
    assert len({row[0] for row in found.rows if "topic-" in row[0]}) == TOPICS
    assert sum(count for _, _, count in found.charts["heat"]["cells"]) > 0


VENDOR = files("pytest_loadtest.report.html").joinpath("vendor")


def test_the_files_are_those_that_version_names():
    named = dict(reversed(line.split()) for line in VENDOR.joinpath("VERSION").read_text().splitlines()[2:])
    assert {file.name for file in VENDOR.iterdir()} == {"VERSION", *named}
    assert {name: hashlib.sha256(VENDOR.joinpath(name).read_bytes()).hexdigest() for name in named} == named


def test_version_and_licence_are_told():
    assert VENDOR.joinpath("VERSION").read_text().startswith("uplot 1.6.32, https://www.npmjs.com/package/uplot, MIT")
    assert "v1.6.32" in VENDOR.joinpath("uPlot.iife.min.js").read_text()[:100]
    assert "MIT License" in VENDOR.joinpath("LICENSE").read_text()
