"""A document of every kind of run, with fixed values, for tests that compare whole texts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from builders.documents import (
    BACKLOG,
    BOTTLENECK,
    FACTS,
    NATIVE,
    PEAK,
    RESTARTED,
    SLO,
    document,
    opening_document,
    stage,
)
from builders.measurements import MS, Limits, histogram, lateness, made, made_bucket, spread
from builders.objectives import parse_slo
from builders.report import broken, made_soak
from builders.run_file import made_run_file
from builders.runs import run_of, wandering
from builders.telemetry import made_telemetry, with_host
from pytest_loadtest.metrics.catalogue import COUNTS, LATENCIES
from pytest_loadtest.metrics.clocks import WithinHosts
from pytest_loadtest.metrics.expected import WorkerEvidence
from pytest_loadtest.metrics.full_windows import BlockedTopic, FullWindows
from pytest_loadtest.metrics.measurements import DelayedIndex, Lost, Series
from pytest_loadtest.metrics.silent import Silent, SilentPair, SilentStream
from pytest_loadtest.metrics.time_slices import SlicedStats, of_parts
from pytest_loadtest.observe.conclusion import Bottleneck
from pytest_loadtest.observe.telemetry import Telemetry
from pytest_loadtest.pipeline.run_file import RunChange, RunStage
from pytest_loadtest.report.bottleneck import bottleneck_section
from pytest_loadtest.report.build import build_document, with_comparison
from pytest_loadtest.report.comparison import compare_runs, missing_comparison
from pytest_loadtest.report.document import parse_document
from pytest_loadtest.report.measured import timeline_section
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.units import Rate, ms
from pytest_loadtest.verdict.objectives import Slo
from pytest_loadtest.verdict.slo import Outcome, Verdict, evaluate

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.report.document import RunDocument

STORED = Path(__file__).parents[1] / "unit/report/documents"
GATES = Slo.read({"regression": {"endToEndLatency.p99": "10%", "throughput": "5%"}}).gates
NODES = [
    {"broker.memory": 9.0, "ZooKeeper.memory": 2.0**20, "broker 1.memory": 2.0**20, "broker 1.topics": 4.0, "broker 1.gained": 0.0},
    {"broker 1.memory": 2.0**21, "broker 1.cpu": 0.5, "broker 1.messagesIn": 100.0, "broker 1.topics": 8.0, "broker 1.gained": 4.0},
]  # fmt: skip


def everything() -> RunDocument:
    """Return a run with each latency of a broker and each count of the catalogue, no two of which are equal."""
    of_brokers = [attribute for attribute, metric in LATENCIES.items() if not metric.route_part]
    kinds = {
        attribute: spread(1 + number, 100 + 7 * number)
        for number, attribute in enumerate(of_brokers)
    }
    kinds["lateness"] = lateness(np.repeat(np.arange(-5, 90), 200) * MS)
    kinds["earliness"] = spread(3, 11)
    counts = {row.attribute: 90_000 - 7 * number for number, row in enumerate(COUNTS)}
    index = DelayedIndex(bytes=6_400_000, messages=100_000)
    return document(counts=counts, broadcasts=True, delayed_index=index, **kinds)


def through_a_service() -> RunDocument:
    """Return a run through a service that loses, doubles and reorders messages, with a tap that missed some."""
    route = {"input": "shop/orders/{topic}", "output": ["shop/confirmed/{topic}"], "envelope": {"in": "json:/ref", "out": "json:/ref"}}  # fmt: skip
    counts = {"lost": 9, "received": 99_991, "duplicates": 6, "out_of_order": 5, "foreign": 2}
    ends = {
        "to_tap": (0.5, 4),
        "after_tap": (20, 40),
        "past_tap": (20.5, 44),
        "own_past_tap": (0, 3),
    }
    tap = {kind: spread(least, most, 99_900) for kind, (least, most) in ends.items()}
    facts = {"profile": {**FACTS.profile, "route": {**route, "tap": True}}}
    return document({"duplicates": 0}, facts=facts, counts=counts, tapped=True, **tap)


def few_samples() -> RunDocument:
    """Return a run with too few samples for most percentiles, and some below zero."""
    negative = histogram(np.arange(1, 200) * MS)
    return document(
        end_to_end=spread(1, 20, 30),
        send_delay=replace(negative, negative=20, minimum=-3 * MS),
        counts={"received": 30, "lost": 99_970},
    )


def wrong() -> RunDocument:
    """Return a run with everything that can go wrong with messages, and none of its clocks agree."""
    lost = tuple(
        Lost(topic=n, subscription=0, stream=n, first=10 * n, last=11 * n) for n in range(7)
    )
    silent = Silent(
        pairs=2, pairs_due=4, streams=1, streams_due=8, first_pairs=(SilentPair(0, 1), SilentPair(3, 0)), first_streams=(SilentStream(5, 2),)
    )  # fmt: skip
    series = made().series
    missing = np.array([0, 5, 7, 0, -3, 0, 0, 0, 9, 0])
    counts = {
        "lost": 28, "received": 99_972, "duplicates": 6, "resent": 40, "duplicates_of_resent": 3, "failed": 2, "unknown": 1,
        "dropped": 11, "foreign": 2, "corrupt": 4, "out_of_order": 5,
    }  # fmt: skip
    return document(
        {"loss": 5, "duplicates": "1%"},
        facts={"driver": NATIVE | {
            "losses": 2, "stamps": "kernel", "unstamped": 3, "late_stamps": 1, "not_applied": {"tcpNoDelay": "always on"},
            "incidents": {"connection reset": 2, "session taken over": 1},
        }},
        counts=counts, lost=lost, silent=silent, series=replace(series, missing=missing), receive_lag=spread(0.1, 3),
    )  # fmt: skip


def full_windows() -> RunDocument:
    """Return a run whose messages were dropped before full windows, on several hosts."""
    topics = tuple(
        BlockedTopic(topic=n, dropped=100 + n, start=n * SECOND, end=9 * SECOND) for n in range(4)
    )
    full = FullWindows(dropped=406, waited=31 * SECOND, topics=4, first_topics=topics)
    series = replace(made().series, blocked=np.arange(10) * SECOND)
    telemetry = with_host(made_telemetry(worker_gw0__cpu=0.6), "h1", unsent=2**20)
    section = bottleneck_section(
        Bottleneck(conclusion="publisher window", evidence="full"), telemetry
    )
    workers = tuple(
        replace(made().workers[0], worker=name, longest_stall=n * MS, latencies={"send_delay": spread(0.1, 2)})
        for n, name in enumerate(("gw0", "h1-1"), 1)
    )  # fmt: skip
    return document(
        parts={"bottleneck": section}, full_windows=full, blocked=31 * SECOND, series=series, workers=workers,
        counts={"dropped": 406, "sent": 99_594, "acked": 99_594, "received": 99_594},
        within_hosts=WithinHosts(deliveries=50_000, complete=False),
    )  # fmt: skip


def slices(latencies: list[int | None]) -> SlicedStats:
    """Return slices of ten seconds with a thousand messages each; None: none of them came."""
    parts = [None if value is None else histogram(np.full(1000, value * MS)) for value in latencies]
    stats = of_parts(parts)
    at = np.arange(len(parts))
    came = np.array([0 if part is None else part.n for part in parts])
    return SlicedStats(
        start=at * 10 * SECOND, end=(at + 1) * 10 * SECOND, begin=at, after=at + 1, offered=np.full(len(parts), 1000), received=came,
        in_time=came, own_late=came * 0, in_time_without_own=came * 0, fan_out=1, latencies={} if stats is None else {"end_to_end": stats},
    )  # fmt: skip


def windows(latencies: list[int | None]) -> RunDocument:
    """Return a run with objectives in windows and on drift."""
    section = {
        "window": "10s", "endToEndLatency": {"p99": "100ms"}, "violations": "1%", "throughput": {"min": "99%"},
        "drift": {"endToEndLatency.p99": "20%"},
    }  # fmt: skip
    run = made(windows=slices(latencies), tenths=slices([20, 30]))
    return build_document(FACTS, evaluate(parse_slo(section), run, Limits()), run)


def events() -> RunDocument:
    """Return a live run with stages, changes, restarts, stalls and full windows on its timeline."""
    nothing: dict[str, Any] = {
        "rate": None, "bytes": False, "distribution": False, "paused": None, "consumers": None, "end": False, "unattainable": None,
    }  # fmt: skip
    changes = (
        RunChange(at=1 * SECOND, **nothing | {"rate": 5_000.0}),
        RunChange(at=2 * SECOND, **nothing | {"rate": 5e6, "bytes": True, "distribution": True}),
        RunChange(at=3 * SECOND, **nothing | {"paused": True}),
        RunChange(at=4 * SECOND, **nothing | {"paused": False, "consumers": 3}),
        RunChange(at=9 * SECOND, **nothing | {"end": True, "unattainable": "endToEndLatency.p99"}),
    )
    stages = (
        RunStage(name="ramp", start=SECOND, duration=4 * SECOND, slo=None, rate=5_000.0),
        RunStage(name="hold", start=5 * SECOND, duration=6 * SECOND, slo=SLO, rate=9_000.0),
    )
    circumstances = replace(made_run_file().facts, broker=RESTARTED)
    run = made_run_file(start=SECOND, stages=stages, changes=changes, facts=circumstances)
    seconds = np.zeros((10, 4), np.int64)
    seconds[3:5, 1] = 400 * MS
    worker = WorkerEvidence(
        worker="gw1", cpu=0.9, stalled=800 * MS, longest_stall=400 * MS, gc=MS, seconds=seconds
    )
    series = replace(made().series, blocked=np.where(np.arange(10) == 6, 10**11, 0))
    timeline = timeline_section(run, made(workers=(worker,), series=series))
    section = bottleneck_section(
        Bottleneck(conclusion=None, evidence="too few samples"), Telemetry.of_rows([0, 10**9], NODES)
    )  # fmt: skip
    return document(
        facts={"broker": RESTARTED},
        parts={"timeline": timeline, "bottleneck": section, "stages": (stage("ramp"), stage("hold", publish=None))},
    )  # fmt: skip


def compared() -> RunDocument:
    """Return a run that is slower than its baseline, on a machine with other versions."""
    before = run_of(wandering(1))
    now = run_of(wandering(3, factor=1.3), facts={"versions": {"pytest-loadtest": "0.1.0", "numpy": "2.0"}})  # fmt: skip
    return with_comparison(now, *compare_runs(before, now, GATES))


def not_comparable() -> RunDocument:
    """Return a run whose baseline ran on another machine."""
    before = document(facts={"machine": {"cores": 64}})
    now = document()
    return with_comparison(now, *compare_runs(before, now, GATES, force=True))


def custom() -> RunDocument:
    """Return a run with metrics of users' own code."""
    values = {"gold.p99": ms(3), "rate": Rate(5), "skew": -0.5, "none": None}
    return document({"custom": {"gold.p99": "5ms", "silver.p99": "5ms"}}, custom=values)


