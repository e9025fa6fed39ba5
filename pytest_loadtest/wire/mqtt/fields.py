"""The fields that MQTT packets are made of (1.5): integers, texts, binary data, variable byte integers."""

from __future__ import annotations

from typing import Final

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
