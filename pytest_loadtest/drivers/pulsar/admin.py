"""Pulsar's admin REST (v2), as far as a run needs it.

Namespaces, topics, subscriptions and policies.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from pytest_loadtest.drivers.pulsar.auth import admin_headers, tls_context
from pytest_loadtest.drivers.pulsar.connect_errors import credentials_remedy, explain_tls_error
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.profile.fields import spelling
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from pytest_loadtest.drivers.pulsar.settings import Persistence, PulsarSettings

T = TypeVar("T")

_UNLIMITED_BACKLOG = {"limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
# msg/s: how often a broker stores the position of a subscription. The
# default of Pulsar 4.2's ServiceConfiguration.
_MARK_DELETE_RATE = "managedLedgerDefaultMarkDeleteRateLimit"
_DEFAULT_MARK_DELETE_RATE = 1.0
_UNAUTHORIZED = 401
_GONE = 404
_NOT_ALLOWED = 405
_CONFLICT = 409
_REDIRECTS = 10
# Most bytes of an answer: ten times the metrics of a broker with 2 000 topics
# (24.5 MB). And s that they may take to arrive.
_MOST_BYTES = 1 << 28
_MOST_SECONDS = 60.0
_NOT_PULSAR = "is this the web service of a Pulsar broker?"
_QUORUMS = ("ensemble_size", "write_quorum", "ack_quorum")
REPLACED_BY_PERSISTENCE: Final = {
    "ensemble_size": "managedLedgerDefaultEnsembleSize",
    "write_quorum": "managedLedgerDefaultWriteQuorum",
    "ack_quorum": "managedLedgerDefaultAckQuorum",
    "deduplication_enabled": "brokerDeduplicationEnabled",
}
"""Field of ``driver.persistence`` → the broker's setting that it replaces."""
BACKLOG_QUOTA: Final = (
    "backlogQuotaDefaultLimitBytes",
    "backlogQuotaDefaultLimitGB",
    "backlogQuotaDefaultRetentionPolicy",
)
"""The broker's settings that a namespace without a backlog quota replaces."""
DECISIVE = (
    "managedLedgerDefaultEnsembleSize",
    "managedLedgerDefaultWriteQuorum",
    "managedLedgerDefaultAckQuorum",
    "maxMessageSize",
    "maxPendingPublishRequestsPerConnection",
    "maxUnackedMessagesPerConsumer",
    "dispatcherMaxReadBatchSize",
    "dispatcherMaxRoundRobinBatchSize",
    "backlogQuotaDefaultLimitBytes",
    "backlogQuotaDefaultLimitGB",
    "brokerDeduplicationEnabled",
    "acknowledgmentAtBatchIndexLevelEnabled",
    "activeConsumerFailoverDelayTimeMillis",
    "numIOThreads",
)


