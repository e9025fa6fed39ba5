"""The evidence about the generator: stalls, CPU and garbage collections."""

from __future__ import annotations

import gc

from pytest_loadtest.engine.generator import STALL, GeneratorWatch
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.values.quantities import MILLISECOND, SECOND


def test_only_wake_ups_later_than_a_stall_count() -> None:
    """Their sum and the longest are reported."""
    clock = FakeClock()
    watch = GeneratorWatch(clock, clock)
    watch.start(0)
    assert STALL == 50 * MILLISECOND  # as profiles and reports say
    watch.woke(1000, 1000 + STALL, SECOND)  # a scheduler's slice
    watch.woke(1000, 1000 + STALL + 1, SECOND)
    watch.woke(1000, 1000 + 3 * STALL, SECOND)
    watch.stop()
    evidence = watch.evidence("gw0")
    assert (evidence.worker, evidence.stalled, evidence.longest_stall) == (
        "gw0",
        4 * STALL + 1,
        3 * STALL,
    )


def test_cpu_is_measured_between_start_and_stop() -> None:
    """A second start forgets the first phase."""
    now = {"wall": 0, "cpu": 0}
    watch = GeneratorWatch(lambda: now["wall"], lambda: now["cpu"])
    for wall, cpu in ((1000, 900), (2000, 500)):
        watch.start(0)
        now["wall"] += wall
        now["cpu"] += cpu
        watch.stop()
    now["wall"] += 10**9
    watch.stop()  # again: nothing changes
    assert watch.evidence("main").cpu == 0.25


def test_collections_are_timed_between_start_and_stop() -> None:
    """Afterwards gc has no callback left."""
    before = list(gc.callbacks)
    watch = GeneratorWatch(FakeClock(), FakeClock())
    times = iter(range(0, 1000, 10))
    watch = GeneratorWatch(lambda: next(times), lambda: 0)
    watch.start(0)
    gc.collect()
    watch.stop()
    assert watch.evidence("main").gc >= 10
    assert gc.callbacks == before


def test_each_second_has_its_own_evidence() -> None:
    """A stall counts in each second that it touches; CPU time is spread over the time between two
    readings.
    """
    now = {"wall": 10 * SECOND, "cpu": 0}
    watch = GeneratorWatch(lambda: now["wall"], lambda: now["cpu"])
    watch.start(10 * SECOND)
    now |= {"wall": 11 * SECOND, "cpu": SECOND // 2}
    watch.woke(now["wall"], now["wall"], 14 * SECOND)
    now |= {"wall": 13 * SECOND + SECOND // 2, "cpu": SECOND}
    watch.woke(11 * SECOND + SECOND // 2, now["wall"], 14 * SECOND)
    watch.stop()
    evidence = watch.evidence("gw0")
    assert evidence.seconds[:, 0].tolist() == [SECOND // 2, *[SECOND // 5] * 2, SECOND // 10]
    assert evidence.seconds[:, 1].tolist() == [0, SECOND // 2, SECOND, SECOND // 2]
    assert evidence.seconds[:, 2].tolist() == [0, 2 * SECOND, 2 * SECOND, 2 * SECOND]
    assert (evidence.stalled, evidence.longest_stall) == (2 * SECOND, 2 * SECOND)
    phase = 7 * SECOND // 2
    clean, stalled = evidence.during(0, SECOND, phase), evidence.during(SECOND, 2 * SECOND, phase)
    assert (clean.cpu, clean.stalled, clean.longest_stall) == (0.5, 0, 0)
    assert (stalled.cpu, stalled.stalled, stalled.longest_stall) == (
        0.2,
        3 * SECOND // 2,
        2 * SECOND,
    )
    assert evidence.during(3 * SECOND // 2, SECOND, phase).stalled == 3 * SECOND // 4
    last = evidence.during(3 * SECOND, SECOND // 2, phase)  # the phase's last second is a short one
    assert (last.cpu, last.stalled) == (0.2, SECOND // 2)


def test_a_stall_counts_until_the_end_of_the_phase() -> None:
    """A process that stands still when the load is over does not hold it up."""
    watch = GeneratorWatch(lambda: 10 * SECOND)
    watch.start(10 * SECOND)
    watch.woke(11 * SECOND + SECOND // 2, 19 * SECOND, 12 * SECOND)
    watch.stop()
    evidence = watch.evidence("main")
    assert (evidence.stalled, evidence.longest_stall) == (SECOND // 2, 15 * SECOND // 2)
    assert evidence.seconds[:3, 1].tolist() == [0, SECOND // 2, 0]


def test_a_stall_of_the_drain_is_none_of_the_load() -> None:
    """The last wake-up of a phase can be planned for after its end."""
    watch = GeneratorWatch(lambda: 10 * SECOND)
    watch.start(10 * SECOND)
    watch.woke(12 * SECOND + 14 * MILLISECOND, 12 * SECOND + 76 * MILLISECOND, 12 * SECOND)
    watch.stop()
    evidence = watch.evidence("main")
    assert (evidence.stalled, evidence.longest_stall) == (0, 0)
