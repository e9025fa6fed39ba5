"""A broker that runs for a part of a test."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_loadtest import brokers

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def running(request: brokers.BrokerRequest) -> Iterator[brokers.Broker]:
    """Start the requested broker, and stop it at the end."""
    broker = brokers.start(request, lambda _: None)
    try:
        yield broker
    finally:
        broker.stop()
