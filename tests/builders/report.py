"""Charts and results documents for tests of the report's page."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from builders.documents import PEAK, as_json, document, from_json
from builders.measurements import histogram, made_bucket
from pytest_loadtest.metrics.expected import WorkerEvidence
from pytest_loadtest.metrics.measurements import Series
from pytest_loadtest.metrics.time_slices import OverTime
from pytest_loadtest.report.find_results import ReadRun, ResultSet
from pytest_loadtest.report.html.blocks import Chapter, ChartFigure, RunPage
from pytest_loadtest.report.html.page import page_html, render_page
from pytest_loadtest.report.verdict_section import VerdictSection
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument


Chart = dict[str, Any]

MS = 1_000_000
SECONDS = {"label": "time since the start of the measured phase", "unit": "s", "scale": "linear"}
RATE = {"label": "rate", "unit": "msg/s", "scale": "linear"}
LATENCY = {"label": "end-to-end latency", "unit": "ns", "scale": "log"}


def made_chart(kind: str, title: str, x: dict[str, str], y: dict[str, str], **parts: Any) -> Chart:
    """Return a chart in the form that the page's script takes."""
    whole = {
        "run": "run-1",
        "summary": f"{title} in a sentence.",
        "xs": [],
        "series": [],
        "bounds": [],
        "marks": [],
    }
    return {"kind": kind, "title": title, "x": x, "y": y, **whole, **parts}


def series(label: str, role: str, values: Any, low: Any = None) -> dict[str, Any]:
    """Return one line; NaN is an unknown value."""
    found = {"label": label, "role": role, "values": _plain(values)}
    return found if low is None else found | {"low": _plain(low)}


def _plain(values: Any) -> list[Any]:
    return [None if np.isnan(value) else int(value) for value in values]


def _column(x: int, edges: list[int], latencies: Any) -> list[list[int]]:
    """Return one column of a heat map."""
    rows = np.clip(np.searchsorted(edges, latencies) - 1, 0, len(edges) - 2)
    return [
        [x, int(row), int(count)]
        for row, count in zip(*np.unique(rows, return_counts=True), strict=True)
    ]


def bound(
    label: str, outcome: str, x: float | None = None, y: float | None = None
) -> dict[str, Any]:
    """Return one objective in a chart."""
    return {"label": label, "x": x, "y": y, "outcome": outcome}


def band(kind: str, start: float, end: float, label: str) -> dict[str, Any]:
    """Return one band of a run."""
    return {"kind": kind, "from": start, "to": end, "label": label}


BANDS = [
    band("stage", 0, 20, "quiet"), band("stage", 20, 40, "burst"), band("stage", 40, 60, "quiet again"),
    band("change", 30, 30, "rate 12 000 msg/s"), band("restart", 44, 47, "broker restarted, 3.1 s"), band("move", 46, 48, "4 to broker 2"),
    band("stall", 10, 11, "generator gw0 stalled 900 ms"), band("blocked", 33, 36, "messages waited for a full window"),
    band("lost", 44, 45, "12 messages lost"),
]  # fmt: skip


