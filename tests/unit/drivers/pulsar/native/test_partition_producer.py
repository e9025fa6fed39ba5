"""Entries that a lost connection leaves unanswered: each is sent again, and answered once."""

from __future__ import annotations

from fake_pulsar import FakeBroker, Seen, answer, nothing
from native_rig import faulty

from pytest_loadtest.message.samples import Status
from pytest_loadtest.values.quantities import MILLISECOND

ACKED, FAILED = Status.ACKED, Status.FAILED


def sequences(broker: FakeBroker) -> list[int]:
    return [sent.sequence_id for sent in broker.of("SEND")]


def test_unanswered_entries_are_sent_again(broker: FakeBroker) -> None:
    """In order, with their sequence ids, by a producer of the same name in its next epoch; the answers count the resend."""
    broker.rules["SEND"] = nothing
    with faulty(broker, streams=1) as r:
        r.send(3)
        r.until(lambda: len(broker.of("SEND")) == 3, "sent")
        del broker.rules["SEND"]
        broker.peers[0].drop()
        r.until(lambda: len(r.answers()) == 3, "answered", step=MILLISECOND)
        assert r.answers() == [(number, ACKED, 1) for number in range(3)]
        assert sequences(broker) == [0, 1, 2, 0, 1, 2]
        first, second = broker.of("PRODUCER")
        assert (first.epoch, second.epoch, second.producer_name) == (0, 1, "fake-0")
        assert not first.HasField("producer_name") and not second.user_provided_producer_name
        assert r.driver.disconnected() is None


def test_answered_entries_are_not_sent_again(broker: FakeBroker) -> None:
    """The first of three was answered; only the others are sent again, and new ones after them."""
    broker.once["SEND"] += [answer, nothing, nothing]
    with faulty(broker, streams=1) as r:
        r.send(3)
        r.until(lambda: len(broker.of("SEND")) == 3 and len(r.answers()) == 1, "the first answered")
        broker.peers[0].drop()
        r.until(r.driver.disconnected, "disconnected")
        assert (
            r.driver.disconnected()
            == f"producer of stream 0 ({broker.url}: the broker closed the connection)"
        )
        r.send(2)
        r.until(lambda: len(r.answers()) == 5, "answered", step=MILLISECOND)
        assert r.answers() == [
            (0, ACKED, 0),
            (1, ACKED, 1),
            (2, ACKED, 1),
            (3, ACKED, 0),
            (4, ACKED, 0),
        ]
        assert sequences(broker) == [0, 1, 2, 1, 2, 3, 4]


def test_a_receipt_out_of_order_ends_the_connection(broker: FakeBroker) -> None:
    """The unanswered entries are sent again on another one."""
    broker.once["SEND"] += [nothing, answer]
    with faulty(broker, streams=1) as r:
        r.send(2)
        r.until(lambda: len(r.answers()) == 2, "answered", step=MILLISECOND)
        assert r.answers() == [(0, ACKED, 1), (1, ACKED, 1)]
        assert sequences(broker) == [0, 1, 0, 1]


def test_a_receipt_that_comes_twice_counts_once(broker: FakeBroker) -> None:

    def twice(seen: Seen) -> None:
        answer(seen)
        answer(seen)

    broker.rules["SEND"] = twice
    with faulty(broker, streams=1) as r:
        for number in range(1, 4):
            r.send(2)
            r.until(lambda: len(r.answers()) >= 2 * number, "answered")  # noqa: B023
        broker.peers[0].tell("PING")
        r.until(lambda: broker.of("PONG"), "the rest read")
        assert r.answers() == [(number, ACKED, 0) for number in range(6)]
