"""Windows and answers of paho's producers, without a connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from mqtt_rig import FIRST_ROW, FakeConnection, burst, context

from pytest_loadtest.drivers.mqtt.paho.producers import CHUNK, UNSENT, PahoProducers
from pytest_loadtest.message import envelope
from pytest_loadtest.message.samples import Status
from pytest_loadtest.testing import FakeClock

if TYPE_CHECKING:
    from pytest_loadtest.drivers.base import Acks, Burst


OK, REFUSED = SimpleNamespace(value=0), SimpleNamespace(value=0x87)


def producers(clock: FakeClock, *connections: FakeConnection, **given: Any) -> PahoProducers:
    """Make producers for the streams 3, 4, … on these connections."""
    stream_producers = PahoProducers(context(clock=clock, **given))
    for stream, connection in enumerate(connections, 3):
        stream_producers.add(stream, connection)  # type: ignore[arg-type]
    return stream_producers


def taken(stream_producers: PahoProducers, sending: Burst) -> int:
    """Return the number of messages taken; check the positions of the rejected ones."""
    rejected = stream_producers.send(sending)
    if rejected is None:
        return len(sending)
    assert rejected.dtype == np.int64 and np.all(np.diff(rejected) > 0)
    assert np.flatnonzero(sending.sent == 0).tolist() == rejected.tolist()
    return len(sending) - len(rejected)


def answers(stream_producers: PahoProducers) -> Acks:
    acks = stream_producers.acks()
    assert acks is not None and stream_producers.acks() is None
    return acks


def test_the_window_is_the_lower_of_both_limits() -> None:
    """maxInflightMessages and the broker's Receive Maximum; only messages that are taken have ``sent``."""
    connection, clock = FakeConnection(receive_maximum=7), FakeClock(1000)
    stream_producers = producers(clock, connection, maxInflightMessages=20)
    sending = burst(30)
    assert (
        taken(stream_producers, sending),
        taken(stream_producers, burst(30, first=7)),
        len(connection.published),
    ) == (7, 0, 7)
    assert sending.sent.tolist() == [1000] * 7 + [0] * 23
    heads = np.frombuffer(
        b"".join(message[:32] for message in connection.published), np.uint8
    ).reshape(-1, 32)
    decoded = envelope.decode_heads(heads, np.full(7, 64, np.int32), 7)
    assert decoded.seq.tolist() == list(range(7)) and set(decoded.stream.tolist()) == {3}
    assert decoded.intended.tolist() == list(range(5, 12))


def test_an_answer_has_row_time_and_status() -> None:
    """The next message has the time of the last answer as ``idle``."""
    connection, clock = FakeConnection(), FakeClock(1000)
    stream_producers = producers(clock, connection)
    first = burst(2)
    assert taken(stream_producers, first) == 2
    assert first.idle.tolist() == [0, 0], "nothing was ever answered"
    clock.advance(10)
    connection.client.on_publish(None, None, 2, REFUSED, None)
    more = burst(1, first=2)
    assert (taken(stream_producers, more), more.idle.tolist()) == (1, [0]), "one was in flight"
    clock.advance(10)
    for mid in (1, 1, 3):
        connection.client.on_publish(None, None, mid, OK, None)
    acks = answers(stream_producers)
    assert acks.row.tolist() == [
        FIRST_ROW + 1,
        FIRST_ROW,
        FIRST_ROW + 2,
    ] and acks.time.tolist() == [1010, 1020, 1020]
    assert acks.status.tolist() == [Status.FAILED, Status.ACKED, Status.ACKED]
    assert acks.resends is None and connection.reasons == [REFUSED.value]
    clock.advance(10)
    later = burst(2, first=3)
    assert (taken(stream_producers, later), later.idle.tolist(), connection.woken) == (
        2,
        [1020, 0],
        0,
    )


