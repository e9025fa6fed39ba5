"""The little of Pulsar's admin REST that starting and describing a broker needs."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

TIMEOUT = 5.0


def get(admin_url: str, path: str, timeout: float = TIMEOUT) -> bytes | None:
    """The body of a 200 answer, None for anything else. Direct: no proxy of the environment stands between us and the broker."""
    parts = urlsplit(admin_url)
    connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = connect(parts.hostname or "", parts.port, timeout=timeout)
        try:
            connection.request("GET", parts.path.rstrip("/") + path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError):
        return None
    return body if answer.status == 200 else None


def get_json(admin_url: str, path: str, timeout: float = TIMEOUT) -> Any:
    """The answer as JSON; None when there is none."""
    body = get(admin_url, path, timeout)
    try:
        return None if body is None else json.loads(body)
    except ValueError:
        return None


def ready(admin_url: str, timeout: float = TIMEOUT) -> bool:
    """Whether clients can work: ``brokers/ready`` answers half a second before ``public/default`` exists, so both are asked."""
    if get(admin_url, "/admin/v2/brokers/ready", timeout) is None:
        return False
    return "public/default" in (get_json(admin_url, "/admin/v2/namespaces/public", timeout) or ())


def version(admin_url: str) -> str:
    """What the broker says it is; ``unknown`` when it does not."""
    body = get(admin_url, "/admin/v2/brokers/version")
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


def decisive_settings(admin_url: str) -> dict[str, str]:
    """The settings that decide results, as the running broker has them; empty when it does not tell (superusers only)."""
    runtime = get_json(admin_url, "/admin/v2/brokers/configuration/runtime")
    if not isinstance(runtime, dict):
        return {}
    return {key: str(runtime[key]) for key in DECISIVE if key in runtime}
