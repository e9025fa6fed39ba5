"""The order of the steps in a worker's part in a run."""

from __future__ import annotations

import queue
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet import member
from pytest_loadtest.fleet.link import Link
from pytest_loadtest.fleet.member import WorkloadShare, _drive, _store_samples
from pytest_loadtest.fleet.messages import (
    AbortRun,
    Answer,
    ConsumersConnected,
    Continue,
    Meet,
    NextPhases,
    PhaseDone,
    SampleHost,
    StoresSamples,
    TargetPrepared,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


def test_cpu_time_of_connecting_excludes_making_the_clients() -> None:
    """Clients are made before the first connection is due."""

    class Paced:
        def pace(self, _: object, idle: Callable[[], None]) -> None:
            self.idle = idle

        def opening_times(self) -> dict[str, Any]:
            return {"up": np.zeros(3, np.int64), "connect": np.zeros(3, np.int64)}

    driver, connected, made = Paced(), dict[str, Any](), 100_000_000  # ns of CPU
    assigned = SimpleNamespace(profile=SimpleNamespace(connect_rate=1000.0), workload="")
    share: Any = SimpleNamespace(
        assigned=assigned, driver=driver, _connected=connected, _clock=time.monotonic_ns
    )
    before = time.process_time_ns()
    with WorkloadShare._connecting(
        share, "producers", np.arange(3), lambda *_: time.monotonic_ns(), lambda: None
    ):
        while time.process_time_ns() < before + made:
            pass
        driver.idle()
        driver.idle()
    _, _, cpu, _ = connected["producers"]
    assert 0 <= cpu < made


class Storing:
    """A store that is busy until the drivers were polled often enough."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failure: Exception | None = None) -> None:
        self.polled, self._failure = 0, failure
        self.stopped: list[bool] = []
        monkeypatch.setattr(member, "IDLE_SECONDS", 0.001)
        monkeypatch.setattr(member, "BUSY_SECONDS", 0.0)
        monkeypatch.setattr(member, "store_samples", self._store)

    def _store(self, _who: str, _here: Path, _location: str, stopped: Callable[[], bool]) -> None:
        while self.polled < 5 and not stopped():
            time.sleep(0.001)
        self.stopped.append(stopped())
        if self._failure is not None:
            raise self._failure

    def idle(self) -> None:
        self.polled += 1


def test_connections_and_controller_are_kept_alive_while_samples_are_stored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Signs are sent only while there is progress."""
    sent: list[WorkerMessage] = []
    storing = Storing(monkeypatch)
    _store_samples(
        Link(sent.append, queue.SimpleQueue(), (0, 0)),
        "worker gw0",
        tmp_path,
        "s3://b",
        storing.idle,
    )
    assert storing.polled >= 5
    assert storing.stopped == [False]
    assert sent and set(sent) == {StoresSamples((0, 0))}


def test_a_failure_to_store_samples_is_raised(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, link: Link
) -> None:
    storing = Storing(monkeypatch, NoData("the bucket is full"))
    with pytest.raises(NoData, match="the bucket is full"):
        _store_samples(
            Link(lambda _: None, queue.SimpleQueue(), (0, 0)),
            "worker gw0",
            tmp_path,
            "s3://b",
            storing.idle,
        )


def test_storing_stops_when_the_run_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    link: Link,
    inbox: queue.SimpleQueue[ControllerMessage],
) -> None:
    """Another worker may have failed."""
    storing = Storing(monkeypatch)
    storing.polled = -1_000_000
    inbox.put(AbortRun(link.key, NoData("load worker gw1 went down")))
    with pytest.raises(NoData, match="gw1 went down"):
        _store_samples(link, "worker gw0", tmp_path, "s3://b", storing.idle)
    ended = time.monotonic() + 10
    while not storing.stopped and time.monotonic() < ended:
        time.sleep(0.001)
    assert storing.stopped == [True]
