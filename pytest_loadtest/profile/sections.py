"""Small sections of a profile: target, broker, limits of the generator, search, delays, skew."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
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
from pytest_loadtest.message.payloads import MAX_PAYLOADS, Bucket
from pytest_loadtest.message.route import Carrier, Route, parse_place
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
from pytest_loadtest.values.addresses import INSTEAD, NO_USER, has_secret, masked
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.verdict.objectives import Slo


def _tls(value: object) -> object:
    if not isinstance(value, bool) and value != "subscribers":
        raise invalid_field(f"{value!r} is not a valid value", "write true, false or subscribers")
    return value


class SecuritySection(Section):
    """Security of a broker that the run starts as a process, with its own keys.

    Clients get matching ones unless the profile has some.
    """

    tls: Annotated[bool | Literal["subscribers"], BeforeValidator(_tls)] = False
    """true: the broker listens only with TLS. subscribers (MQTT): TLS on a second port for
    consumers, none for producers."""
    auth: Literal["token", "basic", "tls"] | None = None
    """How clients authenticate: by a token, by user and password (both Pulsar), or by a
    certificate, which needs tls."""


class TargetUrl:
    """Annotation of a URL whose scheme belongs to an installed kind of broker.

    :param capability: a field of :class:`~pytest_loadtest.kinds.DriverKind` that these kinds have.
    """

    def __init__(self, capability: str) -> None:
        self._capability = capability

    def _pattern(self) -> str:
        schemes: list[str] = []
        for kind in able(self._capability):
            schemes += map(re.escape, kind.target_schemes)
        if schemes[1:] == [f"{schemes[0]}s"]:
            return f"^{schemes[0]}s?://.+$"
        return f"^({'|'.join(schemes)})://.+$"

    def _check(self, value: str) -> str:
        pattern = self._pattern()
        if not re.match(pattern, value):
            raise invalid_field(f"{value!r} does not match {pattern}")
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"pattern": self._pattern(), **handler(core_schema.str_schema())}


class TargetSection(Section):
    """The broker under test: its address, or how the run starts it."""

    url: Annotated[str, TargetUrl("target_schemes")] | None = None
    """pulsar://host:6650, pulsar+ssl://, mqtt://host:1883, mqtts:// or loopback://; Pulsar and
    MQTT: several hosts, mqtt://a:1883,b:1883"""
    subscriber_url: Annotated[str, TargetUrl("subscriber_url")] | None = None
    """MQTT: address for consumers, if it differs from the producers' url."""
    admin_url: str | None = Field(default=None, pattern=r"^https?://.+$")
    """Pulsar's admin REST, http://host:8080: the run creates and deletes its own namespace there.
    """
    image: str | None = Field(default=None, pattern=r"^\S+$")
    """Instead of a url: the image that the run starts as a container, also of your own registry
    (registry.example/pulsar:4.2.4)."""
    security: SecuritySection | None = None
    """Instead of a url: TLS and authentication of the broker that the run starts as a process."""

    @field_validator("url", "subscriber_url", "admin_url", mode="before")
    @classmethod
    def _without_user(cls, value: object) -> object:
        if isinstance(value, str) and has_secret(value):
            raise invalid_field(f"{masked(value)}: {NO_USER}", INSTEAD)
        return value


class BrokerSection(Section):
    """Version and settings of a broker that the run starts itself."""

    version: str | None = None
    """Version of the broker, e.g. 4.0.0."""
    settings: dict[str, Verbatim] = Field(default_factory=dict, repr=False)
    """Settings in the broker's own configuration, by their names there."""
    brokers: Count | None = None
    """Start a cluster of processes with so many brokers; with bookies alone 1. Artemis: 2, a
    primary and its backup."""
    bookies: Count | None = None
    """Pulsar: bookies of that cluster; with brokers alone 1."""

    def nodes(self, roles: Sequence[str]) -> dict[str, int]:
        """Return the number of processes of each role; empty: a single process.

        :param roles: of a cluster of this kind of broker.
        """
        if not self.brokers and not self.bookies:
            return {}
        numbers = {"broker": self.brokers or 1, "bookie": self.bookies or 1}
        return {role: numbers[role] for role in roles}

    @field_serializer("settings", when_used="json")
    def _less_secrets(self, settings: dict[str, str]) -> dict[str, str]:
        return shown_settings(settings)


class GeneratorLimits(Section):
    """Limits beyond which the generator, not the target, set the pace, and the run is invalid."""

    send_delay_p99: Duration = 100 * MILLISECOND
    """p99 of sent − intended, without the time spent waiting for the target's full window."""
    receive_lag_p99: Duration = 100 * MILLISECOND
    """p99 of the time from the kernel's receipt of a message until the client took it; it counts if
    latencies were missed."""
    cpu: float = Field(default=0.95, gt=0)
    """Most cores that one worker's process may use."""
    stalled: Share = 0.10
    """Largest share of the measured phase by which one worker's loop may wake up late."""


