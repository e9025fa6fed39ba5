"""Producers and consumers that look up their broker, reconnect after a loss, and leave."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from fake_pulsar import FakeBroker, Seen, answer, nothing, refuse
from native_rig import MovedClock, faulty

from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.samples import Status
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api

ACKED, FAILED = Status.ACKED, Status.FAILED


def sequences(broker: FakeBroker) -> list[int]:
    return [sent.sequence_id for sent in broker.of("SEND")]


def test_only_written_entries_count_as_sent_again(broker: FakeBroker) -> None:
    """The connection is lost again before the producer is established."""
    broker.rules["SEND"] = nothing
    with faulty(broker, streams=1) as r:
        r.send(2)
        r.until(lambda: len(broker.of("SEND")) == 2, "sent")
        broker.once["PRODUCER"] += [lambda seen: seen.peer.drop()] * 2
        broker.once["CONNECT"] += [answer, lambda seen: seen.peer.drop()]
        del broker.rules["SEND"]
        broker.peers[0].drop()
        r.until(lambda: len(r.answers()) == 2, "answered", step=MILLISECOND)
        assert r.answers() == [(0, ACKED, 1), (1, ACKED, 1)]
        assert sequences(broker) == [0, 1, 0, 1]


def test_each_retry_waits_twice_as_long(broker: FakeBroker) -> None:
    """From 100 ms up to 10 s; after a success from 100 ms again."""
    clock, times = MovedClock(), []

    def turned_away(seen: Seen) -> None:
        times.append(clock())
        refuse(api.ServiceNotReady)(seen)

    with faulty(broker, streams=1, clock=clock) as r:
        for _ in range(2):
            times.clear()
            opened = len(broker.of("PRODUCER"))
            broker.once["PRODUCER"] += [turned_away] * 9
            broker.peers[-1].drop()
            r.until(r.driver.disconnected, "disconnected")
            all_sent = opened + 10
            r.until(
                lambda sent=all_sent: (  # type: ignore[misc]
                    len(broker.of("PRODUCER")) == sent and not r.driver.disconnected()
                ),
                "there",
                step=200 * MILLISECOND,
            )
            gaps = [after - before for before, after in itertools.pairwise(times)]
            assert all(
                gap >= min(200 * MILLISECOND * 2**number, 10 * SECOND)
                for number, gap in enumerate(gaps)
            )


def test_a_producer_that_the_broker_closed_connects_again(broker: FakeBroker) -> None:
    """It looks up its topic, uses the same connection, and sends the unanswered entries."""
    broker.once["SEND"] += [nothing]
    with faulty(broker, streams=2) as r:
        r.send(1)
        r.until(lambda: broker.of("SEND"), "sent")
        broker.peers[0].tell("CLOSE_PRODUCER", producer_id=0, request_id=2**63)
        r.until(r.answers, "answered", step=MILLISECOND)
        assert r.answers() == [(0, ACKED, 1)]
        assert len(broker.peers) == 1 and len(broker.of("LOOKUP")) == 2
        assert [(made.producer_id, made.epoch) for made in broker.of("PRODUCER")] == [
            (0, 0),
            (1, 0),
            (0, 1),
        ]


def test_a_producer_goes_to_the_broker_that_was_named_without_a_lookup(broker: FakeBroker) -> None:
    with FakeBroker() as other:
        broker.rules["SEND"] = nothing
        with faulty(broker, streams=1) as r:
            r.send(2)
            r.until(lambda: len(broker.of("SEND")) == 2, "sent")
            broker.peers[0].tell(
                "CLOSE_PRODUCER", producer_id=0, request_id=1, assigned_broker_service_url=other.url
            )
            r.until(lambda: len(r.answers()) == 2, "answered")
            assert r.answers() == [(0, ACKED, 1), (1, ACKED, 1)]
            assert sequences(other) == [0, 1]
            assert (len(broker.of("LOOKUP")), len(other.of("LOOKUP"))) == (1, 0)
            broker.peers[0].drop()
            r.send(1)
            r.until(lambda: len(r.answers()) == 3, "answered")
            assert r.driver.disconnected() is None


def test_a_lookup_follows_if_the_named_broker_is_unreachable(broker: FakeBroker) -> None:
    with FakeBroker() as other:
        gone = other.url
    with faulty(broker, streams=1) as r:
        broker.peers[0].tell(
            "CLOSE_PRODUCER", producer_id=0, request_id=1, assigned_broker_service_url=gone
        )
        r.until(r.driver.disconnected, "closed")
        r.send(1)
        r.until(r.answers, "answered", step=MILLISECOND)
        assert len(broker.of("LOOKUP")) == 2


def test_a_close_before_the_answer_is_ignored(broker: FakeBroker) -> None:
    """The answer counts, and the loss of the connection is noticed."""

    def closed_before(seen: Seen) -> None:
        seen.peer.tell("CLOSE_PRODUCER", producer_id=seen.said.producer_id, request_id=1)
        answer(seen)

    broker.once["PRODUCER"] += [closed_before]
    with faulty(broker, streams=1) as r:
        broker.peers[0].drop()
        r.until(
            lambda: len(broker.of("PRODUCER")) == 2 and not r.driver.disconnected(),
            "there again",
            step=MILLISECOND,
        )
        r.send(1)
        r.until(r.answers, "answered")


def test_a_terminated_topic_ends_the_run(broker: FakeBroker) -> None:
    broker.once["SEND"] += [
        lambda seen: seen.peer.tell(
            "SEND_ERROR",
            producer_id=0,
            sequence_id=0,
            error=api.TopicTerminatedError,
            message="terminated",
        )
    ]
    with faulty(broker, streams=1) as r:
        broker.rules["PRODUCER"] = refuse(api.TopicTerminatedError, "was terminated")
        r.send(1)
        with pytest.raises(
            TargetError,
            match="producer of stream 0 cannot go on: TopicTerminatedError: was terminated",
        ):
            r.until(r.answers, "answered", step=MILLISECOND)


def test_a_topic_that_stays_missing_ends_the_run(broker: FakeBroker) -> None:
    """At first it may only be moving; after operationTimeout it no longer exists, and the error names it."""
    with faulty(broker, streams=1, operation_timeout=5 * SECOND) as r:
        broker.rules["PRODUCER"] = refuse(api.TopicNotFound, "not found")
        broker.peers[0].drop()
        with pytest.raises(
            TargetError,
            match=r"producer of stream 0: persistent://public/default/loadtest-r-\S+-0 does not exist any more",
        ):
            r.until(lambda: False, "an end", step=50 * MILLISECOND)
        assert len(broker.of("PRODUCER")) > 3


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (api.AuthorizationError, "AuthorizationError"),
        (api.IncompatibleSchema, "IncompatibleSchema"),
    ],
)
def test_a_final_error_is_not_retried(broker: FakeBroker, error: int, name: str) -> None:
    broker.rules["PRODUCER"] = refuse(error, "not you")
    with (
        pytest.raises(
            TargetError,
            match=f"producer of stream 0 cannot connect to {broker.url}: {name}: not you",
        ),
        faulty(broker, streams=1),
    ):
        pass
    assert len(broker.of("PRODUCER")) == 1


def test_a_broker_that_is_not_ready_is_asked_again(broker: FakeBroker) -> None:
    broker.once["PRODUCER"] += [refuse(api.ServiceNotReady)]
    broker.once["LOOKUP"] += [
        lambda seen: seen.peer.tell(
            "LOOKUP_RESPONSE",
            request_id=seen.said.request_id,
            response=2,
            error=api.ServiceNotReady,
            message="wait",
        )
    ]
    with faulty(broker, streams=1) as r:
        r.send(1)
        r.until(r.answers, "answered")
        assert (len(broker.of("LOOKUP")), len(broker.of("PRODUCER"))) == (3, 2)


def test_a_consumer_that_left_before_its_answer_is_closed(broker: FakeBroker) -> None:
    """Otherwise the broker would keep messages for it."""
    held: list[Seen] = []
    with faulty(broker, consumers=2) as r:
        broker.rules["SUBSCRIBE"] = held.append
        broker.peers[0].drop()
        r.until(lambda: len(held) == 2, "asked", step=MILLISECOND)
        r.driver.detach([0])
        for seen in held:
            answer(seen)
        r.until(lambda: broker.of("CLOSE_CONSUMER"), "closed")
        r.until(lambda: not r.driver.disconnected(), "the other there")
        assert [closed.consumer_id for closed in broker.of("CLOSE_CONSUMER")] == [0]


def test_a_consumer_that_left_during_its_lookup_does_not_subscribe(broker: FakeBroker) -> None:
    held: list[Seen] = []
    with faulty(broker, consumers=2) as r:
        broker.rules["LOOKUP"] = held.append
        broker.peers[0].drop()
        r.until(lambda: held, "asked", step=MILLISECOND)
        r.driver.detach([0])
        answer(held[0])
        r.until(lambda: not r.driver.disconnected(), "the other there")
        assert [subscribed.consumer_id for subscribed in broker.of("SUBSCRIBE")] == [0, 1, 1]


def test_consumers_that_wait_for_their_turn_can_leave(broker: FakeBroker) -> None:
    with faulty(broker, consumers=1000, count=1000) as r:
        broker.rules["LOOKUP"], before = nothing, len(broker.of("LOOKUP"))
        broker.peers[0].drop()
        r.until(r.driver.disconnected, "disconnected")
        r.clock.advance(SECOND)
        r.until(lambda: len(broker.of("LOOKUP")) > before, "asked")
        r.driver.detach(range(999, -1, -1))
        assert r.driver.disconnected() is None
        r.turn()


def test_a_busy_subscription_is_retried_until_the_timeout(broker: FakeBroker) -> None:
    """With growing delays, until operationTimeout."""
    times: list[int] = []
    with faulty(broker, consumers=1, operation_timeout=5 * SECOND) as r:

        def busy(seen: Seen) -> None:
            times.append(r.clock())
            refuse(api.ConsumerBusy, "Exclusive consumer is already connected")(seen)

        broker.rules["SUBSCRIBE"] = busy
        r.driver.attach([1])
        with pytest.raises(
            TargetError,
            match="consumer 1 .*: ConsumerBusy: Exclusive consumer is already connected",
        ):
            r.until(lambda: r.driver.attached() is not None, "attached", step=20 * MILLISECOND)
    assert np.all(
        np.array([after - before for before, after in pairwise(times)]) >= 100 * MILLISECOND
    )
    assert times[-1] - times[0] >= 3 * SECOND


def test_a_producer_that_gets_nothing_stored_sends_its_entries_again_less_often(
    broker: FakeBroker,
) -> None:
    """From 100 ms up to 2 s; after an acknowledgement from 100 ms again."""
    clock, times = MovedClock(), []

    def rejected(seen: Seen) -> None:
        times.append(clock())
        seen.peer.tell(
            "SEND_ERROR",
            producer_id=0,
            sequence_id=seen.said.sequence_id,
            error=api.PersistenceError,
            message="no bookies",
        )

    with faulty(broker, streams=1, clock=clock) as r:
        for number in range(1, 3):
            times.clear()
            broker.once["SEND"] += [rejected] * 8
            r.send(1)
            r.until(lambda: len(r.answers()) == number, "stored", step=20 * MILLISECOND)  # noqa: B023
            gaps = [after - before for before, after in pairwise(times)]
            assert all(
                gap >= min(100 * MILLISECOND * 2**turn, 2 * SECOND) for turn, gap in enumerate(gaps)
            )
            assert gaps[0] < 2 * SECOND


def test_an_arrival_ends_the_growing_delays_of_a_consumer(broker: FakeBroker) -> None:
    clock, times = MovedClock(), []

    def noted(seen: Seen) -> None:
        times.append(clock())
        answer(seen)

    with faulty(broker, consumers=1, clock=clock) as r:
        broker.rules["SUBSCRIBE"] = noted
        for turn in range(9):
            lost_at = clock()
            broker.peers[-1].drop()
            r.until(
                lambda count=turn + 1: (  # type: ignore[misc]
                    len(times) == count and not r.driver.disconnected()
                ),
                "there again",
                step=20 * MILLISECOND,
            )
            if turn == 7:
                assert times[-1] - lost_at >= 2 * SECOND
                broker.peers[-1].deliver(0, b"damaged, but an arrival")
                r.until(lambda: r.received, "received")
        assert times[-1] - lost_at < 2 * SECOND


def test_two_brokers_that_name_each_other_are_not_asked_in_a_circle(broker: FakeBroker) -> None:
    """Each move without a message stored since the one before waits longer."""
    with FakeBroker() as other:
        clock, times = MovedClock(), []

        def handed_to(url: str) -> Callable[[Seen], None]:
            def move(seen: Seen) -> None:
                times.append(clock())
                answer(seen)
                seen.peer.tell(
                    "CLOSE_PRODUCER", producer_id=0, request_id=1, assigned_broker_service_url=url
                )

            return move

        with faulty(broker, streams=1, clock=clock) as r:
            broker.once["PRODUCER"] += [handed_to(other.url)] * 4
            other.once["PRODUCER"] += [handed_to(broker.url)] * 4
            broker.peers[0].tell(
                "CLOSE_PRODUCER", producer_id=0, request_id=1, assigned_broker_service_url=other.url
            )
            r.until(lambda: len(times) == 8, "moved", step=20 * MILLISECOND)
            gaps = [after - before for before, after in pairwise(times)]
            assert all(
                gap >= min(200 * MILLISECOND * 2**turn, 2 * SECOND) for turn, gap in enumerate(gaps)
            )
