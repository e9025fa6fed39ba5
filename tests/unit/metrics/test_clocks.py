"""The relation between the clocks of hosts: exchanges of known truth, with delays on either way,
drift and steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.clocks import ROUNDING, ClockExchange, ClockLine, Correction, fit_clock

SECOND = 1_000_000_000
HOUR = 3600 * SECOND


def exchanges(
    host: Callable[[int], int],
    *,
    bursts: list[int],
    there: float,
    back: float,
    seed: int = 0,
    each: int = 30,
) -> list[ClockExchange]:
    """Exchanges with a host whose clock is ``host(controller's time)``, each way exponentially
    slower than its fastest, ns.
    """
    draw, found = random.Random(seed), []
    for burst in bursts:
        now = burst
        for _ in range(each):
            left = now
            answered = left + round(there + draw.expovariate(1 / 100_000))
            now = answered + round(back + draw.expovariate(1 / 100_000))
            found.append(ClockExchange(left, host(answered), now))
    return found


BURSTS = [0, 2 * SECOND, 4 * SECOND, 30 * SECOND, 60 * SECOND, 62 * SECOND]


@dataclass(frozen=True)
class World:
    """A host's clock and the ways to it, all drawn. Instants and sizes are ns.

    :ivar slews: when each begins, and its rate. :ivar steps: when the clock is set, and by how
        much.
    :ivar phase: the end of the first burst, and the start of the last one: load runs in between.
    """

    offset: int
    drift: float
    slews: tuple[tuple[int, float], ...]
    steps: tuple[tuple[int, int], ...]
    exchanges: list[ClockExchange]
    phase: list[int]

    def host(self, now: int) -> int:
        slewed = sum(rate * min(max(now - begin, 0), SLEWED) for begin, rate in self.slews)
        return (
            now
            + self.offset
            + round(self.drift * now + slewed)
            + sum(size for at, size in self.steps if now >= at)
        )

    def instants(self) -> Iterator[int]:
        """Instants of the phase: a grid, and the ends of what the clock did."""
        first, last = self.phase
        turns = [at + shift for at, _ in self.steps for shift in (-1, 0)]
        turns += [begin + late for begin, _ in self.slews for late in (0, SLEWED)]
        yield from (
            at
            for at in (*range(first, last + 1, max((last - first) // 200, 1)), *turns)
            if first <= at <= last
        )

    def true_error(self, line: ClockLine) -> int:
        return max(abs(line.to_controller(self.host(at)) - at) for at in self.instants())


SLEWED = 2 * SECOND
"""ns for which a clock is slewed at a time."""


@st.composite
def worlds(draw: st.DrawFn, *, most_steps: int) -> World:
    """Up to a minute: bursts before and after the load, smaller ones while it runs, of which some
    are lost and many slow.

    A clock that is set again was left alone for more than two bursts.
    """
    every = draw(st.sampled_from([SECOND // 4, SECOND]))
    seed = draw(st.integers(0, 2**32))
    random_draw = random.Random(seed)
    begins = [
        at
        for at in range(0, draw(st.integers(8, 60)) * every, every)
        if at == 0 or random_draw.random() > 0.1
    ]
    there, back = draw(st.floats(5_000, 30_000_000)), draw(st.floats(5_000, 30_000_000))
    busy, wait = draw(st.floats(0, 0.9)), draw(st.sampled_from([50_000, 2_000_000, 30_000_000]))
    slews = tuple(
        (draw(st.integers(0, begins[-1])), draw(st.floats(-100e-6, 100e-6)))
        for _ in range(draw(st.integers(0, 2)))
    )
    steps, after = [], 0
    for _ in range(draw(st.integers(0, most_steps))):
        if after < len(begins) - 1:
            gap = draw(st.integers(after, len(begins) - 2))
            at = begins[gap] + round(draw(st.floats(0, 1)) * (begins[gap + 1] - begins[gap]))
            steps.append((at, draw(st.integers(-40_000_000, 40_000_000))))
            after = gap + 4
    offset, drift = (
        draw(st.integers(-5_000 * SECOND, 100_000 * SECOND)),
        draw(st.floats(-200e-6, 200e-6)),
    )
    world = World(offset, drift, slews, tuple(steps), [], [])
    for begin in begins:
        now = max([begin, *(exchange.came for exchange in world.exchanges[-1:])])
        for _ in range(30 if begin in (begins[0], begins[-1]) else 3):
            ways = [
                way + random_draw.expovariate(1 / (wait if random_draw.random() < busy else 10_000))
                for way in (there, back)
            ]
            answered = now + round(ways[0])
            came = answered + round(ways[1])
            world.exchanges.append(ClockExchange(now, world.host(answered), came))
            now = came
        if begin == begins[0]:
            world.phase.append(now)
    world.phase.append(max(begins[-1], world.phase[0]))
    return world


@given(world=worlds(most_steps=2))
def test_no_converted_time_is_further_off_than_stated_or_the_relation_is_disproved(
    world: World,
) -> None:
    """Whatever the clock and the ways do: drift, slew, steps, asymmetric ways, slow and lost
    exchanges.
    """
    fit = fit_clock(world.exchanges)
    assert not fit.holds or world.true_error(fit.line) <= fit.error


@given(world=worlds(most_steps=1))
def test_a_step_above_the_stated_error_disproves_the_relation(world: World) -> None:
    """At any time between the first burst and the last one."""
    fit = fit_clock(world.exchanges)
    sizes = [abs(size) for at, size in world.steps if world.phase[0] < at <= world.phase[1]]
    assert not fit.holds or max(sizes, default=0) <= fit.error


@given(world=worlds(most_steps=0))
def test_a_clock_that_nobody_sets_is_not_called_set(world: World) -> None:
    """It drifts, and is slewed by no more than NTP may; a short run is no exception, and a busy
    host neither.
    """
    assert fit_clock(world.exchanges).holds


@pytest.mark.parametrize("seconds", [2, 4, 9, 20, 60])
@pytest.mark.parametrize("ppm", [-50, 10, 50])
def test_the_error_over_a_local_network_is_a_few_hundred_us(seconds: int, ppm: int) -> None:
    """Round trips of 0.5 ms, four small bursts a second, however long the phase is."""
    bursts = [*range(0, seconds * SECOND, SECOND // 4)]
    fit = fit_clock(
        exchanges(
            lambda now: now + round(now * ppm * 1e-6),
            bursts=bursts,
            there=250_000,
            back=250_000,
            each=3,
        )
    )
    assert fit.holds
    assert fit.error < 700_000


@pytest.mark.parametrize("at", [3, 15, 27])
def test_a_step_that_only_slow_bursts_show_disproves_the_relation(at: int) -> None:
    """An idle host answers within 40 µs before and after the load, and within 2 ms under load: each
    of these bursts counts.
    """
    busy = exchanges(
        lambda now: now + (20_000_000 if now > at * SECOND else 0),
        bursts=[*range(SECOND, 30 * SECOND, SECOND)],
        there=10**6,
        back=10**6,
    )
    idle = [
        ClockExchange(end, end + 20_000 + (20_000_000 if end else 0), end + 40_000)
        for end in (0, 31 * SECOND)
    ]
    assert not fit_clock([idle[0], *busy, idle[1]]).holds
    back = exchanges(
        lambda now: now + (20_000_000 if at * SECOND < now < (at + 3) * SECOND else 0),
        bursts=[*range(SECOND, 30 * SECOND, SECOND)],
        there=10**6,
        back=10**6,
    )
    idle = [ClockExchange(end, end + 20_000, end + 40_000) for end in (0, 31 * SECOND)]
    assert not fit_clock([idle[0], *back, idle[1]]).holds


def test_one_slow_burst_does_not_spoil_the_stated_error() -> None:
    """Those next to it bound the offset; two in a row could hide a clock that is set and set back."""

    def host(now: int) -> int:
        return now

    errors = []
    for slow in ([], [5], [5, 6]):
        found = [
            one
            for number in range(10)
            for one in exchanges(
                host,
                bursts=[number * SECOND // 4],
                there=20_000_000 if number in slow else 20_000,
                back=20_000,
                each=3,
            )
        ]
        errors.append(fit_clock(found).error)
    assert errors[1] < errors[0] + 400_000
    assert errors[2] > 5_000_000


def test_a_symmetric_path_gives_far_less_than_the_stated_error() -> None:
    """The fastest exchanges have both ways at their fastest."""
    fit = fit_clock(
        exchanges(lambda now: now + 7 * HOUR, bursts=BURSTS, there=100_000, back=100_000)
    )
    assert abs(fit.line.offset - 7 * HOUR) < fit.error / 3
    assert fit.holds


@pytest.mark.parametrize("step", [15_000_000, -3 * SECOND])
def test_a_clock_that_steps_does_not_hold(step: int) -> None:
    """A host's clock that is set during the run has no relation: a slew of the 26 s without an
    exchange cannot explain it.
    """
    fit = fit_clock(
        exchanges(
            lambda now: now + (step if now > 20 * SECOND else 0),
            bursts=BURSTS,
            there=50_000,
            back=50_000,
        )
    )
    assert not fit.holds


@pytest.mark.parametrize(
    ("host", "holds"),
    [
        (lambda now: now + round(now * 90e-6), True),  # a drift
        (
            lambda now: now + round(300_000 * np.sin(now / (10 * SECOND))),
            True,
        ),  # disciplined: at most 30 ppm
        (lambda now: now + (5_000_000 if now > 3 * SECOND else 0), False),  # a step
        (lambda now: now - round(2e-3 * max(now - 30 * SECOND, 0)), False),  # faster than NTP slews
    ],
)
def test_a_clock_that_bends_has_a_relation_and_one_that_is_set_has_none(
    host: Callable[[int], int], holds: bool
) -> None:
    """The stated error covers how far a disciplined clock is from the line."""
    fit = fit_clock(
        exchanges(host, bursts=[*range(0, 62 * SECOND, SECOND)], there=20_000, back=20_000)
    )
    assert fit.holds is holds
    if holds:
        assert (
            max(
                abs(fit.line.to_controller(host(now)) - now)
                for now in range(0, 61 * SECOND, SECOND // 10)
            )
            <= fit.error
        )


def test_a_short_run_has_no_drift() -> None:
    """Two bursts that are a second apart say nothing about it."""
    fit = fit_clock(
        exchanges(
            lambda now: now + round(now * 50e-6), bursts=[0, 3 * SECOND], there=50_000, back=50_000
        )
    )
    assert fit.line.drift == 0


def test_a_single_exchange_is_enough_for_an_offset() -> None:
    """Its error is half the round trip."""
    fit = fit_clock([ClockExchange(1_000, 5_600, 2_000)])
    assert (fit.line.offset, fit.error, fit.holds) == (4_100, 500 + ROUNDING, True)


@given(
    at=st.integers(0, 10**17),
    used=st.tuples(st.integers(-(10**15), 10**15), st.floats(-1e-4, 1e-4)),
    better=st.tuples(st.integers(-(10**6), 10**6), st.floats(-1e-4, 1e-4)),
    later=st.integers(0, HOUR),
)
def test_corrected_times_are_those_of_the_better_line(
    at: int, used: tuple[int, float], better: tuple[int, float], later: int
) -> None:
    """Whatever a worker recorded by the first line, within 2 ns of rounding, for an hour."""
    first = ClockLine(at=at, offset=used[0], drift=used[1])
    second = ClockLine(at=at + SECOND, offset=used[0] + better[0], drift=better[1])
    hosts = [at, at + later]
    recorded = np.array([first.to_controller(host) for host in hosts], np.int64)
    truth = np.array([second.to_controller(host) for host in hosts], np.int64)
    assert np.abs(Correction(used=first, better=second).apply(recorded) - truth).max() <= 2
