"""The implicit objectives of a profile: those of every run, and those that follow from its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.profile.settings import MqttSettings
from pytest_loadtest.verdict.objectives import AT_RATE, EXACTLY_ONCE, IMPLICIT, NO_FOREIGN, drained_within, not_early

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.message.due import Delays
    from pytest_loadtest.verdict.objectives import Objective


def implied(driver: object, topic: str | None, drain: int | None, connect_rate: float | None, delays: Delays | None) -> Iterator[Objective]:
    """What must hold unless the ``slo`` section bounds it.

    :param driver: the profile's section. :param topic: that exists without the run; None: the run makes its own.
    :param drain: ns that a backlog may take to drain; None: none is built. :param connect_rate: connections per second; None: unpaced.
    :param delays: None: messages are not delayed.
    """
    yield from IMPLICIT
    if topic is None and _fresh(driver):
        yield NO_FOREIGN
    if _exactly_once(driver):
        yield EXACTLY_ONCE
    if drain is not None:
        yield drained_within(drain)
    if connect_rate is not None:
        yield AT_RATE
    if delays is not None:
        yield not_early(delays.tick)


def _fresh(driver: object) -> bool:
    """No consumer takes over a session of an earlier run, which may still hold messages of that run (``cleanStart: false``)."""
    return not isinstance(driver, MqttSettings) or driver.clean_start


def _exactly_once(driver: object) -> bool:
    """MQTT at QoS 2. With MQTT 3.1.1 a retained message comes again with each subscribe after a lost connection."""
    return isinstance(driver, MqttSettings) and driver.qos == 2 and not (driver.retain and driver.protocol_version == "3.1.1")
