"""A day of a thousand topics: small enough to be opened, and nothing hidden by it."""

from __future__ import annotations

import random
from typing import Any

from builders.documents import document
from builders.results import Page

from pytest_loadtest.report.hdr import encode_coarse_counts
from pytest_loadtest.report.html import page
from pytest_loadtest.report.html.read import Found, ReadRun
from pytest_loadtest.report.html.reduce import POINTS

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
