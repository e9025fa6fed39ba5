"""Consumers that come and go while messages flow: each change in a thread of its own, for pulsar-client blocks for both."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.drivers._base import ConsumerSpec
    from pytest_loadtest.drivers._pulsar_messages import PulsarConsumer


class Changes:
    """The changes of one driver.

    :param opening: opens consumers, all or none; blocks. Called in threads of this class.
    """

    def __init__(self, opening: Callable[[Sequence[ConsumerSpec]], list[PulsarConsumer]]) -> None:
        self._opening = opening
        self._threads: list[threading.Thread] = []
        self._opened: deque[tuple[ConsumerSpec, PulsarConsumer]] = deque()
        self._leaving: list[PulsarConsumer] = []
        self._failures: deque[Exception] = deque()

    def attach(self, specs: Sequence[ConsumerSpec]) -> None:
        self._start("pulsar-attach", lambda: self._open(specs))

    def attached(self) -> list[tuple[ConsumerSpec, PulsarConsumer]]:
        """:raises TargetError: one could not be opened."""
        if self._failures:
            raise self._failures.popleft()
        return [self._opened.popleft() for _ in range(len(self._opened))]

    def detach(self, consumers: Sequence[PulsarConsumer]) -> None:
        for consumer in consumers:
            consumer.leave()
        self._leaving += consumers
        self._start("pulsar-detach", lambda: _close_all(consumers))

    def closing(self) -> None:
        """The clients are about to be closed: what the threads then see is no failure."""
        for consumer in [*self._leaving, *(consumer for _, consumer in self._opened)]:
            consumer.closing()

    def join(self, deadline: float) -> None:
        """:param deadline: of ``time.monotonic()``."""
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))

    def _start(self, name: str, work: Callable[[], None]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=work, name=name, daemon=True))
        self._threads[-1].start()

    def _open(self, specs: Sequence[ConsumerSpec]) -> None:
        try:
            self._opened.extend(zip(specs, self._opening(specs), strict=True))
        except Exception as error:  # raised on the engine's thread, by attached()
            self._failures.append(error)


def _close_all(consumers: Sequence[PulsarConsumer]) -> None:
    for consumer in consumers:
        consumer.close()
