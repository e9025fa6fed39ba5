"""The catalogue of metrics: one row for each quantity by which a run is measured, judged and
reported.

Everything that lists metrics iterates over these rows: the grammar of ``slo``, observations,
windows, stages, drift and regression, the documents and reports of a run, the schemas and the
reference tables. A new latency is a row here, its definition in numpy
(:mod:`pytest_loadtest.metrics.stats`), its definition for Spark's workers
(:mod:`pytest_loadtest.pipeline.kernel`), its property in
:mod:`pytest_loadtest.results.latencies`, and its test.

Every process reads the rows: the controller, the workers and Spark's workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final, Literal

from pytest_loadtest.values.records import record

Form = Literal["latency", "rate", "share", "count", "duration", "bytes"]
"""The way in which a metric is bounded: a latency by its statistics (p99, max, mean, min), any
other by one number.

Units: latency and duration ns; rate msg/s, or a share of the rate offered; share 0 to 1; count messages, or a share; bytes B.
"""
NeverCame = Literal["", "deliveries", "acknowledgements", "sends", "completions", "subscriptions"]
"""Messages or deliveries that were due and have no latency; percentiles rank over them too
(decision 013): missing deliveries, messages without an acknowledgement, dropped messages, messages
that not every subscription received, silent subscriptions of topics. Empty: everything due was
measured.
"""


class Own(Enum):
    """The generator's own delays, and what each can lengthen (decision 049).

    The value completes "lengthened by".
    """

    SEND_DELAY = "the own send delay of the message"
    BEGUN_LATE = "the generator's delay in beginning the connection"
    STALL = "stalls of the loop of the worker that had the connection"
    RECEIVE_LAG = "the receive lag of the copy"


class Need(Enum):
    """Properties that a run must have for a metric to apply to it.

    The value completes "a run without …".
    """

    CONSUMERS = "consumers"
    ACKNOWLEDGEMENTS = "acknowledgements"
    ORDER = "an order that can be judged"
    DELAYS = "delayed messages"
    CONNECTIONS = "clients that report their connections"
    CONNECT_RATE = "a rate of connections"
    BROADCAST = "messages to 64 subscriptions or more"
    BACKLOG = "a backlog"
    CHOICE = "a service that chooses (route.outputs)"


@record
class Metric:
    """One row of the catalogue.

    :param name: the key in ``slo``; empty if no objective can bound it.
    :param attribute: key of ``Measurements.latencies`` for latencies, field of
        :class:`~pytest_loadtest.metrics.measurements.Counts` for counts; also the name of the
            fixture's property.
    :param key: in ``results.json``, below ``latencies`` or ``counts``.
    :param label: in sentences and reports: ``end-to-end``.
    :param indented: in a table of latencies it is a part of the row above.
    :param floor: a bound without ``min`` or ``max`` is a lower one.
    :param meaning: one sentence for the reference and the schema of profiles.
    :param needs: the metric does not apply to a run without one of these.
    :param absent: the reason, for messages, why a latency can have no values.
    :param never_came: the messages or deliveries over which percentiles rank in addition to the
        values measured.
    :param always: reports show it for every run; otherwise only if it was measured.
    :param exported: continuous integration gets it.
    :param per_stage: it is measured for each stage; likewise ``per_bucket``, and for latencies
        ``per_topic`` and ``per_worker``.
    :param per_window: it is measured for each window.
    :param per_interval: reports show it for each ten seconds (latencies).
    :param drifts: the last tenth can be compared with the first.
    :param compared: runs are compared by it, with its noise.
    :param route_part: a part of the way through a service, in a table of its own.
    :param lengthened_by: the generator's own delays that can make it worse; nothing else excuses a
        miss.
    :param omb: prefix of its fields in OpenMessaging Benchmark's TestResult; empty without any.
    """

    name: str
    attribute: str = ""
    key: str = ""
    label: str = ""
    indented: bool = False
    form: Form
    floor: bool = False
    meaning: str = ""
    needs: tuple[Need, ...] = ()
    absent: str = ""
    never_came: NeverCame = ""
    always: bool = False
    exported: bool = True
    per_stage: bool = True
    per_bucket: bool = False
    per_topic: bool = False
    per_worker: bool = False
    per_window: bool = False
    per_interval: bool = False
    drifts: bool = False
    compared: bool = False
    route_part: bool = False
    lengthened_by: tuple[Own, ...] = ()
    omb: str = ""


NOT_RECEIVED: Final = "nothing was received"
_NOT_REPORTED: Final = "the client does not report it, or opened nothing"
_NOT_COMPLETE: Final = "no message reached every subscriber"
_NOT_TAPPED: Final = "the run has no tap (route.tap), or it received nothing"
_NOT_DELAYED: Final = "no message is delayed, or nothing was received"
# A copy is late because of its message's sender, because of its consumer's worker, or both.
_OF_COPIES: Final = (Own.SEND_DELAY, Own.STALL, Own.RECEIVE_LAG)

# The order of the rows is the order of metrics in every table, schema and reference.
CATALOGUE: Final = (
    Metric(
        name="throughput", form="rate", floor=True, label="throughput", needs=(Need.CONSUMERS,), per_bucket=True, per_window=True,
        drifts=True, compared=True,
        meaning="messages delivered per second: a share of the rate offered (99%; 95% unless given), or a rate (5000/s); a lower bound",
        # Not by receive lag beside stalls: of what never came none is late.
        lengthened_by=(Own.SEND_DELAY, Own.STALL),
    ),
    Metric(
        name="sent", attribute="sent_in_time", key="sentInTime", form="share", floor=True, label="sent in time",
        meaning="messages handed over in time, of those offered; a lower bound, 99% unless given",
        lengthened_by=(Own.SEND_DELAY,),
    ),
    Metric(
        name="connectRate", form="share", floor=True, label="connect rate", needs=(Need.CONNECTIONS, Need.CONNECT_RATE), per_stage=False,
        meaning="connections up in time at driver.connectRate, of all: a share; a lower bound, 95% unless given",
    ),
    Metric(
        name="publishLatency", attribute="publish", key="publish", form="latency", label="publish", needs=(Need.ACKNOWLEDGEMENTS,),
        never_came="acknowledgements", always=True, per_bucket=True, per_topic=True, per_window=True, per_interval=True, drifts=True,
        omb="publishLatency",
        meaning="acknowledged − intended",
        absent="nothing was acknowledged, or acknowledgement is not applicable",
        lengthened_by=(Own.SEND_DELAY, Own.STALL),
    ),
    Metric(
        name="endToEndLatency", attribute="end_to_end", key="endToEnd", form="latency", label="end-to-end", needs=(Need.CONSUMERS,),
        never_came="deliveries", always=True, per_bucket=True, per_topic=True, per_window=True, per_interval=True, drifts=True,
        compared=True, omb="endToEndLatency",
        meaning="received − intended", absent=NOT_RECEIVED,
        lengthened_by=_OF_COPIES,
    ),
    Metric(
        name="sendDelay", attribute="send_delay", key="sendDelay", form="latency", label="send delay", never_came="sends", always=True,
        per_window=True, per_interval=True, drifts=True, omb="publishDelayLatency",
        meaning="sent − intended", absent="nothing was sent",
        lengthened_by=(Own.SEND_DELAY,),
    ),
    # No objective bounds it: it separates a slow generator from a slow target. Size buckets and
    # windows have it, so that a miss in one of them can be attributed to the generator's own
    # pauses.
    Metric(
        name="", attribute="own_send_delay", key="ownSendDelay", form="latency", label="own send delay", indented=True, always=True,
        exported=False, per_bucket=True, per_worker=True, per_window=True, absent="nothing was sent",
    ),
    # It is to the receive side what own send delay is to the send side. With the kernel's stamps it
    # is not part of end-to-end latency.
    Metric(
        name="receiveLag", attribute="receive_lag", key="receiveLag", form="latency", label="receive lag",
        needs=(Need.CONSUMERS,), per_bucket=True, per_worker=True, per_window=True, per_interval=True, drifts=True,
        meaning="taken by the client − received by the kernel; not in end-to-end latency",
        absent="the client stamps arrivals itself, or nothing was received",
        lengthened_by=(Own.RECEIVE_LAG,),
    ),
    # Parts of the end-to-end latency through a service (metrics.tapped).
    Metric(
        name="", attribute="to_tap", key="toTap", form="latency", label="to the tap", exported=False, route_part=True,
        meaning="received by the tap on the input of the service − intended", absent=_NOT_TAPPED,
    ),
    Metric(
        name="", attribute="after_tap", key="afterTap", form="latency", label="after the tap", exported=False, route_part=True,
        meaning="received − received by the tap", absent=_NOT_TAPPED,
    ),
    Metric(
        name="", attribute="past_tap", key="pastTap", form="latency", label="past the tap", exported=False, route_part=True,
        meaning="received − intended, of what the tap received too", absent=_NOT_TAPPED,
    ),
    Metric(
        name="", attribute="own_past_tap", key="ownPastTap", form="latency", label="own delays past the tap", exported=False,
        route_part=True, meaning="the part of it that the generator's own delays explain", absent=_NOT_TAPPED,
    ),
    # Only messages to 64 subscriptions or more have these two: only their samples are broadcast
    # rows (decision 016).
    Metric(
        name="broadcastCompletion", attribute="completion", key="completion", form="latency", label="broadcast completion",
        needs=(Need.CONSUMERS, Need.BROADCAST), never_came="completions", per_window=True, drifts=True,
        meaning="last copy received − intended, of a message to 64 subscriptions or more of one consumer each",
        absent=_NOT_COMPLETE,
        lengthened_by=_OF_COPIES,
    ),
    Metric(
        name="broadcastSpread", attribute="spread", key="spread", form="latency", label="broadcast spread",
        needs=(Need.CONSUMERS, Need.BROADCAST), never_came="completions", per_window=True, drifts=True,
        meaning="last copy received − first copy received, of a message to 64 subscriptions or more of one consumer each",
        absent=_NOT_COMPLETE,
        lengthened_by=(Own.STALL, Own.RECEIVE_LAG),
    ),
    # Workers record these three while they connect. They are not counted from samples, so no stage
    # has them.
    Metric(
        name="connectLatency", attribute="connect", key="connect", form="latency", label="connect", needs=(Need.CONNECTIONS,),
        per_stage=False, absent=_NOT_REPORTED,
        meaning="time from the start that connectRate plans for a connection until the broker accepted it, TLS included; for MQTT clients",
        lengthened_by=(Own.BEGUN_LATE, Own.STALL),
    ),
    Metric(
        name="subscribeLatency", attribute="subscribe", key="subscribe", form="latency", label="subscribe",
        needs=(Need.CONSUMERS, Need.CONNECTIONS), per_stage=False, absent=_NOT_REPORTED,
        meaning="time until a subscription of an MQTT client is confirmed; for the whole run",
        lengthened_by=(Own.STALL,),
    ),
    Metric(
        name="reconnectLatency", attribute="reconnect", key="reconnect", form="latency", label="reconnect", needs=(Need.CONNECTIONS,),
        per_stage=False, absent="no connection was lost and established again",
        meaning="time from the loss of an MQTT client's connection until it was established again,"
        " with its subscription; for the whole run",
        lengthened_by=(Own.STALL,),
    ),
    # Lateness is below zero if a message came early. HDR histograms have no negative values, so
    # each side of due is counted by itself.
    Metric(
        name="lateness", attribute="lateness", key="lateness", form="latency", label="lateness",
        needs=(Need.CONSUMERS, Need.DELAYS), never_came="deliveries", per_window=True, absent=_NOT_DELAYED,
        meaning="received − due, of delayed messages; below zero if a message came early",
        lengthened_by=_OF_COPIES,
    ),
    Metric(
        name="earliness", attribute="earliness", key="earliness", form="latency", label="earliness",
        needs=(Need.CONSUMERS, Need.DELAYS), per_window=True, absent=_NOT_DELAYED,
        meaning="due − received, of delayed messages; 0 if a message did not come early; max: the broker's tick unless given",
    ),
    # Latencies are those of first copies (decision 024): copies of quick messages must not make
    # slow ones a smaller share.
    Metric(
        name="", attribute="later_copies", key="laterCopies", form="latency", label="later copies", needs=(Need.CONSUMERS,),
        absent="no delivery came twice",
    ),
    # A value for each subscription of each topic, not for each message.
    Metric(
        name="deliveryGap", attribute="delivery_gap", key="deliveryGap", form="latency", label="delivery gap",
        needs=(Need.CONSUMERS,), never_came="subscriptions", absent=NOT_RECEIVED,
        meaning="longest time in which a subscription of a topic received nothing, from the start of the phase to its end",
        lengthened_by=_OF_COPIES,
    ),
    Metric(
        name="loss", attribute="lost", key="lost", form="count", label="lost", needs=(Need.CONSUMERS,), per_bucket=True,
        meaning="acknowledged and not received, of the deliveries expected; 0 unless given",
        absent="the service chooses which messages have an output, so none is known to be lost",
    ),
    Metric(
        name="duplicates", attribute="duplicates", key="duplicates", form="count", label="duplicates", needs=(Need.CONSUMERS,),
        meaning="copies beyond the first; with MQTT at QoS 2 0 unless given",
    ),
    Metric(
        name="outOfOrder", attribute="out_of_order", key="outOfOrder", form="count", label="out of order",
        needs=(Need.CONSUMERS, Need.ORDER), absent="order is not applicable to this subscription type",
        meaning="first copies that came after a later message of their stream and partition (or key)",
    ),
    Metric(
        name="failed", attribute="failed", key="failed", form="count", label="failed",
        meaning="messages that the target rejected; 1% unless given",
    ),
    Metric(
        name="corrupt", attribute="corrupt", key="corrupt", form="count", label="corrupt", needs=(Need.CONSUMERS,),
        meaning="messages damaged under way; 0 unless given",
    ),
    Metric(
        name="dropped", attribute="dropped", key="dropped", form="count", label="dropped",
        meaning="messages never sent because they were later than maxSendDelay; 0 unless given",
    ),
    # Workers count foreign messages over the whole run, so no stage has them.
    Metric(
        name="foreign", attribute="foreign", key="foreign", form="count", label="foreign", needs=(Need.CONSUMERS,), per_stage=False,
        absent="it is unknown whether foreign messages arrived in this stage",
        meaning="messages of another run, or at a subscription of another topic; 0 unless given on topics that the run makes",
    ),
    Metric(
        name="outputShare", form="share", label="output share", needs=(Need.CONSUMERS, Need.CHOICE), per_stage=False,
        meaning="acknowledged messages with an output of a service that chooses, of all: as route.outputs says",
    ),
    Metric(
        name="silent", form="count", label="silent", per_stage=True,
        meaning="subscriptions that got nothing of a topic, and streams of which nothing arrived, though messages were due; 0 unless given",
    ),
    Metric(
        name="backlogDrain", form="duration", label="backlog drain", needs=(Need.CONSUMERS, Need.BACKLOG), per_stage=False,
        meaning="how long a backlog takes to drain; backlogDrainTimeout unless given",
    ),
    Metric(
        name="delayedIndexBytesPerMessage", form="bytes", label="delayed index", needs=(Need.CONSUMERS, Need.DELAYS), per_stage=False,
        meaning="bytes of the broker's index for each delayed message and subscription, when most were delayed",
    ),
)  # fmt: skip


@record
class CountRow:
    """A field of :class:`~pytest_loadtest.metrics.measurements.Counts`.

    :param key: in ``results.json`` below ``counts``.
    :param label: in sentences and reports.
    :param meaning: for the reference.
    :param inbound: it counts deliveries, which need a consumer; otherwise sent messages.
    :param part: it is part of the row above.
    :param optional: it can be None: not applicable, or unknown.
    :param live: workers report it while load runs.
    :param exported: continuous integration gets it: JUnit, GitLab.
    """

    attribute: str
    key: str
    label: str
    meaning: str
    inbound: bool = False
    part: bool = False
    optional: bool = False
    live: bool = False
    exported: bool = False


# All fields of the counts, in the order in which reports show them.
COUNTS: Final = (
    CountRow(
        attribute="offered", key="offered", label="offered", meaning="due in the measured phase: sent + dropped", live=True, exported=True,
    ),
    CountRow(
        attribute="sent", key="sent", label="sent", meaning="handed to the client: acked + failed + unknown", live=True, exported=True,
    ),
    CountRow(attribute="sent_in_time", key="sentInTime", label="sent in time", meaning="before the measured phase ended", part=True),
    CountRow(attribute="acked", key="acked", label="acked", meaning="acknowledged by the target", live=True, exported=True),
    CountRow(attribute="failed", key="failed", label="failed", meaning="answered with an error", live=True, exported=True),
    CountRow(
        attribute="dropped", key="dropped", label="dropped", meaning="never sent: later than maxSendDelay", live=True, exported=True,
    ),
    CountRow(attribute="unknown", key="unknown", label="unanswered", meaning="no answer until the drain ended"),
    CountRow(attribute="resent", key="resent", label="resent", meaning="sent again by the client after a lost connection"),
    CountRow(
        attribute="received", key="received", label="received", meaning="deliveries of which a first copy came", inbound=True, live=True,
        exported=True,
    ),
    CountRow(
        attribute="received_in_time", key="receivedInTime", label="received in time", inbound=True, part=True,
        meaning="within the measured phase, moved by the median latency",
    ),
    CountRow(
        attribute="lost", key="lost", label="lost", inbound=True, optional=True, exported=True,
        meaning="acked, and not received by a subscription that should have it",
    ),
    CountRow(
        attribute="duplicates", key="duplicates", label="duplicates", inbound=True, optional=True, exported=True,
        meaning="copies beyond the first of a delivery; unknown if others send",
    ),
    CountRow(
        attribute="duplicates_of_resent", key="duplicatesOfResent", label="duplicates of resent messages", inbound=True, part=True,
        meaning="copies of messages that were resent",
    ),
    CountRow(
        attribute="out_of_order", key="outOfOrder", label="out of order", inbound=True, optional=True, exported=True,
        meaning="first copies after a later message of their stream",
    ),
    CountRow(
        attribute="out_of_due_order", key="outOfDueOrder", label="out of due order", inbound=True, optional=True,
        meaning="copies after one that is due more than a tick later; null where none is delayed",
    ),
    CountRow(
        attribute="foreign", key="foreign", label="foreign", inbound=True, optional=True, exported=True,
        meaning="messages of another run; null in a stage, and if others send",
    ),
    CountRow(
        attribute="corrupt", key="corrupt", label="corrupt", inbound=True, optional=True, exported=True,
        meaning="damaged on the way; unknown if others send",
    ),
    CountRow(
        attribute="corrupt_heads", key="corruptHeads", label="corrupt heads", inbound=True, part=True, optional=True,
        meaning="with a damaged head, at any time of the run; unknown if others send",
    ),
)  # fmt: skip

INBOUND: Final = frozenset(row.key for row in COUNTS if row.inbound)
"""The counts of deliveries, which need a consumer, by their key in results."""

# The metrics that an objective may bound, by their key in ``slo``, in the order of the reference.
OBJECTIVES: Final = {metric.name: metric for metric in CATALOGUE if metric.name}
# The latencies, by their attribute, which is their key in Measurements.latencies.
LATENCIES: Final = {metric.attribute: metric for metric in CATALOGUE if metric.form == "latency"}


def with_own(kind: str) -> str:
    """Return the key of the latencies of a kind that have a part of the generator's own delays."""
    return f"{kind}_with_own"


