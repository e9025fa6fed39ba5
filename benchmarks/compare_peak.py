"""Our search and OpenMessaging Benchmark's rule on the same broker.

Run ``python benchmarks/compare_peak.py``.

The broker is a token bucket with a varying capacity: it is drawn again every second around its
mean. All of it is arithmetic, so an hour of load takes a moment. Both have the same task: find the
highest rate at which p99 of the latency stays within 100 ms for a minute. *Truth* is the rate at
which half of many such holds, each from an idle broker, are met; without noise it is the closed
form.

OMB reports no found rate. *found* is what a reader may conclude from its result: the mean publish
rate of the measured five minutes, in which the rule continues to adjust; *swing* is the lowest and
highest rate in that time, *meanwhile* the share of its seconds within the bound. For our search it
is the peak, with its interval. *anew*, for both: of 100 holds of a minute at the found rate, each
from an idle broker, the number that are met. OMB's rule detects a queue before the broker by
acknowledgements (``publish``), and a queue after it by the consumers' messages (``deliver``).
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_loadtest.values.quantities import MILLISECOND, MINUTE, SECOND
from pytest_loadtest.verdict.peak import Ask, Search, Spec, Step
from pytest_loadtest.verdict.slo import Outcome

sys.path.insert(
    0, str(Path(__file__).parents[1] / "tests" / "helpers")
)  # broker and rule are helpers of the tests

from omb_controller import LOWEST_RATE, PERIOD, OmbController
from token_bucket import TokenBucket, messages

BOUND = 100 * MILLISECOND
PERCENTILE = 99.0
DEPTH = 100
HOLD = 30 * SECOND
CONFIRM = MINUTE
WARMUP = 5 * SECOND
OMB_WARMUP = MINUTE  # warmupDurationMinutes by default
OMB_TEST = 5 * MINUTE  # testDurationMinutes of its workloads/max-rate-*.yaml
CAPACITIES = (2_000, 20_000, 200_000)
NOISES = (0.0, 0.01, 0.05)
SEEDS = range(10)


class Broker:
    """A token bucket with a separate capacity for every second."""

    def __init__(self, capacity: float, noise: float, seed: int) -> None:
        self.capacity = capacity
        self.noise = noise
        self.level = 0.0
        self.clock = 0
        self._random = random.Random(seed)

    def load(self, rate: float, duration: int) -> Iterator[tuple[int, float]]:
        """Return, second by second, the messages over the bound and the messages that passed."""
        for _ in range(round(duration / SECOND)):
            now = TokenBucket(max(self.capacity * self._random.gauss(1, self.noise), 1.0), DEPTH)
            over = now.exceeding(rate, SECOND, BOUND, self.level)
            before = now.waiting(self.level)
            self.level = now.after(rate, SECOND, self.level)
            self.clock += SECOND
            yield over, rate + before - now.waiting(self.level)

    def met(self, rate: float, duration: int) -> bool:
        """Return True if the hold is met; ends as soon as the percentile can no longer hold."""
        room = (1 - PERCENTILE / 100) * messages(rate, duration)
        for over, _ in self.load(rate, duration):
            room -= over
            if room < 0:
                return False
        return True

    def drain(self) -> None:
        self.clock += TokenBucket(self.capacity, DEPTH).drain_time(self.level)
        self.level = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Rates in msg/s, time in ns.

    ``meanwhile``: share of the seconds of the search itself, if it continues until the end.
    """

    found: float
    time: int
    lowest: float
    highest: float
    anew: float
    meanwhile: float | None = None


def ours(capacity: float, noise: float, seed: int) -> Answer:
    broker = Broker(capacity, noise, seed)

    def run(ask: Ask) -> Step:
        for _ in broker.load(ask.rate, ask.warmup):
            pass
        broker.drain()
        met = broker.met(ask.rate, ask.duration)
        broker.drain()
        return Step(ask=ask, outcome=Outcome.MET if met else Outcome.MISSED)

    search = Search(
        Spec(
            start=1000,
            maximum=None,
            hold=HOLD,
            confirm=CONFIRM,
            warmup=WARMUP,
            precision=0.02,
            repeats=2,
        )
    )
    while ask := search.next():
        search.record(run(ask))
    peak = search.peak()
    time = broker.clock
    found = peak.rate or 0.0
    return Answer(
        found,
        time,
        peak.low or 0.0,
        peak.high or 0.0,
        share_met(Broker(capacity, noise, seed + 1000), found, 100),
    )


