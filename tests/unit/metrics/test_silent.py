"""Silent subscriptions of topics, and silent streams."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_loadtest.message.samples import RECEIVED, SENT, Flag, Status
from pytest_loadtest.metrics.expected import Expected, Recorded
from pytest_loadtest.metrics.silent import NAMED, Silent, SilentPair, SilentStream, silence
from pytest_loadtest.metrics.stats import measure
from pytest_loadtest.values.quantities import SECOND


def plan(
    lengths: list[int], topics: list[int], *, subscriptions: int = 1, acks: bool = True
) -> Expected:
    """Streams of so many messages each, of these topics."""
    first = np.zeros(len(lengths), np.int64)
    return Expected(
        start=SECOND, duration=SECOND, rate=1.0, topics=max(topics) + 1, subscriptions=subscriptions, ordered=True, publish_acks=acks,
        buckets=("all",), stream_topics=np.array(topics), first=first, end=np.array(lengths),
    )  # fmt: skip


def sent(run: Expected, **columns: Any) -> dict[str, Any]:
    """Every message of the plan."""
    stream = np.repeat(np.arange(len(run.end)), run.end)
    seq = np.concatenate([np.arange(end) for end in run.end])
    rows = {
        "stream": stream,
        "seq": seq,
        "topic": run.stream_topics[stream],
        "intended": SECOND,
        "sent": SECOND,
        "acked": SECOND + 1,
    }
    return {
        column.name: np.broadcast_to((rows | columns).get(column.name, 0), len(seq)).astype(
            np.int64
        )
        for column in SENT
    }


def received(run: Expected, *copies: tuple[int, int, int], flags: int = 0) -> dict[str, Any]:
    """Copies: subscription, stream, sequence."""
    subscription, stream, seq = np.array(copies, np.int64).reshape(-1, 3).T
    rows = {
        "subscription": subscription, "stream": stream, "seq": seq, "topic": run.stream_topics[stream], "intended": SECOND,
        "received": SECOND + 2, "flags": flags,
    }  # fmt: skip
    return {
        column.name: np.broadcast_to(rows.get(column.name, 0), len(seq)).astype(np.int64)
        for column in RECEIVED
    }


def silent(run: Expected, *copies: tuple[int, int, int], flags: int = 0, **columns: Any) -> Silent:
    found = measure(
        sent(run, **columns), received(run, *copies, flags=flags), run, Recorded()
    ).silent
    assert found is not None
    return found


def test_a_topic_of_which_nothing_came_is_silent_with_its_stream() -> None:
    """One pair and one stream, by name."""
    found = silent(plan([2, 2, 2], [0, 1, 2]), (0, 0, 0), (0, 2, 1))
    assert found == Silent(
        pairs=1,
        pairs_due=3,
        streams=1,
        streams_due=3,
        first_pairs=(SilentPair(1, 0),),
        first_streams=(SilentStream(1, 1),),
    )
    assert (found.count, found.due) == (2, 6)


def test_a_subscription_that_got_nothing_is_silent_though_the_other_got_all() -> None:
    """The stream is not: its messages arrived somewhere."""
    found = silent(plan([2], [0], subscriptions=2), (1, 0, 0), (1, 0, 1))
    assert found == Silent(
        pairs=1, pairs_due=2, streams=0, streams_due=1, first_pairs=(SilentPair(0, 0),)
    )


def test_a_stream_of_a_topic_that_others_fill_is_silent_alone() -> None:
    """A dead producer does not hide behind another one of its topic."""
    assert silent(plan([3, 3], [0, 0]), (0, 0, 0)) == Silent(
        pairs=0, pairs_due=1, streams=1, streams_due=2, first_streams=(SilentStream(1, 0),)
    )


def test_one_delivery_is_no_silence() -> None:
    """One of hundreds is enough: missing others are left to other objectives."""
    assert silent(plan([500], [0]), (0, 0, 499)).count == 0


def test_a_topic_without_messages_is_not_due() -> None:
    """Nothing was offered, so nothing is missing."""
    assert silent(plan([2, 0], [0, 1]), (0, 0, 0)) == Silent(
        pairs=0, pairs_due=1, streams=0, streams_due=1
    )


def test_damaged_copies_break_no_silence() -> None:
    """A damaged copy is no delivery."""
    assert silent(plan([1], [0]), (0, 0, 0), flags=int(Flag.CORRUPT)).count == 2


def test_a_message_that_was_dropped_was_due() -> None:
    """Nobody got it, whoever gave it up."""
    assert silent(plan([1], [0]), status=int(Status.DROPPED), sent=0).count == 2


@pytest.mark.parametrize("status", [Status.FAILED, Status.UNKNOWN, Status.DROPPED])
def test_without_subscriptions_a_stream_is_silent_when_nothing_was_acknowledged(
    status: Status,
) -> None:
    """There are no pairs then."""
    run = plan([2, 2], [0, 1], subscriptions=0)
    found = silent(run, status=np.array([Status.ACKED, status, status, status]))
    assert found == Silent(
        pairs=0, pairs_due=0, streams=1, streams_due=2, first_streams=(SilentStream(1, 1),)
    )


def test_without_subscriptions_and_acknowledgements_silence_is_unknown() -> None:
    """It is not 0."""
    run = plan([2], [0], subscriptions=0, acks=False)
    assert measure(sent(run), received(run), run, Recorded()).silent is None


def test_the_first_silent_ones_are_named_and_all_are_counted() -> None:
    """Pairs in the order of topic, then subscription."""
    found = silent(plan([1] * 30, list(range(30)), subscriptions=2), (1, 0, 0))
    assert (found.pairs, found.streams) == (59, 29)
    assert found.first_pairs[:3] == (SilentPair(0, 0), SilentPair(1, 0), SilentPair(1, 1))
    assert (len(found.first_pairs), len(found.first_streams)) == (NAMED, NAMED)


def chosen(messages: int, streams: int, every: int, dead: int) -> Silent:
    """Return what is silent if a service sends an output for each so many messages of all streams but one, each with a topic of its own."""
    run = replace(plan([messages] * streams, list(range(streams))), selective=True)
    copies = []
    for number in range(0, messages * streams, every):
        stream, seq = divmod(number, messages)
        if stream != dead:
            copies.append((0, stream, seq))
    return silent(run, *copies)


def test_a_topic_that_a_service_may_have_chosen_no_message_of_is_not_silent() -> None:
    """One output for 200 messages leaves half of the topics with 100 messages without any."""
    found = chosen(messages=100, streams=40, every=200, dead=-1)
    assert (found.count, found.due) == (0, 0)


def test_a_dead_topic_of_a_service_that_chooses_is_silent() -> None:
    """Of 1000 messages a service that sends an output for each twentieth has chosen some."""
    found = chosen(messages=1000, streams=4, every=20, dead=2)
    assert found.first_pairs == (SilentPair(2, 0),)
    assert found.first_streams == (SilentStream(2, 2),)
    assert (found.count, found.due) == (2, 8)


@pytest.mark.parametrize(("messages", "due"), [(76, 0), (77, 4)])
def test_silence_is_certain_where_chance_leaves_nothing_silent_in_99_of_100_runs(
    messages: int, due: int
) -> None:
    """Of 2 topics and 2 streams: 4 times 0.925**n is below 0.01 from n = 77 on."""
    run = replace(plan([messages, messages], [0, 1]), selective=True)
    share = 0.075 * 2 * messages
    found = silence(run, np.ones((1, 2), np.bool_), np.ones(2, np.bool_), (round(share),))
    assert found is not None
    assert found.due == due
    assert silence(run, np.ones((1, 2), np.bool_), np.ones(2, np.bool_), (0,)).due == 0


def test_every_message_of_a_service_that_answers_all_was_due() -> None:
    assert chosen(messages=1, streams=3, every=1, dead=-1).due == 6


def test_an_unheard_topic_is_counted_although_a_service_may_have_chosen_nothing_of_it() -> None:
    """A fifth of the messages has an output: of the two of topic 1 there need be none, and its gap has no end all the same."""
    run = replace(plan([500, 2], [0, 1]), selective=True)
    copies = [(0, 0, seq) for seq in range(0, 500, 5)]
    found = measure(sent(run), received(run, *copies), run, Recorded())
    assert found.silent is not None
    assert (found.silent.pairs, found.silent.pairs_due, found.unheard) == (0, 1, 1)
    assert found.answered == (100,)
    assert found.never_came("delivery_gap") == 1
