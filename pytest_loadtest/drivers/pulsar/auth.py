"""The profile's ``authentication`` and TLS keys: for the admin REST, and for whoever speaks the binary protocol himself."""

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
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
        issuer, key = required_key(auth.issuer_url, "issuerUrl"), required_key(auth.private_key, "privateKey")
        tokens = Tokens(issuer, _client_of(key), oauth2_options(auth), timeout=settings.operation_timeout / SECOND)
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
            files = [required_key(auth.cert_file, "certFile"), required_key(auth.key_file, "keyFile")]
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
    return auth.token or _read(required_key(auth.token_file, "token or tokenFile"), "tokenFile").strip()


def password_of(auth: Authentication) -> str:
    """The password of the plugin ``basic``, from its file as that is now; an end of line behind it is none of it.

    :raises UsageError: there is none, or its file cannot be read.
    """
    return auth.password or _read(required_key(auth.password_file, "password or passwordFile"), "passwordFile").rstrip("\r\n")


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
    return f"{required_key(auth.user_id, 'userId')}:{password_of(auth)}"


def oauth2_options(auth: Authentication) -> dict[str, str]:
    """What OAuth2 may have besides."""
    return {name: value for name, value in (("audience", auth.audience), ("scope", auth.scope)) if value}


def required_key(value: str | None, key: str) -> str:
    """:raises UsageError: the profile does not have it."""
    if value is None:
        raise UsageError(f"authentication: {key} is missing")
    return value


def _read(path: str, key: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"authentication: {key} {path!r} cannot be read: {error}") from error


# OAuth2's client credentials flow (RFC 6749, 4.4): tokens from an issuer, kept as long as they hold.

_FRESH: Final = 0.9  # of its life a token is handed out: it has to reach the broker, and two clocks differ


class Tokens:
    """Access tokens of one client; safe to ask from several threads.

    :param issuer: URL below which the discovery document is (``/.well-known/openid-configuration``), which names the endpoint.
    :param client: ``client_id`` and ``client_secret``. :param asked: ``audience`` and ``scope``, where there are any.
    :param timeout: s for each request.
    """

    def __init__(self, issuer: str, client: Mapping[str, str], asked: Mapping[str, str], *, timeout: float) -> None:
        self._issuer, self._timeout = issuer.rstrip("/"), timeout
        self._form = {"grant_type": "client_credentials", **client, **asked}
        self._lock = threading.Lock()
        self._token, self._until = "", 0.0

    def get(self) -> str:
        """A token that holds; asks the issuer where there is none, or where it did not say for how long the last one does (``expires_in``).

        :raises TargetError: the issuer does not answer, or without a token.
        """
        with self._lock:
            if time.monotonic() >= self._until:
                self._fetch()
            return self._token

    def _fetch(self) -> None:
        asked = time.monotonic()
        try:
            endpoint = json.loads(self._ask("GET", f"{self._issuer}/.well-known/openid-configuration"))["token_endpoint"]
            answer = json.loads(self._ask("POST", endpoint))
            self._token, self._until = str(answer["access_token"]), asked + _FRESH * float(answer.get("expires_in") or 0)
        except (ValueError, KeyError, TypeError) as error:
            raise TargetError(f"{self._issuer} answered without a token: {error!r}") from error

    def _ask(self, method: str, url: str) -> bytes:
        import httpx

        form, trusted = self._form if method == "POST" else None, ssl.create_default_context()
        try:
            answer = httpx.request(method, url, data=form, timeout=self._timeout, follow_redirects=True, verify=trusted)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise TargetError(f"{method} {url}: {error}; is authentication.issuerUrl right and the server up?") from error
        if not answer.is_success:
            raise TargetError(f"{method} {url}: {answer.status_code} {_reason(answer.text) or answer.reason_phrase}")
        return answer.content


def _reason(body: str) -> str:
    """RFC 6749, 5.2: ``error`` and ``error_description``."""
    try:
        said = json.loads(body)
        return ": ".join(str(said[key]) for key in ("error", "error_description") if key in said)
    except (ValueError, TypeError):
        return ""
