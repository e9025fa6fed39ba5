"""The frozen :class:`Profile`: what a YAML file says, units resolved, defaults filled in."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pytest_loadtest import objectives
from pytest_loadtest.payloads import Bucket, parse_range
from pytest_loadtest.profile.fields import Count, Distribution, Duration, Raw, Section, Share, Size, Verbatim
from pytest_loadtest.profile.settings import LoopbackSettings, MqttSettings, PulsarSettings
from pytest_loadtest.quantities import MILLISECOND, MINUTE, SECOND

PULSAR_METADATA = 1024
"""Bytes left free below Pulsar's limit: a batch of one carries its message's metadata inside what the broker measures."""

MESSAGE_LIMITS = {
    # driver: (key in broker.settings, default in bytes, of which not payload)
    "pulsar": ("maxMessageSize", 5 * 1024**2, PULSAR_METADATA),
    "mqtt": ("message_size_limit", 268_435_455, 0),  # MQTT's largest "remaining length"; 0 in mosquitto means none of its own
}

Scalable = Literal["topics", "partitions", "producers", "consumers"]


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


def _minutes(minutes: float | None, default: int) -> int:
    return default if minutes is None else round(minutes * MINUTE)


def _warmup(data: dict[str, Any]) -> int:
    """OMB's default is a minute, but nobody who writes ``testDuration: 5s`` wants that."""
    in_minutes = data.get("test_duration_minutes") is not None
    return _minutes(data.get("warmup_duration_minutes"), MINUTE if in_minutes else 0)


