"""What all MQTT clients of a driver have in common, and what a broker's CONNACK rules out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.drivers.base import DriverFacts
from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.wire.mqtt.fields import encode_properties
from pytest_loadtest.wire.mqtt.packets import V5, V311

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_loadtest.drivers.base import DriverContext


KEEP_ALIVE_TIMEOUT: Final = 0x8D
SESSION_TAKEN_OVER: Final = 0x8E
NO_RETAINED: Final = 2  # MQTT 5, 3.8.3.1: do not send retained messages at the time of the subscribe
MOST_INFLIGHT: Final = 65_535  # a broker's Receive Maximum, where it says none (MQTT 5, 3.2.2.3.3)
ALIAS: Final = 1  # of the one topic that a producer has


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What all clients of a driver have in common. Times in seconds; ``packet`` is the largest PUBLISH to be sent, in bytes, without its
    properties.

    :param version: as CONNECT has it: 4 is 3.1.1. :param user_properties: of each PUBLISH.
    :param topic_alias_maximum: that a consumer allows the broker; above 0, producers use an alias too.
    """

    version: int
    qos: int
    clean_start: bool
    session_expiry: int
    receive_maximum: int | None
    keep_alive: int
    username: str | None
    password: str | None
    shared: bool
    retain: bool
    packet: int
    user_properties: int = 0
    topic_alias_maximum: int = 0

    @property
    def v5(self) -> bool:
        """MQTT 5, with properties and reason codes."""
        return self.version >= V5

    @property
    def durable(self) -> bool:
        """Sessions outlive their connections."""
        return not self.clean_start or self.session_expiry > 0

    def publish_properties(self, *, aliased: bool) -> Mapping[str, Any]:
        """Of each PUBLISH under MQTT 5. :param aliased: its topic has an alias."""
        pairs = [(f"property-name-{number:02}", f"property-value-{number:02}") for number in range(self.user_properties)]
        return ({"topic_alias": ALIAS} if aliased else {}) | ({"user_property": pairs} if pairs else {})

    @property
    def properties(self) -> int:
        """Bytes of those, where the topic has an alias if it may, and of what says their length under MQTT 5."""
        return len(encode_properties(self.publish_properties(aliased=self.topic_alias_maximum > 0))) if self.v5 else 0

    def aliased(self, allowed: int) -> bool:
        """Whether a producer gives its topic an alias. :param allowed: how many the broker's CONNACK allows."""
        return self.topic_alias_maximum > 0 and allowed >= ALIAS


def lacking(options: ClientOptions, said: Callable[[str, Any], Any]) -> str | None:
    """What the broker cannot do of what the options ask for, by its CONNACK (MQTT 5, 3.2.2.3).

    :param said: a property of the CONNACK by its name, or what it is worth where it is missing.
    """
    most = said("maximum_qos", 2)
    if options.qos > most:
        return f"the broker allows QoS {most} at most, the profile asks for {options.qos}"
    size, largest = said("maximum_packet_size", None), options.packet + options.properties
    if size is not None and largest > size:
        return f"the broker takes packets of {size} bytes at most, the profile's largest message makes one of {largest}"
    if options.shared and not said("shared_subscription_available", 1):
        return "the broker has no shared subscriptions"
    if options.retain and not said("retain_available", 1):
        return "the broker does not retain messages"
    return None


# From the profile's ``driver`` section to paho's options, and what of it the client applies.

LONGEST_EXPIRY: Final = 0xFFFF_FFFF  # seconds; MQTT 5, 3.1.2.11.2: never
VERSIONS: Final = {"5": V5, "3.1.1": V311}
_HEADER: Final = 9  # bytes of a PUBLISH besides topic, properties and payload: first byte, length (4), topic length, packet id


def topic_name(context: DriverContext, topic: int) -> str:
    """Of the topic with that index; one that exists without the run keeps its own name."""
    return context.topology.name or f"{context.settings.topic_prefix}/{context.run}/{topic}"


def topic_filter(context: DriverContext, consumer: int, *, shared: bool) -> str:
    """What a consumer subscribes. In an existing topic the group is the run's alone, or two runs would share their messages."""
    topology = context.topology
    topic, group = topic_name(context, topology.topic_of_consumer(consumer)), f"sub-{topology.subscription_of_consumer(consumer)}"
    if not shared:
        return topic
    return f"$share/{group if topology.name is None else f'{context.run}-{context.nonce:08x}-{group}'}/{topic}"


def is_shared(context: DriverContext) -> bool:
    """Whether consumers share their subscription: as the profile says, or by whether order is judged, which it is for sole consumers."""
    given: bool | None = context.settings.shared_subscription
    return not context.ordered if given is None else given


