"""The ``driver`` section: how the client is set up. Flat, and spelled as OMB spells a key where it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from pytest_loadtest.profile.chunk_settings import ChunkingSettings
from pytest_loadtest.profile.client import ClientSettings
from pytest_loadtest.profile.fields import Count, Duration, Section, Size, WholeSeconds
from pytest_loadtest.profile.tls import Tls  # noqa: TC001  # pydantic reads it
from pytest_loadtest.schedule.pacing import LEAST_RATE, MOST_RATE
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable


class Persistence(Section):
    """How Pulsar stores the namespace of the run."""

    ensemble_size: Count = 1
    """Bookies a ledger is spread over. More than there are is an error; on a broker that the run started fewer are applied, and named."""
    write_quorum: Count = 1
    """Copies of each entry."""
    ack_quorum: Count = 1
    """Copies that must be safe before a publish is acknowledged."""
    deduplication_enabled: bool = False
    """The broker drops messages sent twice by one producer."""


class Authentication(Section):
    """Who the Pulsar client says it is. Secrets are left out of results; prefer the keys that name a file."""

    plugin: Literal["token", "basic", "oauth2", "tls"]
    """token: token or tokenFile. basic: userId, and password or passwordFile. oauth2: issuerUrl, privateKey. tls: certFile, keyFile."""
    token: str | None = Field(default=None, exclude=True, repr=False)
    """The token itself."""
    token_file: str | None = None
    """Path to a file that holds the token."""
    user_id: str | None = None
    """Name for basic authentication."""
    password: str | None = Field(default=None, exclude=True, repr=False)
    """Password for basic authentication."""
    password_file: str | None = None
    """Path to a file that holds the password."""
    issuer_url: str | None = None
    """OAuth2 issuer."""
    private_key: str | None = Field(default=None, exclude=True, repr=False)
    """OAuth2 client credentials: path to the JSON file."""
    audience: str | None = None
    """OAuth2 audience."""
    scope: str | None = None
    """OAuth2 scope."""
    cert_file: str | None = None
    """Path to the client's certificate."""
    key_file: str | None = None
    """Path to the client's private key."""


OMB_MEMORY_MB = 256
ANY_CERTIFICATE = "certificates were not checked, so another host may have answered"
ANY_NAME = "host names in certificates were not checked, so another host with a trusted certificate may have answered"


def _pending(omb: int | None) -> int:
    return 1000 if omb is None else omb


