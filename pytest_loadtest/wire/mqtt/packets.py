"""The MQTT control packets (2.1.2).

:mod:`~pytest_loadtest.wire.mqtt.codec` writes and reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    Properties = Mapping[str, Any]


# Protocol versions as CONNECT carries them (3.1.2.2).
V311: Final = 4
V5: Final = 5
CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE = range(1, 9)
SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(9, 16)
# The flags in the first byte are fixed, except for those of PUBLISH, which has no QoS 3 (2.1.3).
_PUBLISH_BYTES = {PUBLISH << 4 | flags for flags in range(16) if flags & 6 != 6}
_FLAGS_OF_TWO = {kind << 4 | 2 for kind in (PUBREL, SUBSCRIBE, UNSUBSCRIBE)}
_WITHOUT_FLAGS = {
    kind << 4
    for kind in range(CONNECT, AUTH + 1)
    if kind not in (PUBLISH, PUBREL, SUBSCRIBE, UNSUBSCRIBE)
}
FIRST_BYTES: Final = frozenset(_PUBLISH_BYTES | _FLAGS_OF_TWO | _WITHOUT_FLAGS)
"""The first bytes of all packets."""
FAILURE: Final = 0x80
"""Reason codes from 0x80 on are failures (2.4)."""
_NONE: Final[Properties] = {}


class Connect(NamedTuple):
    """CONNECT (3.1). :param version: V311 or V5. :param keep_alive: s."""

    client_id: str
    version: int = V5
    clean_start: bool = True
    keep_alive: int = 60
    username: str | None = None
    password: bytes | None = None
    properties: Properties = _NONE


class Connack(NamedTuple):
    """CONNACK (3.2)."""

    session_present: bool
    reason: int
    properties: Properties = _NONE


class Publish(NamedTuple):
    """PUBLISH (3.3). :param packet_id: 0 at QoS 0."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = _NONE


class TopicFilter(NamedTuple):
    """A topic filter with the options of its subscription (3.8.3.1).

    :param retain_handling: 0 to 2.
    """

    topic: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(NamedTuple):
    """SUBSCRIBE (3.8)."""

    packet_id: int
    filters: tuple[TopicFilter, ...]
    properties: Properties = _NONE


class Unsubscribe(NamedTuple):
    """UNSUBSCRIBE (3.10)."""

    packet_id: int
    topics: tuple[str, ...]
    properties: Properties = _NONE


class SubscriptionAnswer(NamedTuple):
    """SUBACK (3.9) or UNSUBACK (3.11).

    :param reasons: one for each topic; empty in an UNSUBACK of 3.1.1, which has none.
    """

    kind: int
    packet_id: int
    reasons: tuple[int, ...]
    properties: Properties = _NONE


class Ping(NamedTuple):
    """PINGREQ (3.12) or PINGRESP (3.13)."""

    kind: int


class Ending(NamedTuple):
    """DISCONNECT (3.14) or AUTH (3.15)."""

    kind: int
    reason: int = 0
    properties: Properties = _NONE


class ClientPacket(NamedTuple):
    """A packet that only clients may send, received from a broker.

    :param name: CONNECT, SUBSCRIBE or UNSUBSCRIBE.
    """

    name: str


Packet = (
    Connect
    | Connack
    | Publish
    | Subscribe
    | Unsubscribe
    | SubscriptionAnswer
    | Ping
    | Ending
    | ClientPacket
)


# Texts of reason codes (MQTT 5, 2.4) and of the return codes of MQTT 3.1.1 (3.2.2.3, 3.9.3).

_V311_CONNACK: Final = {
    1: "Unacceptable protocol version",
    2: "Identifier rejected",
    3: "Server unavailable",
    4: "Bad user name or password",
    5: "Not authorized",
}
_REASONS: Final = {
    0x00: "Success", 0x01: "Granted QoS 1", 0x02: "Granted QoS 2", 0x04: "Disconnect with will message", 0x10: "No matching subscribers",
    0x11: "No subscription existed", 0x18: "Continue authentication", 0x19: "Re-authenticate", 0x80: "Unspecified error",
    0x81: "Malformed packet", 0x82: "Protocol error", 0x83: "Implementation specific error", 0x84: "Unsupported protocol version",
    0x85: "Client identifier not valid", 0x86: "Bad user name or password", 0x87: "Not authorized", 0x88: "Server unavailable",
    0x89: "Server busy", 0x8A: "Banned", 0x8B: "Server shutting down", 0x8C: "Bad authentication method", 0x8D: "Keep alive timeout",
    0x8E: "Session taken over", 0x8F: "Topic filter invalid", 0x90: "Topic name invalid", 0x91: "Packet identifier in use",
    0x92: "Packet identifier not found", 0x93: "Receive maximum exceeded", 0x94: "Topic alias invalid", 0x95: "Packet too large",
    0x96: "Message rate too high", 0x97: "Quota exceeded", 0x98: "Administrative action", 0x99: "Payload format invalid",
    0x9A: "Retain not supported", 0x9B: "QoS not supported", 0x9C: "Use another server", 0x9D: "Server moved",
    0x9E: "Shared subscription not supported", 0x9F: "Connection rate exceeded", 0xA0: "Maximum connect time",
    0xA1: "Subscription identifiers not supported", 0xA2: "Wildcard subscription not supported",
}  # fmt: skip


def reason_text(kind: int, code: int, version: int) -> str:
    """Return the text of a reason code in a packet of this kind."""
    if kind == CONNACK and version < V5:
        return _V311_CONNACK.get(code, f"return code {code}")
    # Code 0 means something else in SUBACK (3.9.3) than in every other packet.
    if kind == SUBACK and not code:
        return "Granted QoS 0"
    return _REASONS.get(code, f"reason code 0x{code:02x}")