class RefusedError(TargetError):
    """An answer whose status is not a success."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class UnreachableError(TargetError):
    """No connection to the host of a request or a redirect: nothing was done there."""


class Admin:
    """A client of ``http://host:8080[,host2:8080]``.

    Every method raises :class:`TargetError` with request, status and the broker's reason.

    Requests go to the first host until a connection to it fails, then to the next one.
    """

    def __init__(self, url: str, settings: PulsarSettings) -> None:
        self.urls = split_urls(url)
        self._timeout = settings.operation_timeout / SECOND
        self._settings = settings
        self._failed = 0
        self._tls = tls_context(settings)
        self._headers = admin_headers(settings)

    def ready(self) -> bool:
        """Return whether clients can work."""
        # Pulsar 4.2.4 answers ``brokers/ready`` half a second before ``public/default`` exists; a
        # client that subscribes in between gets TopicNotFound.
        try:
            self._ask("GET", "admin/v2/brokers/ready")
            return "public/default" in (self._request("GET", "namespaces/public") or ())
        except TargetError:
            return False

    def version(self) -> str:
        """Return the version of the broker, ``unknown`` without an answer."""
        try:
            return self._ask("GET", "admin/v2/brokers/version").text.strip().strip('"') or "unknown"
        except TargetError:
            return "unknown"

    def decisive_settings(self) -> dict[str, str]:
        """Return the running broker's settings that influence results.

        Empty without an answer (only superusers get one).
        """
        runtime = self._runtime()
        return {key: str(runtime[key]) for key in DECISIVE if key in runtime}

    def _runtime(self) -> Mapping[str, Any]:
        """Return all settings of the running broker.

        Empty without an answer (only superusers get one).
        """
        try:
            runtime = self._request("GET", "brokers/configuration/runtime")
        except TargetError:
            return {}
        return runtime if isinstance(runtime, dict) else {}

    def connection(self, timeout: float) -> httpx.Client:
        """Return a connection for many calls of :meth:`ask`; the caller closes it.

        :param timeout: s.
        """
        import httpx

        return httpx.Client(verify=self._tls, trust_env=False, timeout=timeout)

    def ask(self, connection: httpx.Client, path: str) -> httpx.Response:
        """Return the answer to a GET.

        :param path: below the URL itself, so also outside of ``/admin/v2``.
        """
        # Compression would cost the broker more CPU than sending the text as it is.
        return self._send(
            connection, "GET", path, headers=self._headers | {"Accept-Encoding": "identity"}
        )

    def create_namespace(self, namespace: str, bundles: int | None = None) -> bool:
        """Create a namespace, and its tenant if that is missing.

        :param bundles: the number of bundles; None: the broker's default.
        :returns: whether the tenant was created.
        :raises TargetError: the broker refuses, also because the namespace exists.
        """
        path = f"namespaces/{namespace}"
        policies = None if bundles is None else {"bundles": {"numBundles": bundles}}
        try:
            self._request("PUT", path, policies)
        except RefusedError as refused:
            if refused.status != _GONE:
                # 404 means that the tenant is missing.
                raise
            created = self._create_tenant(namespace.partition("/")[0])
            self._request("PUT", path, policies)
            return created
        return False

    def _create_tenant(self, tenant: str) -> bool:
        clusters = [cluster for cluster in self._read(list, "clusters") if cluster != "global"]
        try:
            self._request(
                "PUT", f"tenants/{tenant}", {"adminRoles": [], "allowedClusters": clusters}
            )
        except RefusedError as refused:
            if refused.status != _CONFLICT:
                # 409 means that another run has created it in the meantime.
                raise
            return False
        return True

    def delete_tenant(self, tenant: str) -> None:
        """Delete a tenant, unless it has namespaces (created by others)."""
        self._delete(f"tenants/{tenant}", _GONE, _CONFLICT)

    def bookies(self) -> int | None:
        """Return the number of registered bookies, running or not.

        None if the cluster does not tell (it tells only superusers).
        """
        try:
            return len(self._read(list, "bookies/all", "bookies"))
        except RefusedError:
            return None

    def remove_backlog_quota(self, namespace: str) -> None:
        """Switch off the backlog quota of a namespace.

        By it a broker stops producers or discards messages.
        """
        path = f"namespaces/{namespace}/backlogQuota?backlogQuotaType=destination_storage"
        self._request("POST", path, _UNLIMITED_BACKLOG)

    def complete_persistence(self, persistence: Persistence) -> Persistence:
        """Return the policy with the running broker's own settings for the keys that are left out.

        :raises UsageError: a quorum is left out, and the broker does not
            report its own (only superusers get them).
        """
        missing = [field for field in _QUORUMS if getattr(persistence, field) is None]
        if not missing:
            return persistence
        runtime = self._runtime()
        own = {}
        for field in missing:
            key = REPLACED_BY_PERSISTENCE[field]
            if key in runtime:
                own[field] = int(runtime[key])
        unknown = [spelling(field) for field in missing if field not in own]
        if unknown:
            raise UsageError(
                f"driver.persistence: {', '.join(unknown)}: the broker does not report its own"
                " settings: write these keys too"
            )
        return persistence.model_copy(update=own)

    def set_persistence(self, namespace: str, persistence: Persistence) -> None:
        """Set the quorums of a namespace.

        Also set whether its topics deduplicate, if that is not left to the broker.

        :param persistence: with all quorums.
        """
        path = f"namespaces/{namespace}"
        quorums = {
            "bookkeeperEnsemble": persistence.ensemble_size,
            "bookkeeperWriteQuorum": persistence.write_quorum,
            "bookkeeperAckQuorum": persistence.ack_quorum,
            # The policy cannot leave this rate out: the broker's own one stays in force.
            "managedLedgerMaxMarkDeleteRate": float(
                self._runtime().get(_MARK_DELETE_RATE, _DEFAULT_MARK_DELETE_RATE)
            ),
        }
        self._request("POST", f"{path}/persistence", quorums)
        if persistence.deduplication_enabled is not None:
            self._request("POST", f"{path}/deduplication", persistence.deduplication_enabled)

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic. :param topic: with its domain, ``persistent://tenant/namespace/name``."""
        path = path_of(topic)
        if partitions > 1:
            self._request("PUT", f"{path}/partitions", partitions)
        elif topic.startswith("persistent:"):
            # A broker creates a non-persistent topic when its first client connects.
            self._request("PUT", path)

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions of an existing topic, 0 if it is not partitioned.

        None: there is no such topic.
        """
        path = path_of(topic)
        try:
            count = self._read(int, f"{path}/partitions", "partitions")
            if not count:
                # Older brokers answer 0 for missing topics too;
                # statistics exist only for existing ones.
                self._request("GET", f"{path}/stats")
        except RefusedError as refused:
            if refused.status == _GONE:
                return None
            raise
        return count

    def stats(self, topic: str, *, precise: bool = False) -> dict[str, Any]:
        """Return the statistics of a topic without partitions, or of one partition.

        :param precise: backlogs are counted from each subscription's position and not from
            counters, which may drift.
        """
        return self._read(
            dict, f"{path_of(topic)}/stats{'?getPreciseBacklog=true' if precise else ''}"
        )

    def subscriptions(self, topic: str) -> list[str]:
        try:
            return self._read(list, f"{path_of(topic)}/subscriptions")
        except RefusedError as refused:
            if refused.status != _GONE:
                raise
            return []

    def delete_subscription(self, topic: str, subscription: str) -> None:
        """Delete a subscription, even with consumers still connected; a missing one is no error."""
        self._delete(
            f"{path_of(topic)}/subscription/{quote(subscription, safe='')}?force=true", _GONE
        )

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, even with clients still connected; a missing one is no error."""
        self._delete(f"{path_of(topic)}?force=true", _GONE)

    def delete_namespace(self, namespace: str) -> None:
        """Delete a namespace with all its topics, even with clients still connected.

        A missing one is no error.
        """
        try:
            self._request("DELETE", f"namespaces/{namespace}?force=true")
        except RefusedError as refused:
            if refused.status == _GONE:
                return
            if refused.status != _NOT_ALLOWED:
                raise
            self._delete_piecewise(namespace)

    def _delete_piecewise(self, namespace: str) -> None:
        """Delete each topic, then the empty namespace.

        Brokers forbid ``force=true`` unless ``forceDeleteNamespaceAllowed`` is set.
        """
        for domain in ("persistent", "non-persistent"):
            partitioned = self._read(list, f"{domain}/{namespace}/partitioned")
            for topic in partitioned:
                self._delete(f"{path_of(topic)}/partitions?force=true", _GONE)
            for topic in self._read(list, f"{domain}/{namespace}"):
                if topic.rpartition("-partition-")[0] not in partitioned:
                    self._delete(f"{path_of(topic)}?force=true", _GONE)
        self._request("DELETE", f"namespaces/{namespace}")

    def _delete(self, path: str, *accepted: int) -> None:
        """:param accepted: statuses that are no error, although the broker deleted nothing."""
        try:
            self._request("DELETE", path)
        except RefusedError as refused:
            if refused.status not in accepted:
                raise

    def _request(self, method: str, path: str, body: object = None) -> Any:
        """:returns: the answer as JSON; None if it is empty."""
        answer = self._ask(method, f"admin/v2/{path}", body)
        try:
            return answer.json() if answer.content else None
        except ValueError as error:
            # Also for bytes that are not UTF-8.
            raise TargetError(
                f"{method} {answer.url}: the answer is not JSON: {_NOT_PULSAR}"
            ) from error

    def _read(self, form: type[T], path: str, key: str = "") -> T:
        """Return the answer to a GET, or the value of its key.

        :raises TargetError: it has another form, or lacks the key.
        """
        answer = self._request("GET", path)
        value = answer
        if key:
            value = answer.get(key) if isinstance(answer, dict) else None
        if not isinstance(value, form):
            raise TargetError(
                f"GET {self._current}/admin/v2/{path}: {str(answer)[:100]!r} is not an answer of"
                f" Pulsar: {_NOT_PULSAR}"
            )
        return value

    def _ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        import httpx

        with httpx.Client(verify=self._tls, trust_env=False, timeout=self._timeout) as client:
            headers = self._headers | {"Content-Type": "application/json"}
            return self._send(client, method, path, headers=headers, json=body)

    def _send(self, client: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request to the first host that can be reached, and follow redirects.

        :raises RefusedError: the answer is not a success. :raises TargetError: there is no answer.
        """
        for _ in self.urls[1:]:
            try:
                return self._send_to(client, method, f"{self._current}/{path}", **options)
            except UnreachableError:
                self._failed += 1
        return self._send_to(client, method, f"{self._current}/{path}", **options)

    @property
    def _current(self) -> str:
        return self.urls[self._failed % len(self.urls)]

    def _send_to(
        self, client: httpx.Client, method: str, url: str, **options: Any
    ) -> httpx.Response:
        """Send a request to one host, and follow redirects.

        :raises RefusedError: the answer is not a success. :raises TargetError: there is no answer.
        """
        import httpx

        what = f"{method} {url}"
        # A broker redirects requests about a topic to the broker that owns it (307).
        # httpx itself would not pass the token on to another host, so redirects are
        # followed here, with method, body and headers.
        try:
            answer = _answer_of(client, method, httpx.URL(url), options)
            for _ in range(_REDIRECTS):
                if not answer.has_redirect_location:
                    break
                answer = _answer_of(
                    client, method, answer.url.join(answer.headers["Location"]), options
                )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            speaks_tls = isinstance(error, httpx.RemoteProtocolError) and url.startswith("http:")
            remedy = (
                "does the port speak TLS (https://)?"
                if speaks_tls
                else "is the URL right and the server up?"
            )
            # After a redirect the error may be at another host than that of the URL.
            at = error.request.url if isinstance(error, httpx.RequestError) else httpx.URL()
            reason = (
                explain_tls_error(error, self._settings, at.host, at.port or 443)
                or f"{error}; {remedy}"
            )
            unreachable = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            raise (UnreachableError if unreachable else TargetError)(f"{what}: {reason}") from error
        if not answer.is_success:
            raise RefusedError(
                f"{what}: {answer.status_code} {self._reason(answer)}", answer.status_code
            )
        return answer

    def _reason(self, answer: httpx.Response) -> str:
        try:
            reason = str(answer.json()["reason"])
        except (ValueError, KeyError, TypeError):
            reason = answer.reason_phrase
        # A broker that knows the role but forbids the request gives a reason of its own; without
        # one the credentials are the problem.
        if answer.status_code == _UNAUTHORIZED and reason == answer.reason_phrase:
            return f"{reason}: {credentials_remedy(self._settings)}"
        # Unexpected errors of the broker come with their whole stack trace.
        return " ".join(reason.partition("Stacktrace:")[0].split())


def _answer_of(
    client: httpx.Client, method: str, url: httpx.URL, options: Mapping[str, Any]
) -> httpx.Response:
    """Return the answer to a request.

    A hostile server can neither fill the memory nor answer for ever.

    :raises TargetError: it tries.
    """
    import httpx

    body = bytearray()
    end = time.monotonic() + _MOST_SECONDS
    with client.stream(method, url, **options) as answer:
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > _MOST_BYTES:
                raise TargetError(
                    f"{method} {url}: the answer has more than {_MOST_BYTES >> 20} MiB, the limit:"
                    f" {_NOT_PULSAR}"
                )
            if time.monotonic() > end:
                raise TargetError(
                    f"{method} {url}: the answer was not complete after {_MOST_SECONDS:.0f} s:"
                    f" {_NOT_PULSAR}"
                )
    headers = {
        name: value
        for name, value in answer.headers.items()
        if name in ("content-type", "location")
    }
    return httpx.Response(
        answer.status_code,
        headers=headers,
        content=bytes(body),
        request=answer.request,
        extensions=answer.extensions,
    )


def split_urls(url: str) -> tuple[str, ...]:
    """Return the URL of each host of ``http://host:8080,host2:8080``."""
    scheme, mark, hosts = url.rstrip("/").partition("://")
    return tuple(f"{scheme}{mark}{host}" for host in hosts.split(","))


def path_of(topic: str) -> str:
    """Return the REST's path of ``persistent://tenant/namespace/name``."""
    return quote(topic.replace("://", "/"), safe="/")
