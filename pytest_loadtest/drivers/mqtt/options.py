"""The options of all MQTT clients of a driver, and the names of topics.

A broker's CONNACK is checked against the options here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.errors import UsageError
from pytest_loadtest.message.carried import VALUE_SIZES
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.route import IN_BODY, PROPERTY, Carrier, EnvelopePlace
from pytest_loadtest.message.token import TOKEN
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.records import record
from pytest_loadtest.wire.mqtt.fields import LONGEST, encode_properties
from pytest_loadtest.wire.mqtt.packets import V5, V311

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_loadtest.drivers.base import DriverContext


KEEP_ALIVE_TIMEOUT: Final = 0x8D
SESSION_TAKEN_OVER: Final = 0x8E
NO_SUBSCRIBERS: Final = 0x10
IDENTIFIER_NOT_FOUND: Final = 0x92
# Retain Handling 2: the broker sends no retained messages at a subscribe (MQTT 5, 3.8.3.1).
NO_RETAINED: Final = 2
# The Receive Maximum of a broker that reports none (MQTT 5, 3.2.2.3.3).
MOST_INFLIGHT: Final = 65_535
# A producer has one topic, so it needs one alias.
ALIAS: Final = 1
LONGEST_EXPIRY: Final = 0xFFFF_FFFF  # seconds; a session with it never expires (MQTT 5, 3.1.2.11.2)
VERSIONS: Final = {"5": V5, "3.1.1": V311}
# Bytes of a packet besides a message of the run: properties that a
# broker adds, or the texts of its CONNACK.
_ALLOWANCE: Final = 1 << 20
# The largest packet of the protocol: its length is a variable byte integer (MQTT 5, 2.1.4), after
# one byte and with up to four bytes.
_LARGEST: Final = LONGEST + 5
# Bytes of a PUBLISH besides topic, properties and payload: first byte, length (4), topic length,
# packet id.
_HEADER: Final = 9


@record
class ClientOptions:
    """The options of all clients of a driver. Times are in seconds.

    :param version: protocol version as in CONNECT: 4 means 3.1.1.
    :param packet: bytes of the largest PUBLISH, without properties.
    :param user_properties: number of user properties in each PUBLISH.
    :param sent, received: the place of the envelope in each PUBLISH of the run, and in those that
        its consumers get.
    :param foreign: the topic exists without the run, so that it may have messages of any size.
    :param consumed: the run has subscriptions.
    :param topic_alias_maximum: number of aliases that a consumer allows the broker; above 0,
        producers use an alias too.
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
    foreign: bool = False
    consumed: bool = True
    user_properties: int = 0
    sent: EnvelopePlace = IN_BODY
    received: EnvelopePlace = IN_BODY
    topic_alias_maximum: int = 0

    @property
    def v5(self) -> bool:
        """True for MQTT 5, which has properties and reason codes."""
        return self.version >= V5

    @property
    def durable(self) -> bool:
        """True if sessions outlive their connections.

        In MQTT 5 the expiry alone decides that (3.1.2.11.2).
        """
        return self.session_expiry > 0 if self.v5 else not self.clean_start

    def publish_properties(self, *, aliased: bool) -> Mapping[str, Any]:
        """Return the properties of each PUBLISH in MQTT 5, the envelope's with zeros.

        :param aliased: the topic has an alias.
        """
        pairs = [
            (f"property-name-{number:02}", f"property-value-{number:02}")
            for number in range(self.user_properties)
        ]
        if self.sent.carrier is Carrier.PROPERTIES:
            pairs.append((PROPERTY, "0" * TOKEN))
        properties: dict[str, Any] = {}
        if aliased:
            properties["topic_alias"] = ALIAS
        if pairs:
            properties["user_property"] = pairs
        if self.sent.carrier is Carrier.CORRELATION_DATA:
            properties["correlation_data"] = bytes(HEAD)
        return properties

    def before_envelope(self, *, aliased: bool) -> bytes:
        """Return what precedes the envelope, or the body, of each PUBLISH in MQTT 5: its properties
        with their length, up to the value of the envelope, which is the last one.
        """
        encoded = encode_properties(self.publish_properties(aliased=aliased))
        return encoded[: len(encoded) - VALUE_SIZES.get(self.sent.carrier, 0)]

    @property
    def properties(self) -> int:
        """Bytes of each PUBLISH's properties with their length field; 0 in MQTT 3.1.1.

        If aliases are requested, an alias is included.
        """
        return (
            len(encode_properties(self.publish_properties(aliased=self.topic_alias_maximum > 0)))
            if self.v5
            else 0
        )

    @property
    def largest_packet(self) -> int:
        """Bytes of the largest packet that a client accepts.

        It is its Maximum Packet Size (MQTT 5, 3.1.2.11.4).
        """
        return (
            _LARGEST if self.foreign else min(self.packet + self.properties + _ALLOWANCE, _LARGEST)
        )

    def aliased(self, allowed: int) -> bool:
        """Return True if a producer gives its topic an alias.

        :param allowed: number of aliases that the broker's CONNACK allows.
        """
        return self.topic_alias_maximum > 0 and allowed >= ALIAS


