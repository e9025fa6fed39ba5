"""Chunks: split messages are assembled, in any mixture, and chunks that cannot become a message are given up."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.chunks import (
    Assembled,
    ChunkAssembler,
    GiveUpReason,
    split_into_chunks,
)
from pytest_loadtest.wire.pulsar.entries import field, varint
from pytest_loadtest.wire.pulsar.framing import ProtocolError


class Chunk(NamedTuple):
    """One entry of a message in chunks."""

    metadata: api.MessageMetadata
    payload: bytes


def chunks(payload: bytes, most: int, uuid: str) -> list[Chunk]:
    """Return the chunks of a message, as a topic has them."""
    head = field(1, b"p") + b"\x10" + varint(1) + b"\x18" + varint(2)
    return [
        Chunk(api.MessageMetadata.FromString(head + more), bytes(piece))
        for piece, more in split_into_chunks(memoryview(payload), most, uuid.encode())
    ]


def add(assembler: ChunkAssembler[int], chunk: Chunk, where: int) -> Assembled[int] | None:
    return assembler.add(chunk.metadata, memoryview(chunk.payload), where)


@given(st.binary(min_size=1, max_size=200), st.integers(1, 60), st.text(max_size=10))
def test_all_chunks_but_the_last_have_the_largest_size(
    payload: bytes, most: int, uuid: str
) -> None:
    """Each names its number and the number of all."""
    found = chunks(payload, most, uuid)
    assert b"".join(chunk.payload for chunk in found) == payload
    assert (
        all(len(chunk.payload) == most for chunk in found[:-1])
        and 0 < len(found[-1].payload) <= most
    )
    for number, chunk in enumerate(found):
        metadata = chunk.metadata
        assert (metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg) == (
            uuid,
            number,
            len(found),
        )
        assert metadata.total_chunk_msg_size == len(payload)


@given(
    st.lists(
        st.tuples(st.binary(min_size=1, max_size=60), st.integers(1, 20)), min_size=1, max_size=5
    ),
    st.data(),
)
def test_mixed_chunks_give_each_message_once(
    messages: list[tuple[bytes, int]], data: st.DataObject
) -> None:
    """With the entries of its chunks."""
    waiting = [
        chunks(payload, most, str(number)) for number, (payload, most) in enumerate(messages)
    ]
    entries: dict[int, list[int]] = {number: [] for number in range(len(messages))}
    assembler, found, where = ChunkAssembler[int](len(messages)), dict[int, Assembled[int]](), 0
    while left := [number for number, rest in enumerate(waiting) if rest]:
        number = data.draw(st.sampled_from(left))
        entries[number].append(where)
        whole = add(assembler, waiting[number].pop(0), where)
        assert (whole is None) is bool(waiting[number])
        if whole is not None:
            found[number] = whole
        where += 1
    assert found == {
        number: Assembled(payload, entries[number]) for number, (payload, _) in enumerate(messages)
    }
    assert not assembler.given_up


def test_the_payload_is_copied() -> None:
    """The memory of the entry may be reused."""
    assembler, pieces = ChunkAssembler[int](1), chunks(b"abcd", 2, "u")
    memory = bytearray(2)
    memory[:] = pieces[0].payload
    assembler.add(pieces[0].metadata, memoryview(memory), 0)
    memory[:] = pieces[1].payload
    whole = assembler.add(pieces[1].metadata, memoryview(memory), 1)
    assert whole is not None and whole.payload == b"abcd"


def dropped(assembler: ChunkAssembler[int]) -> str:
    """The dropped chunks, each with the letter of its reason."""
    return " ".join(
        f"{where}{'SORE'[[*GiveUpReason].index(why)]}" for why, where in assembler.given_up
    )


# What does not fit: (uuid, number of the chunk, where) as they come → messages as lists of where, and what is given up:
# Spare, Oldest, oRphan.
CASES = {
    "delivered again from the first": (["a0@0", "a1@1", "a0@0", "a1@1", "a2@2"], [[0, 1, 2]], ""),
    "published again from the first": (
        ["a0@0", "a1@1", "a0@2", "a1@3", "a2@4"],
        [[2, 3, 4]],
        "0S 1S",
    ),
    "delivered again": (["a0@0", "a1@1", "a1@1", "a2@2"], [[0, 1, 2]], ""),
    "published again": (["a0@0", "a1@1", "a1@2", "a2@3"], [[0, 1, 3]], "2S"),
    "too early": (["a0@0", "a2@2", "a1@1"], [], "0R 2R 1R"),
    "without a first": (["a1@1", "a2@2"], [], "1R 2R"),
    "too early, then anew": (["a0@0", "a2@2", "a0@3", "a1@4", "a2@5"], [[3, 4, 5]], "0R 2R"),
    "of the others": (["a0@0", "b0@1", "a2@2", "b1@3", "b2@4"], [[1, 3, 4]], "0R 2R"),
    "after its end": (["a0@0", "a1@1", "a2@2", "a2@3"], [[0, 1, 2]], "3R"),
    "one too many": (
        ["a0@0", "b0@1", "c0@2", "a1@3", "c1@4", "b1@5", "c2@6", "b2@7"],
        [[2, 4, 6], [1, 5, 7]],
        "0O 3R",
    ),
    "anew is the youngest": (
        ["a0@0", "b0@1", "a0@2", "c0@3", "a1@4", "a2@5"],
        [[2, 4, 5]],
        "0S 1O",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_unexpected_chunks_are_given_up_as_in_pulsars_clients(name: str) -> None:
    """A second copy is dropped, a gap ends its message; two messages may be incomplete."""
    names, whole, given_up = CASES[name]
    assembler, found = ChunkAssembler[int](2), list[list[int]]()
    for one in names:
        uuid, number, where = one[0], int(one[1]), int(one.partition("@")[2])
        assembled = add(assembler, chunks((uuid * 5).encode(), 2, uuid)[number], where)
        if assembled is not None:
            assert assembled.payload == (uuid * 5).encode()
            found.append(assembled.where)
    assert (found, dropped(assembler)) == (whole, given_up)


@pytest.mark.parametrize(("size", "at"), [(-1, 0), (3, 1), (7, 2), (9, 2)])
def test_a_wrong_total_size_is_an_error(size: int, at: int) -> None:
    """As soon as it is detected, and the message is given up."""
    assembler, pieces = ChunkAssembler[int](2), chunks(b"abcdefgh", 3, "u")
    for piece in pieces:
        piece.metadata.total_chunk_msg_size = size
    assert [add(assembler, pieces[where], where) for where in range(at)] == [None] * at
    with pytest.raises(
        ProtocolError, match=rf"{at + 1} of 3 chunks have \d bytes of a message of {size}"
    ):
        add(assembler, pieces[at], at)
    assert assembler.given_up == [(GiveUpReason.SPARE, where) for where in range(at + 1)]


@given(
    st.lists(
        st.tuples(
            st.integers(-1, 4),
            st.integers(-1, 4),
            st.integers(-1, 9),
            st.sampled_from("ab"),
            st.binary(max_size=4),
        ),
        max_size=20,
    )
)
def test_every_entry_is_in_one_message_given_up_or_waiting(
    stream: list[tuple[int, int, int, str, bytes]],
) -> None:
    """For any metadata."""
    assembler, used = ChunkAssembler[int](2), list[int]()
    for where, (number, count, size, uuid, payload) in enumerate(stream):
        metadata = api.MessageMetadata(
            producer_name="p",
            sequence_id=1,
            publish_time=1,
            uuid=uuid,
            chunk_id=number,
            num_chunks_from_msg=count,
            total_chunk_msg_size=size,
        )
        try:
            whole = assembler.add(metadata, memoryview(payload), where)
        except ProtocolError:
            continue
        used += whole.where if whole is not None else []
    waiting = [where for pending in assembler._pending.values() for where in pending.where]
    assert sorted(used + [where for _, where in assembler.given_up] + waiting) == list(
        range(len(stream))
    )


def test_old_incomplete_messages_are_given_up() -> None:
    """Their later chunks then have no first one."""
    assembler, a, b = ChunkAssembler[int](9), chunks(b"aaaa", 2, "a"), chunks(b"bbbb", 2, "b")
    assembler.add(a[0].metadata, memoryview(a[0].payload), 0, now=10)
    assembler.add(b[0].metadata, memoryview(b[0].payload), 1, now=20)
    assembler.expire(10)
    assert (len(assembler), dropped(assembler)) == (2, "")
    assembler.expire(20)
    assert (len(assembler), dropped(assembler)) == (1, "0E")
    assert add(assembler, a[1], 2) is None
    assert dropped(assembler) == "0E 2R"
    assert add(assembler, b[1], 3) == Assembled(b"bbbb", [1, 3])
