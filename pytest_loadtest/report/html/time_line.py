"""Charts over the time of a run: rates, latencies, what was lost and doubled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.report.html.charts import LATENCY, TIME, Axis, Line, latency_levels, make_chart
from pytest_loadtest.values.quantities import SECOND, format_duration, format_rate
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.html.charts import Chart

RATES = ("offered", "sent", "acked", "received")
PER_SECOND = {"endToEndP50": "p50", "endToEndP99": "p99", "endToEndMax": "max"}


def rate_chart(measured: Document, run: str) -> Chart | None:
    """Offered, sent, acked and received, each in the second in which it happened."""
    series, fan = measured["series"], measured["subscriptions"]
    words = {"received": "received" if fan == 1 else f"received, all {fan} subscriptions"}
    lines = [Line(words.get(name, name), name, series[name]) for name in RATES if name != "received" or fan]
    whole = measured["duration"] // SECOND or None  # the drain is no second of the rate
    said = [f"{line.label} {_range(line.known[:whole], format_rate)}" for line in lines if line.known]
    rate = Axis("rate", "msg/s")
    return make_chart("lines", "Messages per second", run, _sentence(said), TIME, rate, _seconds(series), lines)


def latency_chart(measured: Document, findings: Sequence[Document], run: str) -> Chart | None:
    """Median, 99th percentile and maximum of each second."""
    series = measured["series"]
    lines = [Line(name, name, series[key]) for key, name in PER_SECOND.items()]
    said = [f"{line.label} {_range(line.known, format_duration)}" for line in lines if line.known]
    title = "End-to-end latency of each second"
    return make_chart("lines", title, run, _sentence(said), TIME, LATENCY, _seconds(series), lines, bounds=latency_levels(findings))


def loss_chart(measured: Document, run: str) -> Chart | None:
    """What is missing of each second's deliveries, and what came too often; None where there was none, or it is not known when."""
    series = measured["series"]
    missing = series.get("missing") or []  # older results have none
    lines = [
        Line("missing", "lost", [max(count, 0) for count in missing]),
        Line("too many", "duplicates", [max(-count, 0) for count in missing]),
    ]
    shown = [line for line in lines if any(line.known)]
    said = [f"{line.label} {exact(sum(line.known))} in {sum(map(bool, line.known))} seconds" for line in shown]
    summary = f"{_sentence(said)} Deliveries of the messages due in each second; what is lost and doubled in one second cancels out here."
    count = Axis("deliveries", "count")
    return make_chart("bars", "Lost and duplicates", run, summary, TIME, count, _seconds(series), shown)


def blocked_chart(measured: Document, run: str) -> Chart | None:
    """Time before the target's full window; None where there was none, or it is not known when."""
    series = measured["series"]
    line = Line("blocked", "blocked", series.get("blocked") or [])
    if not any(line.known):
        return None
    title = "Blocked before the target's full window, summed over messages"
    said = f"{format_duration(sum(line.known))} in {sum(map(bool, line.known))} seconds; up to {format_duration(max(line.known))} in one."
    return make_chart("bars", title, run, said, TIME, Axis("blocked", "ns"), _seconds(series), [line])


def _seconds(series: Document) -> range:
    return range(len(series["offered"]))


def _range(known: Sequence[float], worded: Any) -> str:
    return f"{worded(min(known))} to {worded(max(known))}"


def _sentence(parts: Sequence[str]) -> str:
    return f"{'; '.join(parts)}."


def interval_charts(measured: Document, run: str) -> Iterator[tuple[str, Chart]]:
    """Publish latency and send delay of every ten seconds, which are not known by the second."""
    parts = measured["intervals"]
    if len(parts) < 2:
        return
    xs = [number * 10 for number in range(len(parts))]
    for kind, title in (("publish", "Publish latency"), ("sendDelay", "Send delay")):
        lines = [Line("max", "max", [part[kind] and part[kind]["maximum"] for part in parts])]
        lines += [Line(name, name, [part[kind] and part[kind]["percentiles"][name] for part in parts]) for name in ("p50", "p99", "p99.9")]
        said = _sentence([f"{line.label} {_range(line.known, format_duration)}" for line in lines if line.known])
        axis = Axis(title.lower(), "ns", "log")
        found = make_chart("lines", f"{title} of each ten seconds", run, said, TIME, axis, xs, lines)
        if found is not None:
            yield kind, found
