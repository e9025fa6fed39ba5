"""The relay in a thread with real sockets: order, faults and sharing, with many streams in one frame."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_loadtest.drivers.loopback.exchange import Exchange
from pytest_loadtest.drivers.loopback.faults import Faults
from pytest_loadtest.drivers.loopback.relay import Relay
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import Decoder, Frame, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TOPICS = 3
EVERY = st.none() | st.integers(1, 5)


@dataclass
class Client:
    """A connection to a relay, with the messages sent and the frames received."""

    socket: socket.socket
    decoder: Decoder = field(default_factory=Decoder)
    sent: list[tuple[int, int]] = field(default_factory=list)
    frames_received: list[Frame] = field(default_factory=list)

    def send_frame(
        self,
        kind: Kind,
        *,
        n: int | None = None,
        run: int = 0,
        topics: int = 1,
        payloads: list[memoryview] | None = None,
        **columns: Any,
    ) -> None:
        self.socket.sendall(
            b"".join(
                frames.encode_frame(
                    kind, columns, n=n, run=run, topics=topics, payloads=payloads or []
                )
            )
        )

    def until(self, done: Callable[[], bool]) -> None:
        while not done():
            assert select.select([self.socket], [], [], 10)[0], (
                f"nothing more came than {self.frames_received}"
            )
            count = self.socket.recv_into(self.decoder.space())
            assert count, "the relay closed the connection"
            self.frames_received += self.decoder.filled(count)

    def subscribe(
        self, subscribed: list[tuple[int, int, int]], *, run: int = 0, first: int = 0
    ) -> None:
        """Subscribe (topic, subscription, consumer) in places from ``first`` on; return when they are confirmed."""
        columns = dict(
            zip(("topic", "subscription", "consumer"), np.array(subscribed).T, strict=True)
        )
        place = np.arange(first, first + len(subscribed))
        before = len(self.places())
        self.send_frame(Kind.SUBSCRIBE, run=run, place=place, **columns)
        self.until(lambda: len(self.places()) == before + len(subscribed))
        assert self.places()[before:] == place.tolist()

    def places(self) -> list[int]:
        return [
            place
            for frame in self.frames_received
            if frame.kind is Kind.SUBSCRIBED
            for place in frame.columns["place"].tolist()
        ]

    def produce(self, messages: list[tuple[int, int]], *, run: int = 0) -> None:
        """Send messages (stream, seq); the topic is the stream modulo :data:`TOPICS`, and the payload names stream and seq."""
        stream, seq = np.array(messages, np.int64).T
        bodies = [memoryview(f"{s}.{n} ".encode()) for s, n in messages]
        size = np.array(list(map(len, bodies)))
        self.sent += messages
        self.send_frame(
            Kind.PRODUCE, run=run, topics=TOPICS, seq=seq, stream=stream, size=size, payloads=bodies
        )

    def acked(self) -> list[tuple[int, int]]:
        """Return the acknowledged (stream, seq); messages are acknowledged in the order of sending."""
        count = sum(frame.n for frame in self.frames_received if frame.kind is Kind.ACK)
        assert count <= len(self.sent), "more messages are acknowledged than were sent"
        return self.sent[:count]

    def got(self) -> dict[tuple[int, int], list[int]]:
        """Return the received sequences in order, by place and stream."""
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        for frame in self.frames_received:
            if frame.kind is Kind.DELIVER:
                messages = frame.payload.tobytes().decode().split()
                assert [len(message) + 1 for message in messages] == frame.columns["size"].tolist()
                for place, message in zip(frame.columns["place"].tolist(), messages, strict=True):
                    stream, _, seq = message.partition(".")
                    found[place, int(stream)].append(int(seq))
        return dict(found)

    def copies(self) -> int:
        return sum(map(len, self.got().values()))


@contextmanager
def relay(faults: Faults | None = None, clients: int = 2) -> Iterator[list[Client]]:
    """Run a relay in a thread, and connect clients to it; closing its pipe ends it."""
    listening, watched = socket.create_server(("127.0.0.1", 0)), os.pipe()
    served = Relay(listening, faults or Faults())
    served.watch(watched[0])
    thread = threading.Thread(target=served.run)
    thread.start()
    connected = [Client(socket.create_connection(listening.getsockname())) for _ in range(clients)]
    try:
        yield connected
    finally:
        os.close(watched[1])
        thread.join(10)
        served.close()
        for client in connected:
            client.socket.close()
        listening.close()
        os.close(watched[0])
    assert not thread.is_alive()


@st.composite
def traffic(draw: st.DrawFn) -> list[list[tuple[int, int]]]:
    """Frames of messages (stream, seq) of six streams; each stream counts from 0 and ends with a message that is not half a pair."""
    streams = draw(st.lists(st.integers(0, 5), min_size=1, max_size=60))
    following = dict.fromkeys(range(6), 0)
    frames_received = []
    for stream in [*streams, *range(6)]:
        frames_received.append((stream, following[stream]))
        following[stream] += 1
    frames_received += [(stream, n) for stream, n in following.items() if n % 2]
    cuts = sorted(draw(st.sets(st.integers(1, len(frames_received) - 1), max_size=6)))
    return [frames_received[start:end] for start, end in pairwise([0, *cuts, len(frames_received)])]


def delivered(faults: Faults, seq: list[int]) -> list[int]:
    """Apply the definition of the faults to a stream that starts at 0 and has no gap."""
    order = list(seq)
    for i in range(0, len(order) - 1, 2):
        if faults.swap_every and i % (2 * faults.swap_every) == 2 * faults.swap_every - 2:
            order[i], order[i + 1] = order[i + 1], order[i]
    kept = [n for n in order if not faults.lose_every or (n + 1) % faults.lose_every]
    return [
        n
        for n in kept
        for _ in range(2 if faults.duplicate_every and (n + 1) % faults.duplicate_every == 0 else 1)
    ]


@settings(max_examples=30)
@given(traffic(), EVERY, EVERY, EVERY, st.integers(1, 3), st.integers(1, 2))
def test_each_stream_keeps_its_order_and_has_its_own_faults(
    plan, lose, duplicate, swap, consumers, subscriptions
):
    """Every subscription gets each stream as defined, in order and at one consumer; messages are acked once, in order."""
    faults = Faults(lose_every=lose, duplicate_every=duplicate, swap_every=swap)
    subscribed = [
        (topic, sub, n)
        for topic in range(TOPICS)
        for sub in range(subscriptions)
        for n in range(consumers)
    ]
    streams: dict[int, list[int]] = defaultdict(list)
    for stream, seq in (message for frame in plan for message in frame):
        streams[stream].append(seq)
    wanted = {
        (place, stream): copies
        for place, (topic, _, n) in enumerate(subscribed)
        for stream, seq in streams.items()
        if stream % TOPICS == topic
        and stream % consumers == n
        and (copies := delivered(faults, seq))
    }
    with relay(faults) as (sender, reader):
        reader.subscribe(subscribed)
        for frame in plan:
            sender.produce(frame)
        sender.until(lambda: len(sender.acked()) == sum(map(len, plan)))
        reader.until(lambda: reader.copies() >= sum(map(len, wanted.values())))
        assert reader.got() == wanted
        assert sender.acked() == [message for frame in plan for message in frame]


@given(
    st.lists(st.tuples(st.integers(0, 3 * MILLISECOND), st.integers(1, 9)), min_size=1, max_size=8),
    st.none() | st.integers(500, 20_000), st.integers(1, 4), st.integers(0, 2 * MILLISECOND), st.integers(0, 4 * MILLISECOND),
)  # fmt: skip
def test_messages_are_acknowledged_in_the_order_of_sending(plan, capacity, depth, delay, stall):
    """Whatever the faults: an ACK counts the next messages in order of arrival, and their copies leave with it."""
    faults = Faults(
        capacity=capacity,
        capacity_depth=depth,
        delay=delay,
        stall_at=MILLISECOND,
        stall_duration=stall,
    )
    decoder, frames_received = Decoder(), []

    def read(_client: int, buffers: Sequence[bytes | memoryview]) -> None:
        data = b"".join(buffers)
        decoder.space()[: len(data)] = data
        frames_received.extend(decoder.filled(len(data)))

    def one_frame(kind: Kind, columns: dict[str, Any]) -> Frame:
        size = int(np.sum(columns.get("size", 0)))
        source, data = (
            Decoder(),
            b"".join(
                frames.encode_frame(kind, columns, topics=1, payloads=[memoryview(bytes(size))])
            ),
        )
        source.space()[: len(data)] = data
        return source.filled(len(data))[0]

    exchange = Exchange(faults, read)
    exchange.handle_frame(
        1,
        one_frame(
            Kind.SUBSCRIBE, {"topic": [0], "subscription": [0], "consumer": [0], "place": [0]}
        ),
        0,
    )
    now, sent = 10, 0
    for pause, n in plan:
        now += pause
        # the size of a message tells which it is
        size = np.arange(sent, sent + n)
        sent += n
        exchange.handle_frame(
            1, one_frame(Kind.PRODUCE, {"seq": size, "stream": 0 * size, "size": size}), now
        )
        exchange.release(now)
        _expect_acked_with_copies(frames_received)
    while (due := exchange.next_due()) is not None:
        exchange.release(due)
        _expect_acked_with_copies(frames_received)
    assert sum(frame.n for frame in frames_received if frame.kind is Kind.ACK) == sent


def _expect_acked_with_copies(frames_received: list[Frame]) -> None:
    acked = sum(frame.n for frame in frames_received if frame.kind is Kind.ACK)
    sizes = [
        size
        for frame in frames_received
        if frame.kind is Kind.DELIVER
        for size in frame.columns["size"].tolist()
    ]
    assert sizes == list(range(acked))


def test_messages_of_one_frame_go_to_the_connections_of_their_consumers():
    with relay(clients=3) as (sender, *readers):
        for n, reader in enumerate(readers):
            reader.subscribe([(topic, 0, n) for topic in range(TOPICS)])
        sender.produce([(stream, seq) for seq in range(20) for stream in range(6)])
        for n, reader in enumerate(readers):
            reader.until(lambda reader=reader: reader.copies() >= 60)
            assert reader.got() == {
                (stream % TOPICS, stream): list(range(20)) for stream in range(n, 6, 2)
            }


def test_twenty_thousand_consumers_subscribe_with_one_frame():
    """One frame confirms them, and each receives its message."""
    with relay() as (sender, reader):
        count = 20_000
        reader.subscribe([(topic, 0, topic) for topic in range(count)])
        assert [frame.kind for frame in reader.frames_received] == [Kind.SUBSCRIBED]
        number = np.arange(count)
        body = [memoryview(b"x" * count)]
        one = np.ones(count, np.int32)
        sender.send_frame(
            Kind.PRODUCE, topics=count, seq=one, stream=number, size=one, payloads=body
        )
        reader.until(
            lambda: (
                sum(len(frame.columns["place"]) for frame in reader.frames_received[1:]) >= count
            )
        )
        places = [
            place
            for frame in reader.frames_received[1:]
            for place in frame.columns["place"].tolist()
        ]
        assert places == list(range(count))


def test_runs_do_not_share_topics():
    """Equal topic numbers in two runs are different topics."""
    with relay(clients=2) as (one, other):
        one.subscribe([(0, 0, 0)], run=1)
        other.subscribe([(0, 0, 0)], run=2)
        one.produce([(0, 0)], run=2)
        one.produce([(0, 1), (3, 1)], run=1)
        one.until(lambda: one.copies() >= 2)
        other.until(lambda: other.copies() >= 1)
        assert (one.got(), other.got()) == ({(0, 0): [1], (0, 3): [1]}, {(0, 0): [0]})


def test_a_pair_never_has_messages_of_two_senders():
    """Runs on an existing topic have streams with the same numbers."""
    with relay(Faults(swap_every=1), clients=3) as (one, other, reader):
        reader.subscribe([(0, 0, 0)])
        one.produce([(0, 0)])
        one.until(lambda: len(one.acked()) == 1)
        other.produce([(0, 1)])
        other.until(lambda: len(other.acked()) == 1)
        reader.until(lambda: reader.copies() == 1)
        one.produce([(0, 1)])
        reader.until(lambda: reader.copies() == 3)
        assert reader.got() == {(0, 0): [1, 1, 0]}


def test_messages_held_for_paused_consumers_arrive_in_order_after_resume():
    """One frame pauses many, one resumes some of them; consumers that are not paused go on receiving."""
    with relay() as (sender, reader):
        reader.subscribe([(topic, 0, 0) for topic in range(TOPICS)])
        reader.send_frame(Kind.PAUSE, place=[0, 2])
        sender.produce([(stream, seq) for seq in range(5) for stream in range(3)])
        reader.until(lambda: reader.copies() == 5)
        assert reader.got() == {(1, 1): [0, 1, 2, 3, 4]}
        sender.produce([(2, 5), (0, 5), (1, 5)])
        reader.until(lambda: reader.copies() == 6)
        reader.send_frame(Kind.RESUME, place=[2])
        reader.until(lambda: reader.copies() == 12)
        assert reader.got() == {(1, 1): list(range(6)), (2, 2): list(range(6))}
        reader.send_frame(Kind.RESUME, place=[0])
        reader.until(lambda: reader.copies() == 18)
        assert reader.got()[0, 0] == list(range(6))


def test_messages_held_for_a_consumer_that_leaves_go_to_its_subscription():
    """In order, before later messages; not to other subscriptions, and a paused heir holds them."""
    with relay() as (sender, reader):
        reader.subscribe([(0, 0, 0), (0, 0, 1), (0, 1, 0)])
        reader.send_frame(Kind.PAUSE, place=[0, 1])
        sender.produce([(0, 0), (3, 0), (0, 1)])
        reader.until(lambda: reader.copies() == 3)
        reader.send_frame(Kind.UNSUBSCRIBE, place=[0])
        sender.produce([(0, 2)])
        reader.until(lambda: reader.copies() == 4)
        assert set(reader.got()) == {(2, 0), (2, 3)}
        reader.send_frame(Kind.RESUME, place=[1])
        reader.until(lambda: reader.copies() == 8)
        assert reader.got() == {(2, 0): [0, 1, 2], (2, 3): [0], (1, 0): [0, 1, 2], (1, 3): [0]}


def test_consumers_of_a_lost_connection_are_removed():
    """The others of the subscription then receive everything."""
    with relay(clients=3) as (sender, lost, reader):
        lost.subscribe([(0, 0, 0)])
        reader.subscribe([(0, 0, 1)])
        lost.send_frame(Kind.PAUSE, place=[0])
        sender.produce([(0, 0), (3, 0)])
        reader.until(lambda: reader.copies() == 1)
        lost.socket.close()
        seq = 1
        while (0, 0) not in reader.got():  # until the relay has noticed
            sender.produce([(0, seq), (3, seq)])
            reader.until(lambda seq=seq: len(reader.got()[0, 3]) == seq + 1)
            seq += 1
        assert reader.got()[0, 3] == list(range(seq))


@pytest.mark.parametrize("kind", [Kind.ACK, Kind.DELIVER, Kind.SUBSCRIBED])
def test_a_frame_that_only_relays_send_ends_the_connection(kind, capfd):
    """Other clients are not affected."""
    columns = {"place": [1], "size": [0]}
    with relay() as (wrong, reader):
        reader.subscribe([(0, 0, 0)])
        wrong.send_frame(
            kind,
            n=1,
            **{name: column for name, column in columns.items() if name in frames._COLUMNS[kind]},
        )
        wrong.socket.settimeout(10)
        assert wrong.socket.recv(1) == b""
        reader.produce([(0, 0)])
        reader.until(lambda: reader.copies() == 1)
    assert kind.name in capfd.readouterr().err


def test_invalid_numbers_in_columns_do_not_affect_other_clients():
    """Places out of range, and consumers that do not exist."""
    with relay() as (wrong, reader):
        wrong.subscribe([(0, 0, 0)], first=-1)
        wrong.send_frame(Kind.PAUSE, place=[5, -1, -7])
        wrong.send_frame(Kind.UNSUBSCRIBE, place=[-1, 9, 9])
        reader.subscribe([(0, 0, 0)])
        wrong.produce([(0, 0)])
        reader.until(lambda: reader.copies() == 1)


def test_more_than_a_frame_can_hold_is_sent_in_several_frames():
    """Five subscriptions multiply a frame's messages; everything arrives complete."""
    with relay() as (sender, reader):
        reader.subscribe([(0, subscription, 0) for subscription in range(5)])
        bodies = [memoryview(bytes([n]) * (frames.PORTION // 3)) for n in range(4)]
        size = np.array(list(map(len, bodies)))
        four = np.arange(4)
        sender.send_frame(Kind.PRODUCE, seq=four, stream=0 * four, size=size, payloads=bodies)
        reader.until(
            lambda: sum(len(frame.columns["place"]) for frame in reader.frames_received[1:]) == 20
        )
        assert max(len(frame.payload) for frame in reader.frames_received[1:]) <= frames.PORTION
        whole = defaultdict(list)
        for frame in reader.frames_received[1:]:
            for place, body in zip(
                frame.columns["place"].tolist(),
                np.split(frame.payload, len(frame.columns["place"])),
                strict=True,
            ):
                assert (body == body[0]).all()
                whole[place].append(int(body[0]))
        assert whole == {place: [0, 1, 2, 3] for place in range(5)}
