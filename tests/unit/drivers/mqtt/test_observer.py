"""The observer of MQTT topics."""

from __future__ import annotations

import pytest

from pytest_loadtest.drivers.mqtt.observer import check_filter
from pytest_loadtest.errors import UsageError


@pytest.mark.parametrize("topic", ["", "a#", "#/a", "a/b+/c", "$share/g/a"])
def test_an_invalid_topic_filter_is_rejected(topic: str) -> None:
    """Also a shared subscription, which would take messages from others."""
    with pytest.raises(UsageError, match="topic"):
        check_filter(topic)


@pytest.mark.parametrize("topic", ["a", "a/b", "#", "a/#", "+/b/+", "$SYS/broker"])
def test_a_valid_topic_filter_is_accepted(topic: str) -> None:
    check_filter(topic)
