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
_ROW: Final = ("topic", "base", "stream", "seq")
_SAME: Final = ("bucket", "size", "intended")
_MOST: Final = 1 << 62


def pack_copies(copies: Columns) -> dict[str, NDArray[Any]]:
    """Convert received rows, in arrival order, to broadcast rows.

    :param copies: the columns of ``samples.RECEIVED`` except ``consumer``.
    """
    subscription = copies["subscription"]
    keys = {
        "topic": copies["topic"],
        "base": subscription >> _BITS,
        "stream": copies["stream"],
        "seq": copies["seq"],
        "epoch": copies["received"] >> _EPOCH,
        "bit": subscription & WIDTH - 1,
    }
    order = _order(list(keys.values()))

    # All copies, those of one broadcast row next to each other. The subscriptions 70, 64 and 65
    # that got one message are the rows 64, 65, 70 of base 1: bits 0, 1, 6, and starts [0].
    sorted_copies = {name: copies[name][order] for name in (*_SAME, "received", "flags", "lag")}
    for name, key in keys.items():
        sorted_copies[name] = key[order]
    starts = _starts(sorted_copies)

    # one value for each row: got = 0b1000011
    rows = {name: sorted_copies[name][starts] for name in (*_ROW, *_SAME)}
    rows["base"] <<= _BITS
    bit = np.left_shift(1, sorted_copies["bit"], dtype=np.int64)
    rows["got"] = _reduced(np.bitwise_or, bit, starts)
    for name, flag in _MASKS.items():
        flagged = np.where(sorted_copies["flags"] & int(flag) != 0, bit, 0)
        rows[name] = _reduced(np.bitwise_or, flagged, starts)
    received = sorted_copies["received"]
    rows["first"] = _reduced(np.minimum, received, starts)
    rows["last"] = _reduced(np.maximum, received, starts)

    # one value for each copy
    lengths = np.diff(starts, append=len(received))
    rows["after"] = (received - np.repeat(rows["first"], lengths)).astype(np.int32)
    rows["lag"] = sorted_copies["lag"]
    return rows


def unpack_copies(rows: Columns) -> dict[str, NDArray[Any]]:
    """Convert broadcast rows to received rows, ordered by row and subscription; all columns of
    ``samples.RECEIVED`` except ``consumer``.

    :param rows: the columns of ``samples.BROADCAST``; lists have the numbers of all rows end to
        end, one for each set bit of ``got``.
    """
    # one row of base 64 with got = 0b1000011 gives row [0, 0, 0] and bit [0, 1, 6]
    row, bit = bits(rows["got"])
    copies = {name: rows[name][row] for name in ("stream", "topic", "seq", *_SAME)}
    copies["subscription"] = (rows["base"][row] + bit).astype(np.int32)
    copies["received"] = rows["first"][row] + rows["after"]

    copies["flags"] = np.zeros(len(row), np.int8)
    for name, flag in _MASKS.items():
        mask = rows[name]
        if mask.any():
            copies["flags"] |= np.where(mask[row] >> bit & 1, np.int8(flag), np.int8(0))

    if "lag" in rows:
        copies["lag"] = rows["lag"]
    else:  # samples of older releases
        copies["lag"] = np.full(len(row), -1, np.int32)
    return copies


def bits(masks: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return row and number of every set bit, ordered by row and bit."""
    octets = np.ascontiguousarray(masks, "<i8").view(np.uint8).reshape(-1, 8)
    row, bit = np.nonzero(np.unpackbits(octets, axis=1, bitorder="little"))
    return row, bit


def _order(keys: list[NDArray[Any]]) -> NDArray[np.intp]:
    """Return the stable order of rows by keys, of which the first is the most significant."""
    if not len(keys[0]):
        return np.zeros(0, np.intp)
    # Keys that fit one integer need one stable sort, not one each: of the topics 3 and 4 and the
    # bits 5 and 6, (3, 5), (3, 6), (4, 5) are packed as 0, 1, 2.
    packed = np.zeros(len(keys[0]), np.int64)
    combinations = 1
    for key in keys:
        low = int(key.min())
        width = int(key.max()) - low + 1
        combinations *= width
        if combinations >= _MOST:
            return np.lexsort(keys[::-1])
        packed = packed * width + (key - low)
    return np.argsort(packed, kind="stable")


def _starts(copies: Columns) -> NDArray[np.intp]:
    """Return the positions where a new row begins: another place, other shared columns, or a second
    copy to a subscription.
    """
    if not len(copies["bit"]):
        return np.zeros(0, np.intp)
    # Bits ascend within a row, so the next bit is higher, or this is another row or a second copy.
    new = np.diff(copies["bit"], prepend=copies["bit"][0]) <= 0
    for name in (*_ROW, "epoch", *_SAME):
        column = copies[name]
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def _reduced(
    function: np.ufunc, column: NDArray[np.int64], starts: NDArray[np.intp]
) -> NDArray[np.int64]:
    """Reduce the copies of each row to one value."""
    if not len(starts):
        return column
    return function.reduceat(column, starts)
