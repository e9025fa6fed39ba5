"""Texts of reason codes."""

from __future__ import annotations

import pytest

from pytest_loadtest.wire.mqtt import packets as p
from pytest_loadtest.wire.mqtt.packets import reason_text


@pytest.mark.parametrize(
    ("kind", "code", "version", "text"),
    [
        (p.CONNACK, 5, p.V311, "Not authorized"),
        (p.CONNACK, 77, p.V311, "return code 77"),
        (p.CONNACK, 0x87, p.V5, "Not authorized"),
        (p.SUBACK, 0x80, p.V311, "Unspecified error"),
        (p.DISCONNECT, 0xFE, p.V5, "reason code 0xfe"),
    ],
)
def test_a_reason_code_has_the_text_of_its_packet_and_version(
    kind: int, code: int, version: int, text: str
) -> None:
    assert reason_text(kind, code, version) == text
