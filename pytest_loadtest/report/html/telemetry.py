"""The chapters about both sides of a run: the broker with the bottleneck, and the generator."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.report import bottleneck
from pytest_loadtest.report.bottleneck import known_values
from pytest_loadtest.report.hosts import HostUse, host_uses
from pytest_loadtest.report.html.blocks import Block, ChartFigure, Fold, Listing, Paragraph, absent
from pytest_loadtest.report.html.charts import ROLES, TIME, Axis, Chart, Line, make_chart
from pytest_loadtest.report.nodes import HEAD, node_uses
from pytest_loadtest.report.sections import blocked_text, known_of
from pytest_loadtest.report.tables import Table, Writer, written
from pytest_loadtest.values.quantities import (
    SECOND,
    format_count,
    format_duration,
    format_rate,
    format_size,
)
from pytest_loadtest.values.wording import exact, format_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_loadtest.report.document import BottleneckSection, RunDocument
    from pytest_loadtest.report.measurements_section import WorkerEntry

GROUPS: Final = {
    "cpu": ("CPU of the broker", "cores", (
        "broker.cpu", "broker.wanted", "broker.busiest", "broker.busiestWanted", "sys.cpu",
    )),
    "memory": ("Memory of the broker", "B", (
        "broker.memory", "broker.memoryLimit", "sys.heap", "sys.heapLimit", "sys.direct",
        "sys.directLimit", "sys.delayedIndex",
    )),
    "disk": ("Disk of the broker", "B/s", ("broker.read", "broker.written")),
    "queues": ("Bytes waiting in sockets", "B", (
        "workers.unsent", "workers.unread", "broker.unsent", "broker.unread", "service.unsent",
        "service.unread",
    )),
    "shares": ("Share of time spent waiting or stopped", "share", (
        "broker.diskWait", "broker.stopped", "broker.shut", "workers.shut", "sys.gc",
    )),
    "through": ("Messages through the broker, by its own count", "msg/s", (
        "sys.messagesIn", "sys.messagesOut",
    )),
    "bytes": ("Bytes through the broker, by its own count", "B/s", ("sys.bytesIn", "sys.bytesOut")),
    "waiting": ("Messages waiting in the broker", "count", (
        "sys.backlog", "sys.unacked", "sys.delayed", "sys.stored", "sys.starved", "sys.blocked",
    )),
    "throttled": ("Throttling", "count", (
        "sys.throttled", "sys.dispatchThrottled", "sys.throttledConnections",
    )),
    "service": ("Latency reported by the broker", "ns", (
        "sys.publishLatency", "sys.writeLatency", "sys.ledgerLatency",
    )),
}  # fmt: skip
"""Charts by their name: a title, a unit, and the columns of ``bottleneck`` in them; see
docs/reference/results.md."""

AXES: Final = {
    "cores": "CPU", "B": "bytes", "B/s": "bytes per second", "share": "share", "msg/s": "rate",
    "count": "count", "ns": "latency",
}  # fmt: skip


def broker_chapter(run: str, document: RunDocument) -> Iterator[Block]:
    """Yield the bottleneck, and everything that was sampled during the load."""
    section = document.bottleneck
    if section is None:
        yield absent("broker and bottleneck", "nothing was sampled")
        return
    yield Paragraph(f"bottleneck {bottleneck.bottleneck_text(section)}")
    for side in section.also:
        yield Paragraph(f"also {side.conclusion}: {side.evidence}")
    for _, text in bottleneck.broker_facts(section):
        yield Paragraph(f"broker {text}")
    if uses := node_uses(document):
        caption = (
            "Processes of the cluster, and services under test: medians of cores, maxima of memory,"
            " means of rates, topics at the begin and at the end;"
            " empty where it is not applicable or unknown"
        )
        rows = [use.cells for use in uses]
        yield Table(caption=caption, head=HEAD, rows=rows)
    if section.missing:
        yield Listing("Not sampled", section.missing)
    yield from _charts(run, section, host_uses(document))
    yield from _columns(section)


def _charts(run: str, section: BottleneckSection, uses: Sequence[HostUse]) -> Iterator[ChartFigure]:
    workers = []
    for column in section.columns:
        if column.startswith("worker ") and column.endswith(".busiestWanted"):
            workers.append(column)
    drawn = dict(section.columns)
    hosts = []
    queues = []
    for use in uses:
        hosts.append(f"host {use.name}")
        drawn[hosts[-1]] = tuple(use.cpu)
        queues += [f"workers {use.name}.unsent", f"workers {use.name}.unread"]
    by_need = "Busiest thread of each worker, including its waits"
    groups = GROUPS | {
        "hosts": ("CPU of the workers of each host", "cores", hosts),
        "hostQueues": (
            "Bytes waiting in the sockets of each host",
            "B",
            _highest_first(section, queues),
        ),
        "workers": (by_need, "cores", _highest_first(section, workers)),
    }
    for name, (title, unit, columns) in groups.items():
        chart = _chart(
            run, title, unit, section.time, {name: drawn[name] for name in columns if name in drawn}
        )
        if chart is not None:
            yield ChartFigure(f"{run}-{name}", chart)


def _chart(
    run: str,
    title: str,
    unit: str,
    times: Sequence[int],
    columns: Mapping[str, Sequence[float | None]],
) -> Chart | None:
    """Draw the columns that have values other than 0; the summary names the others."""
    sampled = {name: values for name, values in columns.items() if known_of(values)}
    moved = []
    texts = []
    still = []
    for role, (name, values) in zip(ROLES, sampled.items(), strict=False):
        line = Line(name, role, values)
        if any(line.known):
            moved.append(line)
            texts.append(f"{name} up to {_WORDED[unit](max(line.known))}")
        else:
            still.append(name)
    if still:
        texts.append(f"0 throughout: {', '.join(still)}")
    if len(sampled) > len(ROLES):
        texts.append(f"{len(ROLES)} of {len(sampled)} lines are drawn")
    xs = [time / SECOND for time in times]
    summary = f"{'; '.join(texts)}."
    return make_chart("lines", title, run, summary, TIME, Axis(AXES[unit], unit), xs, moved)


def _highest_first(section: BottleneckSection, columns: list[str]) -> list[str]:
    return sorted(columns, key=lambda column: -max(known_values(section, column), default=0))


_WORDED: Final[Mapping[str, Writer]] = {
    "ns": format_duration,
    "B": format_size,
    "B/s": lambda size: f"{format_size(size)}/s",
    "msg/s": format_rate,
    "count": format_count,
    "share": lambda share: format_value(share, "ratio", 2),
    "cores": "{:.2f} cores".format,
}


def _columns(section: BottleneckSection) -> Iterator[Block]:
    rows = []
    for name in sorted(section.columns):
        values = known_values(section, name)
        ends = ["not known"] * 3
        if values:
            numbers = (min(values), median(values), max(values))
            ends = [format_value(number, "number") for number in numbers]
        rows.append((name, exact(len(values)), *ends))
    if rows:
        title = "Everything that was sampled"
        caption = f"{title}; sampling used {section.cost:.3f} cores"
        head = ("column", "samples", "smallest", "median", "largest")
        yield Fold(title, [Table(caption=caption, head=head, rows=rows)])


_BY_WORKER: Final = {metric.key: metric.label for metric in LATENCIES.values() if metric.per_worker}
HOST_COLUMNS: Final = (
    "host", "workers", "cores used", "of", "busiest thread, with waits", "longest stall", "unsent",
    "unread", "retransmits", "sampling",
)  # fmt: skip


def generator_chapter(document: RunDocument) -> Iterator[Block]:
    """Yield the evidence for or against generator-limited."""
    measured = document.measurements
    if measured is None or not measured.workers:
        yield absent("the generator's own evidence")
        return
    workers = sorted(measured.workers, key=lambda worker: -worker.cpu)
    kinds = {}
    for key, label in _BY_WORKER.items():
        if any(key in worker.latencies for worker in workers):
            kinds[key] = f"{label} p99"
    rows = []
    for worker in workers:
        times = map(format_duration, (worker.stalled, worker.longest_stall, worker.gc))
        latencies = [_p99(worker, key) for key in kinds]
        rows.append((worker.worker, f"{worker.cpu:.2f}", *times, *latencies))
    head = ("worker", "cores", "stalled, in sum", "longest stall", "GC", *kinds.values())
    caption = "Workers of the generator, busiest first; –: it sends nothing, or receives nothing"
    yield Table(caption=caption, head=head, rows=rows)
    if uses := host_uses(document):
        caption = (
            "Hosts of the generator, busiest first: medians of cores,"
            " maxima of bytes and of segments sent again a second"
        )
        rows = list(map(_host_row, uses))
        yield Table(caption=caption, head=HOST_COLUMNS, rows=rows)
    text = "blocked: never, no window of the target was full"
    if measured.blocked:
        text = f"blocked {blocked_text(measured)}"
    yield Paragraph(text)


def _p99(worker: WorkerEntry, kind: str) -> str:
    latency = worker.latencies.get(kind)
    p99 = None if latency is None else latency.percentiles["p99"]
    # A worker that only sends has no arrivals, and one that only receives sends nothing.
    return "–" if p99 is None else format_duration(p99)


def _host_row(use: HostUse) -> tuple[str, ...]:
    figures: tuple[tuple[Any, Writer], ...] = (
        (use.usual_cpu, "{:.2f}".format),
        (use.cores, str),
        (use.usual_busiest, "{:.2f}".format),
        (use.longest_stall, format_duration),
        (use.unsent, format_size),
        (use.unread, format_size),
        (use.retransmits, "{:.1f}".format),
        (use.cost, "{:.4f}".format),
    )
    return (use.name, str(len(use.workers)), *written(figures, "not known"))
