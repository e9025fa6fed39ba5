"""Small sections of a profile: where the broker is, how one is started, when to blame the generator, how the highest rate is searched."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, field_serializer, field_validator
from pydantic_core import core_schema

from pytest_loadtest.kinds.registry import able
from pytest_loadtest.profile.fields import (
    Count,
    Duration,
    Percent,
    PositiveDuration,
    Rate,
    Raw,
    Section,
    Share,
    Verbatim,
    fault,
    spelling,
)  # fmt: skip
from pytest_loadtest.profile.secrets import shown_settings
from pytest_loadtest.values.addresses import INSTEAD, NO_USER, masked
from pytest_loadtest.values.quantities import MILLISECOND, SECOND


def _tls(value: object) -> object:
    if not isinstance(value, bool) and value != "subscribers":
        raise fault(f"{value!r} is none of its values", "write true, false or subscribers")
    return value


class SecuritySection(Section):
    """A broker that the run starts as a process, with keys of its own; the run's clients get theirs unless the profile says otherwise."""

    tls: Annotated[bool | Literal["subscribers"], BeforeValidator(_tls)] = False
    """true: it listens with TLS alone. subscribers (MQTT): on a second port, for the consumers; producers connect to a plain one."""
    auth: Literal["token", "basic", "tls"] | None = None
    """Who connects must say who it is: by a token, by user and password (both Pulsar), or by a certificate, which needs tls."""


class TargetUrl:
    """Annotation of a URL: its scheme is one of the installed kinds'.

    :param capability: a field of :class:`~pytest_loadtest.kinds.DriverKind` that these kinds have.
    """

    def __init__(self, capability: str) -> None:
        self._capability = capability

    def _pattern(self) -> str:
        schemes = [re.escape(scheme) for kind in able(self._capability) for scheme in kind.target_schemes]
        short = f"{schemes[0]}s?" if schemes[1:] == [f"{schemes[0]}s"] else f"({'|'.join(schemes)})"
        return f"^{short}://.+$"

    def _check(self, value: str) -> str:
        if not re.match(pattern := self._pattern(), value):
            raise fault(f"{value!r} does not fit {pattern}")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"pattern": self._pattern(), **handler(core_schema.str_schema())}


class TargetSection(Section):
    """The broker under test: where it is, or how the run starts it."""

    url: Annotated[str, TargetUrl("target_schemes")] | None = None
    """pulsar://host:6650, pulsar+ssl://, mqtt://host:1883, mqtts:// or loopback://"""
    subscriber_url: Annotated[str, TargetUrl("subscriber_url")] | None = None
    """MQTT: where consumers connect, when that is another address than the producers' url."""
    admin_url: str | None = Field(default=None, pattern=r"^https?://.+$")
    """Pulsar's admin REST, http://host:8080: the run makes and deletes its own namespace there."""
    image: str | None = Field(default=None, pattern=r"^\S+$")
    """In place of a url: the image that the run starts as a container, as of a registry of your own (registry.example/pulsar:4.2.4)."""
    security: SecuritySection | None = None
    """In place of a url: what the broker that the run starts as a process asks of its clients."""

    @field_validator("url", "subscriber_url", "admin_url", mode="before")
    @classmethod
    def _without_user(cls, value: object) -> object:
        if isinstance(value, str) and "@" in value:
            raise fault(f"{masked(value)}: {NO_USER}", INSTEAD)
        return value


class BrokerSection(Section):
    """Wishes for a broker that the run starts itself."""

    version: str | None = None
    """Of the broker, e.g. 4.0.0."""
    settings: dict[str, Verbatim] = Field(default_factory=dict, repr=False)
    """Lines for the broker's own configuration, as it spells them."""

    @field_serializer("settings", when_used="json")
    def _less_secrets(self, settings: dict[str, str]) -> dict[str, str]:
        return shown_settings(settings)


class GeneratorLimits(Section):
    """Beyond any of these the generator, not the target, set the pace, and the run is invalid."""

    send_delay_p99: Duration = 100 * MILLISECOND
    """p99 of sent − intended, less the time blocked before the target's full window."""
    cpu: float = Field(default=0.95, gt=0)
    """Cores that one worker's process may use."""
    stalled: Share = 0.10
    """Share of the measured phase that one worker's loop may wake up late."""


class ScaledLimits(Section):
    """Limits of a scaled run's generator; what is left out stays as under ``generator``."""

    send_delay_p99: Duration | None = None
    """Instead of generator.sendDelayP99."""
    cpu: float | None = Field(default=None, gt=0)
    """Instead of generator.cpu."""
    stalled: Share | None = None
    """Instead of generator.stalled."""


class ScaledSection(Section):
    """What bounds a run that is scaled (--load-scale, --load-duration), where less than production carries it."""

    slo: Raw = Field(default_factory=dict)
    """Each key takes the place of the same key of slo, as a whole; numbers of messages and rates are taken as they are written."""
    generator: ScaledLimits = ScaledLimits()
    """Each key takes the place of the same key of generator."""

    @property
    def keys(self) -> tuple[str, ...]:
        """What it bounds: ``slo.throughput``, ``generator.cpu``."""
        limits = self.generator.model_dump(exclude_none=True)
        return (*(f"slo.{key}" for key in self.slo), *(f"generator.{spelling(key)}" for key in limits))


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
    precision: Percent = Field(default=0.02, ge=0.001, le=0.5)
    """How near the highest rate that held and the lowest that did not must come."""
    repeats: Count = Field(default=2, le=100)
    """How often a step near the bound is repeated."""
