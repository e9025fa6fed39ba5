"""What a run needs of Pulsar's admin REST (v2): a namespace of its own, its topics and policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pytest_loadtest.drivers.pulsar.auth import admin_headers, tls_context
from pytest_loadtest.drivers.pulsar.connect_errors import credentials_remedy, explain_tls_error
from pytest_loadtest.errors import TargetError
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    import httpx

    from pytest_loadtest.drivers.pulsar.settings import Persistence, PulsarSettings

_UNLIMITED_BACKLOG = {"limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
_UNAUTHORIZED, _GONE, _NOT_ALLOWED, _CONFLICT = 401, 404, 405, 409
_REDIRECTS = 10


class RefusedError(TargetError):
    """An answer that is not a success."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class Admin:
    """Talks to ``http://host:8080``; every method raises :class:`TargetError` naming request, status and the broker's reason."""

    def __init__(self, url: str, settings: PulsarSettings) -> None:
        self._url, self._timeout, self._settings = url.rstrip("/"), settings.operation_timeout / SECOND, settings
        self._tls = tls_context(settings)
        self._headers = admin_headers(settings)

    def connection(self, timeout: float) -> httpx.Client:
        """For :meth:`ask`, again and again; the caller closes it. :param timeout: s."""
        import httpx

        return httpx.Client(verify=self._tls, trust_env=False, timeout=timeout)

    def ask(self, connection: httpx.Client, path: str) -> httpx.Response:
        """What is there, below the URL itself."""
        headers = self._headers | {"Accept-Encoding": "identity"}  # packing costs the broker more than sending
        return self._send(connection, "GET", f"{self._url}/{path}", headers=headers)

    def create_namespace(self, namespace: str, bundles: int | None = None) -> bool:
        """Make it, and its tenant where that is missing.

        :param bundles: that it is cut into; None: as many as the broker makes.
        :returns: whether the tenant was made. :raises TargetError: the broker refuses; it also does so where the namespace exists.
        """
        path, policies = f"namespaces/{namespace}", None if bundles is None else {"bundles": {"numBundles": bundles}}
        try:
            self._request("PUT", path, policies)
        except RefusedError as refused:
            if refused.status != _GONE:  # 404: there is no such tenant
                raise
            made = self._create_tenant(namespace.partition("/")[0])
            self._request("PUT", path, policies)
            return made
        return False

    def _create_tenant(self, tenant: str) -> bool:
        clusters = [cluster for cluster in self._request("GET", "clusters") if cluster != "global"]
        try:
            self._request("PUT", f"tenants/{tenant}", {"adminRoles": [], "allowedClusters": clusters})
        except RefusedError as refused:
            if refused.status != _CONFLICT:  # another run was faster
                raise
            return False
        return True

    def delete_tenant(self, tenant: str) -> None:
        """Delete it, unless somebody else has made a namespace in it."""
        self._delete(f"tenants/{tenant}", _GONE, _CONFLICT)

    def bookies(self) -> int | None:
        """How many bookies the cluster has registered, running or not; None where it does not say, as to clients that are no superuser."""
        try:
            return len(self._request("GET", "bookies/all")["bookies"])
        except RefusedError:
            return None

    def set_policies(self, namespace: str, persistence: Persistence | None) -> None:
        """Switch the backlog quota off, under which a broker stops producers, and set what is asked for."""
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
        """Make a topic. :param topic: with its domain, ``persistent://tenant/namespace/name``."""
        path = path_of(topic)
        if partitions > 1:
            self._request("PUT", f"{path}/partitions", partitions)
        elif topic.startswith("persistent:"):  # a broker makes a non-persistent topic when its first client connects
            self._request("PUT", path)

    def partitions(self, topic: str) -> int | None:
        """How many partitions an existing topic has, 0 for one that is not partitioned; None: there is no such topic."""
        path = path_of(topic)
        try:
            found = int(self._request("GET", f"{path}/partitions")["partitions"])
            if not found:  # older brokers say so of missing topics too
                self._request("GET", f"{path}/stats")
        except RefusedError as refused:
            if refused.status == _GONE:
                return None
            raise
        return found

    def stats(self, topic: str) -> dict[str, Any]:
        """Of a topic without partitions, or of one partition."""
        found: dict[str, Any] = self._request("GET", f"{path_of(topic)}/stats")
        return found

    def subscriptions(self, topic: str) -> list[str]:
        try:
            names: list[str] = self._request("GET", f"{path_of(topic)}/subscriptions")
        except RefusedError as refused:
            if refused.status != _GONE:
                raise
            return []
        return names

    def delete_subscription(self, topic: str, subscription: str) -> None:
        """Delete it, also with consumers still connected; one that is gone already is no error."""
        self._delete(f"{path_of(topic)}/subscription/{quote(subscription, safe='')}?force=true", _GONE)

    def delete_namespace(self, namespace: str) -> None:
        """Delete it with all topics and what is still connected to them; a namespace that is gone already is no error."""
        path = f"namespaces/{namespace}"
        try:
            self._request("DELETE", f"{path}?force=true")
        except RefusedError as refused:
            if refused.status == _GONE:
                return
            if refused.status != _NOT_ALLOWED:
                raise
            self._delete_piecewise(namespace)

    def _delete_piecewise(self, namespace: str) -> None:
        """Topic by topic, then the empty namespace: brokers forbid ``force=true`` unless they have ``forceDeleteNamespaceAllowed``."""
        for domain in ("persistent", "non-persistent"):
            partitioned = self._request("GET", f"{domain}/{namespace}/partitioned")
            for topic in partitioned:
                self._delete(f"{path_of(topic)}/partitions?force=true", _GONE)
            for topic in self._request("GET", f"{domain}/{namespace}"):
                if topic.rpartition("-partition-")[0] not in partitioned:
                    self._delete(f"{path_of(topic)}?force=true", _GONE)
        self._request("DELETE", f"namespaces/{namespace}")

    def _delete(self, path: str, *accepted: int) -> None:
        """:param accepted: statuses that are no error although the broker deleted nothing."""
        try:
            self._request("DELETE", path)
        except RefusedError as refused:
            if refused.status not in accepted:
                raise

    def _request(self, method: str, path: str, body: object = None) -> Any:
        """:returns: the answer, read as JSON; None where it is empty."""
        answer = self._ask(method, f"admin/v2/{path}", body)
        return answer.json() if answer.content else None

    def _ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        import httpx

        with httpx.Client(verify=self._tls, trust_env=False, timeout=self._timeout) as client:
            headers = self._headers | {"Content-Type": "application/json"}
            return self._send(client, method, f"{self._url}/{path}", headers=headers, json=body)

    def _send(self, client: httpx.Client, method: str, url: str, **options: Any) -> httpx.Response:
        """A broker redirects requests about a topic to the broker that owns it (307): all of it goes there, also the token, which httpx
        itself would not pass on to another host."""
        import httpx

        what = f"{method} {url}"
        try:
            answer = client.request(method, url, **options)
            for _ in range(_REDIRECTS):
                if not answer.has_redirect_location:
                    break
                answer = client.request(method, answer.url.join(answer.headers["Location"]), **options)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            speaks_tls = isinstance(error, httpx.RemoteProtocolError) and url.startswith("http:")
            remedy = "does the port speak TLS (https://)?" if speaks_tls else "is the URL right and the server up?"
            at = error.request.url if isinstance(error, httpx.RequestError) else httpx.URL()  # a redirect may lead to another host
            reason = explain_tls_error(error, self._settings, at.host, at.port or 443) or f"{error}; {remedy}"
            raise TargetError(f"{what}: {reason}") from error
        if not answer.is_success:
            raise RefusedError(f"{what}: {answer.status_code} {self._reason(answer)}", answer.status_code)
        return answer

    def _reason(self, answer: httpx.Response) -> str:
        try:
            said = str(answer.json()["reason"])
        except (ValueError, KeyError, TypeError):
            said = answer.reason_phrase
        if answer.status_code == _UNAUTHORIZED and said == answer.reason_phrase:  # of a role that may not do it, it says more
            return f"{said}: {credentials_remedy(self._settings)}"
        return " ".join(said.partition("Stacktrace:")[0].split())  # an error that the broker did not expect comes with all of it


def path_of(topic: str) -> str:
    """Where the REST has ``persistent://tenant/namespace/name``."""
    return quote(topic.replace("://", "/"), safe="/")
