"""The columns of a sample: the one table that the recorder writes by and Spark reads by.

A *sent* row is one message a producer had to send, a *received* row is one copy a consumer got. All times are
CLOCK_MONOTONIC nanoseconds of the run's clock; 0 in ``acked`` and ``sent`` means "never", told apart by ``status``.
Signed integers only: Spark turns unsigned 64-bit columns into decimals.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class Column(NamedTuple):
    """One column: name, numpy/Arrow integer type, unit or meaning."""

    name: str
    type: str
    meaning: str


class Status(enum.IntEnum):
    """What became of a message on its way out."""

    PENDING = -1  # in memory only; a row never leaves with it
    ACKED = 0
    FAILED = 1  # the client or the target refused it
    DROPPED = 2  # never handed to the client: later than maxSendDelay
    UNKNOWN = 3  # handed over, no answer until drain ended


class Flag(enum.IntFlag):
    """Bits of a received row."""

    REDELIVERED = 1  # the target says so
    LATE = 2  # a higher sequence of the same (stream, partition or key) came before, at this consumer
    CORRUPT = 4  # the head is whole, the rest of the payload is not


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
    Column("blocked", "int64", "ns of the send delay that the stream stood before the target's full window"),
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
)

KINDS: Final = {"sent": SENT, "received": RECEIVED}
MANIFEST_VERSION: Final = 1
MANIFEST_SUFFIX: Final = ".manifest.json"