class ScaledLimits(Section):
    """Limits of a scaled run's generator; the others stay as under ``generator``."""

    send_delay_p99: Duration | None = None
    """Instead of generator.sendDelayP99."""
    receive_lag_p99: Duration | None = None
    """Instead of generator.receiveLagP99."""
    cpu: float | None = Field(default=None, gt=0)
    """Instead of generator.cpu."""
    stalled: Share | None = None
    """Instead of generator.stalled."""


class ScaledSection(Section):
    """Objectives and limits of a scaled run (--load-scale, --load-duration).

    Such a run is for an environment smaller than production.
    """

    slo: SloSection = Field(default_factory=Slo)
    """Each key replaces the whole key of slo; numbers of messages and rates are not scaled."""
    generator: ScaledLimits = ScaledLimits()
    """Each key replaces the same key of generator."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The replaced keys: ``slo.throughput``, ``generator.cpu``."""
        slo = [f"slo.{key}" for key in self.slo]
        limits = self.generator.model_dump(exclude_none=True)
        return (*slo, *(f"generator.{spelling(key)}" for key in limits))


class SearchSection(Section):
    """Settings of the search for the highest rate at which all objectives hold."""

    start: Rate = Field(default=1000.0, gt=0)
    """Rate of the first step."""
    max: Rate | None = Field(default=None, gt=0)
    """Highest rate of a step."""
    hold: PositiveDuration = 30 * SECOND
    """Length of each step."""
    confirm: PositiveDuration = Field(
        default_factory=lambda data: 2 * data.get("hold", 30 * SECOND)
    )
    """Time for which the rate found must hold in the end; default: twice hold."""
    warmup: Duration = 5 * SECOND
    """Warm-up of each step."""
    precision: Percent = Field(default=0.02, ge=0.001, le=0.5)
    """Largest relative difference between the highest rate that held and the lowest that did not.
    """
    repeats: Count = Field(default=2, le=100)
    """Number of repeats of a step near the bound."""


# The values of ``deliverAfter``.

DELAY_EXAMPLE: Final = "write deliverAfter: 10s, or deliverAfter: {min: 1s, max: 60s}"


class DelayRange(Section):
    """A range of delays after the intended time.

    Every whole millisecond in it is equally likely.
    """

    min: Duration
    """Shortest delay."""
    max: PositiveDuration
    """Longest delay."""


def _delay_range(value: object) -> object:
    """Return the range that a single delay means."""
    if value is None or isinstance(value, Mapping | DelayRange):
        return value
    return {"min": value, "max": value}


def _whole_milliseconds(value: DelayRange) -> DelayRange:
    """Check a range. Delays are sent to brokers in whole milliseconds."""
    if value.min % MILLISECOND or value.max % MILLISECOND:
        raise invalid_field("a delay is not a whole number of milliseconds", DELAY_EXAMPLE)
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
    DelayRange,
    BeforeValidator(_delay_range),
    AfterValidator(_whole_milliseconds),
    WithJsonSchema(_DELAY_SCHEMA, mode="validation"),
]
"""``10s``, or ``{min: 1s, max: 60s}``."""


def delays(after: DelayRange | None, at: int | None, seed: int, early: int) -> Delays | None:
    """Return the delays of ``deliverAfter`` or ``deliverAt``, or None.

    :param at: ns. :param early: ns that a message may come early.
    """
    if after is not None:
        least = after.min // MILLISECOND
        most = after.max // MILLISECOND
        return Delays(seed=seed, least=least, most=most, tick=early)
    return None if at is None else Delays(seed=seed, at=at, tick=early)


# The ``skew`` section: topics with different shares of the rate, different sizes, and given places
# on Pulsar's ring of hashes.

_LAST_HASH = 0xFFFFFFFF
"""The last place of the ring, which has 32 bits."""
_ZIPF_TURNS = 10_000
"""Turns of a cycle, or 100 for each topic if that is more: shares are rounded to one turn."""


class SkewSection(Section):
    """Differences between topics; every list has a value for each topic, in their order."""

    weights: Annotated[tuple[Count, ...], Field(min_length=1)] | None = Field(
        default=None, strict=False
    )
    """Share of producerRate for each topic, as whole numbers in proportion."""
    zipf: float | None = Field(default=None, gt=0, le=10)
    """Instead of weights: the share of topic number n is proportional to 1/n to this power."""
    swing: PositiveDuration | None = None
    """Period after which the shares move on by one topic: the second topic gets the first one's
    share, and so on in a circle."""
    message_sizes: Annotated[tuple[Size, ...], Field(min_length=1)] | None = Field(
        default=None, strict=False
    )
    """Instead of messageSize: size of the messages of each topic, envelope included."""
    hashes: (
        Annotated[tuple[Annotated[int, Field(ge=0, le=_LAST_HASH)], ...], Field(min_length=1)]
        | None
    ) = Field(default=None, strict=False)
    """Pulsar: the hash of each topic, which determines its bundle; topics get names with these
    hashes."""

    def shares(self, topics: int) -> tuple[int, ...]:
        """Return the turns of each topic in a cycle.

        They are the weights, or the Zipf law in whole turns of at least 10 000.
        """
        if self.zipf is None:
            return self.weights or (1,) * topics
        exact = [(number + 1) ** -self.zipf for number in range(topics)]
        whole = max(_ZIPF_TURNS, 100 * topics)
        total = sum(exact)
        return tuple(max(round(share / total * whole), 1) for share in exact)

    def period(self, rate: float) -> int:
        """Return the number of messages after which the shares move on; 0: never.

        :param rate: msg/s.
        """
        if self.swing is None:
            return 0
        return max(round(self.swing * rate / SECOND), 1)

    def buckets(self, topics: int) -> tuple[Bucket, ...] | None:
        """Return a size bucket for each size, with the weight of its topics.

        None without ``messageSizes``.
        """
        if self.message_sizes is None:
            return None
        shares = (1,) * topics if self.swing else self.shares(topics)
        weights = Counter[int]()
        for size, share in zip(self.message_sizes, shares, strict=False):
            weights[size] += share
        return tuple(
            Bucket(name=str(size), low=size, high=size + 1, weight=weight)
            for size, weight in weights.items()
        )


