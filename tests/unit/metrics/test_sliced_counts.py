"""Windows and tenths, each measured as a run of its own messages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_loadtest.message.due import Delays
from pytest_loadtest.message.samples import RECEIVED, SENT, Flag, Status
from pytest_loadtest.metrics.expected import Expected, Recorded
from pytest_loadtest.metrics.histogram import Histogram
from pytest_loadtest.metrics.stats import measure
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.metrics.time_slices import SlicedStats


START = 100 * SECOND
KINDS = ("publish", "end_to_end", "send_delay", "own_send_delay")


def rows(rng: np.random.Generator, run: Expected) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every message of the run's only stream, one after the other; some refused, dropped, lost or
    doubled, some blocked.
    """
    n = int(run.end[0])
    due = START + np.arange(n) * run.duration // n
    status = rng.choice(
        [Status.ACKED, Status.FAILED, Status.DROPPED, Status.UNKNOWN], n, p=[0.9, 0.03, 0.03, 0.04]
    )
    out = due + rng.integers(0, 40 * MILLISECOND, n)
    blocked = np.where(rng.random(n) < 0.2, rng.integers(0, 20 * MILLISECOND, n), 0)
    acked = np.where(status == Status.ACKED, out + rng.integers(1, 10**9, n), 0)
    sent = {
        "seq": np.arange(n),
        "intended": due,
        "sent": np.where(status == Status.DROPPED, 0, out),
        "acked": acked,
        "status": status,
    }
    sent |= {"blocked": blocked, "size": np.full(n, 50)}
    parts = []
    for subscription in range(run.subscriptions):
        copies = np.where(status == Status.DROPPED, 0, rng.choice([0, 1, 2], n, p=[0.1, 0.8, 0.1]))
        again = np.repeat(np.arange(n), copies)
        late = rng.integers(0, 3 * SECOND, len(again))
        flags = rng.choice([0, Flag.LATE], len(again))
        parts.append(
            {"seq": again, "intended": due[again], "received": due[again] + late, "flags": flags}
        )
        parts[-1]["subscription"] = np.full(len(again), subscription)
    received = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return _whole(SENT, sent), _whole(RECEIVED, received)


def _whole(columns: Any, known: dict[str, Any]) -> dict[str, Any]:
    n = len(known["seq"])
    return {
        column.name: np.asarray(known.get(column.name, np.zeros(n)), np.int64) for column in columns
    }


def run(n: int, duration: int, **changes: Any) -> Expected:
    plan = Expected(
        start=START, duration=duration, rate=n / duration * SECOND, topics=1, subscriptions=1, ordered=True, publish_acks=True,
        buckets=("all",), stream_topics=np.zeros(1, np.int64), first=np.zeros(1, np.int64), end=np.array([n]),
    )  # fmt: skip
    return replace(plan, **changes)


def same(one: Histogram | None, other: Histogram | None) -> bool:
    """Compare to the bit, without regard to the integers' size."""
    if one is None or other is None:
        return one is other
    facts = ("minimum", "maximum", "total", "negative")
    alike = all(getattr(one, name) == getattr(other, name) for name in facts)
    return (
        alike
        and one.index.tolist() == other.index.tolist()
        and one.count.tolist() == other.count.tolist()
    )


def alone(plan: Expected, out: Any, got: Any, begin: int, end: int) -> Measurements:
    """The messages intended from begin until end, measured as a run of their own."""
    first, after = np.searchsorted(out["intended"] - START, [begin, end])
    part = replace(
        plan,
        start=START + begin,
        duration=end - begin,
        first=np.array([first]),
        end=np.array([after]),
        window=None,
        drift=False,
    )
    return measure(out, got, part, Recorded())


