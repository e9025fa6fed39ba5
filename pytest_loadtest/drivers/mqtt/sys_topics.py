"""What an MQTT broker counts itself and publishes below ``$SYS/broker``, as mosquitto does and others after it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.mqtt.observer import MqttObserver

if TYPE_CHECKING:
    from paho.mqtt import client as paho

    from pytest_loadtest.drivers.base import Watched

TOPICS: Final = {
    "$SYS/broker/publish/messages/dropped": "sys.dropped",
    "$SYS/broker/heap/current": "sys.heap",
    "$SYS/broker/store/messages/count": "sys.stored",
    "$SYS/broker/clients/connected": "sys.clients",
    "$SYS/broker/uptime": "sys.uptime",
}
_TURN: Final = 0.2  # s that it waits for something to read before it looks whether it shall end
_PATIENCE: Final = 1.0


class SysTopics:
    """The counters as they were last published, which is as often as the broker's ``sys_interval`` says.

    A QoS 0 subscription under a client id of its own, to these topics alone: it takes part in nothing that is counted of the load. A thread
    of its own reads it, for a broker that is the bottleneck may be slow to answer.

    """

    over_phases = False

    def __init__(self, watched: Watched) -> None:
        url, settings, ports = watched.target.url, watched.settings, watched.ports
        plain = not url.startswith("mqtts:")  # TLS may be for subscribers alone, who connect elsewhere
        self._url, self._settings, self._ports = url, settings.model_copy(update={"tls": None}) if plain else settings, ports
        self._values: dict[str, float] = {}
        limit = int(watched.broker.get("memory_limit", 0))
        self._limit = {"sys.heapLimit": float(limit)} if limit else {}
        self._failure: Exception | None = None
        self.used = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="loadtest-sys", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            observer = MqttObserver(self._url, list(TOPICS), self._settings, take=self._take)
            self._ports.add(observer.port)
            while not self._ending.is_set():
                observer.read(_TURN)
                self.used = time.thread_time()
            observer.close()
        except Exception as error:  # whatever it is: the last numbers must not be taken for news
            self._failure = error

    def _take(self, message: paho.MQTTMessage) -> None:
        column, text = TOPICS.get(message.topic), message.payload.split(b" ")[0]  # "12 seconds"
        if column is not None and text.isdigit():
            self._values[column] = float(text)

    @property
    def missing(self) -> list[str]:
        """Said where nothing came."""
        return [] if self._values else ["broker's own counters: nothing came from below $SYS/broker"]

    def read(self, now: int) -> dict[str, float]:
        """What was published last.

        :raises LoadtestError: not reached, refused, or the connection is lost. Anything else that ended its thread is raised as well.
        """
        if self._failure is not None:
            raise self._failure
        return self._values | self._limit if self._values else {}

    def close(self) -> dict[str, float]:
        """Ends the connection, and the session with it."""
        self._ending.set()
        self._thread.join(_PATIENCE)
        return {}