def share_met(broker: Broker, rate: float, times: int) -> float:
    met = 0
    for _ in range(times):
        met += broker.met(rate, CONFIRM)
        broker.drain()
    return met / times


def omb(capacity: float, noise: float, seed: int, behind: bool) -> Answer:
    """Run OMB's rule.

    Producers never wait: they queue the requested rate (``pendingQueueSize: 0``; memory has no
    limit here).
    """
    broker = Broker(capacity, noise, seed)
    rule = OmbController()
    offered = passed = 0.0
    measured: list[tuple[float, float, bool]] = []
    while broker.clock < OMB_WARMUP + OMB_TEST:
        rate = max(rule.rate, LOWEST_RATE)
        for over, through in broker.load(rate, PERIOD):
            offered = offered + rate
            passed = passed + through
            if broker.clock > OMB_WARMUP:
                measured.append(
                    (
                        rate,
                        rate if behind else through,
                        over <= (1 - PERCENTILE / 100) * messages(rate, SECOND),
                    )
                )
        rule.next_rate(PERIOD, round(offered if behind else passed), round(passed))
    rates, published, held = zip(*measured, strict=True)
    found = statistics.mean(published)
    return Answer(
        found,
        broker.clock,
        min(rates),
        max(rates),
        share_met(Broker(capacity, noise, seed + 1000), found, 100),
        statistics.mean(held),
    )


def truth(capacity: float, noise: float) -> float:
    closed = TokenBucket(capacity, DEPTH).highest_rate(CONFIRM, BOUND, PERCENTILE)
    if not noise:
        return closed
    low, high = capacity / 2, closed * 1.5
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        low, high = (
            (middle, high)
            if share_met(Broker(capacity, noise, 7), middle, 200) >= 0.5
            else (low, middle)
        )
    return low


def row(name: str, answers: list[Answer], true: float) -> str:
    errors = [answer.found / true - 1 for answer in answers]
    middle = sorted(answers, key=lambda answer: answer.found)[len(answers) // 2]
    seen = [answer.meanwhile for answer in answers if answer.meanwhile is not None]
    swing = f"{middle.lowest:,.0f} to {middle.highest:,.0f}"
    time = statistics.median(answer.time for answer in answers) / MINUTE
    anew = statistics.median(answer.anew for answer in answers)
    meanwhile = f"{statistics.median(seen):>11.0%}" if seen else ""
    return (
        f"  {name:<22}{middle.found:>10,.0f}"
        f"{statistics.median(errors):>+9.1%}{min(errors):>+9.1%}{max(errors):>+9.1%}"
        f"{time:>8.1f} min   {swing:<22}{anew:>6.0%}{meanwhile}"
    )


def main() -> None:
    print(
        f"p99 <= 100 ms for a minute; {len(SEEDS)} runs each; found, swing:"
        " of the run in the middle\n"
    )
    heads = f"{'interval or swing':<22}{'anew':>6}{'meanwhile':>11}"
    print(f"  {'':<22}{'found':>10}{'error':>9}{'lowest':>9}{'highest':>9}{'time':>12}   {heads}")
    for capacity in CAPACITIES:
        for noise in NOISES:
            true = truth(capacity, noise)
            print(f"capacity {capacity:,} msg/s, wandering by {noise:.0%}; truth {true:,.0f} msg/s")
            print(row("search", [ours(capacity, noise, seed) for seed in SEEDS], true))
            for behind, name in ((False, "OMB's rule, publish"), (True, "OMB's rule, deliver")):
                print(row(name, [omb(capacity, noise, seed, behind) for seed in SEEDS], true))


if __name__ == "__main__":
    main()