def test_a_full_stream_does_not_delay_the_others() -> None:
    """The last messages of each stream are rejected; answers of all streams are in one set of columns."""
    connections, clock = [FakeConnection() for _ in range(3)], FakeClock(1000)
    connections[1].up = False
    stream_producers = producers(clock, *connections, maxInflightMessages=2)
    sending = burst([3, 4, 3, 5, 3, 4, 5, 5])
    rejected = stream_producers.send(sending)
    assert rejected is not None and rejected.tolist() == [1, 4, 5, 7]
    assert sending.sent.tolist() == [1000, 0, 1000, 1000, 0, 0, 1000, 0]
    clock.advance(1)
    connections[2].client.on_publish(None, None, 2, OK, None)
    connections[0].client.on_publish(None, None, 1, OK, None)
    acks = answers(stream_producers)
    assert (acks.row - FIRST_ROW).tolist() == [6, 0] and acks.time.tolist() == [1001, 1001]
    assert [connection.woken for connection in connections] == [1, 0, 1]


def test_each_stream_is_written_once_in_a_chunk() -> None:
    """After its last message of a chunk is published, at most 64 messages after the first."""
    connections, clock = [FakeConnection(), FakeConnection()], FakeClock(1000)
    stream_producers = producers(clock, *connections, maxInflightMessages=1000)
    assert taken(stream_producers, burst([3, 4, 3] + [4] * 97)) == 100
    assert [connection.flushes for connection in connections] == [[2], [62, 98]]


def test_room_in_a_full_window_ends_the_wait_of_the_loop() -> None:
    """An answer arrives for a producer with rejected messages."""
    connection, clock = FakeConnection(), FakeClock(1000)
    stream_producers = producers(clock, connection, maxInflightMessages=1)
    assert taken(stream_producers, burst(2)) == 1
    connection.client.on_publish(None, None, 1, OK, None)
    assert connection.woken == 1


def test_nothing_is_taken_while_the_connection_is_lost() -> None:
    stream_producers = producers(FakeClock(1000), FakeConnection(up=False))
    assert taken(stream_producers, burst(2)) == 0


def test_nothing_is_taken_after_a_write_finds_the_connection_lost() -> None:
    """The rest of the burst is rejected and not published."""
    connection = FakeConnection(lost_at=CHUNK)
    stream_producers = producers(FakeClock(1000), connection, maxInflightMessages=1000)
    assert (taken(stream_producers, burst(CHUNK + 5)), len(connection.published)) == (CHUNK, CHUNK)


def test_a_packet_id_in_use_rejects_the_rest_of_the_burst() -> None:
    """Earlier messages are taken, later ones are not sent."""
    connection = FakeConnection(refuse=2)
    stream_producers = producers(FakeClock(1000), connection)
    assert (taken(stream_producers, burst(5)), len(connection.published)) == (2, 3)


def test_qos_0_waits_for_the_socket() -> None:
    """Messages are acked when they are written, and FAILED if the connection is lost before."""
    connection, clock = FakeConnection(grows=UNSENT // CHUNK + 1), FakeClock(1000)
    stream_producers = producers(clock, connection, qos=0)
    assert (taken(stream_producers, burst(CHUNK + 1)), len(connection.published)) == (CHUNK, CHUNK)
    connection.on_written(CHUNK - 2)
    clock.advance(5)
    connection.on_lost()
    acks = answers(stream_producers)
    assert (acks.row - FIRST_ROW).tolist() == list(range(CHUNK))
    assert acks.status.tolist() == [Status.ACKED] * (CHUNK - 2) + [Status.FAILED] * 2
    assert connection.woken == 2
    connection.unsent, again = 0, burst(1, first=CHUNK)
    assert (taken(stream_producers, again), again.idle.tolist()) == (1, [1005])


def test_resends_are_counted_by_message() -> None:
    """At most 255; a packet id that is used again starts at 0."""
    connection, clock = FakeConnection(), FakeClock(1000)
    stream_producers = producers(clock, connection)
    assert taken(stream_producers, burst(3)) == 3
    for mid in [1] * 300 + [3] * 2:
        connection.client.on_resend(mid)
    for mid in (2, 3, 1):
        connection.client.on_publish(None, None, mid, OK, None)
    acks = answers(stream_producers)
    assert acks.resends is not None and acks.resends.dtype == np.uint8
    assert dict(zip((acks.row - FIRST_ROW).tolist(), acks.resends.tolist(), strict=True)) == {
        0: 255,
        1: 0,
        2: 2,
    }
    connection.published.clear()  # the next packet id is 1 again
    assert taken(stream_producers, burst(1, first=3)) == 1
    connection.client.on_publish(None, None, 1, OK, None)
    assert answers(stream_producers).resends is None
