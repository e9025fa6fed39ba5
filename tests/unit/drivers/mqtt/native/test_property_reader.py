"""Envelopes are found in the properties of a PUBLISH, whatever else these have."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.mqtt.native.property_reader import PropertyReader
from pytest_loadtest.message.envelope import BEGIN
from pytest_loadtest.message.route import PROPERTY, Carrier
from pytest_loadtest.message.token import PREFIX
from pytest_loadtest.wire.mqtt.fields import MalformedPacket, encode_properties

TOKENS = st.binary(min_size=43, max_size=43).map(lambda digits: PREFIX + digits.hex().encode()[:43])
HEADS = st.binary(min_size=29, max_size=29).map(lambda rest: BEGIN + rest)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
OTHERS = st.fixed_dictionaries(
    {},
    optional={
        "message_expiry_interval": st.integers(1, 2**32 - 1),
        "content_type": TEXTS,
        "response_topic": TEXTS,
        "user_property": st.lists(st.tuples(TEXTS, TEXTS), max_size=4),
    },
)


def found(reader: PropertyReader, properties: dict[str, Any], around: bytes = b"") -> bytes:
    encoded = encode_properties(properties)
    data = around + encoded + around
    return reader.value(data, len(around), len(around) + len(encoded))


@given(messages=st.lists(st.tuples(OTHERS, TOKENS), min_size=1, max_size=5), after=st.booleans())
def test_a_token_is_found_among_other_properties(
    messages: list[tuple[dict[str, Any], bytes]], after: bool
) -> None:
    reader = PropertyReader(Carrier.PROPERTIES)
    for others, token in messages:
        pairs = others.get("user_property", [])
        own = [(PROPERTY, token.decode())]
        properties = {**others, "user_property": [*pairs, *own] if after else [*own, *pairs]}
        assert found(reader, properties, token) == token


@given(messages=st.lists(st.tuples(OTHERS, HEADS), min_size=1, max_size=5), after=st.booleans())
def test_correlation_data_is_found_among_other_properties(
    messages: list[tuple[dict[str, Any], bytes]], after: bool
) -> None:
    reader = PropertyReader(Carrier.CORRELATION_DATA)
    for others, head in messages:
        own = {"correlation_data": head}
        assert found(reader, {**others, **own} if after else {**own, **others}, head) == head


@pytest.mark.parametrize(
    ("carrier", "properties", "value"),
    [
        (Carrier.PROPERTIES, {}, b""),
        (Carrier.PROPERTIES, {"user_property": [("other", "~lt1~" + "a" * 43)]}, b""),
        (Carrier.PROPERTIES, {"user_property": [(PROPERTY, "~lt1~cut")]}, b"~lt1~cut"),
        (Carrier.PROPERTIES, {"user_property": [(PROPERTY, "mine"), (PROPERTY, "b")]}, b"mine"),
        (Carrier.CORRELATION_DATA, {"content_type": "a"}, b""),
        (Carrier.CORRELATION_DATA, {"correlation_data": b"theirs"}, b"theirs"),
    ],
)
def test_other_values_are_read_as_they_are(
    carrier: Carrier, properties: dict[str, Any], value: bytes
) -> None:
    """A message of others, or one whose envelope was damaged by the service."""
    reader = PropertyReader(carrier)
    assert found(reader, properties) == value
    assert found(reader, properties, b"~lt1~" + BEGIN) == value


@pytest.mark.parametrize("carrier", [Carrier.PROPERTIES, Carrier.CORRELATION_DATA])
def test_bytes_that_are_no_properties_are_malformed(carrier: Carrier) -> None:
    with pytest.raises(MalformedPacket):
        PropertyReader(carrier).value(b"\x03\xff\xff\xff", 0, 4)
