"""The comparison of the broker's own counts with ours (decision 020). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_loadtest.observe.telemetry import COUNTERS
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Counts
    from pytest_loadtest.observe.telemetry import Column, Telemetry


class Disagreement(NamedTuple):
    """A count of the broker that contradicts ours, as a sentence.

    :param certain: neither other clients nor a reset of the counter can explain it, so the run is
        no data; otherwise it is a note.
    :param compared: False: the counts could not be compared, so there is no evidence against ours.
    """

    text: str
    certain: bool = True
    compared: bool = True


def disagreement(
    telemetry: Telemetry,
    counts: Counts,
    fan_out: int,
    *,
    shared: bool = False,
    others: bool = False,
    restarted: bool = False,
) -> Disagreement | None:
    """Return the most serious contradiction between the broker's counts and ours.

    The loss of the broker's counts during the run is one too.

    None if there is neither, or if the broker does not report its counts.

    :param shared: the broker ran before the test, so others may use it and its operators may move
        topics.
    :param others: other workloads of the run may use the broker, too. It counts the drops of all.
    :param restarted: the test restarted it on purpose, so its counters began again.
    """
    candidates = [
        _too_few_at_broker(telemetry, counts, shared),
        _too_many_drops(telemetry, counts, fan_out, certain=not (shared or others)),
    ]
    if not restarted:
        candidates.append(_uncompared(telemetry, shared, others))
    return max(filter(None, candidates), key=lambda candidate: candidate.certain, default=None)


def _too_few_at_broker(telemetry: Telemetry, counts: Counts, shared: bool) -> Disagreement | None:
    """Return a contradiction if the broker counted too few messages.

    They are fewer than it acknowledged or delivered to us.

    Its count may be higher: it counts each chunk, and each resent message again, and others may use
    the topic. It can be lower only after a reset of the counter. A broker that the run started
    loads each topic once. On a shared cluster, a topic that was unloaded and loaded again is
    detected only if the broker reports the load time of each topic.
    """
    copies = counts.received + (counts.duplicates or 0)
    for column, metric, did, ours, we in (
        (
            "sys.totalIn",
            "pulsar_in_messages_total",
            "received",
            counts.acked,
            "were acknowledged",
        ),
        ("sys.totalOut", "pulsar_out_messages_total", "delivered", copies, "were received"),
    ):
        total = _numbers(telemetry, column)
        if len(total) and not _decreased(total) and total[-1] < ours:
            certain = not shared or bool((telemetry.column("sys.continuous")[-1:] == 1).any())
            theirs = exact(int(total[-1]))
            text = (
                f"the broker {did} {theirs} messages ({metric}), and {exact(ours)} {we} by the"
                " run's count: one of the two is wrong"
            )
            if not certain:
                text += ", or its counter was reset when it loaded a topic again"
            return Disagreement(text, certain)
    return None


def _too_many_drops(
    telemetry: Telemetry, counts: Counts, fan_out: int, *, certain: bool
) -> Disagreement | None:
    """Return a contradiction if the broker dropped more messages than we miss.

    Our count may be higher: the broker does not count messages lost with a connection as drops, and
    its first number may include drops of the first second. Messages without acknowledgement do not
    count as lost, but may be among its drops. So may further copies of messages that the client
    sent again, if the queue is full and has the first copy: then nothing is certain.
    """
    dropped = _numbers(telemetry, "sys.dropped")
    restarted = _decreased(dropped) or _decreased(_numbers(telemetry, "sys.uptime"))
    if not len(dropped) or restarted or counts.lost is None:
        return None
    theirs = int(dropped[-1] - dropped[0])
    ours = counts.lost + (counts.unknown + counts.failed) * fan_out
    if theirs <= ours:
        return None
    return Disagreement(
        f"the broker dropped {exact(theirs)} messages ($SYS/broker/publish/messages/dropped),"
        f" and {exact(ours)} are missing by the run's count: another client missed the others,"
        " or a count is wrong",
        certain=certain and not counts.resent,
    )


def _uncompared(telemetry: Telemetry, shared: bool, others: bool) -> Disagreement | None:
    """Return a disagreement if the source of the broker's counts was lost.

    This matters while they could be compared with ours.
    """
    reason = telemetry.lost.get(COUNTERS)
    if reason is None:
        return None
    finite = [
        np.isfinite(column) for name, column in telemetry.columns.items() if name.startswith("sys.")
    ]
    rows = np.flatnonzero(np.any(finite, axis=0)) if finite else np.zeros(0, np.int64)
    # Pulsar's source reports with each sample whether its counts can be compared; mosquitto's drops
    # always can.
    continuous = telemetry.column("sys.continuous")[rows[-1:]]
    drops = len(_numbers(telemetry, "sys.dropped")) > 0
    if not drops and not np.isfinite(continuous).any():
        return None
    certain = not (shared or (others and drops)) or bool((continuous == 1).any())
    return Disagreement(
        f"{reason}: the broker's counts cannot be compared with ours", certain, compared=False
    )


def _numbers(telemetry: Telemetry, name: str) -> Column:
    column = telemetry.column(name)
    return column[np.isfinite(column)]


def _decreased(values: Column) -> bool:
    return bool((np.diff(values) < 0).any())