def parts() -> RunDocument:
    """Return one of several workloads, scaled, with topics and size buckets."""
    topics = tuple(made_bucket(f"topic {n}", lost=int(n == 7)) for n in range(12))
    buckets = (made_bucket("0-256", lost=3), made_bucket("256-1024", end_to_end=spread(2, 90, 9)))
    scaled = {"scale": 0.001, "scaling": {"rate": "10 M → 10 k msg/s", "topics": "90 → 12"}}
    return document(
        {"buckets": {"0-256": {"loss": 0, "endToEndLatency": {"p99": "9ms"}}}},
        facts={"workload": "telemetry", **scaled, "notes": ("Spark was started again",)},
        topics=topics, buckets=buckets, subscriptions=2, counts={"lost": 4, "received": 199_996}, intervals=(made().latencies,) * 3,
    )  # fmt: skip


def stalled() -> RunDocument:
    """Return a run that the generator limited."""
    worker = WorkerEvidence(
        worker="gw0", cpu=0.99, stalled=4 * SECOND, longest_stall=SECOND, gc=3 * MS
    )
    return document(workers=(worker,), parts={"bottleneck": BOTTLENECK})


def search(**changed: Any) -> RunDocument:
    """Return the step of a search that has its answer."""
    return document({"endToEndLatency": {"p99": "100ms"}}, parts={"peak": replace(PEAK, **changed)})


