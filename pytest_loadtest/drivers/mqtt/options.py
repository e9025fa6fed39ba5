"""What all MQTT clients of a driver have in common, and what a broker's CONNACK rules out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.wire.mqtt.packets import V5
from pytest_loadtest.wire.mqtt.properties import encode_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KEEP_ALIVE_TIMEOUT: Final = 0x8D
SESSION_TAKEN_OVER: Final = 0x8E
NO_RETAINED: Final = 2  # MQTT 5, 3.8.3.1: do not send retained messages at the time of the subscribe
MOST_INFLIGHT: Final = 65_535  # a broker's Receive Maximum, where it says none (MQTT 5, 3.2.2.3.3)
ALIAS: Final = 1  # of the one topic that a producer has


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What all clients of a driver have in common. Times in seconds; ``packet`` is the largest PUBLISH to be sent, in bytes, without its
    properties.

    :param version: as CONNECT has it: 4 is 3.1.1. :param user_properties: of each PUBLISH.
    :param topic_alias_maximum: that a consumer allows the broker; above 0, producers use an alias too.
    """

    version: int
    qos: int
    clean_start: bool
    session_expiry: int
    receive_maximum: int | None
    keep_alive: int
    username: str | None
    password: str | None
    shared: bool
    retain: bool
    packet: int
    user_properties: int = 0
    topic_alias_maximum: int = 0

    @property
    def v5(self) -> bool:
        """MQTT 5, with properties and reason codes."""
        return self.version >= V5

    @property
    def durable(self) -> bool:
        """Sessions outlive their connections."""
        return not self.clean_start or self.session_expiry > 0

    def publish_properties(self, *, aliased: bool) -> Mapping[str, Any]:
        """Of each PUBLISH under MQTT 5. :param aliased: its topic has an alias."""
        pairs = [(f"property-name-{number:02}", f"property-value-{number:02}") for number in range(self.user_properties)]
        return ({"topic_alias": ALIAS} if aliased else {}) | ({"user_property": pairs} if pairs else {})

    @property
    def properties(self) -> int:
        """Bytes of those, where the topic has an alias if it may, and of what says their length under MQTT 5."""
        return len(encode_properties(self.publish_properties(aliased=self.topic_alias_maximum > 0))) if self.v5 else 0

    def aliased(self, allowed: int) -> bool:
        """Whether a producer gives its topic an alias. :param allowed: how many the broker's CONNACK allows."""
        return self.topic_alias_maximum > 0 and allowed >= ALIAS


def lacking(options: ClientOptions, said: Callable[[str, Any], Any]) -> str | None:
    """What the broker cannot do of what the options ask for, by its CONNACK (MQTT 5, 3.2.2.3).

    :param said: a property of the CONNACK by its name, or what it is worth where it is missing.
    """
    most = said("maximum_qos", 2)
    if options.qos > most:
        return f"the broker allows QoS {most} at most, the profile asks for {options.qos}"
    size, largest = said("maximum_packet_size", None), options.packet + options.properties
    if size is not None and largest > size:
        return f"the broker takes packets of {size} bytes at most, the profile's largest message makes one of {largest}"
    if options.shared and not said("shared_subscription_available", 1):
        return "the broker has no shared subscriptions"
    if options.retain and not said("retain_available", 1):
        return "the broker does not retain messages"
    return None
