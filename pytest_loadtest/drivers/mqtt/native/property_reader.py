"""Envelopes in the properties of received messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.message.carried import VALUE_SIZES
from pytest_loadtest.message.envelope import BEGIN
from pytest_loadtest.message.route import PROPERTY, Carrier
from pytest_loadtest.message.token import PREFIX
from pytest_loadtest.wire.mqtt.fields import FieldReader, decode_properties, encode_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

_BEGINNINGS: Final = {Carrier.PROPERTIES: PREFIX, Carrier.CORRELATION_DATA: BEGIN}


class PropertyReader:
    """Finds the value of the property that has the envelope.

    It looks where the last one was, then for the property with an envelope's beginning anywhere.
    Only a message without it is decoded, because that takes many times as long.

    :param carrier: ``PROPERTIES`` or ``CORRELATION_DATA``.
    """

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._size = VALUE_SIZES[carrier]
        beginning = _BEGINNINGS[carrier]
        value = beginning.ljust(self._size, b"0")
        encoded = encode_properties(_property(carrier, value))[1:]
        # Identifier, name and lengths come before the value.
        self._before = len(encoded) - self._size
        self._front = encoded[: self._before + len(beginning)]
        self._offset = 0

    def value(self, data: bytes, start: int, end: int) -> bytes:
        """Return the value in ``data[start:end]``, the properties of one message with their length;
        empty without one.

        :raises MalformedPacket: the bytes are no properties.
        """
        at = start + self._offset
        if not data.startswith(self._front, at, end):
            at = data.find(self._front, start, end)
            if at < 0:
                return self._decoded(data[start:end])
            self._offset = at - start
        at += self._before
        return data[at : min(at + self._size, end)]

    def _decoded(self, data: bytes) -> bytes:
        properties = decode_properties(FieldReader(data))
        if self._carrier is Carrier.CORRELATION_DATA:
            value: bytes = properties.get("correlation_data", b"")
            return value
        for name, text in properties.get("user_property", ()):
            if name == PROPERTY:
                encoded: bytes = text.encode()
                return encoded
        return b""


def _property(carrier: Carrier, value: bytes) -> Mapping[str, Any]:
    if carrier is Carrier.CORRELATION_DATA:
        return {"correlation_data": value}
    return {"user_property": [(PROPERTY, value.decode())]}
