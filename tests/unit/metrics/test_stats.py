"""The definitions, on runs small enough to count by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_loadtest.message.due import Delays
from pytest_loadtest.message.samples import RECEIVED, SENT, Flag, Status
from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.metrics.expected import Expected, Recorded, WorkerEvidence
from pytest_loadtest.metrics.histogram import histogram
from pytest_loadtest.metrics.measurements import Counts, Lost, Measurements
from pytest_loadtest.metrics.pauses import Pauses
from pytest_loadtest.metrics.stats import LOST_RANGES, measure
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

START = 100 * SECOND


def run(end: int, *, streams: int = 1, **changes: Any) -> Expected:
    """Streams 0 … of topic 0, one subscription, sequences 0 to ``end``, two seconds."""
    plan = Expected(
        start=START, duration=2 * SECOND, rate=end / 2, topics=1, subscriptions=1, ordered=True, publish_acks=True, buckets=("small", "large"),
        stream_topics=np.zeros(streams, np.int64), first=np.zeros(streams, np.int64), end=np.full(streams, end),
    )  # fmt: skip
    return replace(plan, **changes)


def sent(n: int, **columns: Any) -> dict[str, Any]:
    """``n`` messages of stream 0, 100 ms apart, sent 1 ms and acked 5 ms after they were due."""
    due = START + np.arange(n) * 100 * MILLISECOND
    rows = {
        "size": 100,
        "seq": np.arange(n),
        "intended": due,
        "sent": due + MILLISECOND,
        "acked": due + 5 * MILLISECOND,
    } | columns
    return {
        column.name: np.broadcast_to(rows.get(column.name, 0), n).astype(np.int64)
        for column in SENT
    }


def received(*seq: int, **columns: Any) -> dict[str, Any]:
    """Copies of these messages, each 10 ms after it was due."""
    due = START + np.array(seq, np.int64) * 100 * MILLISECOND
    rows = {
        "size": 100,
        "seq": np.array(seq, np.int64),
        "intended": due,
        "received": due + 10 * MILLISECOND,
    } | columns
    return {
        column.name: np.broadcast_to(rows.get(column.name, 0), len(seq)).astype(np.int64)
        for column in RECEIVED
    }


def counts(*arguments: Any) -> Counts:
    return measured(*arguments).counts


def measured(
    out: dict[str, Any], got: dict[str, Any], plan: Expected, recorded: Recorded | None = None
) -> Measurements:
    return measure(out, got, plan, recorded or Recorded())


def test_a_run_without_faults_counts_every_message_once() -> None:
    """Everything offered is sent, acked and received, in order, in time."""
    found = measured(sent(4), received(0, 1, 2, 3), run(4))
    assert found.counts == Counts(
        offered=4, sent=4, sent_in_time=4, acked=4, failed=0, dropped=0, unknown=0, received=4, received_in_time=4, lost=0, duplicates=0,
        out_of_order=0, foreign=0, corrupt=0,
    )  # fmt: skip
    end_to_end, publish, send_delay = (
        found.latencies[kind] for kind in ("end_to_end", "publish", "send_delay")
    )
    assert (end_to_end.minimum, end_to_end.maximum) == (10 * MILLISECOND,) * 2
    assert (publish.total, send_delay.total, found.bytes_sent) == (
        20 * MILLISECOND,
        4 * MILLISECOND,
        400,
    )


def test_in_time_by_size_bucket() -> None:
    """Arrivals in the drain are received and not in time, in a bucket as in the whole run; own send
    delay is known by bucket too.
    """
    rows = {
        "bucket": [0, 0, 1, 1],
        "blocked": 0,
        "sent": START + np.array([0, 100, 205, 305]) * MILLISECOND,
    }
    out = sent(4, **rows)
    late = np.array([0, 100, 200, 2300]) * MILLISECOND + START + 10 * MILLISECOND
    found = measured(out, received(0, 1, 2, 3, bucket=[0, 0, 1, 1], received=late), run(4))
    assert [(part.received, part.received_in_time) for part in found.buckets] == [(2, 2), (2, 1)]
    assert found.topics[0].received_in_time == found.counts.received_in_time == 3
    assert [part.latencies["own_send_delay"].maximum for part in found.buckets] == [
        0,
        5 * MILLISECOND,
    ]


def test_only_acked_messages_can_be_lost() -> None:
    """Refused, dropped and unanswered messages are counted apart; an unanswered one that came
    counts as received.
    """
    status = [Status.ACKED, Status.FAILED, Status.DROPPED, Status.UNKNOWN, Status.UNKNOWN]
    found = measured(sent(5, status=status), received(4), run(5))
    assert (
        found.counts.acked,
        found.counts.failed,
        found.counts.dropped,
        found.counts.unknown,
    ) == (1, 1, 1, 2)
    assert (found.counts.sent, found.counts.lost, found.counts.received) == (4, 1, 1)
    assert found.lost == (Lost(topic=0, subscription=0, stream=0, first=0, last=0),)
    assert found.bytes_sent == 400


def test_lost_messages_are_ranges_across_words() -> None:
    """63 and 64 are neighbours."""
    found = measured(
        sent(130),
        received(*(seq for seq in range(130) if seq not in {0, 62, 63, 64, 65, 128, 129})),
        run(130),
    )
    assert [(lost.first, lost.last) for lost in found.lost] == [(0, 0), (62, 65), (128, 129)]
    assert found.counts.lost == 7


def test_at_most_ten_thousand_ranges_are_listed_and_all_are_counted() -> None:
    """Every other message of 30 000."""
    found = measured(sent(30_000), received(*range(0, 30_000, 2)), run(30_000))
    assert (len(found.lost), found.counts.lost) == (LOST_RANGES, 15_000)
    assert (found.lost[0].first, found.lost[-1].first) == (1, 19_999)


def test_each_subscription_of_the_topic_expects_each_message() -> None:
    """Loss is judged per subscription; what another topic's subscription gets is foreign there."""
    plan = run(2, subscriptions=2, topics=2)
    got = received(0, 1, 0, 1, subscription=[0, 0, 1, 1], topic=[0, 0, 0, 1])
    found = measured(sent(2), got, plan)
    assert found.lost == (Lost(topic=0, subscription=1, stream=0, first=1, last=1),)
    assert (found.counts.received, found.counts.foreign) == (3, 1)


