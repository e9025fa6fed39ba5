"""Small sections of a profile: where the broker is, how one is started, when to blame the generator, how the highest rate is searched."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
    field_serializer,
    field_validator,
)
from pydantic_core import core_schema

from pytest_loadtest.kinds.registry import able
from pytest_loadtest.message.due import Delays
from pytest_loadtest.message.payloads import Bucket
from pytest_loadtest.profile.fields import (
    DURATION_SCHEMA,
    Count,
    Duration,
    Percent,
    PositiveDuration,
    Rate,
    Section,
    Share,
    Size,
    SloSection,
    Verbatim,
    invalid_field,
    spelling,
)
from pytest_loadtest.profile.secrets import shown_settings
from pytest_loadtest.values.addresses import INSTEAD, NO_USER, masked
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.verdict.objectives import Slo


def _tls(value: object) -> object:
    if not isinstance(value, bool) and value != "subscribers":
        raise invalid_field(f"{value!r} is none of its values", "write true, false or subscribers")
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
            raise invalid_field(f"{value!r} does not fit {pattern}")
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
            raise invalid_field(f"{masked(value)}: {NO_USER}", INSTEAD)
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

    slo: SloSection = Field(default_factory=Slo)
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


# The kinds of value of ``deliverAfter``, and what a profile's delays mean.

DELAY_EXAMPLE: Final = "write deliverAfter: 10s, or deliverAfter: {min: 1s, max: 60s}"


class DelayRange(Section):
    """From so long to so long after its intended time; every whole millisecond between is as likely."""

    min: Duration
    """The shortest delay."""
    max: PositiveDuration
    """The longest."""


def _delay_range(value: object) -> object:
    """A delay by itself is a range of one."""
    return value if isinstance(value, Mapping | DelayRange) or value is None else {"min": value, "max": value}


def _whole_milliseconds(value: DelayRange) -> DelayRange:
    """Brokers are told whole milliseconds."""
    if value.min % MILLISECOND or value.max % MILLISECOND:
        raise invalid_field("delays are whole milliseconds", DELAY_EXAMPLE)
    if value.min > value.max:
        raise invalid_field("min is above max", "swap them")
    return value


_DELAY_SCHEMA = {
    "anyOf": [
        DURATION_SCHEMA,
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["min", "max"],
            "properties": {"min": DURATION_SCHEMA, "max": DURATION_SCHEMA},
        },
    ],
}
Delay = Annotated[
    DelayRange, BeforeValidator(_delay_range), AfterValidator(_whole_milliseconds), WithJsonSchema(_DELAY_SCHEMA, mode="validation")
]
"""``10s``, or ``{min: 1s, max: 60s}``."""


def delays(after: DelayRange | None, at: int | None, seed: int, early: int) -> Delays | None:
    """What either of the two keys asks for; None: nothing. :param at: ns. :param early: ns that a message may come before it is due."""
    if after is not None:
        return Delays(seed=seed, least=after.min // MILLISECOND, most=after.max // MILLISECOND, tick=early)
    return None if at is None else Delays(seed=seed, at=at, tick=early)


# The ``skew`` section: topics of which each has its own share of the rate, its own size, and its own place on Pulsar's ring of hashes.

_LAST_HASH = 0xFFFFFFFF  # the ring of hashes has 32 bits
_ZIPF_TURNS = 10_000  # of a cycle, or a hundred a topic where that is more: shares are exact to as much


class SkewSection(Section):
    """How topics differ; every list has a value for each of them, in their order."""

    weights: Annotated[tuple[Count, ...], Field(min_length=1)] | None = Field(default=None, strict=False)
    """Of producerRate, the share of each topic: whole numbers, in proportion."""
    zipf: float | None = Field(default=None, gt=0, le=10)
    """In place of weights: the share of topic number n is as 1/n to this power."""
    swing: PositiveDuration | None = None
    """Every so long the shares move on by one topic: what the first had, the second has, until they are where they were."""
    message_sizes: Annotated[tuple[Size, ...], Field(min_length=1)] | None = Field(default=None, strict=False)
    """In place of messageSize: of the messages of each topic, envelope included."""
    hashes: Annotated[tuple[Annotated[int, Field(ge=0, le=_LAST_HASH)], ...], Field(min_length=1)] | None = Field(
        default=None, strict=False
    )
    """Pulsar: where each topic falls among the hashes that bundles are made of; topics get names for it."""

    def shares(self, topics: int) -> tuple[int, ...]:
        """Turns of each topic in a round: the weights; of a Zipf law the nearest whole numbers of ten thousand, or of a hundred a topic."""
        if self.zipf is None:
            return self.weights or (1,) * topics
        exact = [(number + 1) ** -self.zipf for number in range(topics)]
        whole, total = max(_ZIPF_TURNS, 100 * topics), sum(exact)
        return tuple(max(round(one / total * whole), 1) for one in exact)

    def period(self, rate: float) -> int:
        """Messages after which the shares move on, at so many msg/s; 0: never."""
        return 0 if self.swing is None else max(round(self.swing * rate / SECOND), 1)

    def buckets(self, topics: int) -> tuple[Bucket, ...] | None:
        """A size bucket for each size, of the weight of its topics; None where topics do not differ in it."""
        if self.message_sizes is None:
            return None
        weights = Counter[int]()
        for size, share in zip(self.message_sizes, (1,) * topics if self.swing else self.shares(topics), strict=False):
            weights[size] += share
        return tuple(Bucket(name=str(size), low=size, high=size + 1, weight=weight) for size, weight in weights.items())
