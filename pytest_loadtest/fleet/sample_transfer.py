"""The way of a worker's samples from where they are recorded to where they are judged.

Used on every worker, in the thread that drives load, when a phase is over: samples stay in the
run's folder, go to the controller through the channel, or are stored at a location of the user's. A
phase is not over before they have arrived.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_loadtest.engine.sample_store import store_samples
from pytest_loadtest.fleet.host_clocks import HostClock
from pytest_loadtest.fleet.scratch import ScratchFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.drivers.base import Clock
    from pytest_loadtest.fleet.link import Link
    from pytest_loadtest.fleet.messages import StartPhase

    Idle = Callable[[], None]


# While samples are stored: seconds between two polls of the drivers, and between two signs of life
# for the controller.
IDLE_SECONDS = 0.02
BUSY_SECONDS = 1.0


class SampleTransfer:
    """Moves the samples of one workload on one worker.

    :param clock: a :class:`~pytest_loadtest.fleet.host_clocks.HostClock` on another host.
    """

    def __init__(self, worker: str, clock: Clock) -> None:
        self._worker = worker
        self._is_away = isinstance(clock, HostClock)
        # The folder of samples that move when the phase is over, and their target: a folder on the
        # controller's host, or a location.
        self._moving: tuple[Path, Path | str] | None = None
        self._scratch: ScratchFolder | None = None

    def folder(self, phase: StartPhase, folder: Path) -> Path:
        """Return the folder to record in.

        :param folder: the phase's, on the controller's host.
        """
        if phase.clock is not None:
            # The controller's folders are not on this host: samples travel when the phase is over.
            here = self._temporary_folder(stored=phase.samples is not None)
        elif phase.samples is not None:
            here = folder / f"samples-{self._worker}"
        else:
            return folder
        self._moving = (here, phase.samples or folder)
        return here

    def _temporary_folder(self, *, stored: bool) -> Path:
        # Samples that a killed worker would have stored elsewhere are kept for the user; others
        # cannot be used any more.
        if stored:
            return Path(tempfile.mkdtemp(prefix="loadtest-samples-"))
        self._scratch = ScratchFolder("loadtest-unsent-")
        return self._scratch.path

    def move(self, link: Link, idle: Idle) -> None:
        """Move the samples of the phase that is over, if they are not in the run's folder.

        :param idle: polls the worker's drivers meanwhile.
        """
        if self._moving is None:
            return
        here, there = self._moving
        if isinstance(there, Path):
            _send_samples(link, here, there)
        else:
            self._moving = None  # what cannot be stored is kept: the error names its folder
            _store_samples(link, f"worker {self._worker}", here, there, idle)
        self._remove(here)
        self._moving = None

    def abandon(self) -> None:
        """Remove samples that can no longer be sent; those in the run's folder stay."""
        if self._moving is not None and self._is_away:
            self._remove(self._moving[0])

    def _remove(self, here: Path) -> None:
        shutil.rmtree(here, ignore_errors=True)
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None


def _send_samples(link: Link, here: Path, there: Path) -> None:
    """Send the samples of a phase to the controller.

    The manifest is sent last, as it is written last.
    """
    files = sorted(here.rglob("*"), key=lambda file: (file.parent == here, file))
    for file in files:
        if file.is_file():
            link.send_file(file, there / file.relative_to(here))


def _store_samples(link: Link, who: str, here: Path, location: str, idle: Idle) -> None:
    """Store the samples of a phase in a thread; keep connections and the controller alive.

    :raises NoData: they cannot be written.
    """
    stopped = threading.Event()
    progressed = threading.Event()
    failures = []
    last_sign = time.monotonic()

    def is_stopped() -> bool:  # asked before each part
        progressed.set()
        return stopped.is_set()

    def store() -> None:
        try:
            store_samples(who, here, location, is_stopped)
        except BaseException as error:
            failures.append(error)

    # A daemon: an interrupted session does not wait for a store that does not answer.
    storing = threading.Thread(target=store, name="loadtest-samples", daemon=True)
    storing.start()
    try:
        while storing.is_alive():
            storing.join(IDLE_SECONDS)
            idle()
            link.process_messages()
            # Without progress there is no sign, so that the controller does not wait for ever for
            # a disk that hangs.
            if progressed.is_set() and time.monotonic() - last_sign > BUSY_SECONDS:
                progressed.clear()
                last_sign = time.monotonic()
                link.keep_waiting()
    finally:
        stopped.set()
    if failures:
        raise failures[0]
