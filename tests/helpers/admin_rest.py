"""Requests to the admin REST of a real Pulsar."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_loadtest import brokers


def ask(broker: brokers.Broker, path: str, method: str = "GET", body: object = None) -> Any:
    """Return the answer, None if it is empty."""
    data = None if body is None else json.dumps(body).encode()
    url, headers = f"{broker.facts.admin_url}/admin/v2/{path}", {"Content-Type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(url, data, headers, method=method), timeout=20
    ) as answer:
        return json.loads(answer.read() or "null")
