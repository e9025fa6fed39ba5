"""Faults of the loopback relay, without a relay."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.loopback import faults as what
from pytest_loadtest.drivers.loopback.batch import Batch
from pytest_loadtest.drivers.loopback.faults import (
    HOLD,
    Faults,
    FaultyService,
    Gate,
    HalfPairs,
)
from pytest_loadtest.drivers.loopback.settings import LoopbackService, LoopbackSettings, Stall
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

EVERY = st.none() | st.integers(1, 9)


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Messages of up to three streams as (stream, seq) in order of arrival; each stream has its own first seq and no gaps."""
    streams = draw(st.lists(st.integers(0, 2), min_size=1, max_size=60))
    following = dict(enumerate(draw(st.lists(st.integers(0, 50), min_size=3, max_size=3))))
    came = []
    for stream in streams:
        came.append((stream, following[stream]))
        following[stream] += 1
    return came


def batch_of(messages: list[tuple[int, int]]) -> Batch:
    """Make messages; the payload is the last digit of the seq, repeated that many times plus one."""
    producer, seq = np.array(messages, np.int64).reshape(-1, 2).T
    size = (seq % 10 + 1).astype(np.int32)
    return Batch(producer % 2, producer, seq, size, np.repeat(seq % 10, size).astype(np.uint8))


def by_stream(batches: list[Batch]) -> dict[int, list[int]]:
    """Return the sequences of each stream, in order."""
    found: dict[int, list[int]] = {}
    for part in batches:
        for stream, seq in zip(part.producer.tolist(), part.seq.tolist(), strict=True):
            found.setdefault(stream, []).append(seq)
    return found


def test_settings_as_text_are_parsed_to_the_same_faults():
    """Defaults are left out."""
    settings = LoopbackSettings(
        delay=20 * MILLISECOND,
        stall=Stall(at=1_500_000, duration=2 * SECOND),
        capacity=5000.5,
        capacity_depth=7,
        lose_every=1000,
        swap_every=3,
        service=LoopbackService(lose=500, slow_by=1_500_000),
    )
    text = what.relay_settings(settings)
    assert text == {
        "delay": "20ms",
        "stallAt": "1500us",
        "stallDuration": "2s",
        "capacity": "5000.5",
        "capacityDepth": "7",
        "loseEvery": "1000",
        "swapEvery": "3",
        "serviceLose": "500",
        "serviceSlowBy": "1500us",
    }
    wanted = Faults(
        delay=20 * MILLISECOND,
        stall_at=1_500_000,
        stall_duration=2 * SECOND,
        capacity=5000.5,
        capacity_depth=7,
        lose_every=1000,
        swap_every=3,
        service_lose=500,
        service_slow_by=1_500_000,
    )
    assert what.parse_faults(text) == wanted


@given(st.integers(0, 10**15))
def test_a_delay_keeps_every_nanosecond_as_text(ns):
    settings = SimpleNamespace(**{**vars(LoopbackSettings()), "delay": ns})
    assert what.parse_faults(what.relay_settings(settings)).delay == ns


@pytest.mark.parametrize(
    "settings",
    [{"dealy": "1ms"}, {"delay": "1"}, {"loseEvery": "0"}, {"capacity": "0"}, {"loseEvery": "x"}],
)
def test_an_invalid_setting_is_an_error_with_its_value(settings):
    """Unknown names, missing units and numbers out of range."""
    with pytest.raises(ValueError, match=r"dealy|'1'|loseEvery=0|capacity=0|'x'"):
        what.parse_faults(settings)


def test_messages_leave_at_once_without_faults():
    assert Gate(Faults(), 100).release(150, 7) == [(150, 7)]


@pytest.mark.parametrize(
    ("arrival", "release"),
    [
        (0, 5),
        (994, 999),
        (995, 1500),
        (999, 1504),
        (1000, 1505),
        (1200, 1505),
        (1499, 1505),
        (1500, 1505),
        (1600, 1605),
    ],
)
def test_a_stall_stops_the_clock_of_the_relay(arrival, release):
    """With a stall of 500 at 1000 and a delay of 5, messages that should leave at 1000 or later leave 500 later."""
    gate = Gate(Faults(stall_at=1000, stall_duration=500, delay=5), 10**9)
    assert gate.release(10**9 + arrival, 1) == [(10**9 + release, 1)]


