"""From the profile's ``driver`` section to paho's options, and what of it the client applies."""

from __future__ import annotations

import socket
import ssl
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

from paho.mqtt.enums import MQTTProtocolVersion

from pytest_loadtest.drivers._base import ConsumerSpec, DriverFacts, TopicSpec
from pytest_loadtest.drivers._mqtt_paho import ClientOptions
from pytest_loadtest.drivers._mqtt_socket import Endpoint
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.quantities import SECOND, format_duration

if TYPE_CHECKING:
    from pytest_loadtest.drivers._base import DriverContext

PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
LONGEST_EXPIRY: Final = 0xFFFF_FFFF  # seconds; MQTT 5, 3.1.2.11.2: never
VERSIONS: Final = {"5": MQTTProtocolVersion.MQTTv5, "3.1.1": MQTTProtocolVersion.MQTTv311}
_CONNECT_TIMEOUT: Final = 5.0
_HEADER: Final = 12  # bytes of a PUBLISH besides topic and payload: first byte, length (4), topic length, packet id, properties' length


def topic_name(context: DriverContext, topic: TopicSpec) -> str:
    return f"{context.settings.topic_prefix}/{context.run}/{topic.index}" if topic.name is None else topic.name


def topic_filter(context: DriverContext, spec: ConsumerSpec, *, shared: bool) -> str:
    """What a consumer subscribes. In an existing topic the group is the run's alone, or two runs would share their messages."""
    topic, group = topic_name(context, spec.topic), f"sub-{spec.subscription}"
    if not shared:
        return topic
    return f"$share/{group if spec.topic.name is None else f'{context.run}-{context.nonce:08x}-{group}'}/{topic}"


def is_shared(context: DriverContext) -> bool:
    """Whether consumers share their subscription: as the profile says, or by whether order is judged, which it is for sole consumers."""
    given: bool | None = context.settings.shared_subscription
    return not context.ordered if given is None else given


def client_options(context: DriverContext) -> ClientOptions:
    settings = context.settings
    existing = next((topic.name for topic in context.topics if topic.name is not None), None)
    if existing is not None and settings.retain:
        raise UsageError(f"retain: true would replace the message that the existing topic {existing!r} keeps: leave out retain, or topic")
    topic = max((len(topic_name(context, topic).encode()) for topic in context.topics), default=0)
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
        packet=int(context.pool.sizes.max(initial=0)) + topic + _HEADER,
    )


def find_endpoint(context: DriverContext) -> Endpoint:
    """Of the run's target."""
    return endpoint_of(context.target.url, context.settings.tls)


def endpoint_of(url: str, tls_settings: Any) -> Endpoint:
    """The first address of the URL's host that answers.

    :param tls_settings: the profile's ``driver.tls``, or None.
    :raises UsageError: the URL is none, or contradicts ``tls``. :raises TargetError: no address answers.
    """
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname:
        raise UsageError(f"{url!r} is not the address of an MQTT broker: write mqtt://host:1883 or mqtts://host:8883")
    if parts.username or parts.password:
        raise UsageError(f"{parts.scheme}://{parts.hostname}: write user and password as driver.username and driver.password")
    tls = _tls(tls_settings, parts)
    port = parts.port or PORTS[parts.scheme]
    try:
        with socket.create_connection((parts.hostname, port), _CONNECT_TIMEOUT) as found:
            family, address = found.family, found.getpeername()
    except OSError as error:
        raise TargetError(f"{url}: {error.strerror or error}") from error
    return Endpoint(host=parts.hostname, port=port, family=family, address=address, tls=tls)


def _tls(settings: Any, url: SplitResult) -> ssl.SSLContext | None:
    if url.scheme != "mqtts":
        if settings is not None:
            raise UsageError(f"driver.tls is set and the target is {url.geturl()!r}: write mqtts://")
        return None
    try:
        tls = ssl.create_default_context(cafile=None if settings is None else settings.ca_file)
        if settings is not None and settings.cert_file:
            tls.load_cert_chain(settings.cert_file, settings.key_file)
    except OSError as error:
        files = f"{settings.ca_file}, {settings.cert_file}, {settings.key_file}"
        raise UsageError(f"driver.tls: {error.strerror or error} (caFile, certFile, keyFile: {files})") from error
    if settings is not None and settings.insecure:
        tls.check_hostname = False
    return tls


def client_facts(context: DriverContext, options: ClientOptions, *, allowed: int, losses: int) -> DriverFacts:
    """What of the settings is applied.

    :param allowed: the least Receive Maximum that the broker gave so far.
    :param losses: connections lost in mid-run.
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
        "keepAlive": format_duration(settings.keep_alive),
        "retain": _word(settings.retain),
        "tcpNoDelay": "true",
        "ioThreads": "none: one epoll loop in the worker",
    }
    not_applied = {}
    names = [topic.name for topic in context.topics if topic.name is not None]
    applied |= {"topic": ", ".join(names)} if names else {"topicPrefix": settings.topic_prefix}
    if names and "topic_prefix" in settings.model_fields_set:
        not_applied["topicPrefix"] = "the topic exists already"
    if losses:
        applied["connectionsLost"] = f"{losses} in mid-run, dialled again"
    if settings.qos:
        applied["maxInflightMessages"] = window
    elif "max_inflight_messages" in settings.model_fields_set:
        not_applied["maxInflightMessages"] = "at QoS 0 nothing is answered; the window is what the system takes"
    if settings.username is not None:
        applied["username"] = settings.username
    if settings.tls is not None:
        applied["tls"] = "certificate's host name not checked" if settings.tls.insecure else "certificate and host name checked"
    for key, asked, value in (
        ("sessionExpiry", settings.session_expiry > 0, format_duration(settings.session_expiry)),
        ("receiveMaximum", settings.receive_maximum is not None, str(settings.receive_maximum)),
    ):
        if asked and options.v5:
            applied[key] = value
        elif asked:
            not_applied[key] = "MQTT 3.1.1 has no such thing"
    if any(topic.partitions > 1 for topic in context.topics):
        not_applied["partitionsPerTopic"] = "MQTT topics have no partitions; each is one topic"
    return DriverFacts(client="paho-mqtt", version=version("paho-mqtt"), applied=applied, not_applied=not_applied)


def _word(value: bool) -> str:
    return str(value).lower()