def client_options(context: DriverContext) -> ClientOptions:
    settings = context.settings
    existing = context.topology.name
    if existing is not None and settings.retain:
        raise UsageError(f"retain: true would replace the message that the existing topic {existing!r} keeps: leave out retain, or topic")
    longest = len(topic_name(context, context.topology.topics - 1).encode())  # the last topic has the most digits
    return ClientOptions(
        version=VERSIONS[settings.protocol_version],
        qos=settings.qos,
        clean_start=settings.clean_start,
        session_expiry=min(settings.session_expiry // SECOND, LONGEST_EXPIRY) if settings.protocol_version == "5" else 0,
        receive_maximum=settings.receive_maximum,
        keep_alive=settings.keep_alive // SECOND,
        username=settings.username,
        password=settings.password,
        shared=is_shared(context),
        retain=settings.retain,
        packet=int(context.pool.sizes.max(initial=0)) + longest + _HEADER,
        user_properties=settings.user_properties,
        topic_alias_maximum=settings.topic_alias_maximum,
    )


def client_facts(
    context: DriverContext, options: ClientOptions, client: tuple[str, str], *, allowed: int, aliases: int | None, losses: int,
    repeated: int, agreed: str,
) -> DriverFacts:  # fmt: skip
    """What of the settings is applied.

    :param client: its name and version. :param allowed: the least Receive Maximum that the broker gave so far.
    :param aliases: for topics, that the broker allows a producer; None: not known yet. :param losses: connections lost in mid-run.
    :param repeated: subscriptions that the broker answered only when asked again.
    :param agreed: version and cipher of TLS; empty where none is spoken so far.
    """
    settings = context.settings
    window = str(settings.max_inflight_messages)
    if allowed < settings.max_inflight_messages:
        window = f"{allowed} (the broker's Receive Maximum; asked {window})"
    applied = {
        "protocolVersion": settings.protocol_version,
        "qos": str(settings.qos),
        "sharedSubscription": _word(options.shared),
        "cleanStart": _word(settings.clean_start),
        **({"connectRate": f"{settings.connect_rate:g}/s"} if settings.connect_rate else {}),
        "keepAlive": format_duration(settings.keep_alive),
        "retain": _word(settings.retain),
        "tcpNoDelay": "true",
        "ioThreads": "none: one epoll loop in the worker",
    }
    not_applied = {"topicAliasMaximum": "the broker allows a producer none"} if settings.topic_alias_maximum and aliases == 0 else {}
    name = context.topology.name
    applied |= {"topicPrefix": settings.topic_prefix} if name is None else {"topic": name}
    if name is not None and "topic_prefix" in settings.model_fields_set:
        not_applied["topicPrefix"] = "the topic exists already"
    counted = (
        ("connectionsLost", losses, " in mid-run, dialled again"),
        ("subscriptionsRepeated", repeated, ", on which the broker had hung up"),
    )
    applied |= {key: f"{count}{what}" for key, count, what in counted if count}
    if settings.qos:
        applied["maxInflightMessages"] = window
    elif "max_inflight_messages" in settings.model_fields_set:
        not_applied["maxInflightMessages"] = "at QoS 0 nothing is answered; the window is what the system takes"
    if settings.username is not None:
        applied["username"] = settings.username
    if settings.tls is not None:
        applied["tls"] = "certificate's host name not checked" if settings.tls.insecure else "certificate and host name checked"
    if agreed:
        applied["tlsNegotiated"] = agreed
    for key, value in _of_mqtt_5(settings, options, aliases).items():
        if options.v5:
            applied[key] = value
        else:
            not_applied[key] = "MQTT 3.1.1 has no such thing"
    if context.topology.partitions > 1:
        not_applied["partitionsPerTopic"] = "MQTT topics have no partitions; each is one topic"
    name_of_client, version = client
    return DriverFacts(client=name_of_client, version=version, applied=applied, not_applied=not_applied, losses=losses)


def _of_mqtt_5(settings: Any, options: ClientOptions, aliases: int | None) -> dict[str, str]:
    """What is asked for of that version alone, less what the broker does not allow."""
    alias = settings.topic_alias_maximum if aliases != 0 else 0
    return {
        **({"sessionExpiry": format_duration(settings.session_expiry)} if settings.session_expiry else {}),
        **({"receiveMaximum": str(settings.receive_maximum)} if settings.receive_maximum is not None else {}),
        **(
            {"userProperties": f"{settings.user_properties}, {options.properties} bytes in each message"}
            if settings.user_properties
            else {}
        ),
        **({"topicAliasMaximum": f"{alias}; a producer's topic has one"} if alias else {}),
    }


def _word(value: bool) -> str:
    return str(value).lower()
