"""Samples that move when a phase is over: through the channel, to a location, or not at all."""

from __future__ import annotations

import queue
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet import sample_transfer
from pytest_loadtest.fleet.host_clocks import HostClock
from pytest_loadtest.fleet.link import Link
from pytest_loadtest.fleet.messages import (
    AbortRun,
    SamplePart,
    StoresSamples,
)
from pytest_loadtest.fleet.sample_transfer import SampleTransfer, _store_samples
from pytest_loadtest.metrics.clocks import ClockLine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_loadtest.fleet.messages import ControllerMessage, WorkerMessage


class Storing:
    """A store that is busy until the drivers were polled often enough."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failure: Exception | None = None) -> None:
        self.polled, self._failure = 0, failure
        self.stopped: list[bool] = []
        monkeypatch.setattr(sample_transfer, "IDLE_SECONDS", 0.001)
        monkeypatch.setattr(sample_transfer, "BUSY_SECONDS", 0.0)
        monkeypatch.setattr(sample_transfer, "store_samples", self._store)

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
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another worker may have failed."""
    inbox: queue.SimpleQueue[ControllerMessage] = queue.SimpleQueue()
    link = Link(lambda _: None, inbox, (0, 0))
    storing = Storing(monkeypatch)
    storing.polled = -1_000_000
    inbox.put(AbortRun(link.key, NoData("load worker gw1 went down")))
    with pytest.raises(NoData, match="gw1 went down"):
        _store_samples(link, "worker gw0", tmp_path, "s3://b", storing.idle)
    ended = time.monotonic() + 10
    while not storing.stopped and time.monotonic() < ended:
        time.sleep(0.001)
    assert storing.stopped == [True]


def transfer(worker: str = "gw0", *, is_away: bool = False) -> SampleTransfer:
    line = ClockLine(at=0, offset=0)
    return SampleTransfer(worker, HostClock(line) if is_away else time.monotonic_ns)


def phase(folder: Path, *, is_away: bool = False, samples: str | None = None) -> Any:
    line = ClockLine(at=0, offset=0) if is_away else None
    return SimpleNamespace(clock=line, samples=samples, folder=folder)


def test_samples_on_the_host_of_the_controller_stay_in_the_folder_of_the_run(
    tmp_path: Path,
) -> None:
    moving = transfer()
    assert moving.folder(phase(tmp_path), tmp_path) == tmp_path
    (tmp_path / "a").write_text("1")
    moving.move(Link(lambda _: None, queue.SimpleQueue(), (0, 0)), lambda: None)
    moving.abandon()
    assert (tmp_path / "a").read_text() == "1"


def test_samples_of_another_host_are_sent_with_the_manifest_last(tmp_path: Path) -> None:
    sent: list[WorkerMessage] = []
    moving = transfer(is_away=True)
    here = moving.folder(phase(tmp_path, is_away=True), tmp_path)
    (here / "sent").mkdir(parents=True)
    (here / "a.manifest.json").write_text("{}")
    (here / "sent" / "b").write_text("1")
    moving.move(Link(sent.append, queue.SimpleQueue(), (0, 0)), lambda: None)
    targets = [message.target for message in sent if isinstance(message, SamplePart)]
    assert targets == [tmp_path / "sent" / "b", tmp_path / "a.manifest.json"]
    assert not here.exists()


@pytest.mark.parametrize("is_away", [False, True])
def test_a_run_that_is_given_up_keeps_only_the_samples_in_its_folder(
    is_away: bool, tmp_path: Path
) -> None:
    """Those on another host cannot be sent any more."""
    moving = transfer(is_away=is_away)
    here = moving.folder(phase(tmp_path, is_away=is_away, samples="s3://b"), tmp_path)
    here.mkdir(exist_ok=True)
    moving.abandon()
    assert here.exists() is not is_away
