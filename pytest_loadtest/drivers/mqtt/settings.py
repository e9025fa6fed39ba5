"""The ``driver`` section of MQTT: a flat list of client settings, with
OMB's spelling of a key where OMB has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from pytest_loadtest.errors import Path, Problem
from pytest_loadtest.profile.client import ANY_NAME, ClientSettings
from pytest_loadtest.profile.explain import shown
from pytest_loadtest.profile.fields import Duration, Section, invalid_field, spelling
from pytest_loadtest.profile.omb_driver import OmbClass, OmbField, OmbFile, OmbKeys
from pytest_loadtest.profile.omb_fields import boxed_flag, boxed_integer, integer, string
from pytest_loadtest.profile.route import named_topics
from pytest_loadtest.schedule.pacing import LEAST_RATE, MOST_RATE
from pytest_loadtest.values.quantities import SECOND, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_loadtest.profile.model import Profile


def _whole_seconds(value: int) -> int:
    if value % SECOND:
        raise invalid_field(
            f"{format_duration(value)} is not a whole number of seconds",
            "write whole seconds: MQTT has no smaller unit",
        )
    return value


WholeSeconds = Annotated[Duration, AfterValidator(_whole_seconds)]

# Keep Alive has two bytes (MQTT 5, 3.1.2.10).
_LONGEST_KEEP_ALIVE: Final = 65_535 * SECOND


def _two_bytes(value: int) -> int:
    if value > _LONGEST_KEEP_ALIVE:
        raise invalid_field(
            f"{value // SECOND} s is longer than MQTT's keep-alive can be",
            "write 65535s or less, or 0s for none",
        )
    return value


KeepAlive = Annotated[WholeSeconds, AfterValidator(_two_bytes)]


def _protocol_version(value: object) -> object:
    return str(value) if type(value) is int else value


class MqttSettings(ClientSettings):
    """An MQTT client."""

    name: Literal["mqtt"] = "mqtt"

    broker: Literal["mosquitto", "artemis"] | None = None
    """Broker that a run without a target starts as a process: mosquitto (default), or ActiveMQ
    Artemis, which is multi-threaded."""
    protocol_version: Annotated[
        Literal["5", "3.1.1"],
        BeforeValidator(_protocol_version),
        WithJsonSchema({"enum": ["5", "3.1.1", 5]}, mode="validation"),
    ] = "5"
    """Version of the MQTT protocol."""
    qos: Annotated[Literal[0, 1, 2], Field()] = 1
    """Quality of service for producers and consumers. At 0 nothing is acknowledged, and publish
    latency is not applicable."""
    shared_subscription: bool | None = None
    """Consumers of a subscription share its messages ($share); by
    default if there is more than one."""
    clean_start: bool = True
    """Discard an earlier session of the same client. Those of producers are always discarded."""
    session_expiry: WholeSeconds = 0
    """Time for which the broker keeps a session after its connection ended."""
    receive_maximum: int | None = Field(default=None, ge=1, le=65_535)
    """Number of unacknowledged messages that a consumer allows the broker."""
    max_inflight_messages: int = Field(default=20, ge=1, le=65_535)
    """Number of unacknowledged messages of a producer; paho's cost per message grows with it."""
    connect_rate: float | None = Field(default=None, ge=LEAST_RATE, lt=MOST_RATE)
    """Connections opened per second, over all workers; by default limited only by 64 concurrent
    handshakes in each worker."""
    keep_alive: KeepAlive = 60 * SECOND
    """Silence after which a client pings the broker."""
    retain: bool = False
    """The broker keeps the last message of each topic."""
    topic_prefix: str = Field(default="loadtest", pattern=r"^[^+#$][^+#]*$")
    """First level of every topic."""
    username: str | None = None
    """User name, for brokers that require one."""
    password: str | None = Field(default=None, exclude=True, repr=False)
    """Password; not written to results."""
    tls: Tls | None = None
    """TLS settings, for mqtts:// targets."""
    client_id_prefix: str = Field(default="lt", min_length=1)
    """First part of every client id."""
    user_properties: int = Field(default=0, ge=0, le=100)
    """User properties of each PUBLISH, each with a name of 16 bytes and
    a value of 17, similar to mqttbench's."""
    topic_alias_maximum: int = Field(default=0, ge=0, le=65_535)
    """Number of topic aliases that a consumer allows. Above 0 a producer uses an alias for its
    topic if the broker allows one."""

    def window(self, partitions: int) -> int:
        return self.max_inflight_messages

    def receive_window(self, partitions: int) -> int:
        # Without receiveMaximum, mosquitto's own limit applies (max_inflight_messages 20).
        return self.receive_maximum or 20

    def connections(self, producers: int, consumers: int, workers: int) -> int:
        return producers + consumers

    @property
    def broker_name(self) -> str:
        # mosquitto has the name of the kind.
        return "artemis" if self.broker == "artemis" else self.name

    @property
    def named_broker(self) -> str | None:
        return self.broker

    @property
    def broker_tls(self) -> Tls | None:
        return self.tls

    def with_keys(self, keys: Mapping[str, Any]) -> Self:
        """Return these settings with keys of the run; files that the profile names stay."""
        settings = super().with_keys(keys)
        if self.tls is None or "tls" not in keys:
            return settings
        return settings.model_copy(update={"tls": self.tls.with_files(keys["tls"])})

    @property
    def cost_variant(self) -> str:
        return f"qos{self.qos}"

    @property
    def connection_rate(self) -> float | None:
        return self.connect_rate

    def unchecked_host(self, urls: Iterable[str]) -> str | None:
        insecure = (
            self.tls is not None
            and self.tls.insecure
            and any(url.startswith("mqtts:") for url in urls)
        )
        return f"driver.tls.insecure is true: {ANY_NAME}" if insecure else None

    def unordered(self, *, consumers: int, keyed: bool) -> tuple[str, str] | None:
        """Return a problem for shared subscriptions: their consumers overtake each other."""
        shared = consumers > 1 if self.shared_subscription is None else self.shared_subscription
        return ("on a shared subscription", "use one consumer per subscription") if shared else None

    @property
    def fresh_subscriptions(self) -> bool:
        # With cleanStart: false a run continues the sessions of an earlier one.
        return self.clean_start

    @property
    def exactly_once(self) -> bool:
        # In MQTT 3.1.1 a subscribe after a reconnect delivers the retained message again.
        return self.qos == 2 and not (self.retain and self.protocol_version == "3.1.1")

    @property
    def unacknowledged(self) -> tuple[str, str] | None:
        return None if self.qos else ("at QoS 0", "use qos: 1")