def missing_feature(options: ClientOptions, connack: Callable[[str, Any], Any]) -> str | None:
    """Return a message about a feature that the options need and the broker lacks, or None.

    Its CONNACK rules features out (MQTT 5, 3.2.2.3).

    :param connack: returns the property of the CONNACK with this name, or the given default.
    """
    most = connack("maximum_qos", 2)
    if options.qos > most:
        return f"the broker allows QoS {most} at most, the profile needs {options.qos}"
    size = connack("maximum_packet_size", None)
    largest = options.packet + options.properties
    if size is not None and largest > size:
        return (
            f"the broker accepts packets of {size} bytes at most, the profile's largest message"
            f" needs {largest}"
        )
    if options.shared and not connack("shared_subscription_available", 1):
        return "the broker has no shared subscriptions"
    if options.retain and not connack("retain_available", 1):
        return "the broker does not retain messages"
    return None


def topic_name(context: DriverContext, topic: int) -> str:
    """Return the name of the topic with this index that producers send to; an existing topic keeps
    its own name.
    """
    if context.route is not None:
        return context.route.input_name(topic)
    return context.topology.name or f"{context.settings.topic_prefix}/{context.run}/{topic}"


def output_names(context: DriverContext, topic: int) -> tuple[str, ...]:
    """Return the names of the topics that consumers of the topic with this index read."""
    if context.route is not None:
        return context.route.output_names(topic)
    return (topic_name(context, topic),)


def output_numbers(context: DriverContext) -> dict[bytes, int]:
    """Return the number of each output topic among those of its consumers, by its name: the group
    in which order is judged. Empty if consumers read one topic each.
    """
    if context.route is None or len(context.route.output) == 1:
        return {}
    numbers = {}
    for topic in range(context.topology.topics):
        for number, name in enumerate(output_names(context, topic)):
            numbers[name.encode()] = number
    return numbers


def topic_filters(context: DriverContext, consumer: int, *, shared: bool) -> tuple[str, ...]:
    """Return the topic filters of a consumer's subscription."""
    # On an existing topic the group's name contains the run: two runs with
    # the same group would share their messages.
    topology = context.topology
    topics = output_names(context, topology.topic_of_consumer(consumer))
    group = f"sub-{topology.subscription_of_consumer(consumer)}"
    if not shared:
        return topics
    if has_existing_topics(context):
        group = f"{context.run}-{context.nonce:08x}-{group}"
    return tuple(f"$share/{group}/{topic}" for topic in topics)


def has_existing_topics(context: DriverContext) -> bool:
    """Return True if others may send to the topics: to an existing one, or to those of a route."""
    return context.topology.name is not None or context.route is not None


def is_shared(context: DriverContext) -> bool:
    """Return True if consumers share their subscription: as the profile says.

    By default, if order is not judged.
    """
    # Order is judged for subscriptions with one consumer, so the
    # default shares subscriptions with several.
    shared: bool | None = context.settings.shared_subscription
    return not context.ordered if shared is None else shared


def client_options(context: DriverContext) -> ClientOptions:
    """Return the client options of the profile's ``driver`` section.

    :raises UsageError: ``retain`` on an existing topic.
    """
    settings = context.settings
    if has_existing_topics(context) and settings.retain:
        raise UsageError(
            "retain: true would replace the retained message of the existing topic"
            f" {topic_name(context, 0)!r}: leave out retain"
        )
    # The name of the last topic is the longest: its number has the most digits.
    longest = len(topic_name(context, context.topology.topics - 1).encode())
    return ClientOptions(
        version=VERSIONS[settings.protocol_version],
        qos=settings.qos,
        clean_start=settings.clean_start or context.tap,
        session_expiry=0
        if context.tap or settings.protocol_version != "5"
        else min(settings.session_expiry // SECOND, LONGEST_EXPIRY),
        receive_maximum=settings.receive_maximum,
        keep_alive=settings.keep_alive // SECOND,
        username=settings.username,
        password=settings.password,
        shared=is_shared(context),
        retain=settings.retain,
        foreign=has_existing_topics(context),
        consumed=context.topology.subscriptions > 0,
        packet=int(context.pool.sizes.max(initial=0)) + longest + _HEADER,
        user_properties=settings.user_properties,
        sent=context.pool.place,
        received=context.received_place,
        topic_alias_maximum=settings.topic_alias_maximum,
    )
