"""The evidence for generator-limited."""

from __future__ import annotations

import gc

from pytest_loadtest.observe.generator import STALL, GeneratorWatch
from pytest_loadtest.testing import FakeClock


def test_late_wakeups_add_up() -> None:
    """Only wake-ups later than a stall count; the longest is kept apart."""
    clock = FakeClock()
    watch = GeneratorWatch(clock, clock)
    watch.start()
    watch.woke(1000, 1000 + STALL)  # a scheduler's slice
    watch.woke(1000, 1000 + STALL + 1)
    watch.woke(1000, 1000 + 3 * STALL)
    watch.stop()
    evidence = watch.evidence("gw0")
    assert (evidence.worker, evidence.stalled, evidence.longest_stall) == ("gw0", 4 * STALL + 1, 3 * STALL)


def test_cpu_is_of_the_watched_time() -> None:
    """CPU time over wall time between start and stop; a second start forgets the first phase."""
    now = {"wall": 0, "cpu": 0}
    watch = GeneratorWatch(lambda: now["wall"], lambda: now["cpu"])
    for wall, cpu in ((1000, 900), (2000, 500)):
        watch.start()
        now["wall"] += wall
        now["cpu"] += cpu
        watch.stop()
    now["wall"] += 10**9
    watch.stop()  # again: nothing changes
    assert watch.evidence("main").cpu == 0.25


def test_collections_are_seen_and_the_callback_goes() -> None:
    """Garbage collections between start and stop are timed; afterwards nothing is left in gc."""
    before = list(gc.callbacks)
    watch = GeneratorWatch(FakeClock(), FakeClock())
    times = iter(range(0, 1000, 10))
    watch = GeneratorWatch(lambda: next(times), lambda: 0)
    watch.start()
    gc.collect()
    watch.stop()
    assert watch.evidence("main").gc >= 10
    assert gc.callbacks == before
