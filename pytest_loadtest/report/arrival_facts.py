"""Facts about the times of arrivals, for the terminal's summary and the HTML report.

They are their clock, the time at the target, and the parts of the way through a service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.report.sections import UNKNOWN, Labelled, mean_text, percentiles
from pytest_loadtest.report.tables import Table
from pytest_loadtest.values.quantities import format_duration
from pytest_loadtest.values.wording import counted, exact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.measurements_section import LatencySection, MeasurementsSection


def stamp_facts(document: RunDocument) -> Iterator[Labelled]:
    """Yield the clock that stamped arrivals, if it is known."""
    clock = document.driver.get("stamps")
    if not clock:
        return
    text = f"arrivals and acknowledgements stamped by the {clock}"
    if without := document.driver.get("unstamped"):
        text += f"; {counted(without, 'read')} stamped by the client (no usable stamp)"
    if late := document.driver.get("late_stamps"):
        text += f"; {counted(late, 'copy', 'copies')} may have arrived earlier than stamped"
    yield "clock", text


def broker_time_facts(measured: MeasurementsSection, *, routed: bool) -> Iterator[Labelled]:
    """Yield how long messages were at the target on average, from the send to the arrival.

    It is known if every sent message has all its copies.

    :param routed: a service sent what arrived.
    """
    latencies = measured.latencies
    if "pastTap" in latencies:
        yield "where", _where(measured)
        return
    end_to_end = latencies.get("endToEnd")
    send_delay = latencies.get("sendDelay")
    if end_to_end is None or send_delay is None or end_to_end.clocks_disagree:
        return
    # Means of the same messages can be subtracted, percentiles cannot.
    if measured.counts["received"] != measured.count("sent") * measured.fan_out:
        return
    text = f"{format_duration(end_to_end.mean - send_delay.mean)} on average from send to arrival"
    if routed:
        text += ", at broker and service together"
    if lag := latencies.get("receiveLag"):
        text += f", then {format_duration(lag.mean)} of receive lag"
    yield "at target", text


PARTS: Final = {
    "toTap": "until the tap has it (send delay, broker)",
    "sendDelay": "… send delay of all that were sent",
    "afterTap": "from there on (service, broker)",
    "pastTap": "end-to-end",
    "ownPastTap": "… of it own delays of the generator",
    "receiveLag": "after it: receive lag",
}
"""The rows of :func:`where_table` by their latency."""


def where_table(measured: MeasurementsSection) -> Table | None:
    """Return the parts of the time through a service; None without a tap, or if clocks disagree."""
    parts = _parts(measured)
    if "pastTap" not in parts or _do_clocks_disagree(measured):
        return None
    rows = []
    for key, latency in parts.items():
        rows.append((PARTS[key], mean_text(latency), *percentiles(latency, "p50", "p99")))
    head = ("part", "mean", "p50", "p99", "max")
    return Table(caption=f"Where the time went{_untapped(measured)}", head=head, rows=rows)


def _where(measured: MeasurementsSection) -> str:
    """Return the means in one line."""
    parts = _parts(measured)
    if "pastTap" not in parts:
        return f"unknown{_untapped(measured)}"
    if _do_clocks_disagree(measured):
        return "unknown: the clocks of hosts disagree"
    means = dict.fromkeys(PARTS, UNKNOWN)
    for key, latency in parts.items():
        means[key] = mean_text(latency)
    text = f"{means['pastTap']} end-to-end on average: {means['toTap']} until the tap (send delay"
    text += f" {means['sendDelay']} of all sent, then broker), {means['afterTap']} from there on"
    text += f" (service and broker); {means['ownPastTap']} of it by the generator"
    return text + _untapped(measured)


def _parts(measured: MeasurementsSection) -> dict[str, LatencySection]:
    """Return the parts that were measured, by their key."""
    found = {}
    for key in PARTS:
        if latency := measured.latencies.get(key):
            found[key] = latency
    return found


def _do_clocks_disagree(measured: MeasurementsSection) -> bool:
    """Return whether a part, or the whole, ends before it begins: then no part is known."""
    latencies = map(measured.latencies.get, (*PARTS, "endToEnd"))
    return any(latency is not None and latency.clocks_disagree for latency in latencies)


def _untapped(measured: MeasurementsSection) -> str:
    """Return how many deliveries have no such parts."""
    past = measured.latencies["pastTap"]
    missed = measured.count("received") - (0 if past is None else past.samples)
    return f"; the tap missed the messages of {exact(missed)} deliveries" if missed else ""
