"""Any bytes from a broker are events or one error of the protocol, however they are cut, and take little memory.

``corpus.txt`` has inputs that once broke a decoder, and those with which a fuzzer reached other parts of the code than with the rest; a
line is the name of a target in ``helpers/wire_targets.py`` and the input in hexadecimal digits.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqtt_codec import encode
from wire_targets import TARGETS

from pytest_loadtest.wire import frames
from pytest_loadtest.wire.mqtt import packets as p
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar import batches, compression
from pytest_loadtest.wire.pulsar.entries import EntrySealer, chunk_of, compressed, publish_time
from pytest_loadtest.wire.pulsar.framing import encode_command

from .mqtt.test_codec import PACKETS, PUBLISHES
from .mqtt.test_reading import plain
from .pulsar.test_connection import commands, delivery

CORPUS = [line.split() for line in Path(__file__).with_name("corpus.txt").read_text().splitlines()]
# Bytes that a decoder may take for an input, besides a multiple of its size: the memory that a length alone may take.
LEAST = (1 << 24) + (1 << 20)

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=4)
# Numbers at which lengths and counts break, in the widths of the protocols' fields.
EDGES = [
    number.to_bytes(width, order)
    for width in (1, 2, 4, 8)
    for number in (0, 1, 2 ** (8 * width - 1) - 1, 2 ** (8 * width - 1), 2 ** (8 * width) - 1)
    for order in ("big", "little")
] + [b"\xff\xff\xff\x7f", b"\xff" * 10]


@st.composite
def entry_bodies(draw: st.DrawFn) -> bytes:
    """An entry as MESSAGE has it: one message or a batch, perhaps compressed, perhaps a chunk."""
    payloads = draw(st.lists(st.binary(max_size=20), min_size=1, max_size=4))
    batched, number = draw(st.booleans()), draw(st.integers(0, 4))
    payload = (
        b"".join(batches.prefix(len(each)) + each for each in payloads) if batched else payloads[0]
    )
    more = (
        chunk_of(b"u", draw(st.integers(0, 3)), 30, draw(st.integers(0, 3)))
        if draw(st.booleans())
        else b""
    )
    if number:
        more, payload = (
            more + compressed(number, len(payload)),
            compression.compress(number, payload),
        )
    count = len(payloads) if batched else 1
    sealed = EntrySealer.of(1, "p").seal(
        [payload], sequence=4, count=count, published=publish_time(1), batched=batched, more=more
    )
    return sealed[8 + int.from_bytes(sealed[4:8], "big") :] + payload


def loopback_frames() -> st.SearchStrategy[bytes]:
    def frame(kind: frames.Kind, rows: int) -> bytes:
        columns = dict.fromkeys(frames._COLUMNS[kind], np.arange(rows))
        payloads = [bytes(number) for number in range(rows)] if "size" in columns else []
        return b"".join(
            map(bytes, frames.encode_frame(kind, columns, n=rows, topics=2, payloads=payloads))
        )

    return st.builds(frame, st.sampled_from(frames.Kind), st.integers(1, 4))


VALID: dict[str, st.SearchStrategy[bytes]] = {
    "mqtt5": (PACKETS | PUBLISHES).map(encode),
    "mqtt3": (PACKETS | PUBLISHES).map(lambda packet: encode(plain(packet, p.V311), p.V311)),
    "packet": PACKETS.map(encode).map(lambda data: data[:1] + data[2:]),
    "pulsar": st.one_of(commands().map(encode_command), entry_bodies().map(delivery)),
    "command": commands().map(lambda each: bytes([each.type]) + getattr(each, api.Command.Type.Name(each.type).lower()).SerializeToString()),
    "entry": entry_bodies().map(lambda body: body[9:]),
    "batch": st.lists(st.binary(max_size=9), max_size=4).map(
        lambda each: len(each).to_bytes(4, "little") + b"".join(batches.prefix(len(one)) + one for one in each)
    ),
    "compressed": st.builds(
        lambda number, data: bytes([number]) + len(data).to_bytes(2, "big") + compression.compress(number, data),
        st.integers(1, 4), st.binary(max_size=60),
    ),
    "loopback": loopback_frames(),
}  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, valid: st.SearchStrategy[bytes]) -> bytes:
    """A stream of valid frames with some changes: bytes replaced by edges, cut out, repeated, or cut off."""
    data = b"".join(draw(st.lists(valid, min_size=1, max_size=4)))
    for _ in range(draw(st.integers(0, 3))):
        start, length = draw(st.integers(0, len(data))), draw(st.integers(0, 12))
        middle = draw(
            st.sampled_from([*EDGES, b"", data[start : start + length] * 2]) | st.binary(max_size=8)
        )
        data = data[:start] + middle + data[start + length :]
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


@pytest.mark.parametrize("target", TARGETS)
@given(data=st.data(), sizes=SIZES)
def test_damaged_frames_are_events_or_an_error_however_they_are_cut(
    target: str, data: Any, sizes: list[int]
) -> None:
    """No other exception is raised."""
    TARGETS[target](data.draw(damaged(VALID[target])), sizes)


@pytest.mark.parametrize("target", TARGETS)
@given(raw=st.binary(max_size=120), sizes=SIZES)
def test_any_bytes_are_events_or_an_error_however_they_are_cut(
    target: str, raw: bytes, sizes: list[int]
) -> None:
    TARGETS[target](raw, sizes)


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_takes_little_memory(target: str) -> None:
    """Whatever its lengths and counts say."""
    inputs = [bytes.fromhex(digits) for name, digits in CORPUS if name == target]
    assert inputs
    tracemalloc.start()
    try:
        for raw in inputs:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            TARGETS[target](raw, (3, 5))
            assert tracemalloc.get_traced_memory()[1] - before < LEAST + 200 * len(raw), raw.hex()
    finally:
        tracemalloc.stop()
