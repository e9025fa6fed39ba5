"""Envelopes as the bytes that carry them: in bodies, properties or correlation data.

Drivers write these bytes into each message, and find them in received ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.route import Carrier, EnvelopePlace
from pytest_loadtest.message.token import (
    TOKEN,
    TokenReader,
    decode_digits,
    encode_tokens,
    token_digits,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_WHOLE: Final = np.dtype(f"V{HEAD}")
VALUE_SIZES: Final = {Carrier.PROPERTIES: TOKEN, Carrier.CORRELATION_DATA: HEAD}
"""Bytes of an envelope that is the value of a property."""


def body_tokens(place: EnvelopePlace) -> TokenReader | None:
    """Return what finds the tokens in the bodies of messages; None: they have none."""
    return TokenReader(place.pointer) if place.carrier is Carrier.JSON else None


def carried_values(carrier: Carrier, heads: NDArray[np.uint8]) -> list[bytes]:
    """Return the value that has the envelope outside of the body, for each message.

    :param heads: ``(n, 32)``, as of ``envelope.encode_heads``.
    """
    if carrier is Carrier.PROPERTIES:
        return encode_tokens(heads)
    return heads.view(_WHOLE).ravel().tolist()


def carried_heads(carrier: Carrier, values: Sequence[bytes]) -> NDArray[np.uint8]:
    """Return the envelopes of received messages, ``(n, 32)`` uint8.

    A value that is cut short has a check that does not fit; without a value an envelope is zeros.

    :param values: of each message: the body, or its beginning; the digits of the token in its JSON,
        as of ``TokenReader``; or the value outside of the body.
    """
    if carrier is Carrier.JSON:
        return decode_digits(values)
    if carrier is Carrier.PROPERTIES:
        return decode_digits([token_digits(value) for value in values])
    joined = b"".join([value[:HEAD].ljust(HEAD, b"\0") for value in values])
    return np.frombuffer(joined, np.uint8).reshape(len(values), HEAD)
