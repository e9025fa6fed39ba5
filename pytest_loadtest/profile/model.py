"""The frozen :class:`Profile`: a YAML file with units resolved and defaults filled in."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from pytest_loadtest.message.payloads import MAX_PAYLOADS
from pytest_loadtest.message.route import IN_BODY, EnvelopePlace
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
    PayloadSection,
    RouteSection,
    ScaledSection,
    SearchSection,
    SkewSection,  # pydantic reads it
    TargetSection,
    delays,
)
from pytest_loadtest.profile.stages import Stage, parse_buckets
from pytest_loadtest.values.quantities import MINUTE, SECOND, ByteRate
from pytest_loadtest.verdict.abort import Abort
from pytest_loadtest.verdict.objectives import (
    AT_RATE,
    EXACTLY_ONCE,
    IMPLICIT,
    NO_FOREIGN,
    UNKNOWN_OF_CHOICE,
    Objective,
    Slo,
    chosen_share,
    drained_within,
    not_early,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.message.due import Delays
    from pytest_loadtest.message.payloads import Bucket


# Defaults of keys that follow from other keys. ``data`` has the values of the fields declared
# before.


def _from_minutes(minutes: float | None, default: int) -> int:
    return default if minutes is None else round(minutes * MINUTE)


def _default_duration(data: dict[str, Any]) -> int:
    """Return the duration, ns, that follows from stages, messages, or ``testDurationMinutes``."""
    if data.get("stages"):
        stages: tuple[Stage, ...] = data["stages"]
        return sum(stage.duration for stage in stages)
    if data.get("messages") and data.get("producer_rate"):
        return math.ceil(int(data["messages"]) * SECOND / float(data["producer_rate"]))
    return _from_minutes(data.get("test_duration_minutes"), 0)


def _default_search(data: dict[str, Any]) -> SearchSection | None:
    sends = data.get("producers_per_topic") and data.get("messages") != 0
    if sends and data.get("producer_rate") == 0:
        return SearchSection()
    return None


def _default_warmup(data: dict[str, Any]) -> int:
    """Return OMB's default of a minute if the profile uses OMB's ``testDurationMinutes``.

    Otherwise 0: the measured phase may last only seconds.
    """
    in_minutes = data.get("test_duration_minutes") is not None
    return _from_minutes(data.get("warmup_duration_minutes"), MINUTE if in_minutes else 0)


LARGEST = 2**31 - 1
"""Largest size of a message in bytes: samples have 31 bits for it."""

Scalable = Literal["topics", "partitions", "producers", "consumers"]


class Profile(Section):
    """A workload, its target, the settings of the client, and the objectives.

    :func:`~pytest_loadtest.profile.loads` reads one.

    Durations are ns, sizes bytes, rates messages (or bytes: a ``ByteRate``) per second over the
    whole run.
    """

    name: str = Field(min_length=1, max_length=200)
    """Name in reports; by default the name of the file."""
    description: str = ""
    """A sentence for the reader."""

    topics: Count = 1
    """Number of topics."""
    topic: str | None = Field(default=None, min_length=1)
    """One existing topic instead: used as it is, never created, never deleted.
    persistent://tenant/namespace/name, or a/b/c for MQTT."""
    route: RouteSection | None = None
    """The path of messages through a service of yours, from its input topics to its output topics.
    """
    partitions_per_topic: Count = 1
    """Partitions of each topic; 1 is a topic without partitions."""
    skew: SkewSection | None = None
    """Topics that differ: each has its own share of the rate, its own size, its own hash."""
    key_distributor: Literal["NO_KEY", "KEY_ROUND_ROBIN", "RANDOM_NANO"] = "NO_KEY"
    """How messages get their keys, as in OMB."""

    message_size: Size | None = None
    """Size of every message, envelope included; messageSizeDistribution for several sizes."""
    payload: PayloadSection | None = None
    """Bodies rendered from templates, instead of messageSize."""
    payload_file: str | None = None
    """A file whose bytes fill the payload after the envelope; its path is relative to this profile.
    """
    message_size_distribution: Distribution | None = None
    """Size range "low-high" (low included, high not; B, KB, MB) to relative weight."""
    size_source: str | None = None
    """Source that messageSizeDistribution was read from; in results only."""
    payloads_per_bucket: Count = 1
    """Number of different payloads for each size range; their sizes are spread evenly inside unless
    representative is given."""
    representative: Literal["midpoint", "max", "uniform"] = Field(
        default_factory=lambda data: (
            "uniform" if data.get("payloads_per_bucket", 1) > 1 else "midpoint"
        )
    )
    """Sizes that represent a range: its middle (default), its largest, or several spread inside
    (default with payloadsPerBucket)."""
    use_randomized_payloads: bool = False
    """Fill payloads with random bytes, as far as randomBytesRatio says; zeros otherwise."""
    random_bytes_ratio: Share = 0.0
    """Share of each payload that is random, so that it does not compress."""
    randomized_payload_pool_size: Count = Field(default=1, le=MAX_PAYLOADS)
    """Number of different payloads of messageSize; payloadsPerBucket for a distribution."""
    checksum: bool = False
    """End each payload with a checksum that the consumer verifies."""

    subscriptions_per_topic: int = Field(default=1, ge=0)
    """Subscriptions of each topic, each of which gets every message; 0 for a producer-only run."""
    consumer_per_subscription: int = Field(default=1, ge=0)
    """Consumers that share one subscription; 0 for a producer-only run."""
    producers_per_topic: int = Field(default=1, ge=0)
    """Producers of each topic; each is one stream of numbered messages. 0 for a consumer-only run
    of an existing topic."""
    pair_consumers: Literal["host"] | None = None
    """host: with --load-hosts, all producers and consumers of a topic are on one host, so that
    latencies need no relation of clocks."""
    messages: Annotated[int, Field(ge=0)] | None = None
    """Send this many messages instead of sending for a time; 0: only connect, and hold the
    connections for testDuration."""
    producer_rate: Rate = 0.0
    """Messages per second (or bytes: 200MB/s) of all producers together; 0 searches the highest
    rate, as in OMB."""
    search: Annotated[
        SearchSection | None, BeforeValidator(lambda search: {} if search is True else search)
    ] = Field(default_factory=_default_search)
    """Settings of the search for the highest rate, if producerRate is 0; true for the defaults."""

    deliver_after: Delay | None = None
    """Delay between the intended time of a message and its delivery: 10s, or {min: 1s, max: 60s}.
    """
    deliver_at: PositiveDuration | None = None
    """Time since the start of the phase at which all messages intended before are delivered; later
    messages are not delayed."""
    allow_undelayed: bool = False
    """Allow delays that the broker ignores (Exclusive, Failover, non-persistent); the run shows how
    early messages come."""

    consumer_backlog_size_gb: float = Field(default=0, ge=0)
    """Build a backlog of this many GB before the consumers continue, as in OMB."""
    backlog_drain_ratio: float = Field(default=1.0, gt=0, le=1)
    """Share of the backlog that must be drained, as in OMB."""
    backlog_drain_timeout: PositiveDuration = 10 * MINUTE
    """Longest time to drain the backlog."""

    stages: tuple[Stage, ...] = Field(default=(), strict=False)
    """The measured phase in parts, each with its own rate, sizes, consumers and objectives."""

    test_duration_minutes: float | None = Field(default=None, gt=0, le=MOST_DURATION // MINUTE)
    """Length of the measured phase in OMB's spelling."""
    test_duration: Duration = Field(default_factory=_default_duration)
    """Length of the measured phase: 30s, 5min, 24h. With stages or messages it follows from them.
    """
    warmup_duration_minutes: float | None = Field(default=None, ge=0, le=MOST_DURATION // MINUTE)
    """Length of the warm-up in OMB's spelling."""
    warmup_duration: Duration = Field(default_factory=_default_warmup)
    """Length of the warm-up, which is not judged. Default: OMB's minute with testDurationMinutes,
    otherwise none."""
    drain_timeout: Duration = 30 * SECOND
    """Longest time to wait for messages under way after the measured phase; those that have not
    come by then are lost."""
    max_send_delay: Duration = 10 * SECOND
    """A message later than this is dropped, and counted."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of every random choice."""

    target: TargetSection | None = None
    """The broker under test; without it the run starts one (--load-broker-mode)."""
    driver: Annotated[ClientSettings, AnyKind()] = Field(default_factory=default_settings)
    """The kind of broker, the client, and its settings."""
    broker: BrokerSection = BrokerSection()
    """Version and settings of a broker that the run starts itself."""
    scalable: tuple[Scalable, ...] = Field(default=(), strict=False)
    """Numbers that --load-scale may shrink besides the rate; in a broadcast it shrinks only the
    subscribers."""
    slo: SloSection = Field(default_factory=Slo)
    """Objectives by metric: {throughput: 99%, endToEndLatency: {p99: 100ms}, loss: 0}."""
    abort: Annotated[Abort, ParsedSection(Abort.read)] | None = None
    """Conditions that end the run early: {endToEndLatency.p99: 5s, for: 30s}; also failed and
    dropped, as numbers or shares."""
    generator: GeneratorLimits = GeneratorLimits()
    """Limits beyond which the generator, not the target, set the pace."""
    scaled: ScaledSection = ScaledSection()
    """Keys that replace those of slo and generator when a run is scaled."""
    not_applied: dict[str, str] = Field(default_factory=dict)
    """Keys of an OMB driver file that have no effect here, each with the reason; in results only.
    """
    workloads: tuple[Profile, ...] = Field(default=(), strict=False)
    """Workloads that run together: each has a name, and the keys in which it differs from the keys
    next to this list."""

    @field_validator("stages")
    @classmethod
    def _named(cls, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        return tuple(
            stage if stage.name else stage.model_copy(update={"name": f"stage {number}"})
            for number, stage in enumerate(stages, 1)
        )

    @field_validator("scaled")
    @classmethod
    def _over_slo(cls, scaled: ScaledSection, info: ValidationInfo) -> ScaledSection:
        """Read ``scaled.slo`` again with the keys of ``slo`` that it keeps.

        Its bounds hold in the windows of either.
        """
        if not scaled.slo or "slo" not in info.data:
            return scaled
        slo = Slo.read(scaled.slo.written, info.data["slo"].written)
        return scaled.model_copy(update={"slo": slo})

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The objectives of ``slo``, then the implicit ones that it does not override."""
        return self.slo.completed(_implicit(self))

    def as_scaled(self) -> Profile:
        """Return the profile with the bounds and limits of a scaled run."""
        scaled_limits = self.scaled.generator.model_dump(exclude_none=True)
        changes: dict[str, Any] = {"generator": self.generator.model_copy(update=scaled_limits)}
        if self.scaled.slo:
            changes["slo"] = self.scaled.slo.merged()
        return self.model_copy(update=changes)

    @property
    def buckets(self) -> tuple[Bucket, ...] | None:
        """The size distribution in the file's order, or the one that follows from ``skew``.

        None without either.
        """
        if self.message_size_distribution is not None:
            return parse_buckets(self.message_size_distribution)
        return self.skew.buckets(self.topics) if self.skew else None

    @property
    def sent_place(self) -> EnvelopePlace:
        """The place of the envelope in the messages that the run sends."""
        return IN_BODY if self.route is None else self.route.route().sent

    @property
    def has_service(self) -> bool:
        """True if a service outside of the target sends what consumers receive."""
        return self.route is not None and not self.driver.kind.own_broker

    @property
    def peak_search(self) -> bool:
        """True if the highest rate is searched."""
        # Stages may all have rates of their own, without producerRate.
        sends = not (self.consumer_only or self.connects_only or self.workloads)
        return sends and self.producer_rate == 0 and not self.stages

    @property
    def in_bytes(self) -> bool:
        """True if the rate, the searched rate, or stages' rates are in bytes per second."""
        if self.stages and not self.producer_rate:
            rates = [rate for stage in self.stages for rate in stage.rates.values()]
            return any(isinstance(rate, ByteRate) for rate in rates if rate)
        rate = self.producer_rate
        if self.search is not None and self.peak_search:
            rate = self.search.start
        return isinstance(rate, ByteRate)

    @property
    def producer_only(self) -> bool:
        """True if the run has no consumers."""
        return self.subscriptions_per_topic == 0 or self.consumer_per_subscription == 0

    @property
    def consumer_only(self) -> bool:
        """True if the run has no producers, and receives messages of others."""
        return self.producers_per_topic == 0

    @property
    def connects_only(self) -> bool:
        """True if clients only connect and subscribe, without messages."""
        return self.messages == 0

    @property
    def connect_rate(self) -> float | None:
        """Connections per second over all workers; None: as fast as possible."""
        return self.driver.connection_rate

    @property
    def delays(self) -> Delays | None:
        """The delays of messages; None: they are not delayed."""
        early = self.driver.earliest(self.broker.settings)
        return delays(self.deliver_after, self.deliver_at, self.seed, early)

    @property
    def broadcasts(self) -> bool:
        """True if the time until a message has reached all subscriptions is measured.

        It is if there are enough of them, with one consumer each.
        """
        return self.subscriptions_per_topic >= WIDTH and self.consumer_per_subscription == 1

    @property
    def ordered(self) -> bool:
        """True if order can be judged.

        One consumer at a time gets the messages of a partition (or a key), in the order of sending.
        """
        return self.unordered is None

    @property
    def unordered(self) -> tuple[str, str] | None:
        """The reason why order cannot be judged, and what to write instead; None if it can."""
        if self.delays is not None:
            return "of delayed messages", "send them at once"
        keyed = self.key_distributor != "NO_KEY"
        return self.driver.unordered(consumers=self.consumer_per_subscription, keyed=keyed)

    @property
    def publish_acks(self) -> bool:
        """True if the broker acknowledges messages, so that publish latency can be measured."""
        return self.driver.unacknowledged is None

    @property
    def max_piece(self) -> int:
        """The largest payload, in bytes, that the broker takes in one piece.

        :raises ValueError: the limit in ``broker.settings`` is not a number.
        """
        limit = self.driver.kind.message_limit
        if limit is None:
            return LARGEST
        most = limit.default
        if limit.key:
            most = int(self.broker.settings.get(limit.key, "0")) or most
        return min(most, LARGEST) - limit.overhead

    @property
    def max_message_size(self) -> int:
        """The largest payload, in bytes, that can be sent.

        It is sent in one piece, or in chunks if the driver makes them.

        :raises ValueError: the limit in ``broker.settings`` is not a number.
        """
        if self.driver.incomplete_messages is None:
            return self.max_piece
        limit = self.driver.kind.message_limit
        return LARGEST - (limit.overhead if limit else 0)

    def document(self) -> dict[str, Any]:
        """Return the whole profile as JSON values, with defaults and without secrets.

        ``from_document`` reads it back.
        """
        left_out = {"test_duration_minutes", "warmup_duration_minutes", "workloads"}
        if not self.peak_search:
            left_out.add("search")
        own = self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=left_out)
        return own | {"workloads": [workload.document() for workload in self.workloads]}


def _implicit(profile: Profile) -> Iterator[Objective]:
    """Yield the objectives that apply unless the ``slo`` section bounds the same.

    They are those of every run, and those that follow from keys.
    """
    choice = None if profile.route is None else profile.route.choice
    for objective in IMPLICIT:
        # What a service did not choose cannot be told from what it lost.
        if choice is None or objective.metric not in UNKNOWN_OF_CHOICE:
            yield objective
    if choice is not None:
        yield chosen_share(choice.share, choice.within)
    # Existing topics may hold messages of others.
    exist = profile.topic is not None or profile.route is not None
    if not exist and profile.driver.fresh_subscriptions:
        yield NO_FOREIGN
    if profile.driver.exactly_once:
        yield EXACTLY_ONCE
    if profile.consumer_backlog_size_gb:
        yield drained_within(profile.backlog_drain_timeout)
    if profile.connect_rate is not None:
        yield AT_RATE
    if profile.delays is not None:
        yield not_early(profile.delays.tick)


class ClientChoice(NamedTuple):
    """``library`` or ``native``.

    :param why: the reason as text; empty if the driver has only one client.
    """

    client: str
    why: str


def choose_client(profile: Profile) -> ClientChoice:
    """Return the client that the profile names, else the native one if the driver has one."""
    driver = profile.driver
    if len(driver.kind.clients) == 1:
        return ClientChoice(next(iter(driver.kind.clients)), "")
    if driver.client is not None:
        return ClientChoice(driver.client, "set in the profile")
    return ClientChoice("native", "the default: it costs less CPU for a message")