def test_further_copies_are_duplicates() -> None:
    """Per delivery, and not received messages; their latencies are no others'."""
    found = measured(sent(2), received(0, 0, 0, 1), run(2))
    assert (found.counts.received, found.counts.duplicates) == (2, 2)
    assert (found.latencies["end_to_end"].n, found.latencies["later_copies"].n) == (2, 2)


def test_copies_of_quick_messages_do_not_make_slow_ones_fewer() -> None:
    """Two in a hundred take 900 ms, so p99 does, however often the others came."""
    seq = np.arange(100)
    slow = seq >= 98
    latency = np.where(slow, 900, 5) * MILLISECOND
    for times in (1, 3):
        came = np.repeat(seq, np.where(slow, 1, times))
        rows = received(*came.tolist())
        found = measured(
            sent(100), rows | {"received": rows["intended"] + latency[came]}, run(100)
        ).latencies["end_to_end"]
        assert (found.n, found.percentile(99) > 890 * MILLISECOND) == (100, True)


def test_a_late_second_copy_breaks_no_maximum() -> None:
    """Recorded before the first copy or after it."""
    for order in ([10, 800], [800, 10]):
        due = START + np.array(order) * MILLISECOND
        found = measured(sent(1), received(0, 0, received=due), run(1))
        assert (found.latencies["end_to_end"].maximum, found.latencies["later_copies"].minimum) == (
            10 * MILLISECOND,
            800 * MILLISECOND,
        )
        assert found.series.end_to_end_max[0] == 10 * MILLISECOND


def test_a_message_is_out_of_due_order_by_its_first_copy() -> None:
    """A second copy comes after others that are due later, and says nothing; of two at one instant
    the one in order is the first.
    """
    plan = run(3, delays=Delays(seed=0, least=1000, most=1000))
    came = START + SECOND + np.array([0, 900, 0, 900, 400, 400]) * MILLISECOND
    rows = received(
        0,
        0,
        1,
        1,
        2,
        2,
        received=came,
        flags=np.array([0, Flag.UNDUE, Flag.UNDUE, 0, Flag.UNDUE, 0]),
    )
    assert counts(sent(3), rows, plan).out_of_due_order == 1


