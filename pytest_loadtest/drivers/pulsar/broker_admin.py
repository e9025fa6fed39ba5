"""Requests to Pulsar's admin REST for starting and describing a broker."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials for the REST. :param tls: None: the certificates that this machine trusts."""

    headers: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None


OPEN = Access()


def get(admin_url: str, path: str, timeout: float = TIMEOUT, access: Access = OPEN) -> bytes | None:
    """Return the body of a 200 answer, None for any other. Proxies of the environment are not used."""
    import httpx

    # Only for https: reading the machine's certificates takes longer than the request.
    verify = (access.tls or ssl.create_default_context()) if admin_url.startswith("https:") else False
    try:
        answer = httpx.get(admin_url.rstrip("/") + path, timeout=timeout, trust_env=False, verify=verify, headers=access.headers)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    return answer.content if answer.status_code == 200 else None


def get_json(admin_url: str, path: str, timeout: float = TIMEOUT, access: Access = OPEN) -> Any:
    """Return the answer as JSON; None if there is no answer or it is not JSON."""
    body = get(admin_url, path, timeout, access)
    try:
        return None if body is None else json.loads(body)
    except ValueError:
        return None


def broker_ready(admin_url: str, timeout: float = TIMEOUT, access: Access = OPEN) -> bool:
    """Return whether clients can work."""
    # Pulsar 4.2.4 answers ``brokers/ready`` half a second before ``public/default`` exists; a client that subscribes in between gets
    # TopicNotFound.
    if get(admin_url, "/admin/v2/brokers/ready", timeout, access) is None:
        return False
    return "public/default" in (get_json(admin_url, "/admin/v2/namespaces/public", timeout, access) or ())


def broker_version(admin_url: str, access: Access = OPEN) -> str:
    """Return the version of the broker, ``unknown`` without an answer."""
    body = get(admin_url, "/admin/v2/brokers/version", access=access)
    return body.decode(errors="replace").strip().strip('"') if body else "unknown"


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


def decisive_settings(admin_url: str, access: Access = OPEN) -> dict[str, str]:
    """Return the running broker's settings that influence results; empty without an answer (it tells only superusers)."""
    runtime = get_json(admin_url, "/admin/v2/brokers/configuration/runtime", access=access)
    if not isinstance(runtime, dict):
        return {}
    return {key: str(runtime[key]) for key in DECISIVE if key in runtime}


def describe_broker(admin_url: str) -> tuple[str, dict[str, str]]:
    """Return version and :data:`DECISIVE` settings of a target that the run did not start."""
    return broker_version(admin_url), decisive_settings(admin_url)
