"""Facts about the times of arrivals, as the terminal's summary and the HTML report show them: their clock, and the time at the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.values.quantities import format_duration
from pytest_loadtest.values.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.measurements_section import MeasurementsSection
    from pytest_loadtest.report.sections import Labelled


def stamp_facts(document: RunDocument) -> Iterator[Labelled]:
    """Yield the clock that stamped arrivals, if it is known."""
    clock, without, late = (
        document.driver.get(name) for name in ("stamps", "unstamped", "late_stamps")
    )
    if clock:
        but = (
            f"; {counted(without, 'read')} stamped by the client (no usable stamp)"
            if without
            else ""
        )
        but += (
            f"; {counted(late, 'copy', 'copies')} may have arrived earlier than stamped"
            if late
            else ""
        )
        yield "clock", f"arrivals and acknowledgements stamped by the {clock}{but}"


def broker_time_facts(measured: MeasurementsSection) -> Iterator[Labelled]:
    """Yield how long messages were at the target on average, from the send to the arrival, if every sent message has all its copies."""
    latencies, counts = measured.latencies, measured.counts
    end_to_end, send_delay, lag = (
        latencies.get(key) for key in ("endToEnd", "sendDelay", "receiveLag")
    )
    if end_to_end is None or send_delay is None or end_to_end.clocks_disagree:
        return
    # Means of the same messages can be subtracted, percentiles cannot.
    if counts["received"] != measured.count("sent") * measured.subscriptions:
        return
    until = "" if lag is None else f", then {format_duration(lag.mean)} of receive lag"
    yield (
        "at target",
        f"{format_duration(end_to_end.mean - send_delay.mean)} on average from send to arrival{until}",
    )