class Tls(Section):
    """TLS of an MQTT client, for mqtts:// targets."""

    ca_file: str | None = None
    """Certificates to trust; by default the system's."""
    cert_file: str | None = None
    """The client's certificate."""
    key_file: str | None = None
    """The client's private key."""
    insecure: bool = False
    """Do not check that the certificate names the host."""
    version: Literal["TLSv1.2", "TLSv1.3"] | None = None
    """The only TLS version to use; by default the newest that both sides have. Also applies to a
    broker that the run starts."""
    ciphers: str | None = Field(default=None, pattern=r"^[A-Z0-9_-]+(:[A-Z0-9_-]+)*$")
    """The only ciphers to use: OpenSSL's names with colons between. Set at a broker that the run
    starts; checked with any other broker."""

    def with_files(self, files: Tls) -> Tls:
        """Return these settings with the paths of ``files`` for those that are not set;
        certificate and key belong together.
        """
        pairs = (("ca_file",), ("cert_file", "key_file"))
        update: dict[str, Any] = {}
        for names in pairs:
            if not any(getattr(self, name) for name in names):
                update |= {name: getattr(files, name) for name in names}
        return self.model_copy(update=update)

    @property
    def of_tls13(self) -> tuple[str, ...]:
        """The ciphers of TLS 1.3, which OpenSSL sets separately."""
        return tuple(name for name in self._names if name.startswith("TLS_"))

    @property
    def of_tls12(self) -> tuple[str, ...]:
        """The ciphers of TLS 1.2."""
        return tuple(name for name in self._names if not name.startswith("TLS_"))

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that can be negotiated, oldest first.

        Ciphers of a single version allow only that version.
        """
        if self.version is not None:
            return (self.version,)
        ciphers_by_version = {"TLSv1.2": self.of_tls12, "TLSv1.3": self.of_tls13}
        return tuple(
            version
            for version, ciphers in ciphers_by_version.items()
            if ciphers or self.ciphers is None
        )

    @property
    def _names(self) -> list[str]:
        return self.ciphers.split(":") if self.ciphers else []


# Checks of a profile across several keys.


def _settings(profile: Profile) -> MqttSettings:
    assert isinstance(profile.driver, MqttSettings)
    return profile.driver


def _has_wildcard(topic: str) -> bool:
    return not set("+#\0").isdisjoint(topic) or topic.startswith("$share/")


def _topic(profile: Profile) -> Iterator[Problem]:
    topic = profile.topic or ""
    if _has_wildcard(topic):
        yield Problem(
            ("topic",),
            f"topic: {topic!r} has a wildcard",
            "write one topic, such as a/b/c, without + and #",
        )


def _route(profile: Profile) -> Iterator[Problem]:
    """Reject wildcards in the topics of a route, and aliases in place of the names of several."""
    route = profile.route
    if route is None:
        return
    for path, name in named_topics(route):
        if _has_wildcard(name):
            message = f"route.{path[1]}: {name!r} has a wildcard"
            yield Problem(path, message, "write one topic, such as a/{topic}, without + and #")
    if len(route.output) > 1 and _settings(profile).topic_alias_maximum:
        message = "driver.topicAliasMaximum: order is judged for each topic of route.output, whose"
        remedy = "remove topicAliasMaximum, or write one topic as route.output"
        path = ("driver", "topicAliasMaximum")
        yield Problem(path, f"{message} name a broker may replace by an alias", remedy)


def _broker(profile: Profile) -> Iterator[Problem]:
    named = _settings(profile).broker
    target = profile.target
    if named is None or target is None:
        return
    others = [name for name in ("url", "image") if getattr(target, name) is not None]
    if "url" in others or (others and named == "artemis"):
        message = (
            f"driver.broker: the run starts {named}, but target.{others[0]} names another broker"
        )
        yield Problem(("driver", "broker"), message, f"leave out broker, or target.{others[0]}")


def _pair(profile: Profile) -> Iterator[Problem]:
    brokers = profile.broker.brokers
    if brokers is None or _settings(profile).broker != "artemis":
        return
    if brokers != 2:
        message = f"broker.brokers: {brokers}: a cluster of Artemis is a primary and its backup"
        yield Problem(("broker", "brokers"), message, "write 2, or remove brokers for a single one")
    if profile.broker.settings.get("persistence-enabled", "true") != "true":
        message = (
            "broker.settings: the backup continues with what the primary has stored, which needs"
            " persistence-enabled"
        )
        yield Problem(
            ("broker", "settings", "persistence-enabled"), message, "remove it, or brokers"
        )


def _subscription(profile: Profile) -> Iterator[Problem]:
    consumers = profile.consumer_per_subscription
    if consumers > 1 and _settings(profile).shared_subscription is False:
        message = (
            f"driver.sharedSubscription: without it each of {consumers} consumers gets every"
            " message"
        )
        yield Problem(
            ("driver", "sharedSubscription"),
            message,
            "write true, or subscriptionsPerTopic for more copies",
        )


def _version(profile: Profile) -> Iterator[Problem]:
    driver = _settings(profile)
    if driver.protocol_version == "5":
        return
    for name in ("session_expiry", "receive_maximum", "user_properties", "topic_alias_maximum"):
        if name in driver.model_fields_set:
            key = spelling(name)
            message = f"driver.{key}: MQTT 3.1.1 does not have it"
            yield Problem(
                ("driver", key), message, 'remove it, or write protocolVersion: "5"', at_key=True
            )
    if profile.route is None:
        return
    for key, place in profile.route.route().places.items():
        if place.outside:
            message = f"route.envelope.{key}: MQTT 3.1.1 has no {place}"
            remedy = 'write json:/meta/ref, or protocolVersion: "5"'
            yield Problem(("route", "envelope", key), message, remedy)


def _login(profile: Profile) -> Iterator[Problem]:
    """Reject a password alone where it cannot be sent."""
    driver = _settings(profile)
    sender = ""
    if driver.protocol_version != "5":
        sender = "MQTT 3.1.1"  # 3.1.2.9
    elif driver.client == "library":
        sender = "paho"
    if sender and driver.password is not None and driver.username is None:
        message = f"driver.password: {sender} sends no password without a user name"
        yield Problem(("driver", "password"), message, "write username too")


def _tls(profile: Profile) -> Iterator[Problem]:
    if (tls := _settings(profile).tls) is None:
        return
    if tls.key_file is not None and tls.cert_file is None:
        yield Problem(
            ("driver", "tls", "keyFile"),
            "driver.tls.keyFile: a key without its certificate",
            "write certFile too",
        )
    strangers = {"TLSv1.2": tls.of_tls13, "TLSv1.3": tls.of_tls12}.get(tls.version or "", ())
    if strangers:
        message = f"driver.tls.ciphers: {strangers[0]} is not a cipher of {tls.version}"
        example = {"TLSv1.2": "ECDHE-RSA-AES256-GCM-SHA384", "TLSv1.3": "TLS_AES_256_GCM_SHA384"}[
            str(tls.version)
        ]
        yield Problem(
            ("driver", "tls", "ciphers"), message, f"write e.g. {example}, or another version"
        )
    if (
        _settings(profile).broker == "artemis"
        and profile.target is not None
        and profile.target.security is not None
        and tls.of_tls12
    ):
        message = (
            f"driver.tls.ciphers: {tls.of_tls12[0]} is not Java's name of a cipher, and Artemis"
            " runs in Java"
        )
        yield Problem(("driver", "tls", "ciphers"), message, "name ciphers of TLS 1.3 only")


CHECKS: Final = (_topic, _route, _broker, _pair, _subscription, _version, _login, _tls)


# OMB's driver files for MQTT: the classes ``Mqtt*Config`` of its ``driver-mqtt5``.


def _server_uri(out: OmbFile, value: Any, at: Path) -> None:
    # OMB ignores the scheme, and uses port 80 if the URI has none.
    url = urlsplit(value if "://" in str(value) else f"tcp://{value}")
    scheme = "mqtts" if url.scheme in ("ssl", "tls", "mqtts") else "mqtt"
    out.set("target", "url", f"{scheme}://{url.netloc}", at)
    if ":" not in url.netloc:
        out.not_applied["client.serverUri"] = (
            "without a port OMB connects to 80, this run to MQTT's default port"
        )


def _omb_login(out: OmbFile, values: Mapping[str, Any], at: Path) -> None:
    given = [key for key in ("username", "password") if values.get(key)]
    if len(given) == 1:
        out.not_applied[f"{at[0]}.{given[0]}"] = "OMB logs in with both username and password only"
        return
    for key in given:
        out.set("driver", key, values[key], (*at, key))


def _session(out: OmbFile, values: Mapping[str, Any], at: Path) -> None:
    """Read ``cleanSession``, and how long a session lasts without it."""
    clean = values.get("cleanSession")
    expiry = values.get("sessionExpiryInterval")
    path = (*at, "sessionExpiryInterval")
    if clean is None:
        return
    if out.has((*at, "cleanSession")):
        out.set("driver", "cleanStart", clean, (*at, "cleanSession"))
    if clean is not False:
        if expiry is not None and out.has(path):
            out.not_applied[".".join(map(str, path))] = (
                f"{shown(expiry)}: OMB uses it with cleanSession: false only"
            )
    elif type(expiry) is int:
        out.set("driver", "sessionExpiry", f"{expiry}s", path)
    elif expiry is None:
        out.refuse(
            path,
            f"{path[-1]} has no value, and OMB stops at null",
            "write seconds, or remove the key",
            at_key=True,
        )
    else:
        out.refuse(path, f"{path[-1]}: {shown(expiry)} is not a number of seconds")


def _topic_prefix(value: Any, written: str) -> Any:
    # OMB appends to the prefix as text, which makes "null" of null.
    return "null" if value is None else string(value, written)


KEYS: Final = OmbKeys(
    sections={
        "client": OmbClass(
            fields={
                "serverUri": OmbField(
                    read=string, initial="tcp://localhost:1883", into=_server_uri, required=True
                ),
                "username": OmbField(read=string, initial=""),
                "password": OmbField(read=string, initial=""),
                "qos": OmbField(read=integer, initial=1, into="qos"),
                "topicPrefix": OmbField(
                    read=_topic_prefix, initial="benchmark", into="topicPrefix"
                ),
            },
            convert=_omb_login,
        ),
        "consumer": OmbClass(
            fields={
                "cleanSession": OmbField(read=boxed_flag, initial=True, required=True),
                "sessionExpiryInterval": OmbField(read=boxed_integer, initial=259_200),
                "receiveMaximum": OmbField(
                    read=boxed_integer, initial=256, into="receiveMaximum", required=True
                ),
            },
            convert=_session,
            # OMB's own file has this key.
            ignored={
                "sessionExpiryIntervalSeconds": (
                    "OMB does not read it, its key is sessionExpiryInterval"
                )
            },
        ),
    },
)
