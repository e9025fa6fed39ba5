"""The relation between the clocks of hosts: exchanges of known truth, with delays on either way, drift and steps."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.clocks import ClockExchange, ClockLine, Correction, fit_clock

SECOND = 1_000_000_000
HOUR = 3600 * SECOND


def exchanges(
    host: Callable[[int], int], *, bursts: list[int], there: float, back: float, seed: int = 0, each: int = 30
) -> list[ClockExchange]:
    """Exchanges with a host whose clock is ``host(controller's time)``, each way exponentially slower than its fastest, ns."""
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


@given(
    offset=st.integers(-5_000 * SECOND, 100_000 * SECOND),
    drift=st.floats(-100e-6, 100e-6),
    there=st.floats(10_000, 30_000_000),
    back=st.floats(10_000, 30_000_000),
    seed=st.integers(0, 99),
)
def test_the_stated_error_covers_any_offset_drift_and_asymmetry(offset: int, drift: float, there: float, back: float, seed: int) -> None:
    """Converted times of the whole run differ from the truth by at most the stated error."""

    def host(now: int) -> int:
        return now + offset + round(drift * now)

    fit = fit_clock(exchanges(host, bursts=BURSTS, there=there, back=back, seed=seed))
    for now in range(0, 62 * SECOND, SECOND):
        assert abs(fit.line.to_controller(host(now)) - now) <= fit.error + 1
    assert fit.error >= min(there, back) / 2


def test_a_symmetric_path_gives_far_less_than_the_stated_error() -> None:
    """The fastest exchanges have both ways at their fastest."""
    fit = fit_clock(exchanges(lambda now: now + 7 * HOUR, bursts=BURSTS, there=100_000, back=100_000))
    assert abs(fit.line.offset - 7 * HOUR) < fit.error / 3
    assert fit.holds


@pytest.mark.parametrize("step", [5_000_000, -3 * SECOND])
def test_a_clock_that_steps_does_not_hold(step: int) -> None:
    """A host's clock that is set during the run is no line."""
    fit = fit_clock(exchanges(lambda now: now + (step if now > 20 * SECOND else 0), bursts=BURSTS, there=50_000, back=50_000))
    assert not fit.holds
    assert fit.error > abs(step) / 4


@pytest.mark.parametrize(
    ("host", "holds", "steady"),
    [
        (lambda now: now + round(now * 90e-6), True, True),  # a drift
        (lambda now: now + round(300_000 * np.sin(now / (10 * SECOND))), False, True),  # disciplined: at most 30 ppm
        (lambda now: now + (5_000_000 if now > 3 * SECOND else 0), False, False),  # a step
        (lambda now: now - round(2e-3 * max(now - 30 * SECOND, 0)), False, False),  # slower than any discipline makes it
    ],
)
def test_a_clock_without_steps_is_steady_even_if_it_is_no_line(host: Callable[[int], int], holds: bool, steady: bool) -> None:
    fit = fit_clock(exchanges(host, bursts=[*range(0, 62 * SECOND, SECOND)], there=20_000, back=20_000))
    assert (fit.holds, fit.steady) == (holds, steady)


def test_a_short_run_has_no_drift() -> None:
    """Two bursts that are a second apart say nothing about it."""
    fit = fit_clock(exchanges(lambda now: now + round(now * 50e-6), bursts=[0, 3 * SECOND], there=50_000, back=50_000))
    assert fit.line.drift == 0


def test_a_single_exchange_is_enough_for_an_offset() -> None:
    """Its error is half the round trip."""
    fit = fit_clock([ClockExchange(1_000, 5_600, 2_000)])
    assert (fit.line.offset, fit.error, fit.holds) == (4_100, 500, True)


@given(
    at=st.integers(0, 10**17),
    used=st.tuples(st.integers(-(10**15), 10**15), st.floats(-1e-4, 1e-4)),
    better=st.tuples(st.integers(-(10**6), 10**6), st.floats(-1e-4, 1e-4)),
    later=st.integers(0, HOUR),
)
def test_corrected_times_are_those_of_the_better_line(at: int, used: tuple[int, float], better: tuple[int, float], later: int) -> None:
    """Whatever a worker recorded by the first line, within 2 ns of rounding, for an hour."""
    first = ClockLine(at=at, offset=used[0], drift=used[1])
    second = ClockLine(at=at + SECOND, offset=used[0] + better[0], drift=better[1])
    hosts = [at, at + later]
    recorded = np.array([first.to_controller(host) for host in hosts], np.int64)
    truth = np.array([second.to_controller(host) for host in hosts], np.int64)
    assert np.abs(Correction(used=first, better=second).apply(recorded) - truth).max() <= 2
