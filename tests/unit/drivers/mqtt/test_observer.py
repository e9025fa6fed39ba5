"""The observer of MQTT topics."""

from __future__ import annotations

import pytest

from pytest_loadtest.drivers.mqtt.observer import check_filter, reported_version
from pytest_loadtest.errors import UsageError


@pytest.mark.parametrize("topic", ["", "a#", "#/a", "a/b+/c", "$share/g/a"])
def test_an_invalid_topic_filter_is_rejected(topic: str) -> None:
    """Also a shared subscription, which would take messages from others."""
    with pytest.raises(UsageError, match="topic"):
        check_filter(topic)


@pytest.mark.parametrize("topic", ["a", "a/b", "#", "a/#", "+/b/+", "$SYS/broker"])
def test_a_valid_topic_filter_is_accepted(topic: str) -> None:
    check_filter(topic)


@pytest.mark.parametrize(
    ("published", "version"),
    [
        (b"mosquitto version 2.0.11", "mosquitto 2.0.11"),
        (b"5.8.1", "5.8.1"),
        (b"a\nb\x00\xff", "a b\x00\ufffd"),
        (b"x" * 200, "x" * 100),
    ],
)
def test_a_published_version_is_one_short_line(published: bytes, version: str) -> None:
    assert reported_version(published) == version
