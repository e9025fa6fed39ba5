"""The chapters about both sides of a run: the samples of the broker with the bottleneck, and the evidence about the generator."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.report import bottleneck
from pytest_loadtest.report.bottleneck import known_values
from pytest_loadtest.report.hosts import host_uses
from pytest_loadtest.report.html.blocks import ChartFigure, Fold, Listing, Paragraph, Table, absent
from pytest_loadtest.report.html.charts import ROLES, TIME, Axis, Line, make_chart
from pytest_loadtest.report.nodes import HEAD, node_uses
from pytest_loadtest.report.sections import blocked_text
from pytest_loadtest.values.quantities import (
    SECOND,
    format_count,
    format_duration,
    format_rate,
    format_size,
)
from pytest_loadtest.values.wording import exact, format_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.report.document import BottleneckSection, RunDocument
    from pytest_loadtest.report.hosts import HostUse
    from pytest_loadtest.report.html.blocks import Block
    from pytest_loadtest.report.measurements_section import WorkerEntry

GROUPS: Final = {
    "cpu": ("CPU of the broker", "cores", ("broker.cpu", "broker.wanted", "broker.busiest", "broker.busiestWanted", "sys.cpu")),
    "memory": ("Memory of the broker", "B", ("broker.memory", "broker.memoryLimit", "sys.heap", "sys.heapLimit", "sys.direct",
               "sys.directLimit", "sys.delayedIndex")),
    "disk": ("Disk of the broker", "B/s", ("broker.read", "broker.written")),
    "queues": ("Bytes waiting in sockets", "B", ("workers.unsent", "workers.unread", "broker.unsent", "broker.unread")),
    "shares": ("Share of time spent waiting or stopped", "share",
               ("broker.diskWait", "broker.stopped", "broker.shut", "workers.shut", "sys.gc")),
    "through": ("Messages through the broker, by its own count", "msg/s", ("sys.messagesIn", "sys.messagesOut")),
    "bytes": ("Bytes through the broker, by its own count", "B/s", ("sys.bytesIn", "sys.bytesOut")),
    "waiting": ("Messages waiting in the broker", "count",
                ("sys.backlog", "sys.unacked", "sys.delayed", "sys.stored", "sys.starved", "sys.blocked")),
    "throttled": ("Throttling", "count", ("sys.throttled", "sys.dispatchThrottled", "sys.throttledConnections")),
    "service": ("Latency reported by the broker", "ns", ("sys.publishLatency", "sys.writeLatency", "sys.ledgerLatency")),
}  # fmt: skip
"""Charts by their name: a title, a unit, and the columns of ``bottleneck`` in them; see docs/reference/results.md."""

AXES: Final = {
    "cores": "CPU", "B": "bytes", "B/s": "bytes per second", "share": "share", "msg/s": "rate", "count": "count", "ns": "latency",
}  # fmt: skip


def broker_chapter(run: str, document: RunDocument) -> Iterator[Block]:
    """Yield the bottleneck, and everything that was sampled during the load."""
    section = document.bottleneck
    if section is None:
        yield absent("broker and bottleneck", "nothing was sampled")
        return
    yield Paragraph(f"bottleneck {bottleneck.bottleneck_text(section)}")
    yield from (Paragraph(f"also {side.conclusion}: {side.evidence}") for side in section.also)
    yield from (Paragraph(f"broker {text}") for _, text in bottleneck.broker_facts(section))
    if uses := node_uses(document):
        caption = (
            "Processes of the cluster: medians of cores, maxima of memory, means of rates, topics at the begin and at the end;"
            " empty where it is not applicable or unknown"
        )
        rows = [use.cells for use in uses]
        yield Table(caption=caption, head=HEAD, rows=rows, numbers=frozenset(range(1, len(HEAD))))
    if section.missing:
        yield Listing("Not sampled", section.missing)
    yield from _charts(run, section, host_uses(document))
    yield from _columns(section)


def _charts(run: str, section: BottleneckSection, uses: Sequence[HostUse]) -> Iterator[ChartFigure]:
    workers = _highest_first(
        section,
        [
            name
            for name in section.columns
            if name.startswith("worker ") and name.endswith(".busiestWanted")
        ],
    )
    queues = _highest_first(
        section, [f"workers {use.name}.{queue}" for use in uses for queue in ("unsent", "unread")]
    )
    groups = GROUPS | {
        "hosts": (
            "CPU of the workers of each host",
            "cores",
            tuple(f"host {use.name}" for use in uses),
        ),
        "hostQueues": ("Bytes waiting in the sockets of each host", "B", tuple(queues)),
        "workers": ("Busiest thread of each worker, including its waits", "cores", tuple(workers)),
    }
    drawn = {**section.columns, **{f"host {use.name}": use.cpu for use in uses}}
    for name, (title, unit, columns) in groups.items():
        there = [
            column
            for column in columns
            if any(value is not None for value in drawn.get(column, ()))
        ]
        lines = [
            Line(column, role, drawn[column]) for role, column in zip(ROLES, there, strict=False)
        ]
        moved = [line for line in lines if any(line.known)]
        still = [line.label for line in lines if line.known and line not in moved]
        texts = [f"{line.label} up to {_worded(max(line.known), unit)}" for line in moved]
        texts += [f"0 throughout: {', '.join(still)}"] if still else []
        texts += (
            [f"{len(lines)} of {len(there)} lines are drawn"] if len(there) > len(lines) else []
        )
        xs = [time / SECOND for time in section.time]
        chart = make_chart(
            "lines", title, run, f"{'; '.join(texts)}.", TIME, Axis(AXES[unit], unit), xs, moved
        )
        if chart is not None:
            yield ChartFigure(f"{run}-{name}", chart)


def _highest_first(section: BottleneckSection, columns: list[str]) -> list[str]:
    return sorted(columns, key=lambda column: -max(known_values(section, column), default=0))


def _worded(value: float, unit: str) -> str:
    words = {
        "ns": format_duration,
        "B": format_size,
        "B/s": lambda size: f"{format_size(size)}/s",
        "msg/s": format_rate,
        "count": format_count,
    }
    if unit in words:
        return words[unit](value)
    return format_value(value, "ratio", 2) if unit == "share" else f"{value:.2f} cores"


def _columns(section: BottleneckSection) -> Iterator[Block]:
    rows = [
        (name, exact(len(known)), *(format_value(value, "number") for value in (min(known), median(known), max(known))))
        if (known := known_values(section, name)) else (name, "0", *("not known",) * 3)
        for name in sorted(section.columns)
    ]  # fmt: skip
    if rows:
        head = ("column", "samples", "smallest", "median", "largest")
        caption = f"Everything that was sampled; sampling used {section.cost:.3f} cores"
        yield Fold(
            "Everything that was sampled",
            [Table(caption=caption, head=head, rows=rows, numbers=frozenset((1, 2, 3, 4)))],
        )


_BY_WORKER: Final = {metric.key: metric.label for metric in LATENCIES.values() if metric.per_worker}
HOST_COLUMNS: Final = (
    "host", "workers", "cores used", "of", "busiest thread, with waits", "longest stall", "unsent", "unread", "retransmits", "sampling",
)  # fmt: skip


def generator_chapter(document: RunDocument) -> Iterator[Block]:
    """Yield the evidence for or against generator-limited."""
    measured = document.measurements
    if measured is None or not measured.workers:
        yield absent("the generator's own evidence")
        return
    workers = sorted(measured.workers, key=lambda worker: -worker.cpu)
    kinds = {
        key: label
        for key, label in _BY_WORKER.items()
        if any(key in worker.latencies for worker in workers)
    }
    rows = [
        (w.worker, f"{w.cpu:.2f}", *map(format_duration, (w.stalled, w.longest_stall, w.gc)), *(_p99(w, key) for key in kinds))
        for w in workers
    ]  # fmt: skip
    head = (
        "worker",
        "cores",
        "stalled, in sum",
        "longest stall",
        "GC",
        *(f"{label} p99" for label in kinds.values()),
    )
    caption = "Workers of the generator, busiest first; –: it sends nothing, or receives nothing"
    yield Table(caption=caption, head=head, rows=rows, numbers=frozenset(range(1, len(head))))
    if uses := host_uses(document):
        yield Table(
            caption="Hosts of the generator, busiest first: medians of cores, maxima of bytes and of segments sent again a second",
            head=HOST_COLUMNS, rows=list(map(_host_row, uses)), numbers=frozenset(range(1, len(HOST_COLUMNS))),
        )  # fmt: skip
    yield Paragraph(
        f"blocked {blocked_text(measured)}"
        if measured.blocked
        else "blocked: never, no window of the target was full"
    )


def _p99(worker: WorkerEntry, kind: str) -> str:
    latency = worker.latencies.get(kind)
    # A worker that only sends has no arrivals, and one that only receives sends nothing.
    return (
        "–"
        if latency is None or (p99 := latency.percentiles["p99"]) is None
        else format_duration(p99)
    )


def _host_row(use: HostUse) -> tuple[str, ...]:
    cells = (
        (use.usual_cpu, "{:.2f}".format), (use.cores, str), (use.usual_busiest, "{:.2f}".format), (use.longest_stall, format_duration),
        (use.unsent, format_size), (use.unread, format_size), (use.retransmits, "{:.1f}".format), (use.cost, "{:.4f}".format),
    )  # fmt: skip
    return (
        use.name,
        str(len(use.workers)),
        *("not known" if value is None else write(value) for value, write in cells),
    )
