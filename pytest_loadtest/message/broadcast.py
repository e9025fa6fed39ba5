"""Broadcast rows: one row for the copies of one message that up to 64 subscriptions got.

The conversion loses nothing.

The 10 000 copies of a message to 10 000 subscribers have the same stream, sequence, bucket, size
and intended time, and arrive at nearly the same time. Received rows would repeat all of this. A
broadcast row has it once for 64 neighbouring subscriptions, a mask for each flag, and the time of
each copy. Everything defined over received rows is therefore exact over broadcast rows too
(docs/decisions/016).

A second copy to a subscription starts a new row, as does a copy whose head or size differs (a
damaged one). So does a multiple of 2**31 ns of the clock, so that the time from the first copy of a
row to each other one fits 32 bits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.message.samples import WIDTH, Flag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Columns = Mapping[str, NDArray[Any]]

_BITS: Final = 6
_EPOCH: Final = 31
_MASKS: Final = {"redelivered": Flag.REDELIVERED, "late": Flag.LATE, "corrupt": Flag.CORRUPT}
_PLACE: Final = ("topic", "base", "stream", "seq", "epoch", "bit")
_SAME: Final = ("bucket", "size", "intended")
_MOST: Final = 1 << 62


def pack_copies(copies: Columns) -> dict[str, NDArray[Any]]:
    """Convert received rows, in arrival order, to broadcast rows.

    :param copies: the columns of ``samples.RECEIVED`` except ``consumer``.
    """
    subscription = copies["subscription"]
    keys = {
        "topic": copies["topic"], "base": subscription >> _BITS, "stream": copies["stream"], "seq": copies["seq"],
        "epoch": copies["received"] >> _EPOCH, "bit": subscription & WIDTH - 1,
    }  # fmt: skip
    order = _order([keys[name] for name in _PLACE])
    keys = {name: column[order] for name, column in keys.items()}
    same = {name: copies[name][order] for name in _SAME}
    received, flags = copies["received"][order], copies["flags"][order]
    starts = _starts(keys, same)
    bit = np.left_shift(1, keys["bit"], dtype=np.int64)
    first = np.minimum.reduceat(received, starts) if len(starts) else received
    lengths = np.diff(starts, append=len(received))
    return {
        "topic": keys["topic"][starts], "base": keys["base"][starts] << _BITS, "stream": keys["stream"][starts], "seq": keys["seq"][starts],
        **{name: column[starts] for name, column in same.items()},
        "got": _any(bit, starts),
        **{name: _any(np.where(flags & int(flag) != 0, bit, 0), starts) for name, flag in _MASKS.items()},
        "first": first, "last": np.maximum.reduceat(received, starts) if len(starts) else received,
        "after": (received - np.repeat(first, lengths)).astype(np.int32), "lag": copies["lag"][order],
    }  # fmt: skip


def unpack_copies(rows: Columns) -> dict[str, NDArray[Any]]:
    """Convert broadcast rows to received rows, ordered by row and subscription; all columns of
    ``samples.RECEIVED`` except ``consumer``.

    :param rows: the columns of ``samples.BROADCAST``; lists have the numbers of all rows end to
        end, one for each set bit of ``got``.
    """
    row, bit = bits(rows["got"])
    flags = np.zeros(len(row), np.int8)
    for name, flag in _MASKS.items():
        mask = rows[name]
        if mask.any():
            flags |= np.where(mask[row] >> bit & 1, np.int8(flag), np.int8(0))
    return {
        "subscription": (rows["base"][row] + bit).astype(np.int32), "flags": flags, "received": rows["first"][row] + rows["after"],
        # Samples of older releases have no lag.
        "lag": rows["lag"] if "lag" in rows else np.full(len(row), -1, np.int32),
        **{name: rows[name][row] for name in ("stream", "topic", "seq", *_SAME)},
    }  # fmt: skip


def bits(masks: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return row and number of every set bit, ordered by row and bit."""
    row, bit = np.nonzero(
        np.unpackbits(
            np.ascontiguousarray(masks, "<i8").view(np.uint8).reshape(-1, 8),
            axis=1,
            bitorder="little",
        )
    )
    return row, bit


def _order(keys: list[NDArray[Any]]) -> NDArray[np.intp]:
    """Return the stable order of rows by keys, of which the first is the most significant."""
    if not len(keys[0]):
        return np.zeros(0, np.intp)
    lows = [int(key.min()) for key in keys]
    widths = [int(key.max()) - low + 1 for key, low in zip(keys, lows, strict=True)]
    if math.prod(widths) >= _MOST:
        return np.lexsort(keys[::-1])
    # the keys fit one integer: one stable sort instead of one for each key
    packed = np.zeros(len(keys[0]), np.int64)
    for key, low, width in zip(keys, lows, widths, strict=True):
        packed = packed * width + (key - low)
    return np.argsort(packed, kind="stable")


def _starts(keys: Columns, same: Columns) -> NDArray[np.intp]:
    """Return the positions where a new row begins: another place, other shared columns, or a second
    copy to a subscription.
    """
    new = (
        np.diff(keys["bit"]) <= 0
    )  # bits ascend within a place, so this is another place or a second copy
    for column in (*(keys[name] for name in _PLACE[:-1]), *same.values()):
        new |= column[1:] != column[:-1]
    return np.flatnonzero(np.concatenate([np.ones(min(len(keys["bit"]), 1), np.bool_), new]))


def _any(masks: NDArray[np.int64], starts: NDArray[np.intp]) -> NDArray[np.int64]:
    merged: NDArray[np.int64] = np.bitwise_or.reduceat(masks, starts) if len(starts) else masks
    return merged