def search_in_bytes() -> RunDocument:
    """Return a search that is in bytes, without objectives of the profile."""
    profile = {**FACTS.profile, "search": {"start": "1048576B/s"}}
    peak = replace(PEAK, confirmed=False, at_least=True, limit="generator", high=None)
    return document({}, facts={"profile": profile}, parts={"peak": peak})


def backlog(**changed: Any) -> RunDocument:
    """Return a run that built and drained a backlog."""
    return document(parts={"backlog": replace(BACKLOG, **changed)})


def nothing_received() -> RunDocument:
    """Return a run of which nothing arrived."""
    counts = {"received": 0, "received_in_time": 0, "lost": 100_000}
    empty = np.full(10, np.nan)
    series: Series = replace(
        made().series, received=np.zeros(10, np.int64), end_to_end_p50=empty, end_to_end_p99=empty, end_to_end_max=empty,
    )  # fmt: skip
    return document(end_to_end=None, counts=counts, series=series)


def producers_only() -> RunDocument:
    """Return a run without consumers."""
    return document(
        subscriptions=0, end_to_end=None, counts={"received": 0, "received_in_time": 0, "out_of_order": None},
    )  # fmt: skip


def judged_no_data() -> RunDocument:
    """Return a run that broke, with a stage that never began."""
    verdict = Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died",))
    return build_document(FACTS, verdict, None, stages=[("ramp", verdict, None)])


