"""Small sections of a profile: where the broker is, how one is started, when to blame the generator, how the highest rate is searched."""

from __future__ import annotations

from pydantic import Field

from pytest_loadtest.profile.fields import Count, Duration, Percent, PositiveDuration, Rate, Section, Share, Verbatim
from pytest_loadtest.quantities import MILLISECOND, SECOND


class TargetSection(Section):
    """The broker under test, where it is not started by the run."""

    url: str = Field(pattern=r"^(pulsar|pulsar\+ssl|mqtt|mqtts|loopback)://.+$")
    """pulsar://host:6650, pulsar+ssl://, mqtt://host:1883, mqtts:// or loopback://"""
    admin_url: str | None = Field(default=None, pattern=r"^https?://.+$")
    """Pulsar's admin REST, http://host:8080: the run makes and deletes its own namespace there."""


class BrokerSection(Section):
    """Wishes for a broker that the run starts itself."""

    version: str | None = None
    """Of the broker, e.g. 4.0.0."""
    settings: dict[str, Verbatim] = Field(default_factory=dict)
    """Lines for the broker's own configuration, as it spells them."""


class GeneratorLimits(Section):
    """Beyond any of these the generator, not the target, set the pace, and the run is invalid."""

    send_delay_p99: Duration = 100 * MILLISECOND
    """p99 of sent − intended, less the time blocked before the target's full window."""
    cpu: float = Field(default=0.95, gt=0)
    """Cores that one worker's process may use."""
    stalled: Share = 0.10
    """Share of the measured phase that one worker's loop may wake up late."""


class SearchSection(Section):
    """How the highest rate is looked for at which all objectives hold."""

    start: Rate = Field(default=1000.0, gt=0)
    """Rate of the first step."""
    max: Rate | None = Field(default=None, gt=0)
    """No step is above this rate."""
    hold: PositiveDuration = 30 * SECOND
    """How long each step lasts."""
    confirm: PositiveDuration = Field(default_factory=lambda data: 2 * data.get("hold", 30 * SECOND))
    """How long the rate found must hold in the end; default: twice hold."""
    warmup: Duration = 5 * SECOND
    """Warm-up of each step."""
    precision: Percent = Field(default=0.02, gt=0, le=0.5)
    """How near the highest rate that held and the lowest that did not must come."""
    repeats: Count = 2
    """How often a step near the bound is repeated."""
