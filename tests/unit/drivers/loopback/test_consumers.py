"""Messages packed into frames and decoded again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.loopback.connection import Stamped
from pytest_loadtest.drivers.loopback.consumers import read_deliveries
from pytest_loadtest.drivers.loopback.producers import Packer
from pytest_loadtest.message import envelope
from pytest_loadtest.testing.rig import mixed_pool, plain_pool
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import Decoder, Kind


@pytest.mark.parametrize("pool", [plain_pool(), mixed_pool()], ids=["one size", "mixed sizes"])
@given(numbers=st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_decoded_deliveries_are_the_packed_messages(pool, numbers):
    """Heads, sizes and bodies of many streams are unchanged; a damaged body is flagged."""
    payload = np.array(numbers, np.int64) % len(pool.sizes)
    payload = payload.astype(np.uint16)
    stream, seq = (np.array(numbers) % 7).astype(np.int32), np.array(numbers, np.int64)
    heads = envelope.encode_heads(
        pool, nonce=5, stream=stream, seq=seq, intended=seq, payload=payload
    )
    columns = {"place": stream, "size": pool.sizes[payload]}
    raw = b"".join(
        frames.encode_frame(Kind.DELIVER, columns, payloads=Packer(pool).pack(heads, payload))
    )
    decoder = Decoder(len(raw))
    decoder.space()[: len(raw)] = raw
    (frame,) = decoder.filled(len(raw))
    received = read_deliveries(
        [Stamped(frame, 77, 5), Stamped(frame, 78, -1)], checksum=pool.checksum
    )
    found = envelope.decode_heads(received.heads, received.size, 5)
    assert (found.kind == envelope.OURS).all()
    assert (found.stream.tolist(), found.seq.tolist()) == (2 * stream.tolist(), 2 * seq.tolist())
    assert (
        received.size.tolist() == 2 * pool.sizes[payload].tolist()
        and received.consumer.tolist() == 2 * stream.tolist()
    )
    assert received.lag is not None and received.lag.tolist() == [5] * len(numbers) + [-1] * len(
        numbers
    )
    assert (
        received.time.tolist() == [77] * len(numbers) + [78] * len(numbers)
        and not received.flags.any()
    )
    if pool.checksum:
        frame.payload[-1] ^= 1
        assert read_deliveries([Stamped(frame, 77, 0)], checksum=True).flags.astype(
            bool
        ).tolist() == [False] * (len(numbers) - 1) + [True]
