"""The MQTT control packets (2.1.2) that :mod:`~pytest_loadtest.wire.mqtt.codec` writes and reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    Properties = Mapping[str, Any]

V311: Final = 4
V5: Final = 5
CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE = range(1, 9)
SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(9, 16)
FAILURE: Final = 0x80
"""Reason codes from here on are failures (2.4)."""
_NONE: Final[Properties] = {}


class Connect(NamedTuple):
    """3.1. :param version: V311 or V5. :param keep_alive: s."""

    client_id: str
    version: int = V5
    clean_start: bool = True
    keep_alive: int = 60
    username: str | None = None
    password: bytes | None = None
    properties: Properties = _NONE


class Connack(NamedTuple):
    """3.2."""

    session_present: bool
    reason: int
    properties: Properties = _NONE


class Publish(NamedTuple):
    """3.3. :param packet_id: 0 at QoS 0."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = _NONE


class TopicFilter(NamedTuple):
    """What a subscription asks for, with its options (3.8.3.1). :param retain_handling: 0 to 2."""

    topic: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(NamedTuple):
    """3.8."""

    packet_id: int
    filters: tuple[TopicFilter, ...]
    properties: Properties = _NONE


class Unsubscribe(NamedTuple):
    """3.10."""

    packet_id: int
    topics: tuple[str, ...]
    properties: Properties = _NONE


class SubscriptionAnswer(NamedTuple):
    """3.9 and 3.11. :param kind: SUBACK or UNSUBACK. :param reasons: one for each topic; none in an UNSUBACK of 3.1.1."""

    kind: int
    packet_id: int
    reasons: tuple[int, ...]
    properties: Properties = _NONE


class Ping(NamedTuple):
    """3.12 and 3.13. :param kind: PINGREQ or PINGRESP."""

    kind: int


class Ending(NamedTuple):
    """3.14 and 3.15. :param kind: DISCONNECT or AUTH."""

    kind: int
    reason: int = 0
    properties: Properties = _NONE


class ClientPacket(NamedTuple):
    """A packet that only clients send, where a broker sent it. :param name: CONNECT, SUBSCRIBE or UNSUBSCRIBE."""

    name: str


Packet = Connect | Connack | Publish | Subscribe | Unsubscribe | SubscriptionAnswer | Ping | Ending | ClientPacket
