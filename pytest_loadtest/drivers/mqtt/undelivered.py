"""The deliveries that mosquitto still has to make, by its ``$SYS`` topics (docs/decisions/032)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.base import DrainingRun, Undelivered
from pytest_loadtest.drivers.mqtt.observer import MqttObserver, sys_settings

if TYPE_CHECKING:
    from paho.mqtt.client import MQTTMessage


_VERSION: Final = "$SYS/broker/version"
_UPTIME: Final = "$SYS/broker/uptime"
_STORED: Final = "$SYS/broker/store/messages/count"
_RETAINED: Final = "$SYS/broker/retained messages/count"
# The broker whose sources were read: other brokers, and perhaps other versions, publish these
# topics with other meanings.
_READ: Final = b"mosquitto version 2.0."
# s; at sys_interval 1 an update comes every two seconds.
_TIMEOUT: Final = 10.0
_COMPLETE: Final = 2  # updates that have begun when the values of the first are known


class Update:
    """The values of one update, which are complete when the next one begins.

    A value that did not change is not published again.
    """

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.updates = 0

    def take(self, message: MQTTMessage) -> None:
        if message.topic == _UPTIME and not message.retain:
            # An update begins with the uptime, which always changes.
            self.updates += 1
        if self.updates < _COMPLETE:
            self.values[message.topic] = bytes(message.payload)


def mosquitto_undelivered(run: DrainingRun) -> Undelivered | None:
    """Return the messages in mosquitto's store beyond the retained ones.

    Each of them waits for a client or for its acknowledgement. None at QoS 0, where nothing is
    acknowledged; with ``retain``, as a waiting message may be a retained one at the same time; and
    for other brokers.

    :raises TargetError: the broker is not reached, or ends the connection.
    """
    settings = run.settings
    if not settings.qos or settings.retain:
        return None
    update = Update()
    end = time.monotonic() + _TIMEOUT
    observer = MqttObserver(
        run.target.url,
        [_VERSION, _UPTIME, _STORED, _RETAINED],
        sys_settings(run.target.url, settings),
        take=update.take,
    )
    try:
        while update.updates < _COMPLETE and time.monotonic() < end:
            observer.read(0.2)
    finally:
        observer.close()
    held = held_by(update)
    return None if held is None else Undelivered(held)


def held_by(update: Update) -> int | None:
    """Return the number of stored messages that are not retained ones; None if it is not known."""
    values = update.values
    if update.updates < _COMPLETE or not values.get(_VERSION, b"").startswith(_READ):
        return None
    stored = int(values[_STORED])
    retained = int(values[_RETAINED])
    return stored - retained if stored >= retained else None
