"""The ``driver`` section of Pulsar: the client's settings, flat, with
OMB's spelling for the keys that OMB has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from pytest_loadtest.drivers.pulsar.bookie_outages import bookie_outage_notes
from pytest_loadtest.profile.client import ANY_NAME, ClientSettings
from pytest_loadtest.profile.fields import Count, Duration, PositiveDuration, Section, Size
from pytest_loadtest.values.quantities import MILLISECOND, MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# ns after which pulsar-client for Python gives up an incomplete message; it has no option for it.
LIBRARY_EXPIRY: Final = MINUTE


class ChunkingSettings(ClientSettings):
    """Messages in chunks (PIP-37): sending messages larger than the broker takes, and receiving
    those that stay incomplete.
    """

    chunking_enabled: bool = False
    """Send messages larger than the broker's maxMessageSize in chunks. Needs batchingEnabled:
    false, and persistent topics."""
    max_pending_chunked_message: Count = 10
    """Incomplete messages that one consumer (and partition) may have;
    for one more, the oldest is given up."""
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    """Acknowledge a message that is given up because of that limit, which
    loses it; otherwise it stays unacknowledged."""
    unacked_messages_timeout: Duration = 0
    """Time after which unacknowledged messages are redelivered; 0: not while the consumer is
    connected. pulsar-client: 10s or more."""
    expire_time_of_incomplete_chunked_message: PositiveDuration = LIBRARY_EXPIRY
    """Time after which an incomplete message is acknowledged, which loses it: its producer is
    gone. pulsar-client: always 1min."""


TICK: Final = "delayedDeliveryTickTimeMillis"
STRICT: Final = "isDelayedDeliveryDeliverAtTimeStrict"
# ms: the broker's default (``ServiceConfiguration``).
DEFAULT_TICK: Final = 1000


class Persistence(Section):
    """The storage policy of the run's namespace.

    The broker's own settings stay in force for keys that are left out.
    """

    ensemble_size: Count | None = None
    """Bookies for each ledger. More than exist is an error; on a broker that the run started
    fewer are applied, and reported."""
    write_quorum: Count | None = None
    """Copies of each entry."""
    ack_quorum: Count | None = None
    """Copies that must be stored before a publish is acknowledged."""
    deduplication_enabled: bool | None = None
    """The broker drops messages sent twice by one producer."""


class Authentication(Section):
    """The client's credentials. Secrets are left out of results;
    prefer the keys that name a file.
    """

    plugin: Literal["token", "basic", "oauth2", "tls"]
    """token: token or tokenFile. basic: userId, and password or passwordFile. oauth2: issuerUrl,
    privateKey. tls: certFile, keyFile."""
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


NO_LIMIT: Final = 2**31 - 1
"""The largest number that Pulsar's clients take for a limit."""
OMB_MEMORY_MB = 256
ANY_CERTIFICATE = "certificates were not checked, so another host may have answered"


def _pending(omb: int | None) -> int:
    return 1000 if omb is None else omb


