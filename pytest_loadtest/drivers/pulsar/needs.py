"""What Pulsar needs of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.brokers.java import MachineNeed, needed_jars
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars
from pytest_loadtest.drivers.pulsar import embedded

if TYPE_CHECKING:
    from collections.abc import Sequence


def needs() -> tuple[MachineNeed, ...]:
    """Look at this machine."""
    return judged(pulsar_jars.PULSAR.cached_versions(), lite=embedded.find() is not None)


def judged(cached: Sequence[str], *, lite: bool) -> tuple[MachineNeed, ...]:
    """:param cached: versions whose jars are here. :param lite: the stand-in is installed."""
    without = "no stand-in for smoke runs without Java"
    return (
        needed_jars(pulsar_jars.PULSAR, cached, "the first run on Pulsar fetches 240 MB, about a minute", "real Pulsar"),
        MachineNeed(name="pulsar-lite", found="installed" if lite else None, well=lite, cost=without, remedy=embedded.REMEDY),
    )