@settings(max_examples=15)  # of 12 800 copies each
@given(seed=st.integers(0, 1 << 32))
def test_later_copies_change_no_latency(seed: int) -> None:
    """Neither the whole nor any part or time slice changes, nor the time in which messages are in
    time; nor does the order of rows.
    """
    random = np.random.default_rng(seed)
    delays = Delays(seed=1, least=0, most=2000) if seed % 2 else None
    plan = run(
        200,
        subscriptions=64,
        topics=1,
        duration=23 * SECOND,
        window=2 * SECOND,
        drift=True,
        broadcasts=True,
        delays=delays,
    )
    due = START + np.sort(random.integers(0, 23 * SECOND, 200))
    out = sent(200, intended=due, bucket=random.integers(0, 2, 200))
    seq, subscription = np.tile(np.arange(200), 64), np.repeat(np.arange(64), 200)
    first = received(
        *seq.tolist(), subscription=subscription, intended=due[seq], bucket=out["bucket"][seq]
    )
    first |= {"received": due[seq] + random.lognormal(18, 1, len(seq)).astype(np.int64)}
    first |= {"flags": random.choice([0, Flag.UNDUE], len(seq))}
    times = random.integers(0, 3, len(seq))
    again = {name: np.repeat(column, times) for name, column in first.items()}
    again["received"] = again["received"] + random.integers(1, SECOND, int(times.sum()))
    order = random.permutation(len(seq) + int(times.sum()))
    both = {name: np.concatenate([column, again[name]])[order] for name, column in first.items()}
    alone, found = measured(out, first, plan), measured(out, both, plan)
    assert (
        found.counts.duplicates
        == int(times.sum())
        == (found.latencies["later_copies"].n if times.any() else 0)
    )
    assert found.counts.out_of_due_order == alone.counts.out_of_due_order
    assert plain({**found.latencies, "later_copies": None}) == plain(
        {**alone.latencies, "later_copies": None}
    )
    for name in ("intervals", "over_time", "windows", "tenths"):
        assert plain(getattr(found, name)) == plain(getattr(alone, name)), name
    for name in ("end_to_end_p50", "end_to_end_p99", "end_to_end_max"):
        assert plain(getattr(found.series, name)[:23]) == plain(getattr(alone.series, name)[:23]), (
            name
        )
    for part, other in zip(
        (*found.topics, *found.buckets), (*alone.topics, *alone.buckets), strict=True
    ):
        assert (plain(part.latencies["end_to_end"]), part.received) == (
            plain(other.latencies["end_to_end"]),
            other.received,
        )


def plain(found: Any) -> Any:
    """Return plain values."""
    if is_dataclass(found):
        return {field.name: plain(getattr(found, field.name)) for field in fields(found)}
    if isinstance(found, Mapping):
        return {name: plain(value) for name, value in found.items()}
    if isinstance(found, tuple):
        return [plain(one) for one in found]
    return [repr(value) for value in found.tolist()] if isinstance(found, np.ndarray) else found


def test_duplicates_of_resent_messages_are_counted() -> None:
    """The message decides, for every subscription: it is unknown which sending a copy belongs to.

    Rejected messages count too.
    """
    out = sent(
        5, resends=[0, 1, 255, 1, 0], status=[Status.ACKED] * 3 + [Status.FAILED, Status.ACKED]
    )
    found = counts(
        out,
        received(0, 0, 1, 1, 1, 2, 1, 1, subscription=[0] * 6 + [1] * 2),
        run(5, subscriptions=2),
    )
    assert (found.resent, found.duplicates, found.duplicates_of_resent) == (3, 4, 3)
    warm_up = counts(sent(5, resends=1), received(1, 1), run(5, first=np.array([2])))
    assert (warm_up.resent, warm_up.duplicates_of_resent) == (3, 0)


