"""The order of the steps in a worker's part in a run."""

from __future__ import annotations

import queue
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.link import Link
from pytest_loadtest.fleet.member import _drive
from pytest_loadtest.fleet.messages import (
    AbortRun,
    Answer,
    ConsumersConnected,
    Continue,
    Meet,
    NextPhases,
    PhaseDone,
    SampleHost,
    TargetPrepared,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.fleet.messages import ControllerMessage, RunStep, StepAnswer, WorkerMessage


class Share:
    """One of several workloads; notes which drivers are polled while it opens its connections."""

    def __init__(self, name: str, turns: list[str]) -> None:
        self.driver, self._turns = (
            SimpleNamespace(poll=lambda _: turns.append(name), close=lambda: None),
            turns,
        )
        self.polled: list[list[str]] = []

    def open_consumers(self, _: object, idle: Callable[[], None]) -> None:
        self._turns.clear()
        idle()
        self.polled.append(self._turns[:])

    open_producers = open_consumers


@pytest.fixture
def inbox() -> queue.SimpleQueue[ControllerMessage]:
    """Messages from the controller."""
    return queue.SimpleQueue()


@pytest.fixture
def link(inbox: queue.SimpleQueue[ControllerMessage]) -> Link:
    """A connection whose meetings pass at once; the run has no phase."""
    answers: dict[type[RunStep], StepAnswer] = {
        TargetPrepared: Continue(),
        ConsumersConnected: SampleHost(None),
        PhaseDone: NextPhases(None),
    }

    def send(message: WorkerMessage) -> None:
        assert isinstance(message, Meet)
        inbox.put(Answer(message.key, type(message.step), answers[type(message.step)]))

    return Link(send, inbox, (0, 0))


def test_the_other_drivers_are_polled_while_one_connects(link: Link) -> None:
    """Connecting at a rate takes long; a broker drops connected clients that send no keep-alive."""
    turns: list[str] = []
    shares: list[Any] = [Share(name, turns) for name in ("a", "b", "c")]
    _drive(link, shares, time.monotonic_ns, lead=False)
    assert [share.polled for share in shares] == [
        [["b", "c"]] * 2,
        [["a", "c"]] * 2,
        [["a", "b"]] * 2,
    ]


def test_an_aborted_run_opens_no_more_connections(
    link: Link, inbox: queue.SimpleQueue[ControllerMessage]
) -> None:
    """Connecting may take a quarter of an hour, and another worker may die in it."""

    class Last(Share):
        def open_producers(self, meet: object, idle: Callable[[], None]) -> None:
            inbox.put(AbortRun(link.key, NoData("load worker gw1 went down")))
            super().open_producers(meet, idle)

    shares: list[Any] = [Last("a", [])]
    with pytest.raises(NoData, match="gw1 went down"):
        _drive(link, shares, time.monotonic_ns, lead=False)
    assert len(shares[0].polled) == 1
