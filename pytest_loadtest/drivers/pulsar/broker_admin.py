"""The little of Pulsar's admin REST that starting and describing a broker needs."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Access:
    """What the REST wants of whoever asks it. :param tls: None: the certificates that this machine trusts."""

    headers: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None


OPEN = Access()


def get(admin_url: str, path: str, timeout: float = TIMEOUT, access: Access = OPEN) -> bytes | None:
    """The body of a 200 answer, None for anything else. Direct: no proxy of the environment stands between us and the broker."""
    import httpx

    # only where it is needed: reading certificates takes longer than asking
    verify = (access.tls or ssl.create_default_context()) if admin_url.startswith("https:") else False
    try:
        answer = httpx.get(admin_url.rstrip("/") + path, timeout=timeout, trust_env=False, verify=verify, headers=access.headers)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    return answer.content if answer.status_code == 200 else None


def get_json(admin_url: str, path: str, timeout: float = TIMEOUT, access: Access = OPEN) -> Any:
    """The answer as JSON; None when there is none."""
    body = get(admin_url, path, timeout, access)
    try:
        return None if body is None else json.loads(body)
    except ValueError:
        return None


def broker_ready(admin_url: str, timeout: float = TIMEOUT, access: Access = OPEN) -> bool:
    """Whether clients can work: ``brokers/ready`` answers half a second before ``public/default`` exists, so both are asked."""
    if get(admin_url, "/admin/v2/brokers/ready", timeout, access) is None:
        return False
    return "public/default" in (get_json(admin_url, "/admin/v2/namespaces/public", timeout, access) or ())


def broker_version(admin_url: str, access: Access = OPEN) -> str:
    """What the broker says it is; ``unknown`` when it does not."""
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
    """The settings that decide results, as the running broker has them; empty when it does not tell (superusers only)."""
    runtime = get_json(admin_url, "/admin/v2/brokers/configuration/runtime", access=access)
    if not isinstance(runtime, dict):
        return {}
    return {key: str(runtime[key]) for key in DECISIVE if key in runtime}


def describe_broker(admin_url: str) -> tuple[str, dict[str, str]]:
    """Version and the settings that decide results, of a target that the run did not start."""
    return broker_version(admin_url), decisive_settings(admin_url)
