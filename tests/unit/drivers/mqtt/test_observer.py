"""The observer of MQTT topics."""

from __future__ import annotations

import pytest

from pytest_loadtest.drivers.mqtt.observer import check_filter
from pytest_loadtest.errors import UsageError


@pytest.mark.parametrize("topic", ["", "a#", "#/a", "a/b+/c", "$share/g/a"])
def test_no_topic_filter(topic: str) -> None:
    """Malformed ones, and shared subscriptions, which would take messages away."""
    with pytest.raises(UsageError, match="topic"):
        check_filter(topic)


@pytest.mark.parametrize("topic", ["a", "a/b", "#", "a/#", "+/b/+", "$SYS/broker"])
def test_topic_filters(topic: str) -> None:
    """As MQTT has them."""
    check_filter(topic)
