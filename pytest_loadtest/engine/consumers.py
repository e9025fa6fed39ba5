"""The consumers of one workload on one worker: opened, paused, and more or fewer of them while load runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.drivers.base import Driver, Joined
    from pytest_loadtest.engine.receive import Inbox

_AWAY = -1  # instead of a place, as long as the consumer has none


class Consumers:
    """Who takes messages just now; a column entry a consumer of this worker, in the order of their indexes.

    :param opened: those that take messages from the beginning. :param later: indexes of those that may join.
    :param per_subscription: how many consumers one subscription has when all have joined: consumer ``i`` is its ``i mod n``-th.
    """

    def __init__(self, driver: Driver, inbox: Inbox, opened: Joined, later: Sequence[int], per_subscription: int) -> None:
        self._driver, self._inbox = driver, inbox
        self._all = np.union1d(opened.consumer, np.array(later, np.int32)).astype(np.int32)
        self._rank = self._all % per_subscription
        self._place = np.full(len(self._all), _AWAY, np.int32)
        self._wanted = np.zeros(len(self._all), np.bool_)
        self._coming = np.zeros(len(self._all), np.bool_)  # asked for, and not connected yet
        self._paused = False
        self._wanted[self._join(opened)] = True

    def _join(self, joined: Joined) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        at = np.searchsorted(self._all, joined.consumer)
        self._place[at] = joined.place
        self._coming[at] = False
        self._inbox.add(joined)
        return at

    def pause(self, *, paused: bool) -> None:
        """All stop taking messages, or go on."""
        if paused != self._paused:
            self._paused = paused
            here = self._place[self._place != _AWAY].tolist()
            self._driver.pause(here) if paused else self._driver.resume(here)

    def limit(self, number: int) -> None:
        """``number`` of each subscription take messages: the others leave, missing ones join as soon as they are connected."""
        self._wanted = self._rank < number
        self._leave(~self._wanted)
        joining = self._wanted & ~self._coming & (self._place == _AWAY)
        if joining.any():
            self._coming |= joining
            self._driver.attach(self._all[joining].tolist())

    def _leave(self, who: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        leaving = who & (self._place != _AWAY)
        if leaving.any():
            self._driver.detach(self._place[leaving].tolist())
            self._place[leaving] = _AWAY

    def welcome(self) -> None:
        """Take those that have connected meanwhile."""
        joined = self._driver.attached()
        if joined is None:
            return
        at = self._join(joined)
        if self._paused:
            self._driver.pause(joined.place.tolist())
        told_to_leave = np.zeros(len(self._all), np.bool_)
        told_to_leave[at] = ~self._wanted[at]  # it was to leave again before its connection was up
        self._leave(told_to_leave)
