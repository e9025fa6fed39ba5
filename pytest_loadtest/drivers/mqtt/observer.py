"""Observers of MQTT topics.

Each is a QoS 0 subscription with its own client id, whose session ends with the connection.
"""

from __future__ import annotations

import secrets
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.subscribeoptions import SubscribeOptions

from pytest_loadtest.drivers.mqtt.broker_socket import endpoint_of
from pytest_loadtest.drivers.mqtt.options import NO_RETAINED, VERSIONS
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.profile.observed import Seen
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.wire.mqtt.packets import FAILURE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.drivers.base import TelemetryContext
    from pytest_loadtest.drivers.mqtt.settings import MqttSettings


_DEADLINE: Final = 10.0  # s


class MqttObserver:
    """A connection that subscribes to topic filters.

    :param take: called with every message, including retained ones; None: :meth:`read` returns
        messages sent from now on.
    :raises UsageError: an invalid filter, or a shared subscription.
    :raises TargetError: not reached, or rejected.
    """

    topics = 0  # unknown, because a filter matches any number of topics
    partitions = 1

    def __init__(
        self,
        url: str,
        topics: Sequence[str],
        settings: MqttSettings,
        take: Callable[[paho.MQTTMessage], None] | None = None,
    ) -> None:
        for topic in topics:
            check_filter(topic)
        self._url = url
        self._seen = list[Seen]()
        self._answers = list[Any]()
        endpoint = endpoint_of(url, settings.tls)
        version = settings.protocol_version
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            f"{settings.client_id_prefix}-observer-{secrets.token_hex(4)}",
            clean_session=None if version == "5" else True,
            reconnect_on_failure=False,
            protocol=MQTTProtocolVersion(VERSIONS[version]),
        )
        self._client.username_pw_set(settings.username, settings.password)
        if endpoint.tls is not None:
            self._client.tls_set_context(endpoint.tls.context)
        # No callback refers to this object, so that paho closes its sockets, which it does when it
        # is freed, at once.
        answers = self._answers
        take_message = take or partial(_keep, self._seen)
        self._client.on_connect = lambda _client, _data, _flags, reason, _properties: (
            answers.append(reason)
        )
        self._client.on_subscribe = lambda _client, _data, _mid, reasons, _properties: (
            answers.extend(reasons)
        )
        self._client.on_message = lambda _client, _data, message: take_message(message)
        try:
            self._client.connect(endpoint.host, endpoint.port, settings.keep_alive // SECOND)
            self._await("the connection", 1)
            options: Any = 0
            if take is None and settings.protocol_version == "5":
                options = SubscribeOptions(qos=0, retainHandling=NO_RETAINED)
            filters = list(dict.fromkeys(topics))
            self._client.subscribe([(topic, options) for topic in filters])
            self._await(f"a subscription to {', '.join(filters)}", len(filters))
        except OSError as error:
            raise TargetError(f"{url}: {error}") from error
        except BaseException:
            self.close()
            raise

    def _await(self, what: str, count: int) -> None:
        deadline = time.monotonic() + _DEADLINE
        while len(self._answers) < count:
            if time.monotonic() > deadline:
                raise TargetError(f"{self._url}: no answer to {what} in {_DEADLINE:.0f} s")
            self._loop(0.1, f"{self._url}: {what} failed")
        rejections = [str(reason) for reason in self._answers if reason.value >= FAILURE]
        if rejections:
            raise TargetError(f"{self._url}: {what} was rejected: {', '.join(rejections)}")
        self._answers.clear()

    def _loop(self, timeout: float, problem: str) -> None:
        code = self._client.loop(timeout)
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS and not self._answers:
            raise TargetError(f"{problem}: {paho.error_string(code)}")

    def read(self, timeout: float) -> list[Seen]:
        """Return the messages since the last call; wait up to ``timeout`` seconds for one."""
        self._loop(timeout, f"{self._url}: connection lost")
        seen = list(self._seen)
        self._seen.clear()
        return seen

    @property
    def port(self) -> int:
        """The local port of the connection."""
        connected: Any = self._client.socket()
        return int(connected.getsockname()[1])

    def behind(self) -> float:
        """Return 0: MQTT messages carry no time of sending."""
        return 0.0

    def close(self) -> None:
        """End the connection, and the session with it."""
        self._client.disconnect()
        self._client.loop(0.0)


def _keep(seen: list[Seen], message: paho.MQTTMessage) -> None:
    # Brokers set RETAIN on messages that were retained before the subscription (MQTT 5, 3.3.1.3);
    # these are not current traffic.
    if not message.retain:
        seen.append(Seen(message.topic, len(message.payload), None, time.monotonic_ns()))


def check_filter(topic: str) -> None:
    """Check a topic filter (MQTT 5, 4.7.1).

    :raises UsageError: it is invalid, or a shared subscription.
    """
    levels = topic.split("/")
    if topic.startswith("$share/"):
        raise UsageError(
            f"topic {topic!r} would take messages from the other members of its group: write it"
            " without $share/group/"
        )
    invalid = (
        any(("#" in level or "+" in level) and len(level) > 1 for level in levels)
        or "#" in levels[:-1]
    )
    if not topic or invalid:
        raise UsageError(
            f"topic {topic!r} is not a topic filter: + stands for a whole level, # for all"
            " following levels, at the end"
        )


def observe_mqtt(
    url: str, topics: Sequence[str], settings: MqttSettings, admin_url: str | None
) -> MqttObserver:
    """Return an observer of these filters.

    :param admin_url: not used, MQTT brokers have no common administration.
    """
    return MqttObserver(url, topics, settings)


# Counters that a broker publishes below ``$SYS/broker``, and its version: topics of mosquitto,
# which other brokers have taken over.

TOPICS: Final = {
    "$SYS/broker/publish/messages/dropped": "sys.dropped",
    "$SYS/broker/heap/current": "sys.heap",
    "$SYS/broker/store/messages/count": "sys.stored",
    "$SYS/broker/clients/connected": "sys.clients",
    "$SYS/broker/uptime": "sys.uptime",
}
_VERSION: Final = "$SYS/broker/version"
_TURN: Final = 0.2  # s; interval at which the thread checks whether to end
_PATIENCE: Final = 1.0  # s
_AGAIN: Final = 0.5  # s between two attempts to connect again
_AWAY: Final = 30.0  # s after which a broker without a connection has gone: a test may restart it


def sys_settings(url: str, settings: MqttSettings) -> MqttSettings:
    """Return the settings of an observer at a run's main address.

    The address is plain with TLS for subscribers only.
    """
    return settings if url.startswith("mqtts:") else settings.model_copy(update={"tls": None})


def reported_version(payload: bytes) -> str:
    """Return ``mosquitto 2.0.11`` for ``mosquitto version 2.0.11``.

    Other brokers' texts as they are, on one line.
    """
    return " ".join(payload[:100].decode(errors="replace").replace(" version ", " ").split())


class SysTopics:
    """The broker's counters, as last published; the broker publishes them every ``sys_interval``.

    A QoS 0 subscription with its own client id and to these topics only, so it does not count as
    load. After a lost connection it connects again; until then nothing is known.
    """

    over_phases = False

    def __init__(self, context: TelemetryContext) -> None:
        url = context.target.url
        settings = context.settings
        self._url = url
        self._settings = sys_settings(url, settings)
        self._ports = context.ports
        self._values: dict[str, float] = {}
        limit = int(context.broker.get("memory_limit", 0))
        self._limit = {"sys.heapLimit": float(limit)} if limit else {}
        self._failure: Exception | None = None
        self._answered = False
        self.version = ""
        self._since = 0.0  # instant of the failure
        self.used = 0.0
        self._ending = threading.Event()
        # A thread, because an overloaded broker may be slow to answer.
        self._thread = threading.Thread(target=self._listen, name="loadtest-sys", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while not self._ending.is_set():
            try:
                self._observe()
            except (
                Exception
            ) as error:  # read() raises it later, so that old values are not taken for current ones
                self._values = {}
                self._since = self._since if self._failure else time.monotonic()
                self._failure = error
                if not (self._answered and isinstance(error, TargetError)):
                    return
                self._ending.wait(_AGAIN)

    def _observe(self) -> None:
        observer = MqttObserver(self._url, [*TOPICS, _VERSION], self._settings, take=self._take)
        self._ports.add(observer.port)
        self._failure = None
        self._answered = True
        while not self._ending.is_set():
            observer.read(_TURN)
            self.used = time.thread_time()
        observer.close()

    def _take(self, message: paho.MQTTMessage) -> None:
        if message.topic == _VERSION:
            self.version = reported_version(bytes(message.payload))
            return
        column = TOPICS.get(message.topic)
        text = message.payload.split(b" ")[0]  # the uptime is "12 seconds"
        if column is not None and text.isdigit():
            self._values[column] = float(text)

    @property
    def missing(self) -> list[str]:
        """A message if the broker publishes no counters."""
        return (
            []
            if self._values
            else ["broker's own counters: the broker published nothing below $SYS/broker"]
        )

    def read(self, now: int) -> dict[str, float]:
        """Return the last published values.

        :raises LoadtestError: the broker was not reached, rejected the client, or a lost connection
            did not come back in time. Any other exception that ended the thread is raised as well.
        """
        failure = self._failure
        if failure is not None and (
            not self._thread.is_alive() or time.monotonic() - self._since > _AWAY
        ):
            raise failure
        return self._values | self._limit if self._values else {}

    def close(self) -> dict[str, float]:
        """End the connection, and the session with it.

        :raises LoadtestError: there is none: the last samples are missing.
        """
        self._ending.set()
        self._thread.join(_PATIENCE)
        if self._failure is not None:
            raise self._failure
        return {}
