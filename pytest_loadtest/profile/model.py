"""The frozen :class:`Profile`: what a YAML file says, units resolved, defaults filled in."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from pytest_loadtest.message.payloads import MAX_PAYLOADS
from pytest_loadtest.message.samples import WIDTH
from pytest_loadtest.profile.client import (  # pydantic reads it
    AnyKind,
    ClientSettings,  # pydantic reads it
    default_settings,
)
from pytest_loadtest.profile.fields import (
    MOST_DURATION,
    Count,
    Distribution,
    Duration,
    ParsedSection,
    PositiveDuration,
    Rate,
    Section,
    Share,
    Size,
    SloSection,
)
from pytest_loadtest.profile.sections import (
    BrokerSection,
    Delay,
    GeneratorLimits,
    ScaledSection,
    SearchSection,
    SkewSection,  # pydantic reads it
    TargetSection,
    delays,
)
from pytest_loadtest.profile.stages import Stage, parse_buckets
from pytest_loadtest.values.quantities import MINUTE, SECOND, ByteRate
from pytest_loadtest.verdict.abort import Abort
from pytest_loadtest.verdict.objectives import AT_RATE, EXACTLY_ONCE, IMPLICIT, NO_FOREIGN, Objective, Slo, drained_within, not_early

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.message.due import Delays
    from pytest_loadtest.message.payloads import Bucket


# Defaults of a profile's keys that follow from other keys. ``data`` is what was read of the keys before.


def minutes(minutes: float | None, default: int) -> int:
    """ns. :param default: where it is not written."""
    return default if minutes is None else round(minutes * MINUTE)


def duration(data: dict[str, Any]) -> int:
    """As long as the stages, or as a fixed number of messages takes; otherwise what OMB's spelling says."""
    if data.get("stages"):
        stages: tuple[Stage, ...] = data["stages"]
        return sum(stage.duration for stage in stages)
    if data.get("messages") and data.get("producer_rate"):
        return math.ceil(int(data["messages"]) * SECOND / float(data["producer_rate"]))
    return minutes(data.get("test_duration_minutes"), 0)


def search(data: dict[str, Any]) -> SearchSection | None:
    """Of a workload that names no rate."""
    sends = data.get("producers_per_topic") and data.get("messages") != 0
    return SearchSection() if data.get("producer_rate") == 0 and sends else None


def by_default(search: object) -> object:
    """``search: true``."""
    return {} if search is True else search


def representative(data: dict[str, Any]) -> Literal["midpoint", "uniform"]:
    """Which sizes stand for a range, where the profile does not say."""
    return "uniform" if data.get("payloads_per_bucket", 1) > 1 else "midpoint"


def warmup(data: dict[str, Any]) -> int:
    """OMB's default is a minute, but nobody who writes ``testDuration: 5s`` wants that."""
    in_minutes = data.get("test_duration_minutes") is not None
    return minutes(data.get("warmup_duration_minutes"), MINUTE if in_minutes else 0)


LARGEST = 2**31 - 1
"""Bytes of any message: samples have 31 bits for them."""

Scalable = Literal["topics", "partitions", "producers", "consumers"]


