"""The conformance kit: a correct driver passes, and each broken promise fails with words that name it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from null_driver import NullDriver

from pytest_loadtest.drivers.base import Acks, Joined, Received, TargetAddress
from pytest_loadtest.drivers.columns import positions_without_room
from pytest_loadtest.message.samples import Status
from pytest_loadtest.testing import DRIVER_CHECKS, Subject, check_driver
from pytest_loadtest.testing.rig import select_messages

NOWHERE = TargetAddress(url="null://")
WINDOW = 40


def subject(driver, window=None) -> Subject:
    return Subject(
        driver=driver,
        target=NOWHERE,
        settings=None,
        window=window,
        envelopes=("properties", "json"),
        deadline=200_000_000,
    )


def windowed(driver, window=WINDOW) -> Subject:
    """A subject that promises a window of 40."""
    return subject(
        partial(driver, window=window, latency=lambda seq: np.full_like(seq, 100_000)),
        window=WINDOW,
    )


@pytest.mark.parametrize("check", DRIVER_CHECKS, ids=lambda check: check.__name__)
def test_null_driver_keeps_the_promises_of_a_driver(check):
    """It passes the kit without a window and with one."""
    check(subject(NullDriver))
    check(windowed(NullDriver))
    check(subject(partial(NullDriver, window=WINDOW), window=WINDOW))


def _edited(received, edit):
    """Return the received copies with each column changed by ``edit``; a column that the driver leaves out stays so."""
    columns = {name: getattr(received, name) for name in Received.__slots__}
    return replace(
        received, **{name: edit(column) for name, column in columns.items() if column is not None}
    )


class _DropsLast(NullDriver):
    def take(self):
        received = super().take()
        return received and _edited(received, lambda column: column[:-1])


class _Twice(NullDriver):
    def take(self):
        received = super().take()
        return received and _edited(received, lambda column: np.concatenate([column] * 2))


class _Damages(NullDriver):
    def take(self):
        received = super().take()
        if received is not None:
            received.heads[0, 20] ^= 1
        return received


class _KnowsBodies(NullDriver):
    """:param body: head → the body, as the driver knows it."""

    def __init__(self, context, body, **options):
        super().__init__(context, **options)
        self._body = body

    def take(self):
        received = super().take()
        if received is None:
            return None
        heads = [head.tobytes() for head in received.heads]
        return replace(received, bodies=lambda row: self._body(heads[row]))


def test_a_driver_may_know_bodies():
    """Whole, or their first 64 bytes; or not all of them."""
    for size in (128, 64, 0):
        known = partial(_KnowsBodies, body=lambda head, size=size: head.ljust(128)[:size])
        DRIVER_CHECKS[2](subject(known))


@pytest.mark.parametrize(
    ("body", "complaint"),
    [(lambda head: head, "has 32 bytes of"), (lambda head: b"x" * 64, "is not")],
)
def test_a_driver_that_knows_bodies_badly_fails(body, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_driver(subject(partial(_KnowsBodies, body=body)))


class _ShortSize(NullDriver):
    def take(self):
        received = super().take()
        return received and replace(received, size=received.size - 1)


class _WideTime(NullDriver):
    def take(self):
        received = super().take()
        return received and replace(received, time=received.time.astype(float))


class _AcksTwice(NullDriver):
    def acks(self):
        acks = super().acks()
        return acks and Acks(
            *(np.concatenate([getattr(acks, name)] * 2) for name in ("row", "time", "status"))
        )


class _AcksBefore(NullDriver):
    def acks(self):
        acks = super().acks()
        return acks and replace(acks, time=acks.time - 1)


class _AcksSequences(NullDriver):
    def acks(self):
        acks = super().acks()
        return acks and replace(acks, row=np.arange(len(acks.row)))


class _AcksInNarrowRows(NullDriver):
    def acks(self):
        acks = super().acks()
        return acks and replace(acks, row=acks.row.astype(np.int32))


class _CountsResends(NullDriver):
    def acks(self):
        acks = super().acks()
        return acks and replace(acks, resends=np.ones(len(acks.row), np.uint8))


class _Fails(NullDriver):
    def acks(self):
        acks = super().acks()
        return acks and replace(acks, status=acks.status + np.int8(Status.FAILED))


class _KeepsColumns(NullDriver):
    def send(self, burst):
        self.row = burst.row
        return super().send(burst)

    def acks(self):
        acks = super().acks()
        return acks and replace(acks, row=self.row)


class _MixesTopics(NullDriver):
    def open_producers(self, streams):
        serve = self._members.serve
        self._members.serve = lambda stream: serve(stream + 1)


class _ReadsBodiesAlone(NullDriver):
    def take(self):
        received = super().take()
        if received is not None and self._context.pool.place.outside:
            received.heads[:] = 0
        return received


class _NeverPauses(NullDriver):
    def pause(self, places):
        pass


class _PausesAll(NullDriver):
    def pause(self, places):
        super().pause(range(2))


class _StampsPausedMessagesEarly(NullDriver):
    resumed = False

    def resume(self, places):
        self.resumed = True
        super().resume(places)

    def take(self):
        received = super().take()
        return received and replace(received, time=received.time - 1_000_000_000 * self.resumed)


class _LosesMessagesOfAPause(NullDriver):
    def resume(self, places):
        self.take()
        super().resume(places)
        self.take()


class _NeverLeaves(NullDriver):
    def detach(self, places):
        pass


class _LosesMessagesAtDetach(NullDriver):
    def detach(self, places):
        self.resume(places)
        self.take()
        super().detach(places)


class _NeverAttaches(NullDriver):
    def attached(self):
        return None


class _UsesPlacesAgain(NullDriver):
    def attached(self):
        joined = super().attached()
        return joined and Joined(joined.consumer, joined.consumer)


@pytest.mark.parametrize(
    ("driver", "complaint"),
    [
        (_DropsLast, "not acked and received in time"),
        (_Twice, "received 600 copies of 300"),
        (_Damages, "1 corrupt"),
        (_ShortSize, "sizes differ"),
        (_WideTime, "time is float64"),
        (_AcksTwice, "acks of"),
        (_AcksBefore, "acked before it was sent"),
        (_AcksSequences, "rows that were never offered"),
        (_AcksInNarrowRows, "row is int32"),
        (_CountsResends, "sent again though no connection was lost"),
        (_Fails, "not every message was acked"),
        (_KeepsColumns, "rows that were never offered"),
        (_MixesTopics, r"consumer 0 received messages of the streams \[1, 7\]"),
        (_ReadsBodiesAlone, "0 own messages, 200 foreign"),
        (_NeverPauses, "a paused consumer took 100 messages"),
        (_PausesAll, "received by the consumer that is not paused in time"),
        (_StampsPausedMessagesEarly, "stamped when they are handed over"),
        (_LosesMessagesOfAPause, "not received after resume in time"),
        (_NeverLeaves, "not left by the detached consumer, which goes on taking messages in time"),
        (_LosesMessagesAtDetach, "received after a consumer has left in time"),
        (_NeverAttaches, "not attached consumer 1 in time"),
        (_UsesPlacesAgain, r"places \[1\] for new consumers after \[0, 1\]: expected \[2\]"),
    ],
)
def test_a_driver_that_breaks_a_promise_fails_with_its_name(driver, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_driver(subject(driver))


class _RejectsNarrow(NullDriver):
    def send(self, burst):
        rejected = super().send(burst)
        return None if rejected is None else rejected.astype(np.int32)


class _RejectsBackwards(NullDriver):
    def send(self, burst):
        rejected = super().send(burst)
        return None if rejected is None else rejected[::-1].copy()


class _RejectsAnEmptyColumn(NullDriver):
    def send(self, burst):
        rejected = super().send(burst)
        return np.empty(0, np.int64) if rejected is None else rejected


class _RejectsTheFirst(NullDriver):
    def send(self, burst):
        rejected = super().send(burst)
        if rejected is None:
            return None
        burst.sent[0] = burst.idle[0] = 0
        return np.concatenate([[0], rejected])


class _StampsRejectedMessages(NullDriver):
    def send(self, burst):
        rejected = super().send(burst)
        burst.sent[:] = 1
        return rejected


class _ForgetsToStamp(NullDriver):
    def send(self, burst):
        rejected = super().send(burst)
        burst.sent[:] = 0
        return rejected


class _AnswersRejectedMessages(NullDriver):
    def send(self, burst):
        rejected = super().send(burst)
        self.left = None if rejected is None else burst.row[rejected]
        return rejected

    def acks(self):
        acks, left = super().acks(), getattr(self, "left", None)
        if left is None:
            return acks
        self.left = None
        failed = Acks(
            left, np.full(len(left), self._clock()), np.full(len(left), Status.FAILED, np.int8)
        )
        parts = [part for part in (acks, failed) if part]
        return Acks(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("row", "time", "status")
            )
        )


class _WaitsForAFullStream(NullDriver):
    def send(self, burst):
        self._settle(self._clock())
        full = positions_without_room(burst.stream, self._windows._room)
        if not len(full):
            return super().send(burst)
        taken = select_messages(burst, np.arange(full[0]))
        super().send(taken)
        burst.sent[: full[0]], burst.idle[: full[0]] = taken.sent, taken.idle
        return np.arange(full[0], len(burst))


class _NeverIdle(NullDriver):
    def send(self, burst):
        rejected = super().send(burst)
        burst.idle[:] = 0
        return rejected


class _AlwaysIdle(NullDriver):
    def send(self, burst):
        rejected = super().send(burst)
        taken = burst.sent > 0
        burst.idle[taken] = self._windows._emptied[burst.stream[taken]]
        return rejected


class _IdleOfAnyStream(NullDriver):
    def send(self, burst):
        rejected = super().send(burst)
        burst.idle[burst.idle > 0] = self._windows._emptied.max()
        return rejected


@pytest.mark.parametrize(
    ("driver", "complaint"),
    [
        (_RejectsNarrow, "rejected positions are int32"),
        (_RejectsBackwards, "not ascending"),
        (_RejectsAnEmptyColumn, "expected None when all are taken"),
        (_RejectsTheFirst, "a message was taken after a rejected one"),
        (_StampsRejectedMessages, "stamped messages that it rejected"),
        (_ForgetsToStamp, "must stamp the messages that it takes"),
        (_AnswersRejectedMessages, "acks of"),
        (_WaitsForAFullStream, "because of another stream's full window"),
        (_NeverIdle, r"idle is \[0, 0\]"),
        (_AlwaysIdle, "idle is set while messages are in flight"),
        (_IdleOfAnyStream, "idle is .* the last answers came at"),
    ],
)
def test_a_driver_with_broken_windows_fails(driver, complaint):
    """Windows that reject the wrong messages, and wrong times at which a window became empty, are reported."""
    with pytest.raises(AssertionError, match=complaint):
        check_driver(windowed(driver))


def test_a_driver_that_takes_more_than_its_window_fails():
    with pytest.raises(AssertionError, match="with a window of 40"):
        check_driver(windowed(NullDriver, window=41))
