"""Errors of the clocks of several hosts that a run would judge with.

Run ``python benchmarks/clock_errors.py [RUNS]``.

Simulated phases on a host that answers over a local network, with exchanges as
:mod:`pytest_loadtest.fleet.host_clocks` makes them: a burst before and after the phase, and small
ones while load runs, which are slower the busier the host is. *judged wrongly*: latencies are off
by more than 1 ms and by more than the stated error, and the relation of the clocks is said to hold.
*set*: it is said not to hold. The first part sets the clock once or twice per phase, at any time;
the second lets it only drift. ``PYTHONPATH=OTHER-CHECKOUT`` and ``--interval``, ``--keep-all`` show
the same for another version.
"""

from __future__ import annotations

import argparse
import random
from statistics import median
from typing import TYPE_CHECKING

from pytest_loadtest.metrics.clocks import ClockExchange, fit_clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.metrics.clocks import ClockFit

SECOND = 1_000_000_000
MS = 1_000_000
ENDS = 40  # exchanges before and after a phase
SMALL = 3  # exchanges at a time while load runs
LOADS = {"idle": 20_000, "light load": 300_000, "heavy load": 3_000_000}
"""Mean wait of each way while load runs, ns, in addition to 20 µs."""


class Phase:
    """One phase of a simulated run.

    :param wait: the mean wait of each way, ns. :param host: the host's clock.
    """

    def __init__(
        self,
        draw: random.Random,
        options: argparse.Namespace,
        seconds: float,
        wait: int,
        host: Callable[[int], int],
    ) -> None:
        self.end = round(seconds * SECOND)
        self._draw = draw
        self._host = host
        self._exchanges = self._burst(-SECOND // 5, ENDS, 10_000)
        interval = round(options.interval * SECOND)
        for begin in range(interval, self.end, interval):
            burst = self._burst(max(begin, self._exchanges[-1].came), SMALL, wait)
            self._exchanges += (
                burst
                if options.keep_all
                else [min(burst, key=lambda exchange: exchange.round_trip)]
            )
        self._exchanges += self._burst(max(self.end, self._exchanges[-1].came), ENDS, 10_000)

    def _burst(self, now: int, count: int, wait: int) -> list[ClockExchange]:
        exchanges = []
        for _ in range(count):
            answered = now + 20_000 + round(self._draw.expovariate(1 / wait))
            came = answered + 20_000 + round(self._draw.expovariate(1 / wait))
            exchanges.append(ClockExchange(now, self._host(answered), came))
            now = came
        return exchanges

    def fit(self) -> ClockFit:
        return fit_clock(self._exchanges)

    def true_error(self, fit: ClockFit) -> int:
        return max(
            abs(fit.line.to_controller(self._host(at)) - at)
            for at in range(0, self.end, self.end // 500)
        )


def drifting(draw: random.Random, ppm: float) -> Callable[[int], int]:
    drift = ppm * 1e-6 * draw.choice([-1, 1])
    offset = draw.randrange(10**15)
    return lambda now: now + offset + round(drift * now)


def stepping(draw: random.Random, seconds: float) -> Callable[[int], int]:
    """Make a clock that is set once by 1 to 50 ms, or set and set back some seconds later."""
    clock = drifting(draw, draw.uniform(0, 50))
    size = round(draw.choice([-1, 1]) * draw.uniform(1, 50) * MS)
    begin = round(draw.uniform(0, seconds) * SECOND)
    end = begin + round(draw.uniform(3, 10) * SECOND) if draw.random() < 0.5 else 1 << 62
    return lambda now: clock(now) + (size if begin <= now < end else 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="?", type=int, default=300)
    parser.add_argument("--interval", type=float, default=0.25, help="s between small bursts")
    parser.add_argument(
        "--keep-all", action="store_true", help="keep each exchange of a small burst"
    )
    options = parser.parse_args()
    draw = random.Random(1)
    for load, wait in LOADS.items():
        off = wrong = found = 0
        for _ in range(options.runs):
            seconds = draw.uniform(10, 60)
            phase = Phase(draw, options, seconds, wait, stepping(draw, seconds))
            fit = phase.fit()
            error = phase.true_error(fit)
            off += error > MS
            wrong += fit.holds and error > max(MS, fit.error)
            found += not fit.holds
        print(
            f"set by 1 to 50 ms, {load}: {off} of {options.runs} off by more than 1 ms,"
            f" {wrong} judged wrongly, {found} set"
        )
    for load, wait in LOADS.items():
        fits = []
        for _ in range(options.runs):
            phase = Phase(
                draw, options, draw.uniform(2, 10), wait, drifting(draw, draw.uniform(10, 50))
            )
            fits.append((phase.fit(), phase))
        uneven = sum(not fit.holds for fit, _ in fits)
        stated = median(fit.error for fit, _ in fits) / 1000
        truth = median(phase.true_error(fit) for fit, phase in fits) / 1000
        print(
            f"drift of 10 to 50 ppm, phases of 2 to 10 s, {load}: {uneven} of {options.runs} set; "
            f"stated error {stated:.0f} µs, true error {truth:.0f} µs in the median"
        )


if __name__ == "__main__":
    main()
