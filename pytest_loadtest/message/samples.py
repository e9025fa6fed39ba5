"""The columns of samples, as the recorder writes them and Spark reads them.

A *sent* row is one message that a producer had to send, a *received* row is one copy that a
consumer got. If a message goes to many subscriptions of one consumer each, a *broadcast* row
replaces up to 64 received rows (:mod:`pytest_loadtest.message.broadcast`). A *tap* row is a message
on its way to a service under test. All times are CLOCK_MONOTONIC nanoseconds of the run's clock; 0
in ``acked`` and ``sent`` means "never", and ``status`` has the reason. All integers are signed:
Spark turns unsigned 64-bit columns into decimals.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class Column(NamedTuple):
    """A column: name, numpy/Arrow integer type (or a list of one, as Arrow spells it), unit or
    meaning.
    """

    name: str
    type: str
    meaning: str

    @property
    def item(self) -> str | None:
        """The integer type of a list's items; None for a column of plain integers."""
        return self.type.partition(": ")[2][:-1] or None


class Status(enum.IntEnum):
    """The outcome of sending a message."""

    PENDING = -1  # in memory only, never in a file
    ACKED = 0
    FAILED = 1  # answered with an error, by the client or the target
    # never handed to the client: later than maxSendDelay, mostly by the generator's own delay
    DROPPED = 2
    UNKNOWN = 3  # handed over, and not answered before the drain ended
    # never handed to the client: later than maxSendDelay, mostly because its stream's window was
    # full
    BLOCKED = 4


NEVER_SENT: Final = (Status.DROPPED, Status.BLOCKED)
"""The statuses of messages that were dropped."""


class Flag(enum.IntFlag):
    """Bits of a received row."""

    REDELIVERED = 1  # marked by the target
    # a higher sequence of the same (stream, partition or key) came before, at this consumer
    LATE = 2
    CORRUPT = 4  # the head is whole, the rest of the payload is damaged
    UNDUE = 8  # a delayed message: one due more than a tick later came before, at its consumer


SENT: Final = (
    Column("stream", "int32", "producer's stream"),
    Column("topic", "int32", "index of the topic"),
    Column("bucket", "int16", "size bucket, in the order of the profile"),
    Column("size", "int32", "payload bytes"),
    Column("status", "int8", "Status"),
    Column("seq", "int64", "number of the message in its stream, from 0"),
    Column("intended", "int64", "ns"),
    Column("sent", "int64", "ns; 0 when dropped"),
    Column("acked", "int64", "ns; 0 unless status is ACKED"),
    Column(
        "blocked",
        "int64",
        "ns in which the message, sent or dropped, waited for the target's full window",
    ),
    Column(
        "resends",
        "int16",
        "how often the client sent it again after a lost connection, 255 for 255 or more;"
        " 0 also where unknown",
    ),
)

RECEIVED: Final = (
    Column("consumer", "int32", "index of the consumer"),
    Column("subscription", "int32", "index of the subscription, within its topic"),
    Column("stream", "int32", "producer's stream, from the envelope"),
    Column("topic", "int32", "index of the topic"),
    Column("bucket", "int16", "size bucket, from the envelope"),
    Column("size", "int32", "payload bytes"),
    Column("flags", "int8", "Flag bits"),
    Column("seq", "int64", "from the envelope"),
    Column("intended", "int64", "ns, from the envelope"),
    Column("received", "int64", "ns"),
    Column(
        "lag",
        "int32",
        "µs from received until the client took the copy;"
        " -1: unknown, as in samples of older releases",
    ),
)

BROADCAST: Final = (
    Column("topic", "int32", "index of the topic"),
    Column(
        "base",
        "int32",
        "index of the first of its 64 subscriptions, within the topic:"
        " bit i of a mask is subscription base + i",
    ),
    Column("stream", "int32", "producer's stream, from the envelope"),
    Column("bucket", "int16", "size bucket, from the envelope"),
    Column("size", "int32", "payload bytes"),
    Column("seq", "int64", "from the envelope"),
    Column("intended", "int64", "ns, from the envelope"),
    Column("got", "int64", "mask of the subscriptions whose copy this is"),
    Column("redelivered", "int64", "mask of those with Flag.REDELIVERED"),
    Column("late", "int64", "mask of those with Flag.LATE"),
    Column("corrupt", "int64", "mask of those with Flag.CORRUPT"),
    Column("first", "int64", "ns; when the first of the copies was received"),
    Column("last", "int64", "ns; when the last was"),
    Column(
        "after",
        "list<element: int32>",
        "ns from first until each copy was received, by subscription",
    ),
    Column(
        "lag",
        "list<element: int32>",
        "µs from then until the client took it, by subscription; -1: unknown",
    ),
)

TAP: Final = (
    Column("stream", "int32", "producer's stream, from the envelope"),
    Column("seq", "int64", "from the envelope"),
    Column("intended", "int64", "ns, from the envelope"),
    Column("received", "int64", "ns; when the tap on the input of a route received the message"),
)

WIDTH: Final = 64
"""Subscriptions of one broadcast row.

Topics with at least this many, of one consumer each, are recorded in broadcast rows.
"""
KINDS: Final = {"sent": SENT, "received": RECEIVED, "broadcast": BROADCAST, "tap": TAP}
MANIFEST_VERSION: Final = 4
MANIFEST_SUFFIX: Final = ".manifest.json"
EVIDENCE: Final = ("cpu", "stalled", "longest_stall", "gc")
"""ns in each second of the phase, of a worker's own process."""
