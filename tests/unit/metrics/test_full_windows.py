"""Messages that were dropped before full windows, and their topics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.samples import RECEIVED, SENT, Status
from pytest_loadtest.metrics.expected import Expected, Recorded
from pytest_loadtest.metrics.full_windows import NAMED, BlockedTopic, FullWindows
from pytest_loadtest.metrics.stats import measure
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Measurements

START, TOPICS = 7 * SECOND, 25
RUN = Expected(
    start=START, duration=4 * SECOND, rate=1.0, topics=TOPICS, subscriptions=1, ordered=True, publish_acks=True, buckets=("all",),
    stream_topics=np.arange(TOPICS), first=np.zeros(TOPICS, np.int64), end=np.zeros(TOPICS, np.int64),
)  # fmt: skip

MESSAGES = st.lists(
    st.tuples(
        st.integers(0, TOPICS - 1), st.sampled_from([Status.BLOCKED, Status.DROPPED, Status.ACKED]), st.integers(0, 4 * SECOND - 1),
        st.integers(1, 2 * SECOND),
    ),
    max_size=60,
)  # fmt: skip


def measured(messages: list[tuple[int, Status, int, int]]) -> Measurements:
    """:param messages: topic, status, intended time after the start, and time blocked."""
    topic = np.array([message[0] for message in messages], np.int64)
    ends = np.bincount(topic, minlength=TOPICS)
    seq = np.array([int((topic[:at] == topic[at]).sum()) for at in range(len(topic))], np.int64)
    intended = START + np.array([message[2] for message in messages], np.int64)
    status = np.array([message[1] for message in messages], np.int64)
    went = status == Status.ACKED
    blocked = np.array([message[3] for message in messages], np.int64)
    sent: dict[str, Any] = {column.name: np.zeros(len(topic), np.int64) for column in SENT}
    sent |= {
        "stream": topic,
        "topic": topic,
        "seq": seq,
        "intended": intended,
        "status": status,
        "blocked": blocked,
    }
    sent |= {
        "sent": np.where(went, intended + blocked, 0),
        "acked": np.where(went, intended + blocked + 1, 0),
    }
    received = {column.name: np.zeros(0, np.int64) for column in RECEIVED}
    return measure(sent, received, replace(RUN, end=ends), Recorded())


@given(MESSAGES)
def test_topics_are_listed_from_their_first_to_their_last_wait_in_the_phase(
    messages: list[tuple[int, Status, int, int]],
) -> None:
    """Only messages that were dropped before a full window count; those that the generator dropped
    late are told apart exactly.
    """
    found = measured(messages)
    blocked = [message for message in messages if message[1] == Status.BLOCKED]
    topics = []
    for topic in {message[0] for message in blocked}:
        waits = [(at, at + wait) for number, _, at, wait in blocked if number == topic]
        end = min(max(until for _, until in waits), RUN.duration)
        topics.append(
            BlockedTopic(topic=topic, dropped=len(waits), start=min(at for at, _ in waits), end=end)
        )
    topics.sort(key=lambda one: (one.start, one.topic))
    waited = sum(message[3] for message in blocked)
    expected = FullWindows(
        dropped=len(blocked), waited=waited, topics=len(topics), first_topics=tuple(topics[:NAMED])
    )
    assert found.full_windows == (expected if blocked else None)
    assert found.own_drops == sum(message[1] == Status.DROPPED for message in messages)
    assert found.counts.dropped == sum(message[1] != Status.ACKED for message in messages)
    assert found.blocked == sum(message[3] for message in messages)


def test_the_time_blocked_of_a_dropped_message_is_in_the_second_in_which_its_wait_ended() -> None:
    found = measured(
        [(0, Status.BLOCKED, SECOND // 2, SECOND), (1, Status.ACKED, SECOND // 2, SECOND // 4)]
    )
    assert found.series.blocked is not None
    assert found.series.blocked.tolist() == [SECOND // 4, SECOND, 0, 0]