@given(
    st.lists(
        st.tuples(st.integers(0, 50 * MILLISECOND), st.integers(1, 400)), min_size=1, max_size=10
    ),
    st.integers(1, 300),
    st.sampled_from([500.0, 5000.0, 1e6]),
)
def test_capacity_is_a_token_bucket(arrivals, depth, capacity):
    """In any interval at most depth + capacity · time messages leave; none before it arrived, none a grain later than necessary."""
    gate = Gate(Faults(capacity=capacity, capacity_depth=depth), 0)
    now, left, came = 0, [], []
    for gap, count in arrivals:
        now += gap
        came += [now] * count
        for release, n in gate.release(now, count):
            left += [release] * n
    times = np.array(left)
    assert len(left) == len(came)
    assert np.all(np.diff(times) >= 0)
    assert np.all(times >= np.array(came))
    for start in range(0, len(times), 37):
        allowed = depth + (times[start:] - times[start] + MILLISECOND) * capacity / 1e9 + 1e-6
        assert np.all(np.arange(1, len(times) - start + 1) <= allowed + 1)
    busiest = max(came) + max(0, len(came) - depth) * 1e9 / capacity + 2 * MILLISECOND
    assert times[-1] <= busiest


def expected(faults: Faults, seq: list[int]) -> list[int]:
    """Apply the definition of the faults message by message."""
    order = list(seq)
    if faults.swap_every:
        period = 2 * faults.swap_every
        for i in range(len(order) - 1):
            if order[i] % period == period - 2 and order[i + 1] == order[i] + 1:
                order[i], order[i + 1] = order[i + 1], order[i]
    kept = [
        n for n in order if not faults.lose_every or n % faults.lose_every != faults.lose_every - 1
    ]
    twice = faults.duplicate_every
    return [n for n in kept for _ in range(2 if twice and n % twice == twice - 1 else 1)]


def defined(faults: Faults, messages: list[tuple[int, int]]) -> dict[int, list[int]]:
    """Apply the definition to each stream separately."""
    came = by_stream([batch_of(messages)])
    return {stream: wanted for stream, seq in came.items() if (wanted := expected(faults, seq))}


@given(arrivals(), EVERY, EVERY, EVERY)
def test_losses_duplicates_and_swaps_match_the_definition(messages, lose, duplicate, swap):
    """Sequences, sizes and payloads of each stream, whatever arrives between its messages."""
    faults = Faults(lose_every=lose, duplicate_every=duplicate, swap_every=swap)
    part = batch_of(messages)
    index = what.delivery_order(faults, part)
    went = part.take(index)
    assert by_stream([went]) == defined(faults, messages)
    assert went.size.tolist() == [n % 10 + 1 for n in went.seq.tolist()]
    wanted = b"".join(bytes([n % 10]) * (n % 10 + 1) for n in went.seq.tolist())
    assert went.payload.tobytes() == wanted == b"".join(part.pieces(index))


@given(arrivals(), EVERY, EVERY)
def test_without_swaps_the_order_of_all_streams_is_kept(messages, lose, duplicate):
    """A second copy follows its message directly."""
    part = batch_of(messages)
    went = part.take(what.delivery_order(Faults(lose_every=lose, duplicate_every=duplicate), part))
    wanted = [
        message
        for message in messages
        for _ in expected(Faults(lose_every=lose, duplicate_every=duplicate), [message[1]])
    ]
    assert list(zip(went.producer.tolist(), went.seq.tolist(), strict=True)) == wanted


@given(st.integers(1, 5), arrivals(), st.lists(st.integers(1, 7), max_size=12))
def test_pairs_are_swapped_across_batches(swap, messages, counts):
    """Holding the first message for the next batch of its stream gives the same result as a single batch."""
    faults, halves = Faults(swap_every=swap), HalfPairs(swap)
    ends = [end for end in np.cumsum(counts, dtype=int).tolist() if end < len(messages)]
    went = []
    for start, end in zip([0, *ends], [*ends, len(messages)], strict=True):
        part = halves.complete(batch_of(messages[start:end]), now=start)
        went.append(part.take(what.delivery_order(faults, part)))
    went.append(halves.expired(len(messages) + HOLD))
    assert by_stream(went) == defined(faults, messages)
    assert halves.next_due() is None


