"""The ``driver`` section of MQTT: how the client is set up. Flat, and spelled as OMB spells a key where it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from pytest_loadtest.drivers.mqtt.tls_settings import Tls  # noqa: TC001  # pydantic reads it
from pytest_loadtest.profile.client import ANY_NAME, ClientSettings
from pytest_loadtest.profile.fields import Duration, fault
from pytest_loadtest.schedule.pacing import LEAST_RATE, MOST_RATE
from pytest_loadtest.values.quantities import SECOND, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def _whole_seconds(value: int) -> int:
    if value % SECOND:
        raise fault(f"{format_duration(value)} is not a whole number of seconds", "MQTT counts this in whole seconds")
    return value


WholeSeconds = Annotated[Duration, AfterValidator(_whole_seconds)]


def _protocol_version(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class MqttSettings(ClientSettings):
    """An MQTT client."""

    name: Literal["mqtt"] = "mqtt"

    order_keys: ClassVar[tuple[str, ...]] = ("sharedSubscription",)
    acknowledging_keys: ClassVar[tuple[str, ...]] = ("qos",)

    broker: Literal["mosquitto", "artemis"] | None = None
    """What a run without a target starts as a process: mosquitto unless said, or ActiveMQ Artemis, which has many threads."""
    protocol_version: Annotated[
        Literal["5", "3.1.1"], BeforeValidator(_protocol_version), WithJsonSchema({"enum": ["5", "3.1.1", 5]}, mode="validation")
    ] = "5"
    """Of the MQTT protocol."""
    qos: Annotated[Literal[0, 1, 2], Field()] = 1
    """Quality of service, both ways. At 0 nothing is acknowledged and publish latency is not applicable."""
    shared_subscription: bool | None = None
    """Consumers of a subscription share its messages ($share); default: when there is more than one."""
    clean_start: bool = True
    """Forget an earlier session of the same client."""
    session_expiry: WholeSeconds = 0
    """How long the broker keeps a session after its connection ended."""
    receive_maximum: int | None = Field(default=None, ge=1, le=65_535)
    """Unacknowledged messages a consumer allows the broker."""
    max_inflight_messages: int = Field(default=20, ge=1, le=65_535)
    """Unacknowledged messages a producer allows itself; paho's cost per message grows with it."""
    connect_rate: float | None = Field(default=None, ge=LEAST_RATE, lt=MOST_RATE)
    """Connections opened per second, over all workers; left out, as many as 64 handshakes at a time in each worker allow."""
    keep_alive: WholeSeconds = 60 * SECOND
    """Silence after which a client pings."""
    retain: bool = False
    """The broker keeps the last message of each topic."""
    topic_prefix: str = Field(default="loadtest", pattern=r"^[^+#$][^+#]*$")
    """First level of every topic."""
    username: str | None = None
    """For a broker that asks."""
    password: str | None = Field(default=None, exclude=True, repr=False)
    """Left out of results."""
    tls: Tls | None = None
    """For mqtts:// targets."""
    client_id_prefix: str = Field(default="lt", min_length=1)
    """First part of every client id."""
    user_properties: int = Field(default=0, ge=0, le=100)
    """User properties of each PUBLISH, each with a name of 16 bytes and a value of 17, which is about what mqttbench sends."""
    topic_alias_maximum: int = Field(default=0, ge=0, le=65_535)
    """Above 0 a producer names its topic once in a connection and then by alias, where the broker allows any; a consumer allows so many."""

    def window(self, partitions: int) -> int:
        """Messages of one producer in flight at most."""
        return self.max_inflight_messages

    def receive_window(self, partitions: int) -> int:
        """Messages that the broker sends one consumer before it waits; 20 is mosquitto's own limit."""
        return self.receive_maximum or 20

    def connections(self, producers: int, consumers: int, workers: int) -> int:
        """Connections to the target: one for each client."""
        return producers + consumers

    @property
    def broker_name(self) -> str:
        """mosquitto is the broker of this kind; Artemis is one with a name of its own."""
        return "artemis" if self.broker == "artemis" else self.name

    @property
    def named_broker(self) -> str | None:
        return self.broker

    @property
    def broker_tls(self) -> Tls | None:
        """Version and ciphers."""
        return self.tls

    def with_keys(self, keys: Mapping[str, Any]) -> Self:
        """As every kind's; of ``tls``, those files that the profile does not name."""
        given = super().with_keys(keys)
        if self.tls is None or "tls" not in keys:
            return given
        return given.model_copy(update={"tls": self.tls.with_files(keys["tls"])})

    @property
    def cost_variant(self) -> str:
        return f"qos{self.qos}"

    @property
    def connection_rate(self) -> float | None:
        return self.connect_rate

    def unchecked_host(self, urls: Iterable[str]) -> str | None:
        insecure = self.tls is not None and self.tls.insecure and any(url.startswith("mqtts:") for url in urls)
        return f"driver.tls.insecure is true: {ANY_NAME}" if insecure else None

    def unordered(self, *, consumers: int, keyed: bool) -> tuple[str, str] | None:
        """Consumers of a shared subscription overtake each other."""
        shared = consumers > 1 if self.shared_subscription is None else self.shared_subscription
        return ("on a shared subscription", "use one consumer per subscription") if shared else None

    @property
    def fresh_subscriptions(self) -> bool:
        """Sessions of an earlier run are taken over with ``cleanStart: false``."""
        return self.clean_start

    @property
    def exactly_once(self) -> bool:
        """At QoS 2. With MQTT 3.1.1 a retained message comes again with each subscribe after a lost connection."""
        return self.qos == 2 and not (self.retain and self.protocol_version == "3.1.1")

    @property
    def unacknowledged(self) -> tuple[str, str] | None:
        """Messages at QoS 0 are not acknowledged."""
        return None if self.qos else ("at QoS 0", "use qos: 1")
