"""Envelopes as text, for messages that a service reads: a token in a field of JSON.

A token is ``~lt1~`` and the 32 bytes of an envelope in base64url without padding (RFC 4648, 5): 48
characters, none of which JSON or a URL escapes. The service passes it on, like any reference of its
own. Workers write tokens into the messages that they send, and look for them in those that they
receive; the controller only plans with the sizes.
"""

from __future__ import annotations

import binascii
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.message.envelope import HEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

PREFIX: Final = b"~lt1~"
_TEXT_PREFIX: Final = PREFIX.decode()
_MARK: Final = PREFIX[:1]
DIGITS: Final = 43  # of 32 bytes in base64: 256 bits in digits of 6
TOKEN: Final = len(PREFIX) + DIGITS
"""Bytes of a token."""

_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_VALUES: Final = np.zeros(256, np.uint8)
_VALUES[np.frombuffer(_ALPHABET, np.uint8)] = np.arange(64)
_NOTHING: Final = bytes(DIGITS)

Pointer = tuple[str, ...]
"""The names of the members that lead to a field of JSON, from the outermost."""


def parse_pointer(text: str) -> Pointer:
    """Read a JSON pointer (RFC 6901), such as ``/meta/ref``.

    :raises ValueError: not a pointer, or one to the whole document.
    """
    if not text.startswith("/") or text == "/":
        raise ValueError(f"{text!r} is not a JSON pointer to a field: write /meta/ref")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


def format_pointer(pointer: Pointer) -> str:
    """Return the text of a pointer, as :func:`parse_pointer` reads it."""
    parts = [part.replace("~", "~0").replace("/", "~1") for part in pointer]
    return "/" + "/".join(parts)


def field_at(document: object, pointer: Pointer) -> object:
    """Return the field of a JSON document at a pointer; None if it has none."""
    value: Any = document
    try:
        for name in pointer:
            value = value[int(name)] if isinstance(value, list) else value[name]
    except (ValueError, LookupError, TypeError):
        return None
    return value


def encode_tokens(heads: NDArray[np.uint8]) -> list[bytes]:
    """Return the tokens of envelopes. :param heads: ``(n, 32)`` uint8."""
    digits = _encode_digits(heads)
    starts = range(0, len(digits), DIGITS + 1)
    return [PREFIX + digits[start : start + DIGITS] for start in starts]


def token_columns(heads: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the tokens of envelopes as ``(n, 48)`` uint8. :param heads: ``(n, 32)`` uint8."""
    tokens = np.empty((len(heads), TOKEN), np.uint8)
    tokens[:, : len(PREFIX)] = np.frombuffer(PREFIX, np.uint8)
    digits = np.frombuffer(_encode_digits(heads), np.uint8).reshape(len(heads), DIGITS + 1)
    tokens[:, len(PREFIX) :] = digits[:, :DIGITS]
    return tokens


def _encode_digits(heads: NDArray[np.uint8]) -> bytes:
    # 33 bytes are 44 digits: with one more byte for each envelope all are encoded in one call, and
    # the last digit of each, which has only bits of that byte, is cut off by the caller.
    padded = np.zeros((len(heads), HEAD + 1), np.uint8)
    padded[:, :HEAD] = heads
    return binascii.b2a_base64(padded.tobytes(), newline=False).translate(_TO_URL)


def decode_digits(digits: Sequence[bytes]) -> NDArray[np.uint8]:
    """Return the envelopes of tokens, ``(n, 32)`` uint8.

    A character that is no digit counts as 0, so that the envelope's check finds the damage.

    :param digits: the 43 characters of each token; empty: a message without a token, whose envelope
        is zeros.
    """
    joined = b"".join([each or _NOTHING for each in digits])
    return decode_columns(np.frombuffer(joined, np.uint8).reshape(len(digits), DIGITS))


def decode_columns(digits: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the envelopes of tokens as :func:`decode_digits`. :param digits: ``(n, 43)`` uint8."""
    values = _VALUES[digits]
    # four digits of 6 bits are three bytes: aaaaaabb bbbbcccc ccdddddd
    quads = np.zeros((len(digits), (DIGITS + 1) // 4, 4), np.uint8)
    quads.reshape(len(digits), DIGITS + 1)[:, :DIGITS] = values
    octets = np.empty((*quads.shape[:2], 3), np.uint8)
    octets[:, :, 0] = quads[:, :, 0] << 2 | quads[:, :, 1] >> 4
    octets[:, :, 1] = quads[:, :, 1] << 4 | quads[:, :, 2] >> 2
    octets[:, :, 2] = quads[:, :, 2] << 6 | quads[:, :, 3]
    return np.ascontiguousarray(octets.reshape(len(digits), HEAD + 1)[:, :HEAD])


def token_digits(value: bytes) -> bytes:
    """Return the 43 characters of a token; empty if it is none."""
    if not value.startswith(PREFIX):
        return b""
    # A token cut short is filled up, so that the envelope's check finds the damage.
    return value[len(PREFIX) : TOKEN].ljust(DIGITS, b"A")


class TokenReader:
    """Finds the tokens of received messages.

    It looks where the last token was, if there can be no other, then for the prefix anywhere. The
    pointer decides only where the prefix is not unique, because reading JSON takes many times as
    long.

    :param pointer: the field that has the token.
    """

    def __init__(self, pointer: Pointer) -> None:
        self._pointer = pointer
        self._offset = 0

    def digits(self, data: bytes, start: int, end: int) -> bytes:
        """Return the 43 characters of the token in ``data[start:end]``, one message; empty without
        a token.
        """
        at = start + self._offset
        # Another token may be where the last one was. To search for one byte takes a fraction of
        # the time of a search for the prefix.
        if (
            not data.startswith(PREFIX, at, end)
            or data.find(_MARK, at + TOKEN, end) >= 0
            or data.find(_MARK, start, at) >= 0
        ):
            at = self._find(data, start, end)
            if at < 0:
                return b""
            self._offset = at - start
        # As in token_digits, without a call for each message.
        return data[at + len(PREFIX) : min(at + TOKEN, end)].ljust(DIGITS, b"A")

    def _find(self, data: bytes, start: int, end: int) -> int:
        """Return the position of the token, -1 without one."""
        first = data.find(PREFIX, start, end)
        if first == data.rfind(PREFIX, start, end):
            return first
        try:
            document = json.loads(data[start:end])
        except ValueError:
            return -1
        value = field_at(document, self._pointer)
        if not isinstance(value, str) or not value.startswith(_TEXT_PREFIX):
            return -1
        # JSON may escape half of a surrogate pair, which UTF-8 cannot have.
        return data.find(value.encode(errors="replace"), first, end)
