"""The ``driver`` section of Pulsar: how the client is set up. Flat, and spelled as OMB spells a key where it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Literal

from pydantic import Field

from pytest_loadtest.profile.client import ANY_NAME, ClientSettings
from pytest_loadtest.profile.fields import Count, Duration, PositiveDuration, Section, Size
from pytest_loadtest.values.quantities import MILLISECOND, MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The ``driver`` section's keys of messages in chunks (PIP-37).

LIBRARY_EXPIRY: Final = MINUTE
"""When pulsar-client for Python gives up an incomplete message, ns; it has no option for it."""


class ChunkingSettings(ClientSettings):
    """Messages that are larger than the broker takes: how they are sent, and what a consumer does with those that stay incomplete."""

    chunking_enabled: bool = False
    """Messages beyond the broker's maxMessageSize travel in chunks. Wants batchingEnabled: false, and persistent topics."""
    max_pending_chunked_message: Count = 10
    """Messages that one consumer (and partition) may have incomplete; of one more, the oldest is given up."""
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    """A message that is given up so is acknowledged, which loses it; otherwise it stays unacknowledged."""
    unacked_messages_timeout: Duration = 0
    """What is not acknowledged by then comes again; 0: not while its consumer is connected. pulsar-client takes 10s or more."""
    expire_time_of_incomplete_chunked_message: PositiveDuration = LIBRARY_EXPIRY
    """A message incomplete for so long is acknowledged, which loses it: its producer is gone. pulsar-client has 1min and no option."""


TICK: Final = "delayedDeliveryTickTimeMillis"
STRICT: Final = "isDelayedDeliveryDeliverAtTimeStrict"
DEFAULT_TICK: Final = 1000
"""ms: the broker's own (``ServiceConfiguration``)."""


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


def _pending(omb: int | None) -> int:
    return 1000 if omb is None else omb


class PulsarSettings(ChunkingSettings):
    """A Pulsar client: connection, producer and consumer keys side by side."""

    name: Literal["pulsar"] = "pulsar"

    order_keys: ClassVar[tuple[str, ...]] = ("subscriptionType",)
    acknowledging_keys: ClassVar[tuple[str, ...]] = ("topicType",)

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
    pending_queue_size: int | None = Field(default=None, ge=0, exclude=True)
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

    def unordered(self, *, consumers: int, keyed: bool) -> tuple[str, str] | None:
        """Order is judged on Exclusive and Failover, and per key on Key_Shared."""
        if self.subscription_type == "Key_Shared":
            return None if keyed else ("on Key_Shared without keys", "use keyDistributor: KEY_ROUND_ROBIN")
        return ("on a Shared subscription", "use Failover") if self.subscription_type == "Shared" else None

    @property
    def unacknowledged(self) -> tuple[str, str] | None:
        """Messages to non-persistent topics are not acknowledged."""
        return None if self.topic_type == "persistent" else ("on non-persistent topics", "use topicType: persistent")

    def earliest(self, broker: Mapping[str, str]) -> int:
        """Up to the broker's tick, and 0 in strict mode.

        A broker that the run does not start is taken to have the default tick, unless ``broker.settings`` say what it has.
        """
        if strict(broker):
            return 0
        given = broker.get(TICK, "")
        return (int(given) if given.isdecimal() else DEFAULT_TICK) * MILLISECOND

    @property
    def incomplete_messages(self) -> int | None:
        """Messages in chunks that one consumer and partition may have incomplete."""
        return self.max_pending_chunked_message if self.chunking_enabled else None

    def batch(self, rate: float, partitions: int, size: float, *, keyed: bool) -> float:
        """What a producer sends while one batch may wait (``batchingMaxPublishDelayMs``), within its limits."""
        if not self.batching_enabled:
            return 1.0
        waiting = rate * self.batching_max_publish_delay_ms * MILLISECOND / SECOND
        if keyed:  # without keys, a producer stays with one partition for longer than a batch may wait
            if self.subscription_type == "Key_Shared":
                return 1.0  # a batch holds one key, and there are more keys than messages wait
            waiting /= partitions
        most = self.batching_max_messages or waiting  # 0: no limit
        return max(1.0, min(waiting, most, self.batching_max_bytes / size))


def strict(broker: Mapping[str, str]) -> bool:
    """The broker delivers nothing early. :param broker: the settings of the broker."""
    return broker.get(STRICT, "").lower() == "true"
