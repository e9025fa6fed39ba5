"""Reason codes in words (MQTT 5, 2.4; return codes of 3.1.1, 3.2.2.3 and 3.9.3)."""

from __future__ import annotations

from typing import Final

from pytest_loadtest.wire.mqtt.packets import CONNACK, SUBACK, V5

_V311_CONNACK: Final = {
    1: "Unacceptable protocol version", 2: "Identifier rejected", 3: "Server unavailable", 4: "Bad user name or password",
    5: "Not authorized",
}  # fmt: skip
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
    """What a code says in a packet of that kind."""
    if kind == CONNACK and version < V5:
        return _V311_CONNACK.get(code, f"return code {code}")
    if kind == SUBACK and not code:
        return "Granted QoS 0"
    return _REASONS.get(code, f"reason code 0x{code:02x}")