def test_half_a_pair_waits_for_its_time_and_no_longer():
    """Each stream separately; a message of another stream does not end the wait."""
    halves = HalfPairs(1)
    assert len(halves.complete(batch_of([(0, 0)]), now=100)) == 0
    assert by_stream([halves.complete(batch_of([(1, 1), (2, 4)]), now=200)]) == {1: [1]}
    assert halves.next_due() == 100 + HOLD
    assert len(halves.expired(99 + HOLD)) == 0
    assert by_stream([halves.expired(100 + HOLD)]) == {0: [0]}
    assert halves.next_due() == 200 + HOLD
    assert by_stream([halves.complete(batch_of([(2, 5)]), now=300)]) == {2: [4, 5]}
    assert halves.next_due() is None


@given(arrivals(), st.data(), EVERY, EVERY)
def test_damage_changes_one_byte_of_the_head_or_of_the_body(messages, data, header, body):
    """Nothing else is changed."""
    sizes = data.draw(
        st.lists(
            st.sampled_from([3, 16, 20, 31, 32, 33, 100]),
            min_size=len(messages),
            max_size=len(messages),
        )
    )
    size = np.array(sizes, np.int32)
    part = replace(batch_of(messages), size=size, payload=np.zeros(sum(sizes), np.uint8))
    what.damage(Faults(corrupt_header_every=header, corrupt_body_every=body), part)
    for (_, n), payload in zip(messages, np.split(part.payload, np.cumsum(size)[:-1]), strict=True):
        head = 16 if len(payload) < 32 else 32
        assert np.count_nonzero(payload[:head]) == (header is not None and n % header == header - 1)
        assert np.count_nonzero(payload[head:]) == (
            body is not None and n % body == body - 1 and len(payload) > head
        )


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), max_size=12),
    EVERY,
    EVERY,
    EVERY,
    st.integers(1, 3),
)
def test_outputs_of_the_service_match_its_definition(
    bursts: list[tuple[int, int]],
    lose: int | None,
    double: int | None,
    slow: int | None,
    threads: int,
) -> None:
    """Threads take inputs in order of arrival; each is simulated by itself."""
    service = FaultyService(
        Faults(
            service_lose=lose,
            service_double=double,
            service_slow=slow,
            service_slow_by=7,
            service_threads=threads,
        )
    )

    def hit(number: int, every: int | None) -> bool:
        return every is not None and number % every == 0

    now = 0
    taken = 0
    free = [0] * threads
    expected = []
    found = []
    for pause, count in bursts:
        now += pause
        for number in range(taken + 1, taken + count + 1):
            thread = free.index(min(free))
            sent = max(now, free[thread]) + 7 * hit(number, slow)
            # An input that takes no time is done at the instant at which it begins.
            free[thread] = sent if hit(number, slow) else free[thread]
            copies = 1 - hit(number, lose) + hit(number, double)
            expected += [(number, sent)] * copies
        inputs = batch_of([(0, number) for number in range(taken + 1, taken + count + 1)])
        outputs, times = service.outputs(inputs, now)
        found += list(zip(outputs.seq.tolist(), times.tolist(), strict=True))
        assert outputs.payload.tobytes() == b"".join(
            bytes([number % 10]) * (number % 10 + 1) for number in outputs.seq.tolist()
        )
        taken += count
    assert found == expected


def test_one_thread_keeps_the_order_and_two_do_not() -> None:
    """The second of four inputs is slow."""
    inputs = batch_of([(0, number) for number in range(4)])
    sent = {}
    for threads in (1, 2):
        service = FaultyService(Faults(service_slow=2, service_slow_by=10, service_threads=threads))
        sent[threads] = service.outputs(inputs.split(3)[0], 5)[1].tolist()
    assert sent == {1: [5, 15, 15], 2: [5, 15, 5]}