def test_a_message_is_out_of_order_when_all_its_copies_came_late() -> None:
    """A late repetition of a punctual message is a duplicate and no more."""
    flags = [0, Flag.LATE, Flag.LATE, Flag.LATE]
    assert counts(sent(2), received(0, 0, 1, 1, flags=flags), run(2)).out_of_order == 1
    assert (
        counts(sent(2), received(0, 0, 1, 1, flags=flags), run(2, ordered=False)).out_of_order
        is None
    )


def test_a_damaged_copy_is_corrupt_and_not_received() -> None:
    """Damaged heads come from the manifests, damaged bodies from the rows."""
    found = counts(
        sent(2), received(0, 1, flags=[0, Flag.CORRUPT]), run(2), Recorded(corrupt=3, foreign=2)
    )
    assert (found.corrupt, found.foreign, found.received, found.lost, found.duplicates) == (
        4,
        2,
        1,
        1,
        0,
    )


def test_in_time_is_before_the_end_plus_the_median_latency() -> None:
    """The last messages of a phase get the time that messages usually take; a later copy of one in
    time changes nothing.
    """
    end = START + 2 * SECOND
    got = received(
        0, 1, 1, 2, received=[end + 49, end + 51, end + 60, end + 51], intended=end
    )  # median 51 ns
    # Messages due at both ends have the same room, none.
    out = sent(3, sent=[end - 1, end, end + 1], intended=[START, end, end])
    found = counts(out, got, run(3))
    assert (found.received_in_time, found.sent_in_time) == (1, 1)


