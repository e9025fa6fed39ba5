"""Messages packed into frames and decoded again."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.loopback.connection import Stamped
from pytest_loadtest.drivers.loopback.consumers import read_deliveries
from pytest_loadtest.drivers.loopback.producers import Packer
from pytest_loadtest.message import envelope
from pytest_loadtest.message.carried import VALUE_SIZES
from pytest_loadtest.message.payloads import build_pattern_pool
from pytest_loadtest.message.route import parse_place
from pytest_loadtest.message.template import render_template
from pytest_loadtest.message.token import TokenReader
from pytest_loadtest.testing.rig import mixed_pool, placed_pool, plain_pool
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
    assert received.bodies is not None
    last = received.bodies(len(received.size) - 1)
    assert last[:16] == heads[-1, :16].tobytes() and len(last) == received.size[-1]
    assert (
        received.time.tolist() == [77] * len(numbers) + [78] * len(numbers)
        and not received.flags.any()
    )
    if pool.checksum:
        frame.payload[-1] ^= 1
        assert read_deliveries([Stamped(frame, 77, 0)], checksum=True).flags.astype(
            bool
        ).tolist() == [False] * (len(numbers) - 1) + [True]


def test_tokens_of_templates_are_found_in_deliveries() -> None:
    """In messages of several sizes, with keys filled in; one without a token is foreign."""
    text = '{"note": "{{ text(integer(1, 9)) }}", "ref": "{{ envelope }}", "key": {{ key }}}'
    patterns = {"order.json": render_template(text, "order.json", seed=1, count=5)}
    pool = build_pattern_pool(patterns, {"order.json": 1}, 1000, parse_place("json:/ref"))
    payload = np.array([4, 0, 2], np.uint16)
    stream = np.array([3, 1, 2], np.int32)
    seq = np.array([7, 8, 9])
    heads = envelope.encode_heads(
        pool, nonce=5, stream=stream, seq=seq, intended=seq, payload=payload
    )
    key = np.array([11, 12, 13], np.int32)
    packed = [bytes(each) for each in Packer(pool).pack(heads, payload, key)]
    assert [json.loads(message)["key"] for message in packed] == [11, 12, 13]
    packed.append(b"hello")
    columns = {
        "place": np.zeros(4, np.int32),
        "size": np.append(pool.sizes[payload], 5),
    }
    raw = b"".join(frames.encode_frame(Kind.DELIVER, columns, payloads=packed))
    decoder = Decoder(len(raw))
    decoder.space()[: len(raw)] = raw
    (frame,) = decoder.filled(len(raw))
    received = read_deliveries(
        [Stamped(frame, 77, 5)], checksum=False, tokens=TokenReader(("ref",))
    )
    found = envelope.decode_heads(received.heads, received.size, 5)
    assert found.kind.tolist() == [envelope.OURS] * 3 + [envelope.FOREIGN]
    assert received.bodies is not None
    assert list(map(received.bodies, range(4))) == packed
    assert (found.stream[:3].tolist(), found.seq[:3].tolist()) == ([3, 1, 2], [7, 8, 9])


@pytest.mark.parametrize("place", ["properties", "correlationData"])
def test_envelopes_outside_of_bodies_come_before_them(place: str) -> None:
    """Sizes are those of bodies; a message that is shorter than such a value is foreign."""
    found = parse_place(place)
    pool = placed_pool(found)
    payload = np.array([0, 0, 0], np.uint16)
    stream = np.array([3, 1, 2], np.int32)
    seq = np.array([7, 8, 9])
    heads = envelope.encode_heads(
        pool, nonce=5, stream=stream, seq=seq, intended=seq, payload=payload
    )
    packer = Packer(pool)
    packed = [bytes(part) for part in packer.pack(heads, payload)] + [b"hello"]
    sizes = np.append(packer.sizes[payload], 5)
    assert packer.largest == int(pool.sizes.max()) + VALUE_SIZES[found.carrier]
    raw = b"".join(
        frames.encode_frame(
            Kind.DELIVER, {"place": np.zeros(4, np.int32), "size": sizes}, payloads=packed
        )
    )
    decoder = Decoder(len(raw))
    decoder.space()[: len(raw)] = raw
    (frame,) = decoder.filled(len(raw))
    received = read_deliveries([Stamped(frame, 77, 5)], checksum=False, carrier=found.carrier)
    read = envelope.decode_heads(received.heads, None, 5)
    assert read.kind.tolist() == [envelope.OURS] * 3 + [envelope.FOREIGN]
    assert (read.stream[:3].tolist(), read.seq[:3].tolist()) == ([3, 1, 2], [7, 8, 9])
    assert received.size.tolist() == [*pool.sizes[payload].tolist(), 0]
    assert received.size.dtype == np.int32
    assert received.bodies is not None
    assert [received.bodies(row) for row in range(4)] == [*[pool.bodies[0]] * 3, b""]