class PulsarSettings(ChunkingSettings):
    """A Pulsar client: keys for connections, producers and consumers."""

    name: Literal["pulsar"] = "pulsar"

    io_threads: Count = 1
    """Network threads, over all connections of a worker."""
    connections_per_broker: Count = 1
    """Connections to each broker; pulsar-client has one each, so this is the number of clients."""
    operation_timeout: Duration = 30 * SECOND
    """Time limit of a lookup, of subscribing, and of creating a producer."""
    max_concurrent_lookup_requests: Count | None = None
    """Lookups in flight on one connection."""
    client_memory_limit_mb: int | None = Field(default=None, ge=0)
    """Bytes in flight over all producers of a worker, MB; 0: no limit."""
    topic_type: Literal["persistent", "non-persistent"] = "persistent"
    """non-persistent: messages are not stored, and publish latency is not applicable."""
    namespace_prefix: str = Field(default="public/loadtest", pattern=r"^[\w.=:-]+/[\w.=:-]+$")
    """tenant/namespace; the run's name is appended."""
    namespace_bundles: Count | None = None
    """Bundles of the run's namespace; the broker's default if absent."""
    persistence: Persistence | None = None
    """Storage policy of the run's namespace; the broker's default if absent."""

    batching_enabled: bool = True
    """Send and store several messages as one entry."""
    batching_max_messages: int = Field(default=1000, ge=0)
    """Most messages in a batch; 0: no limit."""
    batching_max_bytes: Size = 128 * 1024
    """Most bytes in a batch."""
    batching_max_publish_delay_ms: Count = 1
    """Time that a batch waits for more messages, ms."""
    block_if_queue_full: bool = True
    """Wait when maxPendingMessages are in flight; otherwise such messages fail."""
    pending_queue_size: int | None = Field(default=None, ge=0, exclude=True)
    """OMB's spelling of maxPendingMessages."""
    max_pending_messages: int = Field(
        ge=0, default_factory=lambda data: _pending(data.get("pending_queue_size"))
    )
    """Most messages of one producer (and partition) in flight; 0:
    only clientMemoryLimitMB bounds them."""
    max_pending_messages_across_partitions: Count = 50_000
    """Most messages of one producer in flight, over all partitions."""
    compression: Literal["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"] = "NONE"
    """Compression of message bodies, in the client."""
    send_timeout: Duration = 30 * SECOND
    """Time after which an unacknowledged message has failed; 0: never."""

    receiver_queue_size: Count = 1000
    """Messages prefetched by one consumer (and partition)."""
    max_total_receiver_queue_size_across_partitions: Count = 50_000
    """Messages prefetched by one consumer, over all partitions."""
    subscription_type: Literal["Exclusive", "Shared", "Failover", "Key_Shared"] = "Failover"
    """Order is judged on Exclusive and Failover, per key on Key_Shared, never on Shared."""

    authentication: Authentication | None = None
    """The client's credentials."""
    tls_trust_certs_file_path: str | None = None
    """Certificates to trust, for pulsar+ssl:// targets."""
    tls_allow_insecure_connection: bool = False
    """Accept any certificate."""
    tls_enable_hostname_verification: bool = True
    """Check that the certificate names the host, for the admin REST too. Pulsar's own clients
    and OMB do not check it by default."""

    def window(self, partitions: int) -> int:
        """Return the most messages of one producer in flight; 0: only memory bounds them."""
        return min(
            self.max_pending_messages * partitions, self.max_pending_messages_across_partitions
        )

    @property
    def memory_limit(self) -> int | None:
        """Most bytes in flight over all producers of a worker; None: no limit.

        If the profile bounds nothing, it is OMB's default.
        """
        limit = self.client_memory_limit_mb
        if limit is None and not self.max_pending_messages:
            limit = OMB_MEMORY_MB
        return limit * 1024**2 if limit else None

    def receive_window(self, partitions: int) -> int:
        """Return the most messages prefetched by one consumer."""
        return min(
            self.receiver_queue_size * partitions,
            self.max_total_receiver_queue_size_across_partitions,
        )

    def connections(self, producers: int, consumers: int, workers: int) -> int:
        """Return the connections to a target of one broker: all producers and consumers of a
        worker share its connections.
        """
        return min(producers + consumers, workers) * self.connections_per_broker

    def unchecked_host(self, urls: Iterable[str]) -> str | None:
        if not any(url.startswith(("pulsar+ssl:", "https:")) for url in urls):
            return None
        if self.tls_allow_insecure_connection:
            return f"driver.tlsAllowInsecureConnection is true: {ANY_CERTIFICATE}"
        if self.tls_enable_hostname_verification:
            return None
        return (
            "driver.tlsEnableHostnameVerification is false, as in a driver file of OMB that does"
            f" not name it: {ANY_NAME}"
        )

    def outage_notes(self, broker: Mapping[str, Any]) -> Iterable[str]:
        """Return when too few bookies ran to store messages."""
        ensemble_size, ack_quorum = (
            (None, None)
            if self.persistence is None
            else (self.persistence.ensemble_size, self.persistence.ack_quorum)
        )
        return bookie_outage_notes(broker, ensemble_size, ack_quorum)

    def unordered(self, *, consumers: int, keyed: bool) -> tuple[str, str] | None:
        """Return why order is not judged, and the remedy; None on Exclusive and Failover, and
        with keys on Key_Shared.
        """
        if self.subscription_type == "Key_Shared":
            return (
                None
                if keyed
                else ("on Key_Shared without keys", "use keyDistributor: KEY_ROUND_ROBIN")
            )
        return (
            ("on a Shared subscription", "use Failover")
            if self.subscription_type == "Shared"
            else None
        )

    @property
    def unacknowledged(self) -> tuple[str, str] | None:
        """The reason and remedy for missing acknowledgements; None for persistent topics."""
        return (
            None
            if self.topic_type == "persistent"
            else ("on non-persistent topics", "use topicType: persistent")
        )

    def earliest(self, broker: Mapping[str, str]) -> int:
        """Return by how many ns a message may come early: the broker's tick, or 0 in strict mode.

        A broker that the run does not start is assumed to have the default tick, unless
        ``broker.settings`` say otherwise.
        """
        if strict(broker):
            return 0
        tick = broker.get(TICK, "")
        return (int(tick) if tick.isdecimal() else DEFAULT_TICK) * MILLISECOND

    @property
    def incomplete_messages(self) -> int | None:
        """Incomplete messages in chunks that one consumer and
        partition may have; None without chunks.
        """
        return self.max_pending_chunked_message if self.chunking_enabled else None

    def batch(self, rate: float, partitions: int, size: float, *, keyed: bool) -> float:
        """Return the messages in a batch: those sent during ``batchingMaxPublishDelayMs``,
        within the limits of a batch.
        """
        if not self.batching_enabled:
            return 1.0
        waiting = rate * self.batching_max_publish_delay_ms * MILLISECOND / SECOND
        if keyed:
            # Without keys a producer stays with one partition for longer than a batch waits, so all
            # its messages are in one batch.
            if self.subscription_type == "Key_Shared":
                # A batch holds one key, and there are more keys than waiting messages.
                return 1.0
            waiting /= partitions
        most = self.batching_max_messages or waiting  # 0: no limit
        return max(1.0, min(waiting, most, self.batching_max_bytes / size))


def strict(broker: Mapping[str, str]) -> bool:
    """Return whether the broker delivers nothing early. :param broker: the broker's settings."""
    return broker.get(STRICT, "").lower() == "true"