class PulsarSettings(ChunkingSettings):
    """A Pulsar client: connection, producer and consumer keys side by side."""

    name: Literal["pulsar"] = "pulsar"

    io_threads: Count = 1
    """Network threads, over all connections of a worker."""
    connections_per_broker: Count = 1
    """Connections to each broker; this client opens as many clients."""
    operation_timeout: Duration = 30 * SECOND
    """For lookups, subscribing, creating producers."""
    max_concurrent_lookup_requests: Count | None = None
    """Lookups in flight on one connection."""
    client_memory_limit_mb: Count | None = Field(default=None)
    """Bytes in flight over all producers of a worker, MB."""
    topic_type: Literal["persistent", "non-persistent"] = "persistent"
    """non-persistent: stored nowhere, and publish latency is not applicable."""
    namespace_prefix: str = Field(default="public/loadtest", pattern=r"^[\w.=:-]+/[\w.=:-]+$")
    """tenant/namespace; the run's name is appended."""
    namespace_bundles: Count | None = None
    """Bundles that the run's namespace is made with; the broker's own number when absent."""
    persistence: Persistence | None = None
    """Storage policy of the run's namespace; the broker's own when absent."""

    batching_enabled: bool = True
    """Several messages travel and are stored as one entry."""
    batching_max_messages: int = Field(default=1000, ge=0)
    """Messages in a batch at most; 0: no limit."""
    batching_max_bytes: Size = 128 * 1024
    """Bytes in a batch at most."""
    batching_max_publish_delay_ms: Count = 1
    """How long a batch waits to fill, ms."""
    block_if_queue_full: bool = True
    """Wait when maxPendingMessages are in flight; otherwise such messages fail."""
    pending_queue_size: int | None = Field(default=None, ge=0)
    """OMB's word for maxPendingMessages."""
    max_pending_messages: int = Field(ge=0, default_factory=lambda data: _pending(data.get("pending_queue_size")))
    """Messages of one producer (and partition) in flight; 0: no limit of its own, memory bounds them (clientMemoryLimitMB)."""
    max_pending_messages_across_partitions: Count = 50_000
    """Messages of one producer in flight, over all partitions."""
    compression: Literal["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"] = "NONE"
    """Of message bodies, in the client."""
    send_timeout: Duration = 30 * SECOND
    """A message not acknowledged by then has failed; 0 waits for ever."""

    receiver_queue_size: Count = 1000
    """Messages prefetched by one consumer (and partition)."""
    max_total_receiver_queue_size_across_partitions: Count = 50_000
    """Messages prefetched by one consumer, over all partitions."""
    subscription_type: Literal["Exclusive", "Shared", "Failover", "Key_Shared"] = "Failover"
    """Order is judged on Exclusive and Failover, per key on Key_Shared, never on Shared."""

    authentication: Authentication | None = None
    """Who the client says it is."""
    tls_trust_certs_file_path: str | None = None
    """Certificates to trust, for pulsar+ssl:// targets."""
    tls_allow_insecure_connection: bool = False
    """Accept any certificate."""
    tls_enable_hostname_verification: bool = True
    """The certificate must name the host, of the admin REST too. Pulsar's own clients and OMB do not check it unless told to."""

    def window(self, partitions: int) -> int:
        """Messages of one producer in flight at most; 0: memory alone bounds them."""
        return min(self.max_pending_messages * partitions, self.max_pending_messages_across_partitions)

    @property
    def memory_limit(self) -> int | None:
        """Bytes in flight over all producers of a worker; OMB's default where nothing else bounds them."""
        asked = self.client_memory_limit_mb
        if asked is None and not self.max_pending_messages:
            asked = OMB_MEMORY_MB
        return None if asked is None else asked * 1024**2

    def receive_window(self, partitions: int) -> int:
        """Messages prefetched by one consumer at most."""
        return min(self.receiver_queue_size * partitions, self.max_total_receiver_queue_size_across_partitions)

    def connections(self, producers: int, consumers: int, workers: int) -> int:
        """Connections to a target of one broker: each worker's clients share theirs among all producers and consumers."""
        return min(producers + consumers, workers) * self.connections_per_broker

    def unchecked_host(self, urls: Iterable[str]) -> str | None:
        if not any(url.startswith(("pulsar+ssl:", "https:")) for url in urls):
            return None
        if self.tls_allow_insecure_connection:
            return f"driver.tlsAllowInsecureConnection is true: {ANY_CERTIFICATE}"
        if self.tls_enable_hostname_verification:
            return None
        return f"driver.tlsEnableHostnameVerification is false, as in a driver file of OMB that does not name it: {ANY_NAME}"


def _protocol_version(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class MqttSettings(ClientSettings):
    """An MQTT client."""

    name: Literal["mqtt"] = "mqtt"

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

    def unchecked_host(self, urls: Iterable[str]) -> str | None:
        insecure = self.tls is not None and self.tls.insecure and any(url.startswith("mqtts:") for url in urls)
        return f"driver.tls.insecure is true: {ANY_NAME}" if insecure else None


class Stall(Section):
    """The relay stops once."""

    at: Duration
    """After this time, counted from the first message of the run that it sees, warm-up included."""
    duration: Duration
    """For this long."""


class LoopbackSettings(ClientSettings):
    """A small local relay that needs no broker, with faults on order: the instrument that checks the instrument."""

    name: Literal["loopback"] = "loopback"

    delay: Duration = 0
    """Added to every message."""
    stall: Stall | None = None
    """Stop once, for a while."""
    capacity: float | None = Field(default=None, ge=0.001)
    """Messages per second that the relay carries."""
    capacity_depth: Count = 1
    """Messages that may pass at once before the capacity holds."""
    lose_every: Count | None = None
    """Every n-th message is acknowledged and not delivered."""
    duplicate_every: Count | None = None
    """Every n-th message is delivered twice."""
    swap_every: Count | None = None
    """Every n-th pair of messages changes places."""
    corrupt_header_every: Count | None = None
    """Every n-th message is damaged in its envelope."""
    corrupt_body_every: Count | None = None
    """Every n-th message is damaged behind its envelope; seen with checksum: true."""
    max_pending_messages: Count = 1000
    """Messages of one producer in flight."""
    block_if_queue_full: bool = True
    """Wait when maxPendingMessages are in flight; otherwise such messages fail."""

    def window(self, partitions: int) -> int:
        """Messages of one producer in flight at most."""
        return self.max_pending_messages

    def receive_window(self, partitions: int) -> int:
        """0: messages wait in the relay, a consumer prefetches none."""
        return 0

    def connections(self, producers: int, consumers: int, workers: int) -> int:
        """Connections to the relay: one for each worker that has producers or consumers."""
        return min(producers + consumers, workers)


DRIVERS: dict[str, type[ClientSettings]] = {"pulsar": PulsarSettings, "mqtt": MqttSettings, "loopback": LoopbackSettings}
