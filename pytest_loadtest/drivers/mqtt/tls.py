"""TLS of an MQTT client.

There is one context for all connections of a driver; the negotiated ciphers and explanations of
failures are here too. Python can set the ciphers of TLS 1.2 but, before 3.15, not those of TLS 1.3.
So a broker chooses among them, and its choice is checked after each handshake. With TLS 1.3 a
broker checks the client's certificate after the client's handshake has ended, so a rejection is
read later, instead of the broker's first packet.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from pytest_loadtest.drivers.mqtt.settings import Tls
from pytest_loadtest.errors import UsageError
from pytest_loadtest.profile.fields import spelling

LOST: Final = "connection lost"
RESET: Final = "connection reset by the broker"
UNANSWERED: Final = "the broker closes the connection without an answer"
NO_HANDSHAKE: Final = (
    "the broker ends the TLS handshake without an answer: does its port speak TLS? If not, write"
    " mqtt:// in place of mqtts://"
)
ALERT: Final = b"\x15\x03"  # first bytes of a TLS alert (RFC 8446, 5.1)
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NOT_THIS_HOST: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_NOT_NOW: Final = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
# Parts of OpenSSL's reasons, by what they mean to a user.
_NO_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "UNEXPECTED_MESSAGE",
    "PACKET_LENGTH_TOO_LONG",
    "HTTP_REQUEST",
)
_VERSION: Final = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL")
_CLIENT: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR")


class ClientTls:
    """The TLS context of all connections of a driver.

    :param settings: the profile's ``driver.tls``.
    :ivar agreed: versions and ciphers of the handshakes so far.
    :raises UsageError: a file cannot be used, or OpenSSL does not know the ciphers.
    """

    def __init__(self, settings: Tls | None) -> None:
        self._settings = settings or Tls()
        self.context = _context(self._settings)
        self.agreed: set[tuple[str, str]] = set()

    def check(self, established: ssl.SSLObject) -> None:
        """Check an established connection.

        :raises OSError: the broker chose a cipher that is not in the profile.
        """
        cipher = established.cipher() or ("none", "")
        version = established.version() or "unknown"
        ciphers = self._settings.ciphers
        if ciphers is not None and cipher[0] not in ciphers.split(":"):
            raise OSError(
                f"the broker chose the cipher {cipher[0]}, driver.tls.ciphers is {ciphers}: Python"
                " cannot set the ciphers of TLS 1.3, "
                "so set them at the broker"
            )
        self.agreed.add((version, cipher[0]))

    def explain_failure(self, error: OSError, connection: ssl.SSLObject) -> str:
        """Return the reason and the remedy for a connection that ended with ``error``."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._explain_server_certificate(error)
        chosen = connection.cipher() is not None
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            return self._explain_rejection(error.reason or str(error), chosen)
        if chosen:
            return LOST
        return NO_HANDSHAKE

    def _explain_server_certificate(self, error: ssl.SSLCertVerificationError) -> str:
        if error.verify_code in _NOT_THIS_HOST:
            return (
                f"{error.verify_message.rstrip('.')}: connect by a name in the certificate, or"
                " write driver.tls.insecure: true"
            )
        if error.verify_code in _NOT_NOW:
            return (
                f"the broker's certificate is not valid now ({error.verify_message}): renew it, or"
                " set this machine's clock"
            )
        authorities = self._settings.ca_file or "not set: the system's certificates apply"
        remedy = f"driver.tls.caFile ({authorities}) must contain the authority that signed it"
        return f"the broker's certificate is not trusted ({error.verify_message}): {remedy}"

    def _explain_rejection(self, reason: str, chosen: bool) -> str:
        """:param reason: OpenSSL's name of the error.
        :param chosen: the broker has already chosen a version and a cipher.
        """
        settings = self._settings
        if not chosen and reason in _NO_TLS:
            return "the port does not speak TLS: write mqtt:// in place of mqtts://"
        if any(word in reason for word in _VERSION):
            ciphers = f", because of its ciphers {settings.ciphers}" if settings.ciphers else ""
            offered = f"driver.tls allows {' or '.join(settings.versions)}{ciphers}"
            return (
                f"the broker has none of the TLS versions that the client offers ({reason}):"
                f" {offered}"
            )
        if "HANDSHAKE_FAILURE" in reason and not chosen:
            offered = f"driver.tls.ciphers is {settings.ciphers or 'not set'}"
            return (
                f"the broker has none of the ciphers that the client offers ({reason}): {offered}"
            )
        if not any(word in reason for word in (*_CLIENT, "HANDSHAKE_FAILURE")):
            return f"TLS failed: {reason}"
        if settings.cert_file is None:
            return (
                f"the broker requires a client certificate ({reason}): write driver.tls:"
                " {certFile: …, keyFile: …}"
            )
        return (
            f"the broker rejects the client certificate {settings.cert_file} ({reason}): is it"
            " signed by an authority that the broker trusts?"
        )


def _context(settings: Tls) -> ssl.SSLContext:
    for name in ("ca_file", "cert_file", "key_file"):
        path = getattr(settings, name)
        if path is not None:
            _check_readable(f"driver.tls.{spelling(name)} {path}", Path(path))
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:
        raise UsageError(
            f"driver.tls.caFile {settings.ca_file}: cannot read a certificate from it"
            f" ({_reason(error)})"
        ) from error
    if settings.cert_file is not None:
        # Without a password OpenSSL would ask for that of an encrypted key at the terminal.
        try:
            context.load_cert_chain(settings.cert_file, settings.key_file, password="")
        except OSError as error:
            files = f"certFile {settings.cert_file}, keyFile {settings.key_file or 'not set'}"
            raise UsageError(
                f"driver.tls: {files}: cannot read a certificate and its unencrypted key from them"
                f" ({_reason(error)})"
            ) from error
    if settings.insecure:
        context.check_hostname = False
    context.minimum_version, context.maximum_version = (
        _VERSIONS[settings.versions[end]] for end in (0, -1)
    )
    if settings.of_tls12:
        try:
            context.set_ciphers(":".join(settings.of_tls12))
        except ssl.SSLError as error:
            raise UsageError(
                f"driver.tls.ciphers: OpenSSL has none of {':'.join(settings.of_tls12)}"
            ) from error
    return context


def _check_readable(name: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror} ({path.absolute()})") from error


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)
