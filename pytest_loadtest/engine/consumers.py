"""The consumers of one workload on one worker: opened, paused, and more or fewer of them while load runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.drivers._base import Consumer, Driver
    from pytest_loadtest.engine.consume import Inbox
    from pytest_loadtest.topology import ConsumerSpec


class Consumers:
    """Who takes messages just now.

    :param opened: those that take messages from the beginning. :param waiting: those that may join later.
    :param per_subscription: how many consumers one subscription has when all have joined: consumer ``i`` is its ``i mod n``-th.
    """

    def __init__(
        self, driver: Driver, inbox: Inbox, opened: Sequence[tuple[ConsumerSpec, Consumer]], waiting: Sequence[ConsumerSpec],
        per_subscription: int,
    ) -> None:  # fmt: skip
        self._driver, self._inbox, self._per_subscription = driver, inbox, per_subscription
        self._all = [*(spec for spec, _ in opened), *waiting]
        self._here: dict[int, Consumer] = {}
        self._asked: set[int] = set()
        self._paused = False
        for spec, consumer in opened:
            self._join(spec, consumer)

    def _join(self, spec: ConsumerSpec, consumer: Consumer) -> None:
        self._here[spec.index] = consumer
        self._asked.add(spec.index)
        self._inbox.add(spec, consumer)

    def pause(self, *, paused: bool) -> None:
        """All stop taking messages, or go on."""
        if paused != self._paused:
            self._paused = paused
            for consumer in self._here.values():
                consumer.pause() if paused else consumer.resume()

    def limit(self, number: int) -> None:
        """``number`` of each subscription take messages: the others leave, missing ones join as soon as they are connected."""
        wanted = {spec.index: spec for spec in self._all if spec.index % self._per_subscription < number}
        leaving = [index for index in self._here if index not in wanted]
        joining = [spec for index, spec in wanted.items() if index not in self._asked]
        if leaving:
            self._driver.detach([self._here.pop(index) for index in leaving])
        self._asked = set(wanted)
        if joining:
            self._driver.attach(joining)

    def welcome(self) -> None:
        """Take those that have connected meanwhile."""
        for spec, consumer in self._driver.attached():
            wanted = spec.index in self._asked  # it may have been told to leave before it had come
            self._join(spec, consumer)
            if self._paused:
                consumer.pause()
            if not wanted:
                self._asked.discard(spec.index)
                self._driver.detach([self._here.pop(spec.index)])
