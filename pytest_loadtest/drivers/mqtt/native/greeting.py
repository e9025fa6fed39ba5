"""What a client says before it is of use, and what the answers mean: CONNECT, SUBSCRIBE, UNSUBSCRIBE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.drivers.mqtt.options import NO_RETAINED, lacking
from pytest_loadtest.wire.mqtt import packets
from pytest_loadtest.wire.mqtt.codec import encode
from pytest_loadtest.wire.mqtt.packets import reason_text

if TYPE_CHECKING:
    from pytest_loadtest.drivers.mqtt.options import ClientOptions

_SUBSCRIBE_ID: Final = 1  # of a consumer, which publishes nothing
_UNSUBSCRIBE_ID: Final = 2


def connect(options: ClientOptions, client_id: str, *, again: bool) -> bytes:
    """:param again: it was connected before; with an expiry the session carries on then."""
    properties: dict[str, Any] = {}
    if options.v5 and options.session_expiry:
        properties["session_expiry_interval"] = options.session_expiry
    if options.v5 and options.receive_maximum is not None:
        properties["receive_maximum"] = options.receive_maximum
    if options.v5 and options.topic_alias_maximum:
        properties["topic_alias_maximum"] = options.topic_alias_maximum
    clean = options.clean_start and not (options.v5 and options.session_expiry and again)
    password = None if options.password is None else options.password.encode()
    return encode(
        packets.Connect(client_id, options.version, clean, options.keep_alive, options.username, password, properties),
        options.version,
    )


def refusal(options: ClientOptions, answer: packets.Connack) -> str | None:
    """Why this broker will not do; None where it will."""
    if answer.reason:
        return f"the broker refused the connection: {reason_text(packets.CONNACK, answer.reason, options.version)}"
    return lacking(options, answer.properties.get)


def subscribe(options: ClientOptions, topic_filter: str) -> bytes:
    """Under MQTT 5 without the retained messages, which a second subscribe after a reconnect would bring again."""
    wanted = packets.TopicFilter(topic_filter, options.qos, retain_handling=NO_RETAINED if options.v5 else 0)
    return encode(packets.Subscribe(_SUBSCRIBE_ID, (wanted,)), options.version)


def unsubscribe(options: ClientOptions, topic_filter: str) -> bytes:
    """The end of the subscription."""
    return encode(packets.Unsubscribe(_UNSUBSCRIBE_ID, (topic_filter,)), options.version)