class Profile(Section):
    """A workload, its target, how the client is set up, and what must hold. Made by :func:`~pytest_loadtest.profile.loads`.

    Durations are ns, sizes bytes, rates messages (or bytes: a ``ByteRate``) per second over the whole run.
    """

    name: str = Field(min_length=1, max_length=200)
    """What reports call it."""
    description: str = ""
    """A sentence for the reader."""

    topics: Count = 1
    """Topics of the run."""
    topic: str | None = Field(default=None, min_length=1)
    """One existing topic instead: used as it is, never created, never deleted. persistent://tenant/namespace/name, or a/b/c for MQTT."""
    partitions_per_topic: Count = 1
    """Partitions of each topic; 1 is a topic without partitions."""
    skew: SkewSection | None = None
    """Topics that differ: each its own share of the rate, its own size, its own hash."""
    key_distributor: Literal["NO_KEY", "KEY_ROUND_ROBIN", "RANDOM_NANO"] = "NO_KEY"
    """How messages get their keys, as in OMB."""

    message_size: Size | None = None
    """Of every message, envelope included; messageSizeDistribution for more than one."""
    payload_file: str | None = None
    """A file whose bytes fill the payload behind the envelope; its path is relative to this profile."""
    message_size_distribution: Distribution | None = None
    """Size range "low-high" (low included, high not; B, KB, MB) to relative weight."""
    size_source: str | None = None
    """Where messageSizeDistribution was read from; in results only."""
    payloads_per_bucket: Count = 1
    """Different payloads made for each size range; their sizes are spread evenly inside unless representative says otherwise."""
    representative: Literal["midpoint", "max", "uniform"] = Field(default_factory=representative)
    """Which sizes stand for a range: its middle (default), its largest, or several spread inside (default with payloadsPerBucket)."""
    use_randomized_payloads: bool = False
    """Fill payloads with random bytes, as far as randomBytesRatio says; zeros otherwise."""
    random_bytes_ratio: Share = 0.0
    """Share of each payload that is random, and does not compress."""
    randomized_payload_pool_size: Count = Field(default=1, le=MAX_PAYLOADS)
    """Different payloads made of messageSize; payloadsPerBucket for a distribution."""
    checksum: bool = False
    """End each payload in a checksum that the consumer verifies."""

    subscriptions_per_topic: int = Field(default=1, ge=0)
    """Each gets every message of its topic; 0 for a producer-only run."""
    consumer_per_subscription: int = Field(default=1, ge=0)
    """Consumers that share one subscription; 0 for a producer-only run."""
    producers_per_topic: int = Field(default=1, ge=0)
    """Producers of each topic; each is one stream of numbered messages. 0 for a consumer-only run of an existing topic."""
    messages: Annotated[int, Field(ge=0)] | None = None
    """Send this many messages instead of sending for a time; 0: only connect, and hold the connections for testDuration."""
    producer_rate: Rate = 0.0
    """Messages per second (or bytes: 200MB/s), all producers together; 0 asks for a search of the highest rate, as in OMB."""
    search: Annotated[SearchSection | None, BeforeValidator(by_default)] = Field(default_factory=search)
    """How to look for the highest rate, where producerRate is 0; true for its defaults."""

    deliver_after: Delay | None = None
    """A consumer gets each message so long after its intended time: 10s, or {min: 1s, max: 60s}."""
    deliver_at: PositiveDuration | None = None
    """So long after the phase's start all that is intended before is due; later messages are not delayed."""
    allow_undelayed: bool = False
    """Also where the broker heeds no delay (Exclusive, Failover, non-persistent): the run shows how early messages come."""

    consumer_backlog_size_gb: float = Field(default=0, ge=0)
    """Build a backlog of this many GB before consumers read on, as in OMB."""
    backlog_drain_ratio: float = Field(default=1.0, gt=0, le=1)
    """Share of the backlog that must be drained, as in OMB."""
    backlog_drain_timeout: PositiveDuration = 10 * MINUTE
    """How long the backlog may take to drain."""

    stages: tuple[Stage, ...] = Field(default=(), strict=False)
    """The measured phase in parts, each with its own rate, sizes, consumers and objectives."""

    test_duration_minutes: float | None = Field(default=None, gt=0, le=MOST_DURATION // MINUTE)
    """Length of the measured phase, as OMB spells it."""
    test_duration: Duration = Field(default_factory=duration)
    """Length of the measured phase: 30s, 5min, 24h. With stages or messages it follows from them."""
    warmup_duration_minutes: float | None = Field(default=None, ge=0, le=MOST_DURATION // MINUTE)
    """Length of the warm-up, as OMB spells it."""
    warmup_duration: Duration = Field(default_factory=warmup)
    """Length of the warm-up, which is not judged. Default: OMB's minute beside testDurationMinutes, none otherwise."""
    drain_timeout: Duration = 30 * SECOND
    """How long to wait for messages still under way after the measured phase; what has not come by then is lost."""
    max_send_delay: Duration = 10 * SECOND
    """A message later than this is dropped, and counted."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Of every random choice."""

    target: TargetSection | None = None
    """The broker under test; without it the run starts one (--load-broker)."""
    driver: Annotated[ClientSettings, AnyKind()] = Field(default_factory=default_settings)
    """Which client, and its tuning."""
    broker: BrokerSection = BrokerSection()
    """Wishes for a broker that the run starts itself."""
    scalable: tuple[Scalable, ...] = Field(default=(), strict=False)
    """What --load-scale may shrink besides the rate; of a broadcast it shrinks the subscribers, and nothing else."""
    slo: SloSection = Field(default_factory=Slo)
    """What must hold, by metric: {throughput: 99%, endToEndLatency: {p99: 100ms}, loss: 0}."""
    abort: Annotated[Abort, ParsedSection(Abort.read)] | None = None
    """When the run is lost and ends early: {endToEndLatency.p99: 5s, for: 30s}; also failed and dropped, as numbers or shares."""
    generator: GeneratorLimits = GeneratorLimits()
    """When to blame the generator."""
    scaled: ScaledSection = ScaledSection()
    """What takes the place of slo and generator, key by key, when a run is scaled."""
    not_applied: dict[str, str] = Field(default_factory=dict)
    """Keys of an OMB driver file that do nothing here, each with the reason; in results only."""
    workloads: tuple[Profile, ...] = Field(default=(), strict=False)
    """Workloads that run together: each a name and the keys in which it differs from what stands beside this list."""

    @field_validator("stages")
    @classmethod
    def _named(cls, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        return tuple(stage if stage.name else stage.model_copy(update={"name": f"stage {i + 1}"}) for i, stage in enumerate(stages))

    @field_validator("scaled")
    @classmethod
    def _over_slo(cls, scaled: ScaledSection, info: ValidationInfo) -> ScaledSection:
        """Read ``scaled.slo`` again with the keys of ``slo`` that it keeps: its bounds hold in the windows of either."""
        if not scaled.slo or "slo" not in info.data:
            return scaled
        return scaled.model_copy(update={"slo": Slo.read(scaled.slo.written, info.data["slo"].written)})

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The objectives of the ``slo`` section, then the implicit ones that it does not override."""
        drain = self.backlog_drain_timeout if self.consumer_backlog_size_gb else None
        return self.slo.completed(implied(self.driver, self.topic, drain, self.connect_rate, self.delays))

    def as_scaled(self) -> Profile:
        """Return the profile with the bounds and limits of a scaled run."""
        limits = self.generator.model_copy(update=self.scaled.generator.model_dump(exclude_none=True))
        return self.model_copy(update={"slo": self.scaled.slo.merged() if self.scaled.slo else self.slo, "generator": limits})

    @property
    def buckets(self) -> tuple[Bucket, ...] | None:
        """The size distribution in the file's order, or what ``skew`` makes one of; None where there is none."""
        if self.message_size_distribution is None:
            return self.skew.buckets(self.topics) if self.skew else None
        return parse_buckets(self.message_size_distribution)

    @property
    def peak_search(self) -> bool:
        """The profile asks for the highest rate instead of naming one."""
        return self.producer_rate == 0 and not self.consumer_only and not self.connects_only and not self.workloads

    @property
    def in_bytes(self) -> bool:
        """The rate, or the one that is searched, is in bytes per second."""
        return isinstance(self.search.start if self.search and self.peak_search else self.producer_rate, ByteRate)

    @property
    def producer_only(self) -> bool:
        """Nobody receives."""
        return self.subscriptions_per_topic == 0 or self.consumer_per_subscription == 0

    @property
    def consumer_only(self) -> bool:
        """Nobody sends: messages of others are received."""
        return self.producers_per_topic == 0

    @property
    def connects_only(self) -> bool:
        """Clients connect, subscribe and stay, and there is no message."""
        return self.messages == 0

    @property
    def connect_rate(self) -> float | None:
        """Connections per second, over all workers; None: as fast as they come."""
        return self.driver.connection_rate

    @property
    def delays(self) -> Delays | None:
        """How messages are delayed; None: not at all."""
        return delays(self.deliver_after, self.deliver_at, self.seed, self.driver.earliest(self.broker.settings))

    @property
    def broadcasts(self) -> bool:
        """Each message goes to so many subscriptions of one consumer each that how long it takes to reach all is measured."""
        return self.subscriptions_per_topic >= WIDTH and self.consumer_per_subscription == 1

    @property
    def ordered(self) -> bool:
        """Order can be judged: one consumer at a time gets the messages of a partition (or a key), and each as it was sent."""
        return self.unordered is None

    @property
    def unordered(self) -> tuple[str, str] | None:
        """Why order cannot be judged, and what to write instead; None: it can."""
        if self.delays is not None:
            return "of delayed messages", "send them at once"
        return self.driver.unordered(consumers=self.consumer_per_subscription, keyed=self.key_distributor != "NO_KEY")

    @property
    def publish_acks(self) -> bool:
        """The broker acknowledges what it has taken, so publish latency is applicable."""
        return self.driver.unacknowledged is None

    @property
    def max_piece(self) -> int:
        """Bytes of the largest payload that the broker takes in one piece.

        :raises ValueError: ``broker.settings`` has a limit that is no number.
        """
        limit = self.driver.kind.message_limit
        if limit is None:
            return LARGEST
        given = int(self.broker.settings.get(limit.key, "0")) if limit.key else 0
        return min(given or limit.default, LARGEST) - limit.overhead

    @property
    def max_message_size(self) -> int:
        """Bytes of the largest payload that can be sent: in one piece, or in chunks where the driver makes some.

        :raises ValueError: ``broker.settings`` has a limit that is no number.
        """
        if self.driver.incomplete_messages is None:
            return self.max_piece
        limit = self.driver.kind.message_limit
        return LARGEST - (limit.overhead if limit else 0)

    def document(self) -> dict[str, Any]:
        """The whole profile as JSON values, defaults filled in and secrets left out; ``from_document`` reads it back."""
        own = self.model_dump(
            mode="json",
            by_alias=True,
            exclude_none=True,
            exclude={"test_duration_minutes": True, "warmup_duration_minutes": True, "workloads": True},
        )
        return own | {"workloads": [workload.document() for workload in self.workloads]}


# The implicit objectives of a profile: those of every run, and those that follow from its keys.


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


class ClientChoice(NamedTuple):
    """``library`` or ``native``. ``why``: for people; empty where there never is a choice."""

    client: str
    why: str


def choose_client(profile: Profile) -> ClientChoice:
    """What the profile asks for; else native, where the driver has such a client."""
    driver = profile.driver
    if len(driver.kind.clients) == 1:
        return ClientChoice(next(iter(driver.kind.clients)), "")
    if driver.client is not None:
        return ClientChoice(driver.client, "the profile asks for it")
    return ClientChoice("native", "the default: it costs less CPU for a message")
