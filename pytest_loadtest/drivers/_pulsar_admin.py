"""The little of Pulsar's admin REST (v2) that a run needs: a namespace of its own, its topics and policies."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from pytest_loadtest.drivers._pulsar_auth import admin_headers, admin_tls
from pytest_loadtest.errors import TargetError
from pytest_loadtest.quantities import SECOND

if TYPE_CHECKING:
    from pytest_loadtest.profile.settings import Persistence, PulsarSettings

_UNLIMITED_BACKLOG = {"limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
_GONE, _NOT_ALLOWED = 404, 405


class _RefusedError(TargetError):
    """An answer that is not a success."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class Admin:
    """Talks to ``http://host:8080``; every method raises :class:`TargetError` naming request, status and the broker's reason."""

    def __init__(self, url: str, settings: PulsarSettings) -> None:
        self._url, self._timeout = url.rstrip("/"), settings.operation_timeout / SECOND
        https = urllib.request.HTTPSHandler(context=admin_tls(settings))
        # no proxy of the environment stands between us and the broker; the issuer of tokens is somewhere else
        self._broker = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
        self._elsewhere = urllib.request.build_opener()
        self._headers = admin_headers(settings.authentication, self._fetch)

    def create_namespace(self, namespace: str, persistence: Persistence | None) -> None:
        """A namespace without backlog quota (a quota that holds producers would end the measurement), and with the policies asked for."""
        path = f"namespaces/{namespace}"
        self._request("PUT", path)
        self._request("POST", f"{path}/backlogQuota?backlogQuotaType=destination_storage", _UNLIMITED_BACKLOG)
        if persistence is not None:
            quorums = {
                "bookkeeperEnsemble": persistence.ensemble_size,
                "bookkeeperWriteQuorum": persistence.write_quorum,
                "bookkeeperAckQuorum": persistence.ack_quorum,
                "managedLedgerMaxMarkDeleteRate": 0.0,
            }
            self._request("POST", f"{path}/persistence", quorums)
            self._request("POST", f"{path}/deduplication", persistence.deduplication_enabled)

    def create_topic(self, topic: str, partitions: int) -> None:
        """:param topic: with its domain, ``persistent://tenant/namespace/name``."""
        path = topic.replace("://", "/")
        if partitions > 1:
            self._request("PUT", f"{path}/partitions", partitions)
        elif topic.startswith("persistent:"):  # one that is not persistent has nothing to create: it is there once a client is
            self._request("PUT", path)

    def delete_namespace(self, namespace: str) -> None:
        """Delete it with all topics and what is still connected to them; a namespace that is gone already is well."""
        path = f"namespaces/{namespace}"
        try:
            self._request("DELETE", f"{path}?force=true")
        except _RefusedError as refused:
            if refused.status == _GONE:
                return
            if refused.status != _NOT_ALLOWED:
                raise
            self._delete_piecewise(namespace)

    def _delete_piecewise(self, namespace: str) -> None:
        """Brokers forbid the forced way unless ``forceDeleteNamespaceAllowed``: topic by topic, then the empty namespace."""
        for domain in ("persistent", "non-persistent"):
            partitioned = self._request("GET", f"{domain}/{namespace}/partitioned")
            for topic in partitioned:
                self._delete_topic(f"{topic.replace('://', '/')}/partitions")
            for topic in self._request("GET", f"{domain}/{namespace}"):
                if topic.rpartition("-partition-")[0] not in partitioned:
                    self._delete_topic(topic.replace("://", "/"))
        self._request("DELETE", f"namespaces/{namespace}")

    def _delete_topic(self, path: str) -> None:
        try:
            self._request("DELETE", f"{path}?force=true")
        except _RefusedError as refused:
            if refused.status != _GONE:
                raise

    def _request(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | {"Content-Type": "application/json"}
        answer = self._send(self._broker, urllib.request.Request(f"{self._url}/admin/v2/{path}", data, headers, method=method))
        return json.loads(answer) if answer else None

    def _fetch(self, url: str, form: bytes | None) -> bytes:
        return self._send(self._elsewhere, urllib.request.Request(url, form))

    def _send(self, opener: urllib.request.OpenerDirector, request: urllib.request.Request) -> bytes:
        what = f"{request.get_method()} {request.full_url}"
        try:
            with opener.open(request, timeout=self._timeout) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            raise _RefusedError(f"{what}: {error.code} {_reason(error)}", error.code) from error
        except OSError as error:
            raise TargetError(f"{what}: {getattr(error, 'reason', error)}; is the URL right and the server up?") from error


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(error.reason)
