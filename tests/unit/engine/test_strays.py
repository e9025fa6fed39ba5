"""The messages that a worker keeps because it cannot read them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pytest_loadtest.drivers.base import Received
from pytest_loadtest.engine.strays import KeptMessages
from pytest_loadtest.message.route import IN_BODY, EnvelopePlace, parse_place


def received(
    times: list[int], sizes: list[int], bodies: Callable[[int], bytes] | None = None
) -> Received:
    count = len(times)
    return Received(
        consumer=np.arange(count, dtype=np.int32),
        heads=np.tile(np.arange(32, dtype=np.uint8), (count, 1)),
        size=np.array(sizes, np.int32),
        time=np.array(times),
        order=np.zeros(count, np.int64),
        flags=np.zeros(count, np.int8),
        bodies=bodies,
    )


def noted(place: EnvelopePlace, came: Received) -> list[bytes | None]:
    messages = KeptMessages(place)
    messages.note("foreign", came, np.arange(len(came.size)))
    return [message.beginning for message in messages.take()]


def test_the_first_three_are_kept_by_time() -> None:
    messages = KeptMessages(IN_BODY)
    messages.note("foreign", received([9, 4], [1, 1]), np.array([0, 1]))
    messages.note("foreign", received([20, 11, 13, 12], [1, 1, 1, 1]), np.array([0, 2, 3]))
    messages.note("corrupt", received([1], [1]), np.array([0]))
    messages.note("foreign", received([30, 10], [1, 1]), np.array([0, 1]))
    assert [(message.kind, message.time, message.consumer) for message in messages.take()] == [
        ("foreign", 4, 1), ("foreign", 9, 0), ("foreign", 10, 1), ("corrupt", 1, 0)
    ]  # fmt: skip
    assert messages.take() == []


def test_at_most_64_bytes_are_kept() -> None:
    assert noted(IN_BODY, received([1], [100], lambda row: bytes(range(100)))) == [bytes(range(64))]


def test_a_body_that_the_driver_does_not_know_begins_with_its_head() -> None:
    """An envelope elsewhere says nothing about the body, and a body without a byte has none."""
    came = received([1, 2, 3], [100, 5, 0])
    assert noted(IN_BODY, came) == [bytes(range(32)), bytes(range(5)), b""]
    assert noted(parse_place("json:/ref"), came) == [None, None, b""]
    assert noted(IN_BODY, received([1], [100], lambda row: b"")) == [bytes(range(32))]


def test_no_body_is_asked_for_once_three_are_kept() -> None:
    asked = []

    def body(row: int) -> bytes:
        asked.append(row)
        return b"x"

    messages = KeptMessages(IN_BODY)
    for _ in range(2):
        messages.note("foreign", received([1] * 9, [1] * 9, body), np.arange(9))
    assert asked == [0, 1, 2]
