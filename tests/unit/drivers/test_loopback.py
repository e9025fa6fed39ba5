"""What the loopback driver keeps of its streams and of its messages, without a relay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.loopback.consumers import read_deliveries
from pytest_loadtest.drivers.loopback.driver import listed
from pytest_loadtest.drivers.loopback.producers import Packer, StreamWindows
from pytest_loadtest.message import envelope
from pytest_loadtest.testing.rig import mixed_pool, plain_pool
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import Decoder, Kind

STREAMS = [range(1, 20, 4), range(5), [3], [100, 7, 8, 60]]


@given(st.sampled_from(STREAMS), st.integers(1, 4) | st.just(30), st.data())
def test_windows_are_those_of_each_stream_by_itself(streams, size, data):
    """Refused is what finds no room; a message at an empty window has the instant of the answer that emptied it, and no other has one."""
    windows = StreamWindows(streams, size)
    in_flight, emptied = dict.fromkeys(streams, 0), dict.fromkeys(streams, 0)
    for now in range(1, 12):
        column = np.array(data.draw(st.lists(st.sampled_from(list(streams)), min_size=1, max_size=10)), np.int32)
        idle, refused = windows.admit(windows.slots(column))
        full, since = [], {}
        for position, stream in enumerate(column.tolist()):
            if in_flight[stream] == size:
                full.append(position)
            else:
                since[position] = emptied[stream] if in_flight[stream] == 0 else 0
                in_flight[stream] += 1
        assert (refused.tolist() if refused is not None else []) == full
        assert {position: int(idle[position]) for position in since} == since
        answered = [stream for stream in streams for _ in range(data.draw(st.integers(0, in_flight[stream])))]
        windows.answered(windows.slots(np.array(answered, np.int32)), now)
        for stream in answered:
            in_flight[stream] -= 1
            emptied[stream] = emptied[stream] if in_flight[stream] else now


@pytest.mark.parametrize("answers", [True, False], ids=["answered at once", "not answered"])
def test_what_was_not_counted_by_stream_is_known_when_it_matters(answers):
    """However long nobody's window can have been full before."""
    windows = StreamWindows(range(3), 1000)
    everybody = np.arange(3, dtype=np.int32)
    for now in range(1, 301):
        idle, refused = windows.admit(everybody.copy())
        assert refused is None and idle.tolist() == [(now - 1) * answers] * 3
        if answers:
            windows.answered(everybody.copy(), now)
    _, refused = windows.admit(np.repeat(everybody[1:2], 1100))
    assert refused is not None and refused.tolist() == list(range(1000 - 300 * (not answers), 1100))
    _, refused = windows.admit(np.repeat(everybody, 2))
    assert refused is not None and refused.tolist() == [2, 3]
    assert not windows.answered(everybody[::2], 400) and windows.answered(everybody[1:2], 400)


def test_windows_of_a_share_take_memory_for_the_share_alone():
    """Every sixteenth of many streams: one entry each."""
    windows = StreamWindows(range(3, 1_600_000, 16), 10)
    assert len(windows._room) == 100_000


@pytest.mark.parametrize("pool", [plain_pool(), mixed_pool()], ids=["one size", "mixed sizes"])
@given(numbers=st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_messages_survive_packing_and_reading(pool, numbers):
    """Heads, sizes and bodies of many streams come out of a frame as they went in; a body that was changed is told."""
    payload = np.array(numbers, np.int64) % len(pool.sizes)
    payload = payload.astype(np.uint16)
    stream, seq = (np.array(numbers) % 7).astype(np.int32), np.array(numbers, np.int64)
    heads = envelope.encode_heads(pool, nonce=5, stream=stream, seq=seq, intended=seq, payload=payload)
    columns = {"place": stream, "size": pool.sizes[payload]}
    raw = b"".join(frames.encode(Kind.DELIVER, columns, payloads=Packer(pool).pack(heads, payload)))
    decoder = Decoder(len(raw))
    decoder.space()[: len(raw)] = raw
    (frame,) = decoder.filled(len(raw))
    received = read_deliveries([(frame, 77), (frame, 78)], checksum=pool.checksum)
    found = envelope.decode_heads(received.heads, received.size, 5)
    assert (found.kind == envelope.OURS).all()
    assert (found.stream.tolist(), found.seq.tolist()) == (2 * stream.tolist(), 2 * seq.tolist())
    assert received.size.tolist() == 2 * pool.sizes[payload].tolist() and received.consumer.tolist() == 2 * stream.tolist()
    assert received.time.tolist() == [77] * len(numbers) + [78] * len(numbers) and not received.flags.any()
    if pool.checksum:
        frame.payload[-1] ^= 1
        assert read_deliveries([(frame, 77)], checksum=True).flags.astype(bool).tolist() == [False] * (len(numbers) - 1) + [True]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [(range(1), "0"), (range(1, 11, 2), "1, 3, 5, 7, 9"), (range(0, 14, 2), "0, 2, 4, 6, 8 and 2 more"), ([7, 3], "7, 3")],
)
def test_names_of_connections_stay_short(numbers, text):
    """The first five, and how many more."""
    assert listed(numbers) == text