def test_own_send_delay_is_less_the_time_blocked_and_never_negative() -> None:
    """A full window is the target's doing."""
    found = measured(sent(2, blocked=[MILLISECOND // 4, 2 * MILLISECOND]), received(), run(2))
    own = found.latencies["own_send_delay"]
    assert (own.minimum, own.maximum) == (0, MILLISECOND * 3 // 4)
    assert found.blocked == MILLISECOND * 9 // 4


def test_a_message_is_late_by_the_generator_if_the_target_had_room_before_the_end() -> None:
    """The time before a full window is the target's, also where it ended after the phase."""
    end = START + 2 * SECOND
    intended, sent_at = (
        end - np.array([500, 500, 500, 500, 0]),
        np.array([end - 1, end, end, end, 0]),
    )
    rows = {
        "intended": intended,
        "blocked": [0, 499, 500, 900, 0],
        "status": [0, 0, 0, 0, Status.DROPPED],
    }
    assert measured(sent(5, sent=sent_at, **rows), received(), run(5)).own_late == 1


def test_a_message_that_was_never_sent_has_no_send_delay() -> None:
    """Zero means never."""
    found = measured(sent(1, status=Status.DROPPED, sent=0, acked=0), received(), run(1))
    assert found.latencies == {}


def test_publish_latency_is_not_applicable_without_acknowledgements() -> None:
    """QoS 0: acked means written to the socket."""
    found = measured(sent(1), received(0), run(1, publish_acks=False))
    assert (
        "publish" in found.latencies,
        "publish" in found.topics[0].latencies,
        found.counts.acked,
    ) == (False, False, 1)


def test_rows_of_other_phases_are_ignored() -> None:
    """The warm-up's messages have sequences below the first measured one."""
    found = measured(
        sent(4), received(0, 1, 2, 3), replace(run(4), first=np.array([1]), end=np.array([3]))
    )
    assert (found.counts.offered, found.counts.received, found.counts.lost) == (2, 2, 0)


def test_series_show_each_thing_in_its_own_second() -> None:
    """Offered when due, received when it came; its latency when it was due."""
    late = received(0, 12, received=[START + 3 * SECOND + 1, START + 3 * SECOND + 2])
    series = measured(sent(20), late, run(20)).series
    assert series.offered.tolist() == [10, 10, 0, 0]
    assert series.received.tolist() == [0, 0, 0, 2]
    assert series.end_to_end_max[:2].tolist() == [3 * SECOND + 1, 1.8 * SECOND + 2]
    assert np.isnan(series.end_to_end_p99[2:]).all()


def test_series_percentiles_are_nearest_rank() -> None:
    """100 latencies of 1 … 100 ns are exact in the lowest buckets."""
    got = received(*range(100), intended=START, received=START + 1 + np.arange(100))
    series = measured(sent(100, intended=START), got, run(100)).series
    assert (series.end_to_end_p50[0], series.end_to_end_p99[0], series.end_to_end_max[0]) == (
        50,
        99,
        100,
    )


def test_breakdowns_name_every_topic_and_bucket() -> None:
    """First copies are received; nothing is shown as zero latency."""
    plan = run(3, topics=2)
    found = measured(sent(3, bucket=[0, 0, 1]), received(0, 0, 2, bucket=[0, 0, 1]), plan)
    assert [(part.name, part.sent, part.received) for part in found.topics] == [
        ("topic 0", 3, 2),
        ("topic 1", 0, 0),
    ]
    assert [
        (part.name, part.sent, part.acked, part.received, part.bytes_sent) for part in found.buckets
    ] == [
        ("small", 2, 2, 1, 200),
        ("large", 1, 1, 1, 100),
    ]
    assert found.topics[1].latencies == {}


def test_breakdowns_say_what_was_offered_and_what_was_lost() -> None:
    """Dropped messages were offered; each delivery that is lost counts, by the bucket of its
    message.
    """
    plan = run(4, subscriptions=2)
    out = sent(
        4, bucket=[0, 0, 1, 1], status=[Status.ACKED, Status.DROPPED, Status.ACKED, Status.ACKED]
    )
    found = measured(out, received(0, 2, 2, bucket=[0, 1, 1], subscription=[0, 0, 1]), plan)
    assert [(part.offered, part.sent, part.lost) for part in found.buckets] == [
        (2, 1, 1),
        (2, 2, 2),
    ]
    assert (
        [(part.offered, part.lost) for part in found.topics] == [(4, found.counts.lost)] == [(4, 3)]
    )


def test_without_subscriptions_nothing_is_delivered_and_nothing_lost() -> None:
    """A producer-only run; a copy that comes all the same is nobody's."""
    found = measured(sent(3), received(1), run(3, subscriptions=0))
    assert (
        found.counts.acked,
        found.counts.received,
        found.counts.lost,
        found.counts.foreign,
        found.lost,
    ) == (3, 0, 0, 1, ())
    assert ("end_to_end" in found.latencies, found.buckets[0].received, found.topics[0].lost) == (
        False,
        0,
        0,
    )


def test_intervals_are_ten_seconds_each() -> None:
    """Messages belong to the interval in which they were due, the last one shorter; a run of one
    interval lists none.
    """
    due = START + np.array([0, 9, 10, 19, 20, 24]) * SECOND
    out = sent(6, intended=due, sent=due + 1, acked=due + np.arange(1, 7))
    got = received(*range(6), intended=due, received=due + np.arange(10, 61, 10))
    found = measured(out, got, run(6, duration=25 * SECOND)).intervals
    expected = [(2, 10, 2), (4, 30, 2), (6, 50, 2)]
    assert [
        (part["publish"].maximum, part["end_to_end"].minimum, part["send_delay"].n)
        for part in found
    ] == expected
    assert (
        "publish"
        not in measured(out, got, run(6, duration=25 * SECOND, publish_acks=False)).intervals[0]
    )
    assert measured(out, got, run(6, duration=10 * SECOND)).intervals == ()
    assert len(measured(out, got, run(6, duration=10 * SECOND + 1)).intervals) == 2


def test_what_was_never_sent_was_not_sent_in_time() -> None:
    """Zero means never."""
    found = counts(
        sent(3, status=[Status.ACKED, Status.DROPPED, Status.DROPPED], sent=[START, 0, 0]),
        received(0),
        run(3),
    )
    assert (found.sent, found.sent_in_time) == (1, 1)


def test_each_subscription_has_its_own_first_copies() -> None:
    """Each delivery counts once in its part, whichever of its copies came first."""
    plan = run(4, subscriptions=3)
    got = received(
        0,
        1,
        2,
        3,
        0,
        1,
        2,
        1,
        1,
        subscription=[0, 0, 0, 0, 1, 1, 1, 2, 2],
        bucket=[0, 0, 1, 1, 0, 0, 1, 0, 0],
    )
    found = measured(sent(4, bucket=[0, 0, 1, 1]), got, plan)
    assert [part.received for part in found.buckets] == [5, 3]
    assert [part.received for part in found.topics] == [8] == [found.counts.received]


def test_a_series_is_as_long_as_the_plan() -> None:
    """A second that has begun is one."""
    for duration, seconds in ((2 * SECOND, 2), (2 * SECOND + 1, 3), (3 * SECOND - 1, 3)):
        assert (
            len(measured(sent(1), received(0), run(1, duration=duration)).series.offered) == seconds
        )


def test_how_long_a_broadcast_takes_to_reach_all() -> None:
    """Until the last subscription has it, from its intended time and from its first copy; of
    messages that all have. Second copies say nothing.
    """
    plan = run(3, subscriptions=64, broadcasts=True)
    got = received(*[0] * 64, *[1] * 63, *[2] * 64, 2)
    got["subscription"] = np.concatenate([np.arange(64), np.arange(63), np.arange(64), [5]])
    got["received"] = got["intended"] + MILLISECOND * np.concatenate(
        [np.arange(64) + 1, np.arange(63), np.arange(64)[::-1] + 2, [90]]
    )
    found = measured(sent(3), got, plan)
    completion, spread = found.latencies["completion"], found.latencies["spread"]
    assert (completion.n, completion.minimum, completion.maximum) == (
        2,
        64 * MILLISECOND,
        65 * MILLISECOND,
    )
    assert (spread.minimum, spread.maximum) == (63 * MILLISECOND,) * 2
    assert (found.counts.lost, found.counts.duplicates, found.never_came("completion")) == (1, 1, 1)


def test_delayed_messages_count_from_when_they_are_due() -> None:
    """Sent for two seconds, due 10 s later: one early, one in time, one a little late, one by 3 s
    and so out of time; one did not come.
    """
    plan = run(5, delays=Delays(seed=0, least=10_000, most=10_000))
    due = START + np.arange(5) * 100 * MILLISECOND + 10 * SECOND
    came = due[:4] + np.array([-400, 0, 100, 3000]) * MILLISECOND
    found = measured(
        sent(5), received(0, 1, 2, 3, received=came, flags=np.array([0, Flag.UNDUE, 0, 0])), plan
    )
    late = found.latencies["lateness"]
    assert (late.n, late.minimum, late.maximum) == (4, -400 * MILLISECOND, 3000 * MILLISECOND)
    assert (late.percentile(50), found.latencies["earliness"].maximum) == (0, 400 * MILLISECOND)
    counts = found.counts
    assert (counts.received, counts.received_in_time, counts.lost, counts.out_of_due_order) == (
        4,
        2,
        1,
        1,
    )
    assert found.latencies["end_to_end"].minimum == 9_600 * MILLISECOND
    assert (found.never_came("lateness"), found.never_came("earliness")) == (1, 0)


def test_a_message_that_is_not_delayed_is_never_early() -> None:
    """Its sender's clock was 2 ms ahead: that says nothing about the target, which waited for nothing."""
    plan = run(2, delays=Delays(seed=0, at=SECOND, start=START), duration=3 * SECOND)
    rows = sent(2)
    rows["intended"] = START + np.array([0, 2 * SECOND])
    got = received(
        0,
        1,
        received=START + np.array([SECOND - 4 * MILLISECOND, 2 * SECOND - 2 * MILLISECOND]),
    )
    got["intended"] = rows["intended"]
    found = measured(rows, got, plan)
    assert found.latencies["earliness"].maximum == 4 * MILLISECOND
    late = found.latencies["lateness"]
    assert (late.minimum, late.maximum) == (-4 * MILLISECOND, 0)


def test_messages_without_delay_have_no_lateness() -> None:
    found = measured(sent(2), received(0, 1), run(2))
    assert not {"lateness", "earliness"} & found.latencies.keys()
    assert found.counts.out_of_due_order is None


def test_each_latency_of_the_catalogue_is_measured() -> None:
    """A run that has all of them: delays, broadcasts, second copies, connections.

    Only those of a route have others.
    """
    plan = run(
        2,
        subscriptions=64,
        broadcasts=True,
        delays=Delays(seed=0, least=1000, most=1000),
        duration=25 * SECOND,
        window=SECOND,
    )
    got = received(*[0] * 65, *[1] * 64)
    got["subscription"] = np.concatenate([np.arange(64), [0], np.arange(64)])
    opened = {
        kind: histogram(np.array([MILLISECOND])) for kind in ("connect", "subscribe", "reconnect")
    }
    found = measured(sent(2), got, plan, Recorded(latencies=opened))
    broker = [kind for kind, metric in LATENCIES.items() if not metric.route_part]
    assert sorted(found.latencies) == sorted(broker)
    assert set(found.windows.latencies) == {
        kind for kind, metric in LATENCIES.items() if metric.per_window
    } - {"lateness"}
    assert set(found.intervals[0]) == {
        kind for kind, metric in LATENCIES.items() if metric.per_interval
    }
    assert set(found.topics[0].latencies) == {
        kind for kind, metric in LATENCIES.items() if metric.per_topic
    }
    assert set(found.buckets[0].latencies) == {
        kind for kind, metric in LATENCIES.items() if metric.per_bucket
    }


def test_the_receive_lag_is_that_of_first_copies_with_a_known_one() -> None:
    """Recorded in µs; -1 is unknown and never 0. Without any known one there is no lag."""
    rows = received(
        0,
        0,
        1,
        2,
        received=START + np.array([10, 20, 10, 10]) * MILLISECOND,
        lag=np.array([40, 900, -1, 0]),
    )
    found = measured(sent(3), rows, run(3)).latencies["receive_lag"]
    assert (found.n, found.minimum, found.maximum) == (2, 0, 40_000)
    assert "receive_lag" not in measured(sent(3), received(0, 1, lag=-1), run(3)).latencies


def test_a_worker_has_the_own_send_delay_of_what_it_sent_and_the_receive_lag_of_what_it_took() -> (
    None
):
    """Of two first copies at one instant with one lag, that of the first worker counts.

    A worker that only sends has no receive lag.
    """
    out = sent(3, sent=START + np.array([1, 101, 209]) * MILLISECOND) | {
        "worker": np.array([0, 0, 1])
    }
    got = received(0, 0, 1, lag=np.array([7, 7, 90])) | {"worker": np.array([2, 1, 2])}
    workers = tuple(
        WorkerEvidence(worker=name, cpu=0.5, stalled=0, longest_stall=0, gc=0)
        for name in ("gw0", "gw1", "gw2")
    )
    found = measured(
        out, got, run(3, workers=("gw0", "gw1", "gw2")), Recorded(workers=workers)
    ).workers
    largest = [
        {kind: (latency.n, latency.maximum) for kind, latency in worker.latencies.items()}
        for worker in found
    ]
    assert largest == [
        {"own_send_delay": (2, MILLISECOND)},
        {"own_send_delay": (1, 9 * MILLISECOND), "receive_lag": (1, 7_000)},
        {"receive_lag": (1, 90_000)},
    ]


def test_a_second_has_the_largest_receive_lag_that_is_known() -> None:
    """In the second in which the message was due, whenever it was taken."""
    rows = received(0, 1, 12, 25, lag=np.array([40, 900, -1, 7]))
    series = measured(sent(30), rows, run(30, duration=3 * SECOND)).series
    assert series.receive_lag_max is not None
    assert np.array_equal(series.receive_lag_max, [900_000, np.nan, 7_000], equal_nan=True)
    assert measured(sent(2), received(0, 1, lag=-1), run(2)).series.receive_lag_max is None


def test_each_output_of_a_message_is_a_delivery() -> None:
    """Messages with both outputs, one, three and none; a fifth was never acknowledged."""
    status = [Status.ACKED] * 4 + [Status.UNKNOWN]
    got = received(0, 0, 1, 2, 2, 2, 4)
    got["received"] += np.array([0, 1, 0, 2, 0, 1, 0]) * MILLISECOND
    found = measured(sent(5, status=status), got, run(5, outputs=2))
    counted = found.counts
    assert (counted.received, counted.lost, counted.duplicates) == (6, 3, 1)
    assert [(lost.first, lost.last) for lost in found.lost] == [(1, 1), (3, 3)]
    assert found.never_came("end_to_end") == 5 * 2 - 6
    # The latencies are those of the first two copies by arrival: of message 2 not the latest.
    end_to_end = found.latencies["end_to_end"]
    assert (end_to_end.n, end_to_end.maximum) == (6, 11 * MILLISECOND)
    assert found.latencies["later_copies"].minimum == 12 * MILLISECOND
    assert found.topics[0].received == 6 and found.topics[0].lost == 3
    assert found.throughput == counted.received_in_time / 2 / 2 == 1.5
    assert found.series.missing is not None and int(found.series.missing.sum()) == 4 * 2 - 7


def test_two_outputs_of_half_of_the_messages_are_half_of_what_is_due() -> None:
    """As many copies as messages prove nothing: every second message lost both outputs."""
    found = measured(
        sent(10), received(*[n for n in range(0, 10, 2) for _ in "ab"]), run(10, outputs=2)
    )
    assert (found.counts.received, found.counts.lost, found.counts.duplicates) == (10, 10, 0)


def test_an_output_after_one_of_a_later_message_is_out_of_order() -> None:
    """The messages 0, 1, 0, 1: the second output of 0 is late; a punctual third copy excuses it."""
    late = [0, 0, Flag.LATE, 0]
    plan = run(2, outputs=2)
    assert counts(sent(2), received(0, 1, 0, 1, flags=late), plan).out_of_order == 1
    excused = received(0, 1, 0, 0, 1, flags=[0, 0, Flag.LATE, 0, 0])
    assert counts(sent(2), excused, plan).out_of_order == 0


def test_outputs_after_the_phase_are_received_and_not_in_time() -> None:
    got = received(0, 0, 1, 1, 1)
    got["received"][[1, 3, 4]] += 5 * SECOND
    counted = counts(sent(2), got, run(2, outputs=2))
    assert (counted.received, counted.received_in_time, counted.duplicates) == (4, 2, 1)


def test_of_a_service_that_chooses_nothing_is_known_to_be_lost() -> None:
    """Two of four acknowledged messages have an output, one of them two; an unanswered one too."""
    status = [Status.ACKED] * 4 + [Status.UNKNOWN]
    plan = run(5, selective=True)
    found = measured(sent(5, status=status), received(0, 2, 2, 4), plan)
    assert (found.counts.lost, found.answered) == (None, (2,))
    assert (found.counts.received, found.counts.duplicates) == (3, 1)
    assert (found.topics[0].lost, found.lost) == (None, ())
    assert found.never_came("end_to_end") == 0
    assert found.series.missing is None


def test_a_late_send_excuses_no_spread_of_a_broadcast() -> None:
    """It delays all copies alike: a spread is excused by what the consumers' worker waited."""
    none = np.zeros(0, np.int64)
    at = START + np.array([0]) * MILLISECOND
    sender = Pauses(
        begin=none, end=none, since=none, until=none, exact=True, due=at, sent=at + SECOND
    )
    until = START + np.array([1500]) * MILLISECOND
    since = until - 300 * MILLISECOND
    stalled = Pauses(begin=since, end=until, since=since, until=until, exact=False)
    idle = Pauses(begin=none, end=none, since=none, until=none, exact=False)
    arrived = np.full(64, START + 1010 * MILLISECOND)
    arrived[-1] = START + 1501 * MILLISECOND
    out = sent(1, sent=START + SECOND, acked=START + 1005 * MILLISECOND)
    out["worker"] = np.zeros(1, np.int64)
    got = received(*[0] * 64, subscription=np.arange(64), received=arrived, lag=-1)
    got["worker"] = np.ones(64, np.int64)
    for consumer, spread in ((idle, None), (stalled, 191)):
        plan = run(1, subscriptions=64, broadcasts=True, workers=("gw0", "gw1"))
        plan = replace(plan, pauses=(sender, consumer), stream_workers=np.zeros(1, np.int64))
        latencies = measured(out, got, plan).latencies
        assert latencies["spread"].maximum == 491 * MILLISECOND
        assert "completion_without_own" in latencies
        without = latencies.get("spread_without_own")
        assert (without and without.maximum // MILLISECOND) == spread
