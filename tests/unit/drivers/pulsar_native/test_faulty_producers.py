"""What becomes of messages on their way out when the broker or the way to it fails: each is answered once, as it was."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from fake_pulsar import FakeBroker, Seen, answer, nothing, refuse
from native_rig import MovedClock, faulty

from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.samples import Status
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api

if TYPE_CHECKING:
    from collections.abc import Iterator

ACKED, FAILED = Status.ACKED, Status.FAILED


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        yield made


def sequences(broker: FakeBroker) -> list[int]:
    return [sent.sequence_id for sent in broker.of("SEND")]


# a lost connection


def test_what_was_not_answered_is_sent_again(broker: FakeBroker) -> None:
    """In order, with its sequence ids, by a producer of the same name in its next epoch; the answers say that it was sent twice."""
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


def test_what_was_answered_is_not_sent_again(broker: FakeBroker) -> None:
    """The first of three was; the others alone go again, and what comes meanwhile goes behind them, for the first time."""
    broker.once["SEND"] += [answer, nothing, nothing]
    with faulty(broker, streams=1) as r:
        r.send(3)
        r.until(lambda: len(broker.of("SEND")) == 3 and len(r.answers()) == 1, "the first answered")
        broker.peers[0].drop()
        r.until(r.driver.disconnected, "disconnected")
        assert r.driver.disconnected() == "producer of stream 0"
        r.send(2)
        r.until(lambda: len(r.answers()) == 5, "answered", step=MILLISECOND)
        assert r.answers() == [(0, ACKED, 0), (1, ACKED, 1), (2, ACKED, 1), (3, ACKED, 0), (4, ACKED, 0)]
        assert sequences(broker) == [0, 1, 2, 1, 2, 3, 4]


def test_lost_again_while_it_comes_back(broker: FakeBroker) -> None:
    """The connection ends before the producer is there: nothing is counted as sent again that was not written again."""
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


def test_later_attempts_wait_longer(broker: FakeBroker) -> None:
    """100 ms, then twice as long each time, up to 10 s; and after it was there again, 100 ms."""
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
            r.until(lambda: len(broker.of("PRODUCER")) == opened + 10 and not r.driver.disconnected(), "there", step=200 * MILLISECOND)  # noqa: B023
            gaps = [after - before for before, after in itertools.pairwise(times)]
            assert all(gap >= min(200 * MILLISECOND * 2**number, 10 * SECOND) for number, gap in enumerate(gaps))


# the broker closes a producer


def test_closed_by_the_broker(broker: FakeBroker) -> None:
    """It asks again where its topic is, comes again on the same connection, and sends what was not answered."""
    broker.once["SEND"] += [nothing]
    with faulty(broker, streams=2) as r:
        r.send(1)
        r.until(lambda: broker.of("SEND"), "sent")
        broker.peers[0].tell("CLOSE_PRODUCER", producer_id=0, request_id=2**63)
        r.until(r.answers, "answered", step=MILLISECOND)
        assert r.answers() == [(0, ACKED, 1)]
        assert len(broker.peers) == 1 and len(broker.of("LOOKUP")) == 2
        assert [(made.producer_id, made.epoch) for made in broker.of("PRODUCER")] == [(0, 0), (1, 0), (0, 1)]


def test_closed_with_the_address_of_the_next_broker(broker: FakeBroker) -> None:
    """It goes there without a question."""
    with FakeBroker() as other:
        broker.rules["SEND"] = nothing
        with faulty(broker, streams=1) as r:
            r.send(2)
            r.until(lambda: len(broker.of("SEND")) == 2, "sent")
            broker.peers[0].tell("CLOSE_PRODUCER", producer_id=0, request_id=1, assigned_broker_service_url=other.url)
            r.until(lambda: len(r.answers()) == 2, "answered")
            assert r.answers() == [(0, ACKED, 1), (1, ACKED, 1)]
            assert sequences(other) == [0, 1]
            assert (len(broker.of("LOOKUP")), len(other.of("LOOKUP"))) == (1, 0)
            broker.peers[0].drop()
            r.send(1)
            r.until(lambda: len(r.answers()) == 3, "answered")
            assert r.driver.disconnected() is None


def test_the_next_broker_is_not_there(broker: FakeBroker) -> None:
    """Then it asks as ever."""
    with FakeBroker() as other:
        gone = other.url
    with faulty(broker, streams=1) as r:
        broker.peers[0].tell("CLOSE_PRODUCER", producer_id=0, request_id=1, assigned_broker_service_url=gone)
        r.until(r.driver.disconnected, "closed")
        r.send(1)
        r.until(r.answers, "answered", step=MILLISECOND)
        assert len(broker.of("LOOKUP")) == 2


def test_closed_while_it_is_being_made(broker: FakeBroker) -> None:
    """The answer counts; the loss of its connection is noticed as of any other."""

    def closed_before(seen: Seen) -> None:
        seen.peer.tell("CLOSE_PRODUCER", producer_id=seen.said.producer_id, request_id=1)
        answer(seen)

    broker.once["PRODUCER"] += [closed_before]
    with faulty(broker, streams=1) as r:
        broker.peers[0].drop()
        r.until(lambda: len(broker.of("PRODUCER")) == 2 and not r.driver.disconnected(), "there again", step=MILLISECOND)
        r.send(1)
        r.until(r.answers, "answered")


# answers


@pytest.mark.parametrize("error", [api.NotAllowedError, api.ChecksumError])
def test_an_entry_that_is_not_wanted(broker: FakeBroker, error: int) -> None:
    """It has failed, and it alone."""
    broker.once["SEND"] += [
        answer,
        lambda seen: seen.peer.tell("SEND_ERROR", producer_id=0, sequence_id=seen.said.sequence_id, error=error, message="no"),
    ]
    with faulty(broker, streams=1) as r:
        r.send(3)
        r.until(lambda: len(r.answers()) == 3, "answered")
        assert r.answers() == [(0, ACKED, 0), (1, FAILED, 0), (2, ACKED, 0)]
        assert len(broker.peers) == 1


@pytest.mark.parametrize("error", [api.PersistenceError, api.UnknownError, api.ProducerBlockedQuotaExceededError])
def test_an_entry_that_cannot_be_taken_now(broker: FakeBroker, error: int) -> None:
    """The connection is given up, and it is sent again on another, as the Java client does."""
    broker.once["SEND"] += [
        lambda seen: seen.peer.tell("SEND_ERROR", producer_id=0, sequence_id=seen.said.sequence_id, error=error, message="disk"),
        nothing,
    ]
    with faulty(broker, streams=1) as r:
        r.send(2)
        r.until(lambda: len(r.answers()) == 2, "answered", step=MILLISECOND)
        assert r.answers() == [(0, ACKED, 1), (1, ACKED, 1)]
        assert len(broker.peers) == 2


def test_a_topic_that_was_terminated(broker: FakeBroker) -> None:
    """Nobody can send to it any more: the run has an end that says so."""
    broker.once["SEND"] += [
        lambda seen: seen.peer.tell("SEND_ERROR", producer_id=0, sequence_id=0, error=api.TopicTerminatedError, message="terminated")
    ]
    with faulty(broker, streams=1) as r:
        broker.rules["PRODUCER"] = refuse(api.TopicTerminatedError, "was terminated")
        r.send(1)
        with pytest.raises(TargetError, match="producer of stream 0 cannot go on: TopicTerminatedError: was terminated"):
            r.until(r.answers, "answered", step=MILLISECOND)


def test_a_receipt_out_of_order(broker: FakeBroker) -> None:
    """Something is wrong with the connection; what was not answered goes again on another."""
    broker.once["SEND"] += [nothing, answer]
    with faulty(broker, streams=1) as r:
        r.send(2)
        r.until(lambda: len(r.answers()) == 2, "answered", step=MILLISECOND)
        assert r.answers() == [(0, ACKED, 1), (1, ACKED, 1)]
        assert sequences(broker) == [0, 1, 0, 1]


def test_a_receipt_twice(broker: FakeBroker) -> None:
    """It counts once, whether others wait or none."""

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


# time


def test_send_timeout(broker: FakeBroker) -> None:
    """What is not answered by then has failed: a late receipt is none, and it is not sent again."""
    held: list[Seen] = []
    broker.rules["SEND"] = held.append
    with faulty(broker, streams=1, send_timeout=5 * SECOND) as r:
        r.send(2)
        r.until(lambda: len(held) == 2, "sent")
        r.clock.advance(4 * SECOND)
        r.turn()
        assert not r.answers()
        r.send(1)
        r.clock.advance(2 * SECOND)
        r.until(lambda: len(r.answers()) == 2, "given up")
        r.until(lambda: len(held) == 3, "sent")
        for seen in held[:2]:
            answer(seen)
        broker.peers[0].drop()
        del broker.rules["SEND"]
        r.until(lambda: len(r.answers()) == 3, "answered", step=MILLISECOND)
        assert r.answers() == [(0, FAILED, 0), (1, FAILED, 0), (2, ACKED, 1)]
        assert sequences(broker) == [0, 1, 2, 2]


def test_what_was_given_up_leaves_its_room(broker: FakeBroker) -> None:
    """In the window; what the first message after it is told to be idle since is the instant of giving up."""
    broker.rules["SEND"] = nothing
    with faulty(broker, streams=1, send_timeout=5 * SECOND, max_pending_messages=2) as r:
        assert r.send(3) == [2]
        r.clock.advance(6 * SECOND)
        r.until(lambda: len(r.answers()) == 2, "given up")
        assert r.send(2) == []


def test_a_topic_that_is_gone(broker: FakeBroker) -> None:
    """At first it may be that it only moves; after operationTimeout it does not exist any more, and the error names it."""
    with faulty(broker, streams=1, operation_timeout=5 * SECOND) as r:
        broker.rules["PRODUCER"] = refuse(api.TopicNotFound, "not found")
        broker.peers[0].drop()
        with pytest.raises(
            TargetError, match=r"producer of stream 0: persistent://public/default/loadtest-r-\S+-0 does not exist any more"
        ):
            r.until(lambda: False, "an end", step=50 * MILLISECOND)
        assert len(broker.of("PRODUCER")) > 3


@pytest.mark.parametrize(
    ("error", "name"), [(api.AuthorizationError, "AuthorizationError"), (api.IncompatibleSchema, "IncompatibleSchema")]
)
def test_a_producer_that_is_refused(broker: FakeBroker, error: int, name: str) -> None:
    """Where asking again is of no use, the first answer is the last."""
    broker.rules["PRODUCER"] = refuse(error, "not you")
    with (
        pytest.raises(TargetError, match=f"producer of stream 0 cannot connect to {broker.url}: {name}: not you"),
        faulty(broker, streams=1),
    ):
        pass
    assert len(broker.of("PRODUCER")) == 1


def test_a_producer_that_is_refused_at_first(broker: FakeBroker) -> None:
    """A broker that is not ready is asked again."""
    broker.once["PRODUCER"] += [refuse(api.ServiceNotReady)]
    broker.once["LOOKUP"] += [
        lambda seen: seen.peer.tell(
            "LOOKUP_RESPONSE", request_id=seen.said.request_id, response=2, error=api.ServiceNotReady, message="wait"
        )
    ]
    with faulty(broker, streams=1) as r:
        r.send(1)
        r.until(r.answers, "answered")
        assert (len(broker.of("LOOKUP")), len(broker.of("PRODUCER"))) == (3, 2)


# size


@pytest.mark.parametrize("size", [20, 1000])
def test_batches_stay_below_the_brokers_limit(size: int) -> None:
    """A batchingMaxBytes above maxMessageSize makes no entry that the broker refuses, for which the connection would be lost for ever."""
    with FakeBroker(max_message=8192) as broker:
        settings = {"batching_enabled": True, "batching_max_bytes": 1 << 20, "batching_max_messages": 0, "max_pending_messages": 5000}
        with faulty(broker, streams=1, size=size, **settings) as r:
            r.send(2000)
            r.until(lambda: len(r.answers()) == 2000, "answered")
        assert max(len(seen.body) for seen in broker.seen if seen.kind == "SEND") <= 8192
        assert max(sent.num_messages for sent in broker.of("SEND")) > 2