def gone() -> RunDocument:
    """Return a run without a baseline to compare with."""
    return with_comparison(document(), *missing_comparison(GATES, "no run was met yet"))


def stored(name: str) -> Callable[[], RunDocument]:
    """Return a function that reads a document of an earlier release."""
    return lambda: parse_document((STORED / f"{name}.json").read_text(encoding="utf-8"))


KINDS: dict[str, Callable[[], RunDocument]] = {
    "met": lambda: document({"throughput": "99%", "endToEndLatency": {"p99": "100ms"}}),
    "missed": lambda: document(counts={"lost": 12, "received": 99_988}),
    "stalled": stalled,
    "broken": broken,
    "stage-never-began": judged_no_data,
    "nothing-received": nothing_received,
    "producers-only": producers_only,
    "few-samples": few_samples,
    "everything": everything,
    "wrong": wrong,
    "full-windows": full_windows,
    "parts": parts,
    "custom": custom,
    "events": events,
    "route": through_a_service,
    "windows": lambda: windows([20, 500, None]),
    "windows-met": lambda: windows([20] * 30),
    "search": search,
    "search-without-answer": lambda: search(rate=None, low=None, limit="none"),
    "search-in-bytes": search_in_bytes,
    "backlog": backlog,
    "backlog-kept": lambda: backlog(drain=math.inf, drained=False, left=2_000_000, waited=15_063 * MS),
    "backlog-open": lambda: backlog(
        drain=None, drained=None, left=None, drain_rate=None, uncounted=7, between=(6_000 * MS, 9_000 * MS), publish_during_drain=None,
    ),
    "connections": opening_document,
    "connections-and-load": lambda: opening_document(3, None, alone=False),
    "compared": compared,
    "not-comparable": not_comparable,
    "baseline-gone": gone,
    "soak": lambda: made_soak(120, topics=3),
    **{f"stored-{name}": stored(name) for name in ("full", "older", "peakless", "windows", "compared")},
}  # fmt: skip
"""Functions that make a document, by the kind of run."""


def as_text(values: Any) -> str:
    """Return values as JSON with one line for each, so that a difference is one line."""
    return json.dumps(values, indent=1, ensure_ascii=False) + "\n"
