"""OAuth2's client credentials flow (RFC 6749, 4.4): tokens from an issuer, kept as long as they hold."""

from __future__ import annotations

import json
import ssl
import threading
import time
from typing import TYPE_CHECKING, Final

from pytest_loadtest.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
