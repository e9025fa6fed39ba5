"""Explain why a Pulsar broker rejected a client, and what to do about it.

pulsar-client reports ``TimeOut`` for a password that the broker rejects and ``ConnectError`` for an
untrusted certificate. So when it cannot connect, :func:`explain_connect_error` opens one connection
itself, authenticates as the client does, and reads the broker's error.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pytest_loadtest.brokers.url import parse_endpoints
from pytest_loadtest.drivers.pulsar.auth import credentials, tls_context, token_of
from pytest_loadtest.errors import LoadtestError
from pytest_loadtest.values.addresses import masked
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.connection import PulsarConnection
from pytest_loadtest.wire.pulsar.framing import ProtocolError

if TYPE_CHECKING:
    from pytest_loadtest.drivers.pulsar.settings import PulsarSettings

PATIENCE: Final = 5.0  # s for each step of the connection
NAME_REMEDY: Final = (
    "connect by a name that the certificate has, give the broker one with this name, "
    "or write driver.tlsEnableHostnameVerification: false"
)
NOT_AUTHORIZED: Final = (
    "the broker knows the client but forbids it: grant its role produce and consume there"
)
# OpenSSL's codes X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
NOT_THIS_HOST: Final = (62, 64)
_NO_PULSAR: Final = (
    "the broker sent bytes that are not Pulsar's protocol: {}: is this its binary port, and not"
    " that of its web service?"
)
_NO_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "UNEXPECTED_EOF_WHILE_READING",
    "HTTP_REQUEST",
)
# A TLS record begins with its type (0x15 is an alert) and the version 3.x (RFC 8446, 5.1).
_TLS_ALERT: Final = b"\x15\x03"


def explain_connect_error(url: str, settings: PulsarSettings) -> str | None:
    """Connect to the first host of ``url`` and return reason and remedy of the failure.

    None if it succeeds or gives no reason.
    """
    scheme = url.partition("://")[0]
    if scheme not in ("pulsar", "pulsar+ssl"):
        return None
    endpoint = parse_endpoints("pulsar", url)[0]
    try:
        with socket.create_connection(
            (endpoint.host, endpoint.port), min(PATIENCE, settings.operation_timeout / SECOND)
        ) as plain:
            if scheme == "pulsar":
                return _connect_error(plain, settings, tls=False)
            with tls_context(settings).wrap_socket(
                plain, server_hostname=endpoint.host
            ) as encrypted:
                return _connect_error(encrypted, settings, tls=True)
    except ssl.SSLError as error:
        return explain_tls_error(error, settings, endpoint.host, endpoint.port)
    except (LoadtestError, ProtocolError) as error:
        return _NO_PULSAR.format(error) if isinstance(error, ProtocolError) else str(error)
    except OSError as error:
        return f"{error.strerror or error}: is the broker running, and the address right?"


def explain_tls_error(
    error: BaseException, settings: PulsarSettings, host: str, port: int
) -> str | None:
    """Return reason and remedy of a failed TLS connection; None if TLS is not the cause.

    :param error: the error, which may have been raised from that of TLS.
    :param host: the host of the connection.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _server_problem(cause, settings, host, port)
    return None if cause is None else _client_problem(cause.reason or str(cause), settings)


def _server_problem(
    error: ssl.SSLCertVerificationError, settings: PulsarSettings, host: str, port: int
) -> str:
    if error.verify_code in NOT_THIS_HOST:
        return f"{error.verify_message.rstrip('.')}{_names(settings, host, port)}: {NAME_REMEDY}"
    where = settings.tls_trust_certs_file_path or "not given"
    remedy = f"driver.tlsTrustCertsFilePath ({where}) must hold the authority that signed it"
    return f"its certificate is not trusted ({error.verify_message}): {remedy}"


def _names(settings: PulsarSettings, host: str, port: int) -> str:
    """Return the names in a server's certificate as part of a sentence; '' if it cannot be read.

    Its chain is trusted already.
    """
    context = tls_context(settings)
    context.check_hostname = False
    try:
        with (
            socket.create_connection((host, port), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname=host) as encrypted,
        ):
            certificate = encrypted.getpeercert() or {}
    except OSError:
        return ""
    names = [str(name[1]) for name in certificate.get("subjectAltName", ())]
    return (
        f", its names are {', '.join(names)}"
        if names
        else ", it has no names at all (subjectAltName)"
    )


def _client_problem(reason: str, settings: PulsarSettings) -> str:
    """:param reason: OpenSSL's name of the error."""
    auth = settings.authentication
    if reason in _NO_TLS:
        return (
            "the port does not speak TLS: write pulsar:// and http:// in place of pulsar+ssl:// and"
            " https://"
        )
    has_one = auth is not None and auth.plugin == "tls"
    words = ["CERTIFICATE", "UNKNOWN_CA"]
    if has_one:
        words.append("ALERT")
    if not any(word in reason for word in words):
        return f"TLS fails: {reason}"
    if auth is None or not has_one:
        return (
            f"it requires a client's certificate ({reason}): write driver.authentication:"
            " {plugin: tls, certFile: …, keyFile: …}"
        )
    return (
        f"it rejects the client's certificate {auth.cert_file} ({reason}): is it signed by an"
        " authority that the broker trusts?"
    )


def credentials_remedy(settings: PulsarSettings) -> str:
    """Return what to check if a broker rejects the client's credentials."""
    auth = settings.authentication
    if auth is None:
        return "the broker requires authentication: write driver.authentication"
    if auth.plugin == "token":
        expired = _expired(token_of(auth))
        return (
            f"the token of driver.authentication expired at {expired}"
            if expired
            else "is the token of driver.authentication one of this broker's?"
        )
    if auth.plugin == "basic":
        return "are userId and password of driver.authentication right?"
    if auth.plugin == "tls":
        return (
            "does the broker know the subject of driver.authentication's certFile"
            f" {auth.cert_file}?"
        )
    return (
        f"does the broker take tokens of {masked(auth.issuer_url or '')}, with this audience and"
        " scope?"
    )


def _expired(token: str) -> str | None:
    """Return when a JSON Web Token expired (RFC 7519, 4.1.4), UTC.

    None if it did not, or is no such token.
    """
    try:
        middle = token.split(".")[1]
        end = datetime.fromtimestamp(
            json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))["exp"], UTC
        )
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, OSError):
        return None
    return end.isoformat(timespec="seconds") if end < datetime.now(UTC) else None


def _connect_error(connection: socket.socket, settings: PulsarSettings, *, tls: bool) -> str | None:
    """Send CONNECT and return why the broker rejects it.

    None if it does not, or answers something else.
    """
    protocol = PulsarConnection("pytest-loadtest", *credentials(settings.authentication, settings))
    protocol.open()
    connection.sendall(b"".join(protocol.next()))
    # One read is enough: the broker's answer to CONNECT is a small frame.
    count = connection.recv_into(protocol.space())
    if not tls and (not count or bytes(protocol.space()[:2]) == _TLS_ALERT):
        return (
            "it does not answer without TLS: does the port speak TLS? write pulsar+ssl:// and"
            " https://"
        )
    for event in protocol.filled(count):
        if isinstance(event, api.Error):
            return f"the broker says {event.message[:500]!r}: {credentials_remedy(settings)}"
    return None
