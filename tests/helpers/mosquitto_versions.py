"""What mosquitto 2.0.21 and 2.1.2 do otherwise than mosquitto 2.0.11."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_loadtest.brokers import BrokerFacts

OLD = (2, 0, 11)


def names_takeovers(facts: BrokerFacts) -> bool:
    """Return whether a broker tells a client of MQTT 5 that another one has its client id."""
    return not _is_old_mosquitto(facts)


def kept_messages(facts: BrokerFacts, queued: int, in_flight: int) -> int:
    """Return the number of messages that mosquitto keeps for a client that takes none.

    :param queued: ``max_queued_messages``. mosquitto 2.0.21 queues as many more as may be in flight.
    :param in_flight: the client's Receive Maximum.
    """
    more = 0 if _is_old_mosquitto(facts) else in_flight
    return queued + in_flight + more


def _is_old_mosquitto(facts: BrokerFacts) -> bool:
    if facts.name != "mosquitto":
        return False
    return tuple(map(int, str(facts.version).split("."))) <= OLD
