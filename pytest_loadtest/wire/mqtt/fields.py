"""The field types of MQTT packets (1.5): integers, strings, binary data, variable byte integers.

And properties (2.2.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


LONGEST: Final = 268_435_455
"""The largest variable byte integer: four bytes of seven bits (1.5.5)."""
LONGEST_TEXT: Final = 65_535


class MalformedPacket(ValueError):
    """Bytes that are not an MQTT packet (1.2).

    The connection cannot be used after them: the next packet's start is unknown.
    """


def variable(number: int) -> bytes:
    """Encode a variable byte integer. :raises ValueError: the number is out of range."""
    if not 0 <= number <= LONGEST:
        raise ValueError(f"{number} is not a variable byte integer: 0 to {LONGEST}")
    # Seven bits in each byte, the lowest first; the highest bit says that another byte follows
    # (1.5.5).
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def binary(value: bytes) -> bytes:
    """Encode binary data with its length in front (1.5.6).

    :raises ValueError: the data is too long.
    """
    if len(value) > LONGEST_TEXT:
        raise ValueError(f"{len(value)} bytes are too long for a field: {LONGEST_TEXT} at most")
    return len(value).to_bytes(2, "big") + value


def text(value: str) -> bytes:
    """Encode a string (1.5.4). :raises ValueError: it is too long, or not valid in UTF-8."""
    return binary(value.encode())


class FieldReader:
    """Reads one field after another.

    Every method raises :class:`MalformedPacket` if the packet ends too early or a value is invalid.

    :ivar position: index of the next byte.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    @property
    def left(self) -> int:
        """Number of bytes not yet read."""
        return len(self._data) - self.position

    def take(self, count: int) -> bytes:
        """Read the next ``count`` bytes."""
        if count > self.left:
            raise MalformedPacket(f"the packet ends {count - self.left} bytes too early")
        self.position += count
        return self._data[self.position - count : self.position]

    def number(self, size: int) -> int:
        """Read an integer of ``size`` bytes."""
        return int.from_bytes(self.take(size), "big")

    def variable(self) -> int:
        """Read a variable byte integer."""
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise MalformedPacket("a variable byte integer of more than four bytes")

    def binary(self) -> bytes:
        """Read binary data."""
        return self.take(self.number(2))

    def text(self) -> str:
        """Read a string."""
        try:
            value = self.binary().decode()
        except UnicodeDecodeError as error:
            raise MalformedPacket(f"a string that is not UTF-8: {error}") from None
        # The specification forbids null characters in strings (1.5.4).
        if "\0" in value:
            raise MalformedPacket("a string with a null character")
        return value

    def rest(self) -> bytes:
        """Read all bytes that are left."""
        return self.take(self.left)

    def end(self) -> None:
        """Check that no byte is left."""
        if self.left:
            raise MalformedPacket(f"{self.left} bytes too many in a packet")


# Properties of MQTT 5 packets have names here and numbers on the wire (2.2.2.2).

Properties = dict[str, Any]
"""Name → int, str or bytes.

Properties that can be repeated are lists: ``user_property`` of pairs, ``subscription_identifier``
of int.
"""


def _integer(size: int) -> tuple[Callable[[Any], bytes], Callable[[FieldReader], Any]]:
    return lambda value: value.to_bytes(size, "big"), lambda reader: reader.number(size)


_BYTE = _integer(1)
_TWO = _integer(2)
_FOUR = _integer(4)
_VARIABLE = (variable, FieldReader.variable)
_TEXT = (text, FieldReader.text)
_BINARY = (binary, FieldReader.binary)
_PAIR = (
    lambda pair: text(pair[0]) + text(pair[1]),
    lambda reader: (reader.text(), reader.text()),
)
_KINDS: Final[
    Mapping[int, tuple[str, tuple[Callable[[Any], bytes], Callable[[FieldReader], Any]]]]
] = {
    0x01: ("payload_format_indicator", _BYTE),
    0x02: ("message_expiry_interval", _FOUR),
    0x03: ("content_type", _TEXT),
    0x08: ("response_topic", _TEXT),
    0x09: ("correlation_data", _BINARY),
    0x0B: ("subscription_identifier", _VARIABLE),
    0x11: ("session_expiry_interval", _FOUR),
    0x12: ("assigned_client_identifier", _TEXT),
    0x13: ("server_keep_alive", _TWO),
    0x15: ("authentication_method", _TEXT),
    0x16: ("authentication_data", _BINARY),
    0x17: ("request_problem_information", _BYTE),
    0x18: ("will_delay_interval", _FOUR),
    0x19: ("request_response_information", _BYTE),
    0x1A: ("response_information", _TEXT),
    0x1C: ("server_reference", _TEXT),
    0x1F: ("reason_string", _TEXT),
    0x21: ("receive_maximum", _TWO),
    0x22: ("topic_alias_maximum", _TWO),
    0x23: ("topic_alias", _TWO),
    0x24: ("maximum_qos", _BYTE),
    0x25: ("retain_available", _BYTE),
    0x26: ("user_property", _PAIR),
    0x27: ("maximum_packet_size", _FOUR),
    0x28: ("wildcard_subscription_available", _BYTE),
    0x29: ("subscription_identifier_available", _BYTE),
    0x2A: ("shared_subscription_available", _BYTE),
}
_NUMBERS: Final = {name: number for number, (name, _) in _KINDS.items()}
# 0 is a protocol error in these (3.1.2.11.3, 3.1.2.11.4, 3.3.2.3.4).
_NOT_ZERO: Final = frozenset({"receive_maximum", "maximum_packet_size", "topic_alias"})
MANY: Final = frozenset({"user_property", "subscription_identifier"})


def encode_properties(properties: Mapping[str, Any]) -> bytes:
    """Encode properties with their length in front.

    :raises KeyError: an unknown property. :raises ValueError: a value does not fit.
    """
    out = bytearray()
    for name, value in properties.items():
        number = _NUMBERS[name]
        write, _ = _KINDS[number][1]
        for single in value if name in MANY else [value]:
            out += variable(number) + write(single)
    return variable(len(out)) + bytes(out)


def decode_properties(reader: FieldReader) -> Properties:
    """Read properties with their length in front.

    :raises MalformedPacket: an unknown property, one with a forbidden value, or a repeated one that
        may occur once.
    """
    inner = FieldReader(reader.take(reader.variable()))
    properties: Properties = {}
    while inner.left:
        number = inner.variable()
        if number not in _KINDS:
            raise MalformedPacket(f"unknown property 0x{number:02x}")
        name, (_, read) = _KINDS[number]
        value = read(inner)
        # Every property of one byte is 0 or 1 (2.2.2.2).
        if (not value and name in _NOT_ZERO) or (read is _BYTE[1] and value > 1):
            raise MalformedPacket(f"property {name} with the forbidden value {value}")
        if name in MANY:
            properties.setdefault(name, []).append(value)
        elif name in properties:
            raise MalformedPacket(f"property {name} twice")
        else:
            properties[name] = value
    return properties
