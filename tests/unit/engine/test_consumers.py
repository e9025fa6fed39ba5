"""Who takes messages: consumers that leave, join while load runs, pause, and change their minds before they are connected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.base import Joined
from pytest_loadtest.engine.consumers import Consumers


def joined(consumers: Sequence[int], first_place: int) -> Joined:
    places = range(first_place, first_place + len(consumers))
    return Joined(np.array(consumers, np.int32), np.array(places, np.int32))


class Seats:
    """A driver's consumers by place, and what an inbox is told: who is connected, who of them is paused, who is on the way."""

    def __init__(self, opened: Sequence[int]) -> None:
        self.places = dict(enumerate(opened))
        self.paused: set[int] = set()
        self.waiting: list[int] = []
        self.told: list[tuple[int, int]] = []
        self._next = len(opened)

    def pause(self, places: list[int]) -> None:
        assert set(places) <= self.places.keys() - self.paused
        self.paused |= set(places)

    def resume(self, places: list[int]) -> None:
        assert set(places) == self.paused
        self.paused.clear()

    def detach(self, places: list[int]) -> None:
        for place in places:
            del self.places[place]
        self.paused -= set(places)

    def attach(self, consumers: list[int]) -> None:
        assert not set(consumers) & {*self.waiting, *self.here}  # a second connection of one consumer would be nobody's
        assert consumers
        self.waiting += consumers

    def attached(self) -> Joined | None:
        """The oldest three of those on their way are there now."""
        here, self.waiting = self.waiting[:3], self.waiting[3:]
        if not here:
            return None
        found = joined(here, self._next)
        self.places |= zip(found.place.tolist(), here, strict=True)
        self._next += len(here)
        return found

    def add(self, found: Joined) -> None:
        self.told += zip(found.place.tolist(), found.consumer.tolist(), strict=True)

    @property
    def here(self) -> list[int]:
        return sorted(self.places.values())


class Act(NamedTuple):
    """What happens next. :param limit: consumers of each subscription from now on."""

    limit: int | None = None
    paused: bool | None = None


ACTS = st.builds(Act, limit=st.none() | st.integers(0, 4)) | st.builds(Act, paused=st.booleans())


@given(st.integers(1, 3), st.lists(st.integers(3, 14), unique=True, min_size=1), st.data(), st.lists(ACTS, max_size=8))
def test_those_that_are_wanted_end_up_connected(per_subscription: int, mine: list[int], data: st.DataObject, acts: list[Act]) -> None:
    """Consumer ``i`` is the ``i mod n``-th of its subscription; with all connections up, exactly the wanted ones are there, paused or not."""
    opened = [one for one in mine if data.draw(st.booleans())]
    seats = Seats(opened)
    later = [one for one in mine if one not in opened]
    made = Consumers(seats, seats, joined(opened, 0), later, per_subscription)  # type: ignore[arg-type]
    assert seats.told == list(enumerate(opened))
    wanted, paused = set(opened), False
    for act in acts:
        if act.limit is not None:
            made.limit(act.limit)
            wanted = {one for one in mine if one % per_subscription < act.limit}
            assert set(seats.here) <= wanted
        if act.paused is not None:
            made.pause(paused=act.paused)
            paused = act.paused
        if data.draw(st.booleans()):
            made.welcome()
        assert seats.paused == (set(seats.places) if paused else set())
    while seats.waiting:
        made.welcome()
    assert seats.here == sorted(wanted)
    assert seats.paused == (set(seats.places) if paused else set())
    assert dict(seats.told).items() >= seats.places.items()
