"""Readers of existing topics, for ``learn``.

One non-durable reader for each topic or partition, from the latest message on.

A reader acknowledges nothing, leaves no subscription, and keeps no message
in the backlog. It would create a topic that does not exist; therefore the
admin REST is queried first for the topic.
"""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pytest_loadtest.drivers.pulsar.admin import Admin
from pytest_loadtest.drivers.pulsar.library.client import make_client
from pytest_loadtest.drivers.pulsar.names import full_name
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.profile.observed import Seen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.drivers.pulsar.settings import PulsarSettings

_POLL: Final = 100  # ms that a reader waits before it checks whether to stop
_CLOSE: Final = 5.0


class PulsarObserver:
    """Readers of some topics, which begin at once.

    :raises UsageError: a topic does not exist.
    :raises TargetError: broker or admin REST cannot be reached.
    """

    def __init__(
        self, url: str, admin_url: str, topics: Sequence[str], settings: PulsarSettings
    ) -> None:
        admin = Admin(admin_url, settings)
        parts = {}
        for topic in map(full_name, topics):
            partitions = admin.partitions(topic)
            if partitions is None:
                raise UsageError(
                    f"{topic} does not exist at {admin_url}, and learn creates none: is the name"
                    " right?"
                )
            parts[topic] = [f"{topic}-partition-{i}" for i in range(partitions)] or [topic]
        self.topics = len(set(topics))
        self.partitions = max(map(len, parts.values()))
        self._seen: SimpleQueue[Seen | TargetError] = SimpleQueue()
        self._least = float("inf")
        self._last = float("inf")
        self._stop = threading.Event()
        self._client: Any = make_client(url, settings)
        self._threads: list[threading.Thread] = []
        try:
            for topic, names in parts.items():
                for name in names:
                    self._open(topic, name)
        except BaseException:
            self.close()
            raise

    def _open(self, topic: str, part: str) -> None:
        try:
            reader = self._client.create_reader(
                part, pulsar.MessageId.latest, subscription_role_prefix="learn"
            )
        except pulsar.PulsarException as error:
            raise TargetError(f"{part} cannot be read: {error}") from error
        thread = threading.Thread(
            target=self._read, args=(topic, reader), name=f"learn {part}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _read(self, topic: str, reader: Any) -> None:
        try:
            while not self._stop.is_set():
                try:
                    message = reader.read_next(_POLL)
                except pulsar.Timeout:
                    continue
                self._seen.put(
                    Seen(
                        topic,
                        len(message.data()),
                        message.partition_key() or None,
                        time.monotonic_ns(),
                    )
                )
                # The two clocks may differ: only differences of this delay are used, see behind().
                self._last = time.time() - message.publish_timestamp() / 1000
                self._least = min(self._least, self._last)
        except pulsar.PulsarException as error:
            if not self._stop.is_set():
                self._seen.put(TargetError(f"{topic} cannot be read any more: {error}"))

    def read(self, timeout: float) -> list[Seen]:
        """Return the messages that arrived; wait for the first up to ``timeout`` seconds."""
        messages = []
        try:
            seen = self._seen.get(timeout=timeout)
            for _ in range(self._seen.qsize() + 1):
                if isinstance(seen, TargetError):
                    raise seen
                messages.append(seen)
                seen = self._seen.get_nowait()
        except Empty:
            pass
        return messages

    def behind(self) -> float:
        """Return by how many seconds the last message took longer to arrive than the fastest one.

        A clock difference cancels out.
        """
        return self._last - self._least if self._least < float("inf") else 0.0

    def close(self) -> None:
        """End the readers, and with them their subscriptions; wait a few seconds at most."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_CLOSE)
        # close() hangs if the broker does not answer; shutdown() ends it without the broker.
        closer = threading.Thread(target=self._client.close, name="learn close", daemon=True)
        closer.start()
        closer.join(_CLOSE)
        if closer.is_alive():
            self._client.shutdown()


def observe_topics(
    url: str, topics: Sequence[str], settings: PulsarSettings, admin_url: str | None
) -> PulsarObserver:
    """Return readers of these topics.

    :raises UsageError: as :class:`PulsarObserver`, or without an admin URL.
    """
    if admin_url is None:
        raise UsageError(
            "Pulsar needs --admin-url, e.g. http://host:8080: only the admin REST tells whether a"
            " topic exists, and reading a missing topic"
            " would create it"
        )
    return PulsarObserver(url, admin_url, topics, settings)