def without_own(kind: str) -> str:
    """Return the key of the same latencies without that part."""
    return f"{kind}_without_own"


def _apart(metric: Metric) -> Iterator[Metric]:
    """Yield the rows of the latencies with and without the generator's own delays, which are broken
    down as the verdict needs them.
    """
    for name in (with_own, without_own):
        yield Metric(
            name="",
            attribute=name(metric.attribute),
            form="latency",
            exported=False,
            per_bucket=metric.per_bucket,
            per_window=metric.per_window,
        )


def _counted_latencies() -> dict[str, Metric]:
    counted = dict(LATENCIES)
    for attribute, metric in LATENCIES.items():
        # Receive lag has no parts: the whole of it is the generator's.
        if metric.lengthened_by and attribute != "receive_lag":
            counted |= {part.attribute: part for part in _apart(metric)}
    return counted


# All kinds of latencies that are counted: those of the catalogue, and parts of them that only the
# verdict needs.
COUNTED_LATENCIES: Final = _counted_latencies()
# The metrics that are numbers of messages, by their attribute.
COUNTED: Final = {
    metric.attribute: metric
    for metric in CATALOGUE
    if metric.form in ("count", "share") and metric.attribute
}


def named(**properties: object) -> tuple[str, ...]:
    """Return the ``slo`` keys of the metrics with these properties: ``named(form="count")``."""
    names = []
    for name, metric in OBJECTIVES.items():
        if all(getattr(metric, key) == value for key, value in properties.items()):
            names.append(name)
    return tuple(names)


def needing(need: Need) -> tuple[str, ...]:
    """Return the ``slo`` keys of the metrics that need this property of a run."""
    return tuple(name for name, metric in OBJECTIVES.items() if need in metric.needs)
