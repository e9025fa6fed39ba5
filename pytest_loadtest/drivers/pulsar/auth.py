"""The profile's ``authentication`` and TLS keys: for the admin REST, and for whoever speaks the binary protocol himself."""

from __future__ import annotations

import base64
import json
import ssl
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pytest_loadtest.drivers.pulsar.oauth2 import Tokens
from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.drivers.pulsar.settings import Authentication, PulsarSettings


def credentials(auth: Authentication | None, settings: PulsarSettings) -> tuple[str, Callable[[], bytes]]:
    """What a client says of itself in ``CommandConnect`` (PulsarApi.proto: ``auth_method_name``, ``auth_data``).

    :returns: method, one of ``none``, ``token``, ``basic``, ``tls``; and what gives the data. To be called anew for each connection: files
        are read again, and an OAuth2 token that is about to expire is fetched again. It may block as long as ``operationTimeout``, and
        raises :class:`UsageError` for a file that is gone and :class:`~pytest_loadtest.errors.TargetError` for an issuer without a token.
        Under ``tls`` the certificate alone says who the client is, see :func:`tls_context`.
    :raises UsageError: a key that the plugin needs is missing, or its file cannot be read.
    """
    if auth is None:
        return "none", bytes
    if auth.plugin == "tls":
        return "tls", bytes
    if auth.plugin == "oauth2":
        issuer, key = needed(auth.issuer_url, "issuerUrl"), needed(auth.private_key, "privateKey")
        tokens = Tokens(issuer, _client_of(key), optional(auth), timeout=settings.operation_timeout / SECOND)
        return "token", lambda: tokens.get().encode()
    if auth.plugin == "basic":
        _user_and_password(auth)  # what is missing is said now
        return "basic", lambda: _user_and_password(auth).encode()
    token_of(auth)
    return "token", lambda: token_of(auth).encode()


def admin_headers(settings: PulsarSettings) -> dict[str, str]:
    """The ``Authorization`` header of the admin REST: a bearer token, which OAuth2 fetches from the issuer, or user and password
    (RFC 7617); none under TLS.

    :raises UsageError: as :func:`credentials`. :raises TargetError: the issuer gives no token.
    """
    method, data = credentials(settings.authentication, settings)
    if method == "token":
        return {"Authorization": f"Bearer {data().decode()}"}
    return {"Authorization": f"Basic {base64.b64encode(data()).decode()}"} if method == "basic" else {}


def tls_context(settings: PulsarSettings) -> ssl.SSLContext:
    """TLS of a client, for ``pulsar+ssl://`` and ``https://`` alike: 1.2 or later, chain and host's name checked unless the profile says
    otherwise, with the client's certificate under the plugin ``tls``.

    :raises UsageError: a file that the profile names cannot be read.
    """
    auth, trusted = settings.authentication, settings.tls_trust_certs_file_path
    files = [trusted] if trusted else []
    try:
        context = ssl.create_default_context(cafile=trusted)
        if auth is not None and auth.plugin == "tls":
            files = [needed(auth.cert_file, "certFile"), needed(auth.key_file, "keyFile")]
            context.load_cert_chain(*files)
    except OSError as error:  # which says not of which file
        raise UsageError(f"driver: TLS cannot use {' with '.join(files)}: {error.strerror or error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.tls_enable_hostname_verification and not settings.tls_allow_insecure_connection
    if settings.tls_allow_insecure_connection:
        context.verify_mode = ssl.CERT_NONE
    return context


def token_of(auth: Authentication) -> str:
    """The token of the plugin ``token``, from its file as that is now.

    :raises UsageError: there is none, or its file cannot be read.
    """
    return auth.token or _read(needed(auth.token_file, "token or tokenFile"), "tokenFile").strip()


def password_of(auth: Authentication) -> str:
    """The password of the plugin ``basic``, from its file as that is now; an end of line behind it is none of it.

    :raises UsageError: there is none, or its file cannot be read.
    """
    return auth.password or _read(needed(auth.password_file, "password or passwordFile"), "passwordFile").rstrip("\r\n")


def _client_of(private_key: str) -> dict[str, str]:
    """OAuth2's client id and secret, from a path, a ``file:`` URL or a ``data:`` URL: the forms that pulsar-client takes."""
    try:
        if private_key.startswith("data:"):
            text = base64.b64decode(private_key.partition(",")[2]).decode()
        else:
            path = private_key.removeprefix("file:")
            text = _read(unquote(path.removeprefix("//") if path.startswith("//") else path), "privateKey")
        fields = json.loads(text)
        return {"client_id": fields["client_id"], "client_secret": fields["client_secret"]}
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"authentication: privateKey holds no client_id and client_secret: {error!r}") from error


def _user_and_password(auth: Authentication) -> str:
    return f"{needed(auth.user_id, 'userId')}:{password_of(auth)}"


def optional(auth: Authentication) -> dict[str, str]:
    """What OAuth2 may have besides."""
    return {name: value for name, value in (("audience", auth.audience), ("scope", auth.scope)) if value}


def needed(value: str | None, key: str) -> str:
    """:raises UsageError: the profile does not have it."""
    if value is None:
        raise UsageError(f"authentication: {key} is missing")
    return value


def _read(path: str, key: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"authentication: {key} {path!r} cannot be read: {error}") from error
