"""The implicit objectives of a profile: those of every run, and those that follow from its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.verdict.objectives import AT_RATE, EXACTLY_ONCE, IMPLICIT, NO_FOREIGN, drained_within, not_early

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.message.due import Delays
    from pytest_loadtest.profile.client import ClientSettings
    from pytest_loadtest.verdict.objectives import Objective


def implied(
    driver: ClientSettings, topic: str | None, drain: int | None, connect_rate: float | None, delays: Delays | None
) -> Iterator[Objective]:
    """What must hold unless the ``slo`` section bounds it.

    :param driver: the profile's section. :param topic: that exists without the run; None: the run makes its own.
    :param drain: ns that a backlog may take to drain; None: none is built. :param connect_rate: connections per second; None: unpaced.
    :param delays: None: messages are not delayed.
    """
    yield from IMPLICIT
    if topic is None and driver.fresh_subscriptions:
        yield NO_FOREIGN
    if driver.exactly_once:
        yield EXACTLY_ONCE
    if drain is not None:
        yield drained_within(drain)
    if connect_rate is not None:
        yield AT_RATE
    if delays is not None:
        yield not_early(delays.tick)
