"""The two forms in which a Pulsar broker knows somebody without certificates: a signed token, and a line of an htpasswd file."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ROUNDS: Final = 1000
_ALPHABET: Final = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ORDER: Final = ((0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5))  # of the digest's bytes; the one left over is 11


def token(key: bytes, claims: Mapping[str, Any]) -> str:
    """A JSON Web Token signed by HS256 (RFC 7519; RFC 7515, A.1). :param key: 32 bytes or more. :param claims: ``sub`` is the role."""
    signed = b".".join(_base64url(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, dict(claims)))
    return (signed + b"." + _base64url(hmac.digest(key, signed, "sha256"))).decode()


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def apr1(password: str, salt: str) -> str:
    """``$apr1$SALT$…``, Apache's MD5 form (``apr_md5_encode``): beside DES the only form that Pulsar's own provider knows.

    :param salt: up to 8 characters of ``./0-9A-Za-z``.
    """
    word, grain = password.encode(), salt.encode()
    digest = hashlib.md5(word + grain + word, usedforsecurity=False).digest()
    start = word + b"$apr1$" + grain + (digest * (len(word) // 16 + 1))[: len(word)]
    length = len(word)
    while length:
        start += b"\0" if length & 1 else word[:1]
        length >>= 1
    digest = hashlib.md5(start, usedforsecurity=False).digest()
    for i in range(ROUNDS):
        parts = (word if i & 1 else digest, grain if i % 3 else b"", word if i % 7 else b"", digest if i & 1 else word)
        digest = hashlib.md5(b"".join(parts), usedforsecurity=False).digest()
    numbers = [(digest[a] << 16 | digest[b] << 8 | digest[c], 4) for a, b, c in _ORDER] + [(digest[11], 2)]
    return f"$apr1${salt}$" + "".join(_ALPHABET[number >> 6 * i & 63] for number, count in numbers for i in range(count))
