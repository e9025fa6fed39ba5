"""Facts about the times of arrivals, for the terminal's summary and the HTML report.

They are their clock, and the time at the target.
"""

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
    clock = document.driver.get("stamps")
    if not clock:
        return
    text = f"arrivals and acknowledgements stamped by the {clock}"
    if without := document.driver.get("unstamped"):
        text += f"; {counted(without, 'read')} stamped by the client (no usable stamp)"
    if late := document.driver.get("late_stamps"):
        text += f"; {counted(late, 'copy', 'copies')} may have arrived earlier than stamped"
    yield "clock", text


def broker_time_facts(measured: MeasurementsSection, *, routed: bool = False) -> Iterator[Labelled]:
    """Yield how long messages were at the target on average, from the send to the arrival.

    It is known if every sent message has all its copies.

    :param routed: a service sent what arrived.
    """
    latencies = measured.latencies
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