class Profile(Section):
    """A workload, its target, how the client is set up, and what must hold. Made by :func:`~pytest_loadtest.profile.loads`.

    Durations are ns, sizes bytes, rates messages per second over the whole run.
    """

    name: str = Field(min_length=1)
    """What reports call it."""
    description: str = ""
    """A sentence for the reader."""

    topics: Count = 1
    """Topics of the run."""
    partitions_per_topic: Count = 1
    """Partitions of each topic; 1 is a topic without partitions."""
    key_distributor: Literal["NO_KEY", "KEY_ROUND_ROBIN", "RANDOM_NANO"] = "NO_KEY"
    """How messages get their keys, as in OMB."""

    message_size: Size | None = None
    """Of every message, envelope included; messageSizeDistribution for more than one."""
    payload_file: str | None = None
    """A file whose bytes fill the payload behind the envelope; its path is relative to this profile."""
    message_size_distribution: Distribution | None = None
    """Size range "low-high" (low included, high not; B, KB, MB) to relative weight."""
    representative: Literal["midpoint", "max", "uniform"] = "midpoint"
    """Which sizes stand for a range: its middle, its largest, or several spread evenly inside."""
    use_randomized_payloads: bool = False
    """Fill payloads with random bytes, as far as randomBytesRatio says; zeros otherwise."""
    random_bytes_ratio: Share = 0.0
    """Share of each payload that is random, and does not compress."""
    randomized_payload_pool_size: Count = 1
    """Different payloads made of each size."""
    checksum: bool = False
    """End each payload in a checksum that the consumer verifies."""

    subscriptions_per_topic: Count = 1
    """Each gets every message of its topic."""
    consumer_per_subscription: Count = 1
    """Consumers that share one subscription."""
    producers_per_topic: Count = 1
    """Producers of each topic; each is one stream of numbered messages."""
    producer_rate: float = Field(ge=0)
    """Messages per second, all producers together; 0 asks for a search of the highest rate, as in OMB."""

    consumer_backlog_size_gb: int = Field(default=0, ge=0)
    """Build a backlog of this many GB before consumers read on, as in OMB."""
    backlog_drain_ratio: float = Field(default=1.0, gt=0, le=1)
    """Share of the backlog that must be drained, as in OMB."""

    test_duration_minutes: float | None = Field(default=None, gt=0)
    """Length of the measured phase, as OMB spells it."""
    test_duration: Duration = Field(default_factory=lambda data: _minutes(data.get("test_duration_minutes"), 0))
    """Length of the measured phase: 30s, 5min, 24h."""
    warmup_duration_minutes: float | None = Field(default=None, ge=0)
    """Length of the warm-up, as OMB spells it."""
    warmup_duration: Duration = Field(default_factory=_warmup)
    """Length of the warm-up, which is not judged. Default: OMB's minute beside testDurationMinutes, none otherwise."""
    drain_timeout: Duration = 30 * SECOND
    """How long to wait for messages still under way after the measured phase; what has not come by then is lost."""
    max_send_delay: Duration = 10 * SECOND
    """A message later than this is dropped, and counted."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Of every random choice."""

    target: TargetSection | None = None
    """The broker under test; without it the run starts one (--load-broker)."""
    driver: Annotated[PulsarSettings | MqttSettings | LoopbackSettings, Field(discriminator="name")] = PulsarSettings()
    """Which client, and its tuning."""
    broker: BrokerSection = BrokerSection()
    """Wishes for a broker that the run starts itself."""
    scalable: tuple[Scalable, ...] = Field(default=(), strict=False)
    """What --load-scale may shrink besides the rate."""
    slo: Raw = Field(default_factory=dict)
    """What must hold, by metric: {throughput: 99%, endToEndLatency: {p99: 100ms}, loss: 0}."""
    generator: GeneratorLimits = GeneratorLimits()
    """When to blame the generator."""

    @property
    def objectives(self) -> tuple[objectives.Objective, ...]:
        """The ``slo`` section's objectives, then the implicit ones."""
        return objectives.parse(self.slo)

    @property
    def buckets(self) -> tuple[Bucket, ...] | None:
        """The size distribution in the file's order; None where there is none."""
        if self.message_size_distribution is None:
            return None
        ranges = ((text, *parse_range(text), weight) for text, weight in self.message_size_distribution.items())
        return tuple(Bucket(name=text, low=low, high=high, weight=weight) for text, low, high, weight in ranges)

    @property
    def peak_search(self) -> bool:
        """The profile asks for the highest rate instead of naming one."""
        return self.producer_rate == 0

    @property
    def ordered(self) -> bool:
        """Order can be judged: one consumer at a time gets the messages of a partition (or a key)."""
        if isinstance(self.driver, PulsarSettings):
            keyed = self.driver.subscription_type == "Key_Shared" and self.key_distributor != "NO_KEY"
            return keyed or self.driver.subscription_type in ("Exclusive", "Failover")
        return not self.shared

    @property
    def publish_acks(self) -> bool:
        """The broker acknowledges what it has taken, so publish latency is applicable."""
        if isinstance(self.driver, PulsarSettings):
            return self.driver.topic_type == "persistent"
        return not (isinstance(self.driver, MqttSettings) and self.driver.qos == 0)

    @property
    def shared(self) -> bool:
        """MQTT consumers of one subscription share its messages."""
        if not isinstance(self.driver, MqttSettings):
            return False
        given = self.driver.shared_subscription
        return self.consumer_per_subscription > 1 if given is None else given

    @property
    def max_message_size(self) -> int | None:
        """Bytes of the largest payload that the broker takes; None where nothing is known of a limit.

        :raises ValueError: ``broker.settings`` has a limit that is no number.
        """
        if self.driver.name not in MESSAGE_LIMITS:
            return None
        key, default, metadata = MESSAGE_LIMITS[self.driver.name]
        return (int(self.broker.settings.get(key, "0")) or default) - metadata

    def document(self) -> dict[str, Any]:
        """The whole profile as JSON values, defaults filled in and secrets left out; ``from_document`` reads it back."""
        return self.model_dump(
            mode="json",
            by_alias=True,
            exclude_none=True,
            exclude={"test_duration_minutes": True, "warmup_duration_minutes": True, "driver": {"pending_queue_size"}},
        )
