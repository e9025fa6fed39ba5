"""The profile's ``authentication`` and TLS keys.

They are for the admin REST and for clients of the binary protocol.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.values.addresses import masked, masked_text
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_loadtest.drivers.pulsar.settings import Authentication, PulsarSettings


def credentials(
    auth: Authentication | None, settings: PulsarSettings
) -> tuple[str, Callable[[], bytes]]:
    """Return the authentication fields of ``CommandConnect``.

    They are ``auth_method_name`` and ``auth_data`` in PulsarApi.proto.

    :returns: the method, one of ``none``, ``token``, ``basic``, ``tls``; and a function that
        returns the data. Call it for each connection: it reads files again, and fetches an OAuth2
        token that is about to expire again. It may block as long as ``operationTimeout``, and
        raises :class:`UsageError` for a missing file and
        :class:`~pytest_loadtest.errors.TargetError` for an issuer without a token. Under ``tls``
        the certificate alone identifies the client, see :func:`tls_context`.
    :raises UsageError: a key that the plugin needs is missing, or its file cannot be read.
    """
    if auth is None:
        return "none", bytes
    if auth.plugin == "tls":
        return "tls", bytes
    if auth.plugin == "oauth2":
        issuer = required_key(auth.issuer_url, "issuerUrl")
        key = required_key(auth.private_key, "privateKey")
        tokens = Tokens(
            issuer,
            _client_of(key),
            oauth2_options(auth),
            timeout=settings.operation_timeout / SECOND,
        )
        return "token", lambda: tokens.get().encode()
    if auth.plugin == "basic":
        # The result is not used: an incomplete profile must fail now, not at the first connection.
        _user_and_password(auth)
        return "basic", lambda: _user_and_password(auth).encode()
    token_of(auth)
    return "token", lambda: token_of(auth).encode()


def admin_headers(settings: PulsarSettings) -> dict[str, str]:
    """The ``Authorization`` header of the admin REST.

    A bearer token, which OAuth2 fetches from the issuer, or user and password (RFC 7617); none
    under TLS.

    :raises UsageError: as :func:`credentials`.
    :raises TargetError: the issuer gives no token.
    """
    method, data = credentials(settings.authentication, settings)
    if method == "token":
        return {"Authorization": f"Bearer {data().decode()}"}
    return (
        {"Authorization": f"Basic {base64.b64encode(data()).decode()}"} if method == "basic" else {}
    )


def tls_context(settings: PulsarSettings) -> ssl.SSLContext:
    """Return the client's TLS context for ``pulsar+ssl://`` and ``https://``.

    Version 1.2 or later, chain and host name checked unless the profile says otherwise, with the
    client's certificate under the plugin ``tls``.

    :raises UsageError: a file that the profile names cannot be read.
    """
    auth = settings.authentication
    trusted = settings.tls_trust_certs_file_path
    files = [trusted] if trusted else []
    try:
        context = ssl.create_default_context(cafile=trusted)
        if auth is not None and auth.plugin == "tls":
            files = [
                required_key(auth.cert_file, "certFile"),
                required_key(auth.key_file, "keyFile"),
            ]
            context.load_cert_chain(*files)
    except OSError as error:
        # The error of the standard library does not name the file.
        raise UsageError(
            f"driver: TLS cannot use {' with '.join(files)}: {error.strerror or error}"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # check_hostname must be set before verify_mode: the ssl module rejects a
    # check of names without a check of the chain.
    context.check_hostname = (
        settings.tls_enable_hostname_verification and not settings.tls_allow_insecure_connection
    )
    if settings.tls_allow_insecure_connection:
        context.verify_mode = ssl.CERT_NONE
    return context


def token_of(auth: Authentication) -> str:
    """Return the token of the plugin ``token``; a token file is read now.

    :raises UsageError: the profile has none, or its file cannot be read.
    """
    return (
        auth.token
        or _read(required_key(auth.token_file, "token or tokenFile"), "tokenFile").strip()
    )


def password_of(auth: Authentication) -> str:
    """Return the password of the plugin ``basic``.

    A password file is read now, without the end of line at its end.

    :raises UsageError: there is none, or its file cannot be read.
    """
    return auth.password or _read(
        required_key(auth.password_file, "password or passwordFile"), "passwordFile"
    ).rstrip("\r\n")


def _client_of(private_key: str) -> dict[str, str]:
    """Read OAuth2's client id and secret from a path, a ``file:`` URL or a ``data:`` URL.

    The forms that pulsar-client takes.
    """
    try:
        if private_key.startswith("data:"):
            text = base64.b64decode(private_key.partition(",")[2]).decode()
        else:
            path = private_key.removeprefix("file:")
            text = _read(
                unquote(path.removeprefix("//") if path.startswith("//") else path), "privateKey"
            )
        fields = json.loads(text)
        return {"client_id": fields["client_id"], "client_secret": fields["client_secret"]}
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"authentication: privateKey holds no client_id and client_secret: {error!r}"
        ) from error


def _user_and_password(auth: Authentication) -> str:
    return f"{required_key(auth.user_id, 'userId')}:{password_of(auth)}"


def oauth2_options(auth: Authentication) -> dict[str, str]:
    return {
        name: value for name, value in (("audience", auth.audience), ("scope", auth.scope)) if value
    }


def required_key(value: str | None, key: str) -> str:
    """:raises UsageError: the profile does not have the key."""
    if value is None:
        raise UsageError(f"authentication: {key} is missing")
    return value


def _read(path: str, key: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"authentication: {key} {path!r} cannot be read: {error}") from error


# OAuth2's client credentials flow (RFC 6749, 4.4): tokens from an
# issuer, kept as long as they are valid.

# Share of its lifetime for which a token is used: it has to reach the broker
# before it expires, and the clocks may differ.
_FRESH: Final = 0.9


class Tokens:
    """Access tokens of one client; thread-safe.

    :param issuer: URL of the issuer; the discovery document below it
        (``/.well-known/openid-configuration``) names the endpoint.
    :param client: ``client_id`` and ``client_secret``.
    :param options: ``audience`` and ``scope``, if given.
    :param timeout: s for each request.
    """

    def __init__(
        self, issuer: str, client: Mapping[str, str], options: Mapping[str, str], *, timeout: float
    ) -> None:
        self._issuer = issuer.rstrip("/")
        self._timeout = timeout
        self._form = {"grant_type": "client_credentials", **client, **options}
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0

    def get(self) -> str:
        """Return a valid token.

        One is fetched if there is none, or if the issuer did not say how long the last one is valid
        (``expires_in``).

        :raises TargetError: the issuer does not answer, or answers without a token.
        """
        with self._lock:
            if time.monotonic() >= self._until:
                self._fetch()
            return self._token

    def _fetch(self) -> None:
        # The lifetime counts from before the request, so that it never ends too late.
        requested = time.monotonic()
        try:
            endpoint = json.loads(
                self._ask("GET", f"{self._issuer}/.well-known/openid-configuration")
            )["token_endpoint"]
            answer = json.loads(self._ask("POST", endpoint))
            self._token = str(answer["access_token"])
            self._until = requested + _FRESH * float(answer.get("expires_in") or 0)
        except (ValueError, KeyError, TypeError) as error:
            raise TargetError(
                f"{masked(self._issuer)} answered without a token: {error!r}"
            ) from error

    def _ask(self, method: str, url: str) -> bytes:
        import httpx

        form = self._form if method == "POST" else None
        trusted = ssl.create_default_context()
        request = f"{method} {masked(url)}"
        try:
            answer = httpx.request(
                method, url, data=form, timeout=self._timeout, follow_redirects=True, verify=trusted
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = masked_text(str(error), url)
            raise TargetError(
                f"{request}: {reason}; is authentication.issuerUrl right and the server up?"
            ) from error
        if not answer.is_success:
            raise TargetError(
                f"{request}: {answer.status_code} {_reason(answer.text) or answer.reason_phrase}"
            )
        return answer.content


def _reason(body: str) -> str:
    """Return ``error`` and ``error_description`` of an error response (RFC 6749, 5.2)."""
    try:
        fields = json.loads(body)
        return ": ".join(
            str(fields[key]) for key in ("error", "error_description") if key in fields
        )
    except (ValueError, TypeError):
        return ""
