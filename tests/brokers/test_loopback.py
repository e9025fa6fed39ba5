"""The loopback relay as a process with its driver: the promises of a driver, and the exact number of every fault."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.loopback.driver import LoopbackDriver
from pytest_loadtest.drivers.loopback.faults import HOLD, relay_settings
from pytest_loadtest.drivers.loopback.kind import KIND
from pytest_loadtest.drivers.loopback.settings import LoopbackSettings, Stall
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.message import envelope
from pytest_loadtest.message.samples import Flag, Status
from pytest_loadtest.testing import DRIVER_CHECKS, Rig, Subject, check_driver, rig
from pytest_loadtest.testing.rig import context_of, mixed_pool, plain_pool
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RELAY = [sys.executable, "-m", "pytest_loadtest.drivers.loopback.relay"]


@contextmanager
def relay(settings: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a relay; closing its standard input ends it."""
    with subprocess.Popen(
        [*RELAY, "--settings", json.dumps(settings)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        yield process, json.loads(process.stdout.readline())["port"]
        process.stdin.close()


def subject_at(port: int, settings: LoopbackSettings) -> Subject:
    target = TargetAddress(url=f"loopback://127.0.0.1:{port}")
    return Subject(
        driver=LoopbackDriver,
        target=target,
        settings=settings,
        window=settings.max_pending_messages,
        existing="shared",
        envelopes=tuple(KIND.clients["library"].envelopes),
    )


@pytest.fixture
def relayed() -> Iterator[Callable[..., Subject]]:
    """``relayed(lose_every=10)`` returns a subject with a relay of these settings."""
    started = []

    def start(**settings: object) -> Subject:
        wanted = LoopbackSettings(**settings)
        context = relay(relay_settings(wanted))
        started.append(context)
        return subject_at(context.__enter__()[1], wanted)

    yield start
    for context in started:
        context.__exit__(None, None, None)


@pytest.fixture(scope="module")
def plain() -> Iterator[Subject]:
    with relay({}) as (_, port):
        yield subject_at(port, LoopbackSettings(max_pending_messages=100))


def received(r: Rig, consumer: int = 0) -> list[int]:
    """Return the sequences of one consumer in order of arrival, over all streams."""
    return r.heads(consumer).seq.tolist()


def every(count: int, n: int) -> list[int]:
    return list(range(n - 1, count, n))


@pytest.mark.parametrize("check", DRIVER_CHECKS, ids=lambda check: check.__name__)
def test_loopback_keeps_the_promises_of_a_driver(check, plain):
    """Against a relay without faults."""
    check(plain)


def test_loopback_keeps_the_promises_with_delay_and_capacity(relayed):
    check_driver(
        relayed(delay=2 * MILLISECOND, capacity=50_000, capacity_depth=10, max_pending_messages=70)
    )


def test_consumers_share_the_streams_by_number(plain):
    """The consumer of a stream is stream modulo consumers."""
    with rig(plain, streams=5, consumers=2) as r:
        r.send(20)
        r.until(lambda: r.copies >= 100, "received")
        assert [sorted(set(r.heads(consumer).stream.tolist())) for consumer in range(2)] == [
            [0, 2, 4],
            [1, 3],
        ]


def test_runs_on_one_relay_do_not_share_topics(plain):
    with rig(plain) as one, rig(plain) as other:
        one.send(50)
        other.send(30)
        one.until(lambda: one.copies >= 50, "received")
        other.until(lambda: other.copies >= 30, "received")
        assert (received(one), received(other)) == (list(range(50)), list(range(30)))


def test_exactly_every_nth_message_is_lost(relayed):
    """It is acked and never received; all others are received once."""
    with rig(relayed(lose_every=1000), streams=2) as r:
        r.send(3500)
        r.until(lambda: r.acked >= 7000 and r.copies >= 6994, "acked and received")
        heads = r.heads(0)
        for stream in range(2):
            assert np.setdiff1d(
                np.arange(3500), heads.seq[heads.stream == stream]
            ).tolist() == every(3500, 1000)
        assert len(heads.seq) == 6994


def test_exactly_every_nth_message_is_duplicated(relayed):
    """One copy follows the other."""
    with rig(relayed(duplicate_every=500)) as r:
        r.send(2000)
        r.until(lambda: r.copies >= 2004, "received")
        assert received(r) == sorted([*range(2000), *every(2000, 500)])


def test_exactly_every_nth_pair_is_swapped(relayed):
    """Whichever messages share a frame."""
    with rig(relayed(swap_every=3, max_pending_messages=7)) as r:
        r.send(600)
        r.until(lambda: r.copies >= 600, "received")
        wanted = [n + (n % 6 == 4) - (n % 6 == 5) for n in range(600)]
        assert received(r) == wanted


def test_half_a_pair_is_delivered_after_its_time(relayed):
    with rig(relayed(swap_every=1)) as r:
        burst = r.send(5)
        r.until(lambda: r.copies >= 5, "received")
        assert received(r) == [1, 0, 3, 2, 4]
        assert r.column(0, "time")[-1] >= burst.sent[-1] + HOLD


@pytest.mark.parametrize("pool", [None, mixed_pool()], ids=["one size", "mixed sizes"])
def test_exactly_the_damaged_headers_are_corrupt(relayed, pool):
    """Every 7th, each byte in turn; never foreign and never valid."""
    with rig(relayed(corrupt_header_every=7), pool) as r:
        r.send(700)
        r.until(lambda: r.copies >= 700, "received")
        kind = r.heads(0).kind
        assert np.flatnonzero(kind == envelope.CORRUPT).tolist() == every(700, 7)
        assert np.count_nonzero(kind == envelope.OURS) == 600


def test_exactly_the_damaged_bodies_are_flagged(relayed):
    """With checksums, every 9th; the heads are intact."""
    with rig(relayed(corrupt_body_every=9), mixed_pool()) as r:
        r.send(450)
        r.until(lambda: r.copies >= 450, "received")
        flags = r.column(0, "flags")
        assert np.flatnonzero(flags == Flag.CORRUPT).tolist() == every(450, 9)
        assert np.count_nonzero(flags == 0) == 400
        assert received(r) == list(range(450))


def test_all_faults_can_be_combined(relayed):
    """Each selects its own sequences; a lost message stays lost."""
    settings = {
        "lose_every": 100,
        "duplicate_every": 50,
        "swap_every": 35,
        "corrupt_header_every": 70,
        "corrupt_body_every": 90,
    }
    with rig(relayed(**settings), mixed_pool()) as r:
        r.send(3150)
        lost = set(every(3150, 100))
        doubled = set(every(3150, 50)) - lost
        order = [n + (n % 70 == 68) - (n % 70 == 69) for n in range(3150)]
        wanted = [n for n in order if n not in lost for _ in range(1 + (n in doubled))]
        r.until(lambda: r.acked >= 3150 and r.copies >= len(wanted), "acked and received")
        heads = r.heads(0)
        flags = r.column(0, "flags")
        arrived = np.array(wanted)
        damaged = (arrived + 1) % 70 == 0
        assert np.array_equal(heads.kind == envelope.CORRUPT, damaged)
        assert np.array_equal(heads.seq[~damaged], arrived[~damaged])
        assert np.array_equal(flags == Flag.CORRUPT, (arrived + 1) % 90 == 0)


def test_faults_count_in_each_stream(relayed):
    """Streams of several topics share every frame; each subscription gets each stream with its faults, in order."""
    settings = {
        "lose_every": 10,
        "duplicate_every": 15,
        "swap_every": 3,
        "corrupt_header_every": 14,
        "max_pending_messages": 17,
    }
    order = [n + (n % 6 == 4) - (n % 6 == 5) for n in range(60)]
    kept = np.array([n for n in order if n % 10 != 9 for _ in range(1 + (n % 15 == 14))])
    damaged = kept % 14 == 13
    with rig(relayed(**settings), streams=40, topics=8, subscriptions=2) as r:
        r.send(60)
        r.until(lambda: r.acked >= 2400 and r.copies >= 80 * len(kept), "acked and received")
        assert all(r.answers(stream).seq.tolist() == list(range(60)) for stream in r.streams)
        for place in r.places:
            heads = r.heads(place)
            own = [stream for stream in r.streams if stream % 8 == place // 2]
            assert set(heads.stream[heads.kind == envelope.OURS].tolist()) == set(own)
            for stream in own:
                mine = heads.seq[(heads.stream == stream) & (heads.kind == envelope.OURS)]
                assert mine.tolist() == kept[~damaged].tolist()
            assert np.count_nonzero(heads.kind == envelope.CORRUPT) == len(own) * np.count_nonzero(
                damaged
            )


def test_twenty_thousand_consumers_receive_their_messages(plain):
    """With as many topics and streams."""
    with rig(plain, streams=20_000, topics=20_000) as r:
        assert r.places == list(range(20_000))
        r.send(2)
        r.until(lambda: r.acked >= 40_000 and r.copies >= 40_000, "acked and received")
        place = np.concatenate([part.consumer for part in r.received])
        heads = envelope.decode_heads(
            np.concatenate([part.heads for part in r.received]),
            np.concatenate([part.size for part in r.received]),
            r.nonce,
        )
        assert np.array_equal(heads.stream, place)
        assert np.array_equal(np.lexsort((heads.seq, place)), np.argsort(place, kind="stable"))
        assert np.array_equal(np.bincount(place), np.full(20_000, 2))
        r.driver.pause(r.places[1::2])
        r.send(1, first=2)
        r.until(
            lambda: r.acked >= 60_000 and r.copies >= 50_000,
            "acked, and received by those that go on",
        )
        r.driver.resume(r.places)
        r.until(lambda: r.copies >= 60_000, "received by all")
        assert np.array_equal(
            np.bincount(np.concatenate([part.consumer for part in r.received])), np.full(20_000, 3)
        )


def test_no_ack_and_no_copy_comes_before_the_delay(relayed):
    delay = 30 * MILLISECOND
    with rig(relayed(delay=delay)) as r:
        burst = r.send(100)
        r.until(lambda: r.acked >= 100 and r.copies >= 100, "acked and received")
        for times in (r.answers(0).time, r.column(0, "time")):
            assert np.all(times - burst.sent >= delay)


def test_messages_during_a_stall_leave_at_its_end(relayed):
    """In order and undamaged."""
    with rig(relayed(stall=Stall(at=0, duration=200 * MILLISECOND))) as r:
        burst = r.send(100)
        r.until(lambda: r.acked >= 100 and r.copies >= 100, "acked and received")
        first = int(burst.sent[0])
        assert min(r.answers(0).time.min(), r.column(0, "time").min()) >= first + 200 * MILLISECOND
        assert received(r) == list(range(100))


def test_the_capacity_limits_the_messages_acked(relayed):
    """At any time at most depth + capacity · time, while the window is full."""
    with rig(relayed(capacity=10_000, capacity_depth=100, max_pending_messages=500)) as r:
        burst = r.send(2000)
        r.until(lambda: r.acked >= 2000 and r.copies >= 2000, "acked and received")
        acked = r.answers(0).time
        allowed = 100 + (acked - burst.sent[0]) * 10_000 / 1e9
        assert np.all(np.arange(1, 2001) <= allowed + 1)
        assert burst.sent[-1] - burst.sent[0] >= (2000 - 500 - 100) * 1e9 / 10_000 * 0.99


def test_without_blocking_a_message_beyond_the_window_fails_at_once(relayed):
    """With blockIfQueueFull off, everything is taken."""
    subject = relayed(delay=50 * MILLISECOND, max_pending_messages=40, block_if_queue_full=False)
    with rig(subject) as r:
        burst = r.burst(100)
        assert not len(r.offer(burst))
        rejected = r.driver.acks()
        assert np.array_equal(rejected.row, burst.row[40:])
        assert set(rejected.status.tolist()) == {Status.FAILED}
        assert np.array_equal(rejected.time, burst.sent[40:])
        r.until(lambda: r.acked >= 40 and r.copies >= 40, "acked and received")
        assert received(r) == list(range(40))


def test_without_blocking_only_messages_beyond_their_own_window_fail(relayed):
    subject = relayed(delay=50 * MILLISECOND, max_pending_messages=10, block_if_queue_full=False)
    with rig(subject, streams=3) as r:
        burst = r.burst(12)
        fewer = np.flatnonzero((burst.stream != 1) | (burst.seq < 4))
        assert not len(r.offer(burst, fewer))
        rejected = r.driver.acks()
        assert np.array_equal(rejected.row, burst.row[(burst.stream != 1) & (burst.seq >= 10)])
        assert set(rejected.status.tolist()) == {Status.FAILED}
        r.until(lambda: r.acked >= 24 and r.copies >= 24, "acked and received")


def test_poll_ends_when_a_stream_with_rejected_messages_has_room(relayed):
    """Long before its time-out, also if another stream was answered before."""
    with rig(relayed(delay=50 * MILLISECOND, max_pending_messages=10), streams=2) as r:
        burst = r.burst(12, streams=[0])
        assert len(r.offer(burst)) == 2
        assert not len(r.offer(r.burst(1, streams=[1])))
        start = time.monotonic_ns()
        r.driver.poll(r.deadline)
        assert time.monotonic_ns() - start < r.deadline
        assert not len(r.offer(burst, np.arange(10, 12)))
        r.until(lambda: r.acked >= 13 and r.copies >= 13, "acked and received")


def test_consumers_that_the_run_does_not_have_are_rejected(plain):
    """The error says which there are."""
    with (
        rig(plain) as r,
        pytest.raises(UsageError, match="consumer 7: the run has those from 0 to 0"),
    ):
        r.driver.attach([0, 7])


@pytest.fixture
def dead() -> Iterator[Rig]:
    """A rig with two streams whose relay was killed."""
    with relay({}) as (process, port), rig(subject_at(port, LoopbackSettings()), streams=2) as r:
        assert r.driver.disconnected() is None
        process.kill()
        process.wait()
        yield r


def test_poll_raises_when_the_relay_is_lost(dead):
    """At every call; disconnected() names the users of the connection, and close() does not hang."""
    with pytest.raises(TargetError, match=r"closed the connection|failed"):
        dead.until(lambda: False, "noticed")
    with pytest.raises(TargetError, match="lost"):
        dead.driver.poll(0)
    named = dead.driver.disconnected() or ""
    assert "consumers 0" in named or "producers of streams 0, 1" in named
    dead.driver.close()


@contextmanager
def scripted() -> Iterator[tuple[LoopbackDriver, socket.socket]]:
    """A driver with one stream and a requested consumer, and the other end of its connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        subject = subject_at(server.getsockname()[1], LoopbackSettings())
        driver = LoopbackDriver(context_of(subject, plain_pool()))
        driver.attach([0])
        driver.open_producers([0])
        with server.accept()[0] as other:
            server.setblocking(False)
            with pytest.raises(BlockingIOError):  # one connection is enough
                server.accept()
            yield driver, other
        driver.close()


def test_answers_to_messages_that_were_not_sent_are_an_error():
    with scripted() as (driver, other):
        other.sendall(b"".join(frames.encode_frame(Kind.ACK, {}, n=2)))
        with pytest.raises(TargetError, match="the relay acknowledged 2 unsent messages"):
            driver.poll(10 * SECOND)
        assert "unsent messages" in (driver.disconnected() or "")


@pytest.mark.parametrize("size", [10, 100_000])
def test_deliveries_that_do_not_match_their_sizes_are_an_error(size):
    """Nothing of them counts as a message."""
    with scripted() as (driver, other):
        columns = {"place": [0], "size": [size - 1]}
        other.sendall(
            b"".join(frames.encode_frame(Kind.DELIVER, columns, payloads=[memoryview(bytes(size))]))
        )
        other.shutdown(socket.SHUT_WR)
        with pytest.raises(TargetError, match="closed the connection"):
            driver.poll(10 * SECOND)
        with pytest.raises(TargetError, match="do not match its sizes"):
            driver.take()


def test_send_raises_when_the_relay_is_lost(dead):
    """A producer learns it from the socket, long before its window is full."""
    with pytest.raises(TargetError, match="producers of streams 0, 1"):
        for first in range(900):
            dead.offer(dead.burst(1, first, streams=[0]))


def test_an_unreachable_relay_is_an_error_with_its_address(unused_port):
    with (
        pytest.raises(TargetError, match=f"127.0.0.1:{unused_port}"),
        rig(subject_at(unused_port, LoopbackSettings())),
    ):
        pass


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_facts_have_the_faults_of_the_relay(relayed):
    with rig(relayed(delay=20 * MILLISECOND, lose_every=10)) as r:
        facts = r.driver.facts()
        assert facts.applied == {
            "maxPendingMessages": "1000",
            "blockIfQueueFull": "true",
            "delay": "20ms",
            "loseEvery": "10",
        }
        assert not facts.not_applied


def test_invalid_bytes_end_only_their_own_connection(plain):
    address = plain.target.url.removeprefix("loopback://").split(":")
    with rig(plain) as r, socket.create_connection((address[0], int(address[1]))) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n")
        stranger.settimeout(10)
        assert stranger.recv(1) == b""
        r.send(10)
        r.until(lambda: r.copies >= 10, "received")


@pytest.mark.parametrize("how", ["terminate", "close stdin"])
def test_the_relay_ends_in_order(how):
    """At SIGTERM, and at the end of its standard input."""
    with relay({}) as (process, _):
        assert process.stdin
        if how == "terminate":
            process.send_signal(signal.SIGTERM)
        else:
            process.stdin.close()
        assert process.wait(10) == 0


def test_the_relay_rejects_unknown_settings():
    """Before it listens, with the names that it has."""
    done = subprocess.run(
        [*RELAY, "--settings", '{"dealy": "1ms"}'],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "dealy" in done.stderr and "delay" in done.stderr


def test_the_relay_ignores_a_standard_input_that_is_not_a_pipe():
    """Such as /dev/null."""
    with subprocess.Popen(RELAY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout
        port = json.loads(process.stdout.readline())["port"]
        with rig(subject_at(port, LoopbackSettings())) as r:
            r.send(10)
            r.until(lambda: r.copies >= 10, "received")
        process.terminate()
        assert process.wait(10) == 0


def test_megabytes_in_flight_arrive_in_order(plain):
    """Far more than the socket buffers hold."""
    start = time.monotonic_ns()
    big = Subject(
        driver=LoopbackDriver,
        target=plain.target,
        settings=LoopbackSettings(max_pending_messages=3000),
    )
    with rig(big, mixed_pool()) as r:
        burst = r.send(3000)
        assert burst.sent.min() >= start
        r.until(lambda: r.acked >= 3000 and r.copies >= 3000, "acked and received")
        assert received(r) == list(range(3000))