def made_charts(seconds: int = 60) -> dict[str, Chart]:
    """Return one chart of each kind, for a run of a minute with all sections."""
    random = np.random.default_rng(7)
    t = np.arange(seconds)
    rate = np.where(t < 30, 10_000, 12_000)
    received = (rate + random.normal(0, 150, seconds)).astype(float)
    received[44:47] = (0, np.nan, 400)
    p50 = 2e6 + random.gamma(2, 2e5, seconds)
    p50[45] = np.nan
    p99 = p50 * random.uniform(3, 8, seconds) * np.where((t >= 44) & (t < 50), 60, 1)
    nines = 1 / (
        1 - np.array([0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999])
    )
    curve = 1e6 * np.array([0.4, 1.2, 1.9, 2.8, 4.4, 7.5, 16, 40, 210, 650, 1900, 3100])
    edges = [int(value) for value in np.geomspace(2e5, 4e9, 121)]
    cells = [
        cell
        for x in t
        if x != 45
        for cell in _column(
            int(x), edges, random.lognormal(np.log(p50[x]), 1.5 if 44 <= x < 50 else 0.5, 4000)
        )
    ]
    return {
        "rates": made_chart("lines", "Messages per second", SECONDS, RATE, xs=t.tolist(), bounds=[bound("throughput ≥ 9 900 msg/s", "met", y=9_900)],
            series=[series("offered", "offered", rate), series("sent", "sent", rate - 20), series("received", "received", received)]),
        "latency": made_chart("lines", "End-to-end latency over time", SECONDS, LATENCY, xs=t.tolist(),
            bounds=[bound("p99 ≤ 100 ms", "missed", y=100 * MS), bound("p50 ≤ 20 ms", "met", y=20 * MS)],
            series=[series("p50", "p50", p50), series("p99", "p99", p99), series("max", "max", p99 * 3)]),
        "reduced": made_chart("lines", "Reduced to extremes", SECONDS, {"label": "CPU", "unit": "cores", "scale": "linear"}, xs=t[::2].tolist(),
            series=[series("broker", "a", np.repeat((2, 3), seconds // 4), np.repeat((1, 2), seconds // 4)), series("worker gw0", "b", np.repeat((1, 2), seconds // 4), np.repeat((0, 1), seconds // 4))]),
        "heat": made_chart("heat", "Latency of all messages", SECONDS, LATENCY, xs=t.tolist(), step=1, ys=edges, cells=cells, bounds=[bound("p99 ≤ 100 ms", "missed", y=100 * MS)]),
        "lost": made_chart("bars", "Lost and doubled", SECONDS, {"label": "messages", "unit": "count", "scale": "linear"}, xs=t.tolist(),
            series=[series("lost", "lost", np.where(t == 44, 12, 0)), series("duplicates", "duplicates", np.where(t == 47, 5, 0))]),
        "curve": made_chart("curve", "Percentiles", {"label": "percentile", "unit": "", "scale": "percentile"}, LATENCY, xs=nines.tolist(), run=None,
            bounds=[bound("p50 ≤ 20 ms", "met", x=2, y=20 * MS), bound("p99 ≤ 10 ms", "missed", x=100, y=10 * MS), bound("p99.9 ≤ 1 s", "met", x=1000, y=1000 * MS), bound("max ≤ 2 s", "missed", y=2000 * MS)],
            series=[series("end-to-end", "a", curve), series("publish", "b", curve * 0.6)]),
        "search": made_chart("lines", "Steps of the search", {"label": "rate", "unit": "msg/s", "scale": "linear"}, {"label": "p99", "unit": "ns", "scale": "log"}, run=None,
            bounds=[bound("p99 ≤ 100 ms", "", y=100 * MS), bound("peak 19 843 msg/s", "met", x=19_843)],
            marks=[{"x": x, "y": y * MS, "label": str(i + 1), "outcome": outcome} for i, (x, y, outcome) in enumerate([(10_000, 9, "met"), (20_240, 412, "missed"), (15_000, 14, "met"), (18_000, 31, "met"), (19_400, 60, "met"), (19_843, 82, "met"), (20_050, 130, "generator-limited")])]),
    }  # fmt: skip


def made_page(charts: dict[str, Chart], bands: list[dict[str, Any]]) -> str:
    """Return the report's page for one run with these charts and bands."""
    figures = [ChartFigure(name, chart) for name, chart in charts.items()]
    read = ReadRun(session="", attempt=1, document=document(), steps={})
    run = RunPage(name="run-1", run=read, chapters=[], bands=bands)
    first = [Chapter("overview", "Runs", []), Chapter("charts", "Charts", figures)]
    return render_page([run], first, [], title="Made charts", made="made by a test")


def made_soak(seconds: int, topics: int = 1, seed: int = 7) -> RunDocument:
    """Return the document of a long run: the rate follows a day, with a restart at two thirds, stalls, lost messages, telemetry."""
    random = np.random.default_rng(seed)
    t = np.arange(seconds)
    rate = (
        10_000 + 4_000 * np.sin(2 * np.pi * t / seconds) + random.normal(0, 50, seconds)
    ).astype(np.int64)
    down = slice(seconds * 2 // 3, seconds * 2 // 3 + max(seconds // 200, 3))
    p50 = 2e6 * (1 + 0.5 * np.sin(2 * np.pi * t / seconds)) * random.uniform(0.9, 1.1, seconds)
    p99, top = p50 * random.uniform(3, 8, seconds), p50 * random.uniform(8, 40, seconds)
    p99[down], top[down] = 2e9, 3e9
    received = rate.copy()
    received[down] = 0
    missing = np.where(random.random(seconds) < 20 / seconds, random.integers(1, 50, seconds), 0)
    blocked = np.zeros(seconds, np.int64)
    blocked[down] = 10 * SECOND
    series = Series(
        offered=rate, sent=rate, acked=rate, received=received, end_to_end_p50=p50, end_to_end_p99=p99, end_to_end_max=top,
        missing=missing, blocked=blocked,
    )  # fmt: skip
    run = as_json(document(
        {"throughput": "99%", "loss": "0.1%", "endToEndLatency": {"p50": "20ms", "p99": "500ms", "p99.9": "2s"}},
        duration=seconds * SECOND, rate=10_000.0, series=series, over_time=_over_time(p50, p99, top),
        counts={"lost": int(missing.sum())}, topics=tuple(made_bucket(f"topic {n}", lost=int(n % 97 == 0)) for n in range(topics)),
        end_to_end=histogram(np.concatenate([random.lognormal(np.log(2e6), 0.6, 200_000), np.full(400, 2e9)]).astype(np.int64)),
        workers=tuple(WorkerEvidence(worker=f"gw{n}", cpu=0.4, stalled=0, longest_stall=0, gc=3 * MS) for n in range(4)),
    ))  # fmt: skip
    end = seconds * SECOND
    run["timeline"] = {
        "stages": [
            {"name": name, "start": n * end // 3, "end": (n + 1) * end // 3}
            for n, name in enumerate(("morning", "noon", "night"))
        ],
        "changes": [{"at": end // 2, "text": "rate 10 000 msg/s"}],
        "restarts": [{"down": down.start * SECOND, "ready": down.stop * SECOND}],
        "stalls": [
            {"worker": "gw1", "start": n * end // 40, "end": n * end // 40 + SECOND}
            for n in range(1, 40, 4)
        ],
        "blocked": [{"start": down.start * SECOND, "end": down.stop * SECOND}],
    }
    cpu = random.uniform(0.5, 0.9, seconds)
    columns = {
        "broker.cpu": cpu, "broker.busiest": cpu / 2, "broker.busiestWanted": cpu / 1.8, "broker.memory": 4e8 + 1e4 * t, "workers.unread": cpu * 1e4,
        **{f"worker gw{n}.busiestWanted": cpu / (n + 2) for n in range(4)},
    }  # fmt: skip
    run["bottleneck"] = {
        "conclusion": "nothing saturated", "evidence": "no side was saturated in a tenth of the samples", "also": [], "missing": [], "cost": 0.004,
        "time": ((t + 1) * SECOND).tolist(), "columns": {name: np.round(column, 3).tolist() for name, column in columns.items()},
    }  # fmt: skip
    return from_json(run)


def _over_time(p50: Any, p99: Any, top: Any) -> OverTime:
    """Return three buckets a second: most copies at the median, few at the others."""
    values = np.stack([p50, p99, top], axis=1).astype(np.int64)
    shift = np.maximum(np.frexp(values.astype(float))[1] - 8, 0)
    index = (shift << 7) + (values >> shift)
    return OverTime(
        second=np.repeat(np.arange(len(p50)), 3),
        index=index.reshape(-1),
        count=np.tile([9_800, 190, 10], len(p50)),
    )


def broken(why: str = "worker gw1 died: exit status -9") -> RunDocument:
    """A run that broke before anything could be measured."""
    verdict = VerdictSection(outcome=Outcome.NO_DATA, reasons=(why,), findings=())
    return replace(
        document(),
        verdict=verdict,
        measurements=None,
        started=None,
        plan={},
        bottleneck=None,
        timeline=None,
    )


def of_each_outcome() -> dict[str, RunDocument]:
    """One document for each outcome, one of a run that broke, and one of a search."""
    slow = {"endToEndLatency": {"p99": "15ms", "max": "1s"}}
    stalled = WorkerEvidence(
        worker="gw0", cpu=0.99, stalled=4 * SECOND, longest_stall=SECOND, gc=3 * MS
    )
    return {
        "met": document({"throughput": "99%", "endToEndLatency": {"p99": "100ms"}}),
        "missed": document(slow, counts={"lost": 12, "received": 99_988}),
        "no data": document(
            counts={"offered": 0, "sent": 0, "acked": 0, "received": 0}, end_to_end=None
        ),
        "generator-limited": document(workers=(stalled,)),
        "broken": broken(),
        "search": document({"endToEndLatency": {"p99": "100ms"}}, parts={"peak": PEAK}),
    }


def made_session(*documents: RunDocument, steps: dict[int, RunDocument] | None = None) -> str:
    """Return the page of runs with these documents; ``steps`` belong to the first."""
    runs = [
        ReadRun(
            session="20261121-030000-1",
            attempt=1,
            document=one,
            steps=(steps or {}) if one is documents[0] else {},
        )
        for one in documents
    ]
    return page_html(ResultSet(runs=runs, unreadable=[]))
