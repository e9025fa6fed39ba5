"""What results say of the target and of the client."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_loadtest.brokers.base import BrokerFacts
    from pytest_loadtest.drivers.base import DriverFacts


def broker_document(facts: BrokerFacts) -> dict[str, Any]:
    """What results say of the target."""
    return {
        "name": facts.name, "version": facts.version, "mode": facts.mode, "url": facts.url, "adminUrl": facts.admin_url,
        **({"subscriberUrl": facts.subscriber_url} if facts.subscriber_url else {}),
        "settings": dict(facts.settings), "evidence": facts.evidence,
    }  # fmt: skip


def driver_document(facts: DriverFacts | None) -> dict[str, Any]:
    """What results say of the client."""
    return {} if facts is None else asdict(facts)
