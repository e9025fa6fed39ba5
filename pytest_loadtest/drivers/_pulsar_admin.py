"""The little of Pulsar's admin REST (v2) that a run needs: a namespace of its own, its topics and policies."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pytest_loadtest.drivers._pulsar_auth import admin_headers, admin_tls
from pytest_loadtest.errors import TargetError
from pytest_loadtest.quantities import SECOND

if TYPE_CHECKING:
    from pytest_loadtest.profile.settings import Persistence, PulsarSettings

_UNLIMITED_BACKLOG = {"limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
_GONE, _NOT_ALLOWED, _CONFLICT = 404, 405, 409


class _RefusedError(TargetError):
    """An answer that is not a success."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class _ToTheOwner(urllib.request.HTTPRedirectHandler):
    """A broker sends requests about a topic on to its owner (307), whatever their method; urllib follows reading ones only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request:
        return urllib.request.Request(newurl, req.data, dict(req.header_items()), method=req.get_method())


class Admin:
    """Talks to ``http://host:8080``; every method raises :class:`TargetError` naming request, status and the broker's reason."""

    def __init__(self, url: str, settings: PulsarSettings) -> None:
        self._url, self._timeout = url.rstrip("/"), settings.operation_timeout / SECOND
        https = urllib.request.HTTPSHandler(context=admin_tls(settings))
        # no proxy of the environment stands between us and the broker; the issuer of tokens is somewhere else
        self._broker = urllib.request.build_opener(urllib.request.ProxyHandler({}), https, _ToTheOwner())
        self._elsewhere = urllib.request.build_opener()
        self._headers = admin_headers(settings.authentication, self._fetch)

    def create_namespace(self, namespace: str) -> bool:
        """:returns: whether its tenant was missing and had to be made. One that is there already is an error."""
        path = f"namespaces/{namespace}"
        try:
            self._request("PUT", path)
        except _RefusedError as refused:
            if refused.status != _GONE:  # 404: there is no such tenant
                raise
            made = self._create_tenant(namespace.partition("/")[0])
            self._request("PUT", path)
            return made
        return False

    def _create_tenant(self, tenant: str) -> bool:
        clusters = [cluster for cluster in self._request("GET", "clusters") if cluster != "global"]
        try:
            self._request("PUT", f"tenants/{tenant}", {"adminRoles": [], "allowedClusters": clusters})
        except _RefusedError as refused:
            if refused.status != _CONFLICT:  # another run was faster
                raise
            return False
        return True

    def delete_tenant(self, tenant: str) -> None:
        """Unless somebody else has made a namespace in it."""
        self._delete(f"tenants/{tenant}", _GONE, _CONFLICT)

    def set_policies(self, namespace: str, persistence: Persistence | None) -> None:
        """No backlog quota (one that holds producers would end the measurement), and the policies asked for."""
        path = f"namespaces/{namespace}"
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

    def partitions(self, topic: str) -> int | None:
        """How many partitions an existing topic has, 0 for one that is not partitioned; None: there is no such topic."""
        path = topic.replace("://", "/")
        try:
            found = int(self._request("GET", f"{path}/partitions")["partitions"])
            if not found:  # older brokers say so of missing topics too
                self._request("GET", f"{path}/stats")
        except _RefusedError as refused:
            if refused.status == _GONE:
                return None
            raise
        return found

    def subscriptions(self, topic: str) -> list[str]:
        names: list[str] = self._request("GET", f"{topic.replace('://', '/')}/subscriptions")
        return names

    def delete_subscription(self, topic: str, subscription: str) -> None:
        """Also with consumers still connected; one that is gone already is well."""
        self._delete(f"{topic.replace('://', '/')}/subscription/{quote(subscription, safe='')}?force=true", _GONE)

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
                self._delete(f"{topic.replace('://', '/')}/partitions?force=true", _GONE)
            for topic in self._request("GET", f"{domain}/{namespace}"):
                if topic.rpartition("-partition-")[0] not in partitioned:
                    self._delete(f"{topic.replace('://', '/')}?force=true", _GONE)
        self._request("DELETE", f"namespaces/{namespace}")

    def _delete(self, path: str, *well: int) -> None:
        """:param well: refusals that are as good."""
        try:
            self._request("DELETE", path)
        except _RefusedError as refused:
            if refused.status not in well:
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
