"""TLS of an MQTT client: one context for all connections of a driver, what was agreed on, and in plain words why none came to be.

Python sets the ciphers of TLS 1.2 and, before 3.15, not those of TLS 1.3: a broker chooses among them, and what it chose is checked after
each handshake. With TLS 1.3 a broker looks at the client's certificate after the client's handshake is over, so that a refusal is read
later, in the place of its first packet.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.mqtt.settings import Tls
from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    import socket

LOST: Final = "connection lost"
ALERT: Final = b"\x15\x03"  # how a TLS alert begins (RFC 8446, 5.1)
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NOT_THIS_HOST: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_NOT_NOW: Final = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
_VERSION: Final = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL")
_CLIENT: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR")


class ClientTls:
    """What every TLS connection of a driver is made with.

    :param settings: the profile's ``driver.tls``.
    :ivar agreed: version and cipher of the handshakes so far.
    :raises UsageError: a file cannot be used, or OpenSSL does not know the ciphers.
    """

    def __init__(self, settings: Tls | None) -> None:
        self._settings = settings or Tls()
        self.context = _context(self._settings)
        self.agreed: set[tuple[str, str]] = set()

    def wrap(self, connected: socket.socket, host: str) -> ssl.SSLSocket:
        """For a handshake that does not block."""
        return self.context.wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)

    def check(self, established: ssl.SSLSocket) -> None:
        """:raises OSError: the broker chose a cipher that the profile does not want."""
        cipher, version = established.cipher() or ("none", ""), established.version() or "unknown"
        wanted = self._settings.ciphers
        if wanted is not None and cipher[0] not in wanted.split(":"):
            raise OSError(
                f"the broker chose the cipher {cipher[0]}, driver.tls.ciphers says {wanted}: Python cannot set the ciphers of TLS 1.3, "
                "so set them at the broker"
            )
        self.agreed.add((version, cipher[0]))

    def why(self, error: OSError, connection: ssl.SSLSocket) -> str:
        """Reason and remedy of a connection that ended as ``error`` says."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._of_server(error)
        chosen = connection.cipher() is not None
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            return self._of_client(error.reason or str(error), chosen)
        if chosen:
            return LOST
        return "the broker ends the TLS handshake without a word: does its port speak TLS? If not, write mqtt:// in place of mqtts://"

    def _of_server(self, error: ssl.SSLCertVerificationError) -> str:
        if error.verify_code in _NOT_THIS_HOST:
            said = error.verify_message.rstrip(".")
            return f"{said}: connect by a name that it has, or write driver.tls.insecure: true"
        if error.verify_code in _NOT_NOW:
            return f"the broker's certificate is of another time ({error.verify_message}): renew it, or set this machine's clock"
        where = self._settings.ca_file
        remedy = f"driver.tls.caFile ({where or 'not given: the system trusts whom it trusts'}) must hold the authority that signed it"
        return f"the broker's certificate is not trusted ({error.verify_message}): {remedy}"

    def _of_client(self, reason: str, chosen: bool) -> str:
        """:param reason: OpenSSL's name of it. :param chosen: the broker chose a version and a cipher already."""
        asked, own = self._settings, self._settings.cert_file
        if not chosen and reason in _NO_TLS:
            return "no TLS is spoken there: write mqtt:// in place of mqtts://"
        if any(word in reason for word in _VERSION):
            said = f"driver.tls says {' or '.join(asked.versions)}" + (f", by its ciphers {asked.ciphers}" if asked.ciphers else "")
            return f"the broker has none of the TLS versions that the client takes ({reason}): {said}"
        if "HANDSHAKE_FAILURE" in reason and not chosen:
            said = f"driver.tls.ciphers says {asked.ciphers}" if asked.ciphers else "driver.tls.ciphers is not given"
            return f"the broker has none of the ciphers that the client takes ({reason}): {said}"
        if not any(word in reason for word in (*_CLIENT, "HANDSHAKE_FAILURE")):
            return f"TLS fails: {reason}"
        if own is None:
            return f"the broker wants a client's certificate ({reason}): write driver.tls: {{certFile: …, keyFile: …}}"
        return f"the broker does not take the client's certificate {own} ({reason}): is it signed by an authority that the broker trusts?"


def _context(settings: Tls) -> ssl.SSLContext:
    for key, path in (("caFile", settings.ca_file), ("certFile", settings.cert_file), ("keyFile", settings.key_file)):
        if path is not None:
            _look(f"driver.tls.{key} {path}", Path(path))
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:
        raise UsageError(f"driver.tls.caFile {settings.ca_file}: no certificate can be read from it ({_reason(error)})") from error
    if settings.cert_file is not None:
        try:
            context.load_cert_chain(settings.cert_file, settings.key_file, password="")  # or OpenSSL would ask at the terminal
        except OSError as error:
            files = f"certFile {settings.cert_file}, keyFile {settings.key_file or 'not given'}"
            said = f"no certificate and its unencrypted key can be read from them ({_reason(error)})"
            raise UsageError(f"driver.tls: {files}: {said}") from error
    if settings.insecure:
        context.check_hostname = False
    context.minimum_version, context.maximum_version = (_VERSIONS[settings.versions[end]] for end in (0, -1))
    if settings.of_tls12:
        try:
            context.set_ciphers(":".join(settings.of_tls12))
        except ssl.SSLError as error:
            raise UsageError(f"driver.tls.ciphers: OpenSSL knows none of {':'.join(settings.of_tls12)}") from error
    return context


def _look(what: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise UsageError(f"{what}: {error.strerror}") from error


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)
