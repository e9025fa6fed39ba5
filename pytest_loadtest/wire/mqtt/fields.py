"""The fields that MQTT packets are made of (1.5): integers, texts, binary data, variable byte integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


LONGEST: Final = 268_435_455
"""The largest variable byte integer: four bytes of seven bits (1.5.5)."""
LONGEST_TEXT: Final = 65_535


class MalformedPacket(ValueError):
    """Bytes that are no MQTT packet (1.2): the connection is of no use after them."""


def variable(number: int) -> bytes:
    """A variable byte integer. :raises ValueError: it is none."""
    if not 0 <= number <= LONGEST:
        raise ValueError(f"{number} is no variable byte integer: 0 to {LONGEST}")
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def binary(value: bytes) -> bytes:
    """Binary data behind its length (1.5.6). :raises ValueError: it is too long."""
    if len(value) > LONGEST_TEXT:
        raise ValueError(f"{len(value)} bytes are too long for a field: {LONGEST_TEXT} at most")
    return len(value).to_bytes(2, "big") + value


def text(value: str) -> bytes:
    """A text (1.5.4). :raises ValueError: it is too long, or holds what UTF-8 cannot."""
    return binary(value.encode())


class FieldReader:
    """Reads one field after another.

    :ivar position: of the next byte. :raises MalformedPacket: from every method, where the packet ends too early or says nonsense.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self.position = data, 0

    @property
    def left(self) -> int:
        """Bytes not yet read."""
        return len(self._data) - self.position

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        if count > self.left:
            raise MalformedPacket(f"the packet ends {count - self.left} bytes too early")
        self.position += count
        return self._data[self.position - count : self.position]

    def number(self, size: int) -> int:
        """An integer of ``size`` bytes."""
        return int.from_bytes(self.take(size), "big")

    def variable(self) -> int:
        """A variable byte integer."""
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise MalformedPacket("a variable byte integer of more than four bytes")

    def binary(self) -> bytes:
        """Binary data."""
        return self.take(self.number(2))

    def text(self) -> str:
        """A text."""
        try:
            found = self.binary().decode()
        except UnicodeDecodeError as error:
            raise MalformedPacket(f"a text that is not UTF-8: {error}") from None
        if "\0" in found:
            raise MalformedPacket("a text with a null character")  # 1.5.4
        return found

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(self.left)

    def end(self) -> None:
        """Nothing may be left."""
        if self.left:
            raise MalformedPacket(f"{self.left} bytes too many in a packet")


# Properties of MQTT 5 packets (2.2.2): by their names here, by their numbers on the wire.

Properties = dict[str, Any]
"""By name: int, str or bytes; ``user_property`` is a list of pairs, ``subscription_identifier`` a list, as both may come many times."""


def _pair(value: tuple[str, str]) -> bytes:
    return text(value[0]) + text(value[1])


def _read_pair(reader: FieldReader) -> tuple[str, str]:
    return reader.text(), reader.text()


def _integer(size: int) -> tuple[Callable[[Any], bytes], Callable[[FieldReader], Any]]:
    return lambda value: value.to_bytes(size, "big"), lambda reader: reader.number(size)


_BYTE, _TWO, _FOUR = _integer(1), _integer(2), _integer(4)
_VARIABLE, _TEXT = (variable, FieldReader.variable), (text, FieldReader.text)
_BINARY, _PAIR = (binary, FieldReader.binary), (_pair, _read_pair)
_KINDS: Final[Mapping[int, tuple[str, tuple[Callable[[Any], bytes], Callable[[FieldReader], Any]]]]] = {  # 2.2.2.2
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
MANY: Final = frozenset({"user_property", "subscription_identifier"})


def encode_properties(properties: Mapping[str, Any]) -> bytes:
    """With their length before them.

    :raises KeyError: no such property. :raises ValueError: a value that does not fit.
    """
    out = bytearray()
    for name, value in properties.items():
        number = _NUMBERS[name]
        write, _ = _KINDS[number][1]
        for one in value if name in MANY else [value]:
            out += variable(number) + write(one)
    return variable(len(out)) + bytes(out)


def decode_properties(reader: FieldReader) -> Properties:
    """Properties with their length before them.

    :raises MalformedPacket: an unknown one, or one twice that may come once.
    """
    inner = FieldReader(reader.take(reader.variable()))
    found: Properties = {}
    while inner.left:
        number = inner.variable()
        if number not in _KINDS:
            raise MalformedPacket(f"unknown property 0x{number:02x}")
        name, (_, read) = _KINDS[number]
        value = read(inner)
        if name in MANY:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise MalformedPacket(f"property {name} twice")
        else:
            found[name] = value
    return found
