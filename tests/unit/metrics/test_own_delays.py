"""The part of each latency that the generator's own delays explain: as far as which message and
copy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pytest_loadtest.message.due import Delays
from pytest_loadtest.metrics.expected import Expected
from pytest_loadtest.metrics.own_delays import (
    gap_times_without_own,
    of_acknowledgements,
    of_copies,
    of_sends,
    parts_of_copies,
)
from pytest_loadtest.metrics.pauses import Pauses
from pytest_loadtest.values.quantities import MILLISECOND as MS
from pytest_loadtest.values.quantities import SECOND


def paused(*ends: tuple[int, int], exact: bool = False) -> Pauses:
    """Pauses from begin to end, ms, after each of which all that had become due was sent."""
    begin, end = (np.array([pair[side] for pair in ends], np.int64) * MS for side in (0, 1))
    return Pauses(begin=begin, end=end, since=begin, until=end, exact=exact, due=begin, sent=end)


def plan(*workers: Pauses) -> Expected:
    """Stream 0 belongs to worker 0, stream 1 to worker 1."""
    many = np.array([100, 100])
    return Expected(
        start=0, duration=10 * SECOND, rate=20.0, topics=1, subscriptions=1, ordered=True, publish_acks=True, buckets=("all",),
        stream_topics=many * 0, first=many * 0, end=many, workers=("gw0", "gw1"), pauses=workers, stream_workers=np.array([0, 1]),
    )  # fmt: skip


def rows(**columns: list[int]) -> dict[str, Any]:
    """Columns of times in ms."""
    times = ("intended", "sent", "acked", "received", "blocked")
    return {
        name: np.array(values, np.int64) * (MS if name in times else 1)
        for name, values in columns.items()
    }


def test_a_late_send_delays_its_own_message_alone() -> None:
    """The time before the target's full window is the target's; 2 ms are two ticks."""
    sent = rows(intended=[0, 0, 0, 0], sent=[60, 60, 2, 3], blocked=[0, 50, 0, 0])
    assert (of_sends(sent) // MS).tolist() == [60, 10, 0, 3]


def test_a_message_that_was_due_in_its_senders_pause_is_late_by_the_rest_of_it() -> None:
    """Another worker's message of the same time is not."""
    run = plan(paused((1000, 1500)), paused())
    copies = rows(
        stream=[0, 1, 0],
        intended=[1100, 1100, 900],
        received=[1510, 1510, 1510],
        worker=[1, 1, 1],
        lag=[0, 0, 0],
    )
    assert (of_copies(copies, run) // MS).tolist() == [400, 0, 0]


def test_a_message_that_was_sent_late_without_a_pause_is_late_by_what_its_step_shows() -> None:
    """The sender caught up in steps of 10 ms; what was due in a step was sent at its end."""
    steps = np.arange(1000, 1300, 10, dtype=np.int64) * MS
    none = np.zeros(0, np.int64)
    sender = Pauses(
        begin=none, end=none, since=none, until=none, exact=False, due=steps, sent=steps + 333 * MS
    )
    assert sender.stalled
    run = plan(sender, paused())
    copies = rows(
        stream=[0, 0, 0, 1],
        intended=[999, 1100, 1104, 1100],
        received=[1340, 1440, 1440, 1440],
        worker=[1] * 4,
        lag=[-1] * 4,
    )
    assert (of_copies(copies, run) // MS).tolist() == [0, 333, 329, 0]


def test_a_copy_in_its_consumers_stall_is_late_by_the_stall_and_not_by_the_target() -> None:
    """The target was slow before: 300 ms passed until the stall began."""
    run = plan(paused(), paused((1000, 2000)))
    copies = rows(
        stream=[0, 0, 0],
        intended=[700, 1500, 1500],
        received=[2001, 2001, 2001],
        worker=[1, 1, 0],
        lag=[-1, -1, -1],
    )
    assert (of_copies(copies, run) // MS).tolist() == [1000, 501, 0]


def test_both_sides_in_one_process_are_one_delay() -> None:
    """A message that was due in the stall and came right after it took no time of the target's; no
    part counts twice.
    """
    run = plan(paused((1000, 2000)), paused())
    copies = rows(
        stream=[0, 0], intended=[1200, 1200], received=[2005, 4000], worker=[0, 0], lag=[-1, -1]
    )
    assert (of_copies(copies, run) // MS).tolist() == [805, 800]


def test_what_passed_before_the_target_is_apart_from_what_passed_after_it() -> None:
    """Due in its sender's pause, and received in its consumer's, or after it."""
    run = plan(paused((1000, 1500)), paused((1600, 1700)))
    copies = rows(
        stream=[0, 0], intended=[1100, 1100], received=[1701, 3000], worker=[1, 1], lag=[-1, -1]
    )
    before, after = parts_of_copies(copies, run)
    assert (before // MS).tolist() == [400, 400]
    assert (after // MS).tolist() == [100, 0]
    assert (of_copies(copies, run) // MS).tolist() == [500, 400]


def test_the_delay_of_a_delayed_message_is_not_excused() -> None:
    """Only what passed after it was due counts."""
    run = plan(paused((1000, 1500)), paused((6000, 6300)))
    copies = rows(
        stream=[0, 0], intended=[1100, 1100], received=[6301, 3100], worker=[1, 1], lag=[-1, -1]
    )
    due = np.array([6100, 3000]) * MS
    assert (of_copies(copies, run, due) // MS).tolist() == [201, 0]


def test_a_late_send_that_ends_before_a_message_is_due_delays_nothing() -> None:
    """The broker keeps a delayed message until then; one that comes earlier was not kept."""
    delays = Delays(seed=1, least=2000, most=2000, start=0, wall=0)
    run = replace(plan(paused((1000, 1500)), paused((3000, 3300))), delays=delays)
    copies = rows(
        stream=[0, 0, 0],
        seq=[0, 1, 2],
        intended=[1100, 1200, 1100],
        received=[3105, 3301, 2500],
        worker=[0, 1, 0],
        lag=[-1, -1, -1],
    )
    assert (of_copies(copies, run) // MS).tolist() == [0, 101, 400]
    gaps = gap_times_without_own(copies, run)
    assert (gaps // MS).tolist() == [3105, 3200, 2100]


def test_an_acknowledgement_in_a_stall_is_late_by_the_stall() -> None:
    """A short pause does not change a stamp of the kernel."""
    acked = rows(
        intended=[900, 900, 2990],
        sent=[900, 980, 2990],
        acked=[2000, 2000, 3010],
        blocked=[0, 0, 0],
        worker=[0, 0, 0],
    )
    for exact, short in ((False, 10), (True, 0)):
        run = plan(paused((1000, 2000), (3000, 3010), exact=exact), paused())
        assert (of_acknowledgements(acked, run) // MS).tolist() == [1000, 80 + 1000, short]


def test_nothing_is_excused_if_pauses_are_unknown() -> None:
    copies = rows(stream=[0], intended=[0], received=[900], worker=[0], lag=[-1])
    assert of_copies(copies, plan()).tolist() == [0]