# The sections ``route`` and ``payload``: load through a service under test.


def _place(value: str) -> str:
    try:
        parse_place(value)
    except ValueError as error:
        raise invalid_field(*str(error).split(": ", 1)) from None
    return value


def _both(value: object) -> object:
    """Return the section that one place for both directions means."""
    return {"in": value, "out": value} if isinstance(value, str) else value


MOST_OUTPUTS: Final = 16
"""The most outputs for each input: the pipeline keeps masks of messages that came once, twice …"""


PlaceText = Annotated[str, AfterValidator(_place)]


class EnvelopeSection(Section):
    """The places of envelopes, which the service copies from its input to its output."""

    in_: PlaceText = Field(default=Carrier.BODY.value, alias="in")
    """In messages to the service: json:/meta/ref, a token in this field of JSON; properties, a
    token in the property loadtest (Pulsar, MQTT 5); correlationData, in binary form (MQTT 5); or
    body, in binary form at its beginning (default)."""
    out: PlaceText = Carrier.BODY.value
    """In messages of the service: likewise."""


class OutputShare(Section):
    """Outputs of a service that chooses which inputs have one."""

    share: Percent = Field(gt=0, lt=1)
    """Share of the inputs that have an output."""
    within: Percent = Field(gt=0, lt=1)
    """How far the share may be off, in percent of the inputs: 20% within 1% is 19% to 21%."""


class RouteSection(Section):
    """The path of messages through a service under test."""

    input: str = Field(min_length=1)
    """Topics that producers send to, and the service reads; {topic} is the number of each."""
    output: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        BeforeValidator(
            lambda value: [value] if isinstance(value, str) else value,
            json_schema_input_type=str | tuple[str, ...],
        ),
        Field(min_length=1),
    ] = Field(strict=False)
    """Topics that the service sends to, and the run's consumers read: one message for each message
    of the input topic with the same number. A list if an output may come on one of several."""
    outputs: Annotated[int, Field(ge=1, le=MOST_OUTPUTS)] | OutputShare = 1
    """Number of messages that the service sends for each that it gets, on each subscription; or
    {share: 20%, within: 1%}, if the service chooses which messages have one."""
    envelope: Annotated[
        EnvelopeSection, BeforeValidator(_both, json_schema_input_type=PlaceText | EnvelopeSection)
    ] = EnvelopeSection()
    """The place of the envelope in messages; one for both directions, or {in: …, out: …}."""
    tap: bool = False
    """One more subscription on each input topic, so that reports tell the time until the service
    could have a message from the time after it. The broker delivers each input once more."""

    @property
    def due(self) -> int:
        """The most outputs that are due for each input."""
        return self.outputs if isinstance(self.outputs, int) else 1

    @property
    def choice(self) -> OutputShare | None:
        """The share of inputs with an output, if the service chooses; otherwise None."""
        return None if isinstance(self.outputs, int) else self.outputs

    def route(self) -> Route:
        """Return the route for planning and drivers."""
        return Route(
            input=self.input,
            output=self.output,
            sent=parse_place(self.envelope.in_),
            received=parse_place(self.envelope.out),
        )


class PayloadSection(Section):
    """Bodies rendered from templates (Jinja2)."""

    template: str | None = Field(default=None, min_length=1)
    """A file, relative to this profile, or the template itself as a text of several lines."""
    templates: dict[str, Annotated[int, Field(ge=0)]] | None = None
    """Files of several templates, each with its relative weight."""
    pool: Annotated[Count, Field(le=MAX_PAYLOADS)] = 100
    """Number of bodies rendered ahead from each template."""

    @property
    def weights(self) -> dict[str, int]:
        """The weight of each template, by its file; the name of a template in place is empty."""
        if self.templates is not None:
            return self.templates
        return {"" if self.in_place else self.template or "": 1}

    @property
    def in_place(self) -> bool:
        """True if the profile has the template itself."""
        return self.template is not None and ("\n" in self.template or "{" in self.template)