def assert_each_is_alone(found: SlicedStats, plan: Expected, out: Any, got: Any) -> None:
    """Latencies, what never came, and how much was due."""
    for at, (begin, end) in enumerate(zip(found.start.tolist(), found.end.tolist(), strict=True)):
        expected = alone(plan, out, got, begin, end)
        assert (found.offered[at], found.received[at]) == (
            expected.counts.offered,
            expected.counts.received,
        )
        assert found.own_late[at] == expected.own_late
        for kind in KINDS:
            one = found.of(kind, at)
            assert isinstance(one, Histogram | None)
            assert same(one, expected.latencies.get(kind)), kind
        for kind in ("publish", "end_to_end", "send_delay"):
            assert found.never_came(kind, at) == expected.never_came(kind)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32), n=st.integers(1, 400), duration=st.integers(SECOND, 45 * SECOND), width=st.integers(1, 13),
    subscriptions=st.integers(1, 2), drift=st.booleans(),
)  # fmt: skip
def test_a_window_is_measured_as_a_run_of_its_messages(
    seed: int, n: int, duration: int, width: int, subscriptions: int, drift: bool
) -> None:
    """So is a tenth, wherever the phase is cut; windows and tenths do not change intervals."""
    plan = run(n, duration, window=width * SECOND, drift=drift, subscriptions=subscriptions)
    out, got = rows(np.random.default_rng(seed), plan)
    found, plain = (
        measure(out, got, plan, Recorded()),
        measure(out, got, replace(plan, window=None, drift=False), Recorded()),
    )
    assert (found.windows is None) == (duration < width * SECOND)
    assert (found.tenths is None) == (not drift or duration < 10 * SECOND)
    for stretches in (found.windows, found.tenths):
        if stretches is not None:
            assert_each_is_alone(stretches, plan, out, got)
    assert len(found.intervals) == len(plain.intervals)
    for cut, uncut in zip(found.intervals, plain.intervals, strict=True):
        assert all(
            same(cut.get(kind), uncut.get(kind)) for kind in ("publish", "end_to_end", "send_delay")
        )
    assert (plain.windows, plain.tenths) == (None, None)


def test_in_time_is_before_the_windows_end_moved_by_the_median_of_the_whole() -> None:
    """Each delivery once; what comes after its window is over is not of that window's throughput,
    nor of any other's.
    """
    plan = run(8, 4 * SECOND, window=2 * SECOND)  # every half second
    due = START + np.arange(8) * SECOND // 2
    out = _whole(
        SENT,
        {
            "seq": np.arange(8),
            "intended": due,
            "sent": due,
            "acked": due,
            "status": np.full(8, Status.ACKED),
        },
    )
    late = (
        np.array([100, 100, 1200, 599, 600, 100, 100, 100, 5000]) * MILLISECOND
    )  # the median is 100 ms
    seq = np.array([0, 1, 2, 3, 3, 4, 5, 6, 7])
    got = _whole(RECEIVED, {"seq": seq, "intended": due[seq], "received": due[seq] + late})
    found = measure(out, got, plan, Recorded()).windows
    assert found is not None
    assert found.received.tolist() == [4, 4]
    # 2 is due at 1 s and came at 2.2 s; 3 is due at 1.5 s, its copies came at 2.099 s and 2.1 s; 7
    # came at 8.5 s
    assert found.in_time.tolist() == [3, 3]


@pytest.mark.parametrize(("least", "early"), [(0, 0), (1000, 3 * MILLISECOND)])
def test_lateness_of_a_window_has_both_sides(least: int, early: int) -> None:
    """Delayed messages can be early or late; those with a delay of 0 are never early."""
    delays = Delays(seed=1, least=least, most=least, wall=0)
    plan = run(40, 4 * SECOND, window=2 * SECOND, delays=delays, ordered=False)
    due = START + np.arange(40) * SECOND // 10
    out = _whole(
        SENT,
        {
            "seq": np.arange(40),
            "intended": due,
            "sent": due,
            "acked": due,
            "status": np.full(40, Status.ACKED),
        },
    )
    when = delays.due(np.zeros(40, np.int64), np.arange(40), due)
    got = _whole(
        RECEIVED,
        {
            "seq": np.arange(40),
            "intended": due,
            "received": when + np.where(np.arange(40) % 2, 7, -3) * MILLISECOND,
        },
    )
    found = measure(out, got, plan, Recorded()).windows
    assert found is not None
    lateness, earliness = found.of("lateness", 1), found.of("earliness", 1)
    assert lateness is not None
    assert earliness is not None
    assert (lateness.n, lateness.minimum, lateness.maximum) == (
        20,
        -early,
        7 * MILLISECOND,
    )
    assert (earliness.n, earliness.minimum, earliness.maximum) == (20, 0, early)
    assert (found.never_came("lateness", 1), found.never_came("earliness", 1)) == (0, 0)
