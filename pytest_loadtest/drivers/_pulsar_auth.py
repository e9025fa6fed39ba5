"""Who the run says it is: the profile's ``authentication`` for pulsar-client and for the admin REST."""

from __future__ import annotations

import base64
import json
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlencode

import pulsar

from pytest_loadtest.errors import TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.profile.settings import Authentication, PulsarSettings

    Fetch = Callable[[str, bytes | None], bytes]
    """URL and form to post (None: get) → body."""


def client_authentication(auth: Authentication) -> Any:
    """The authentication object of pulsar-client.

    :raises UsageError: a key that the plugin needs is missing, or its file cannot be read.
    """
    if auth.plugin == "token":
        return pulsar.AuthenticationToken(_token(auth))
    if auth.plugin == "tls":
        return pulsar.AuthenticationTLS(_needed(auth.cert_file, "certFile"), _needed(auth.key_file, "keyFile"))
    fields = {"issuer_url": _needed(auth.issuer_url, "issuerUrl"), "private_key": _needed(auth.private_key, "privateKey")}
    fields |= {name: value for name, value in (("audience", auth.audience), ("scope", auth.scope)) if value}
    return pulsar.AuthenticationOauth2(json.dumps(fields))


def admin_headers(auth: Authentication | None, fetch: Fetch) -> dict[str, str]:
    """The ``Authorization`` header of the admin REST: a bearer token, fetched from the issuer under OAuth2; none under TLS."""
    if auth is None or auth.plugin == "tls":
        return {}
    return {"Authorization": f"Bearer {_token(auth) if auth.plugin == 'token' else _oauth2_token(auth, fetch)}"}


def admin_tls(settings: PulsarSettings) -> ssl.SSLContext:
    """TLS of an ``https://`` admin URL, by the same keys as the client's own.

    :raises UsageError: a file that the profile names cannot be read.
    """
    auth = settings.authentication
    try:
        context = ssl.create_default_context(cafile=settings.tls_trust_certs_file_path)
        if auth is not None and auth.plugin == "tls":
            context.load_cert_chain(_needed(auth.cert_file, "certFile"), _needed(auth.key_file, "keyFile"))
    except OSError as error:
        raise UsageError(f"TLS files of the driver section: {error}") from error
    context.check_hostname = settings.tls_enable_hostname_verification and not settings.tls_allow_insecure_connection
    if settings.tls_allow_insecure_connection:
        context.verify_mode = ssl.CERT_NONE
    return context


def _needed(value: str | None, key: str) -> str:
    if value is None:
        raise UsageError(f"authentication: {key} is missing")
    return value


def _read(path: str, key: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"authentication: {key} {path!r} cannot be read: {error}") from error


def _token(auth: Authentication) -> str:
    return auth.token or _read(_needed(auth.token_file, "token or tokenFile"), "tokenFile").strip()


def _oauth2_token(auth: Authentication, fetch: Fetch) -> str:
    """Client credentials flow (RFC 6749, 4.4) at the endpoint that the issuer's discovery document names."""
    issuer = _needed(auth.issuer_url, "issuerUrl").rstrip("/")
    form = {"grant_type": "client_credentials"} | _credentials(_needed(auth.private_key, "privateKey"))
    form |= {name: value for name, value in (("audience", auth.audience), ("scope", auth.scope)) if value}
    try:
        endpoint = json.loads(fetch(f"{issuer}/.well-known/openid-configuration", None))["token_endpoint"]
        return str(json.loads(fetch(endpoint, urlencode(form).encode()))["access_token"])
    except (ValueError, KeyError, TypeError) as error:
        raise TargetError(f"{issuer} answered without a token: {error!r}") from error


def _credentials(private_key: str) -> dict[str, str]:
    """Client id and secret from a path, a ``file:`` URL or a ``data:`` URL, the forms that pulsar-client takes."""
    if private_key.startswith("data:"):
        text = base64.b64decode(private_key.partition(",")[2]).decode()
    else:
        path = private_key.removeprefix("file:")
        text = _read(unquote(path.removeprefix("//") if path.startswith("//") else path), "privateKey")
    try:
        fields = json.loads(text)
        return {"client_id": fields["client_id"], "client_secret": fields["client_secret"]}
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"authentication: privateKey holds no client_id and client_secret: {error!r}") from error
