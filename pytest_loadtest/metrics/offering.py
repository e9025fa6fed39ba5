"""Compares the load that was offered with the planned one, in windows of the measured phase.

A window is ten seconds of a stage; a shorter rest belongs to the window before it, and a stage
shorter than ten seconds is one window. Messages belong to the window of their intended time,
whether they were sent or dropped. The planned amount of a window, in messages or in bytes, is the
integral of the planned rate. It is computed here from the steps of the plan, and not from the
pacing by which workers schedule messages, because otherwise a wrong schedule would agree with
itself.

The controller calls this after the load: it records the plan in the run's folder, and assembles the
counts of Spark's workers, which look up the window of each message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

# not only for types: get_type_hints of run.json looks it up
from pytest_loadtest.message.size_mix import SizeMix  # noqa: TC001
from pytest_loadtest.metrics.time_slices import INTERVAL
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from numpy.typing import NDArray


@record
class PlannedStep:
    """A constant rate.

    :param length: ns.
    :param rate: messages or bytes per second.
    """

    length: int
    rate: float


@record
class PlannedStage:
    """A stage of the plan.

    :param start: ns after the phase's start.
    """

    name: str
    start: int


@record
class PlannedSizes:
    """The sizes of messages from an instant on.

    :param at: ns after the phase's start.
    """

    at: int
    mix: SizeMix


@record
class PlannedLoad:
    """The load that was requested for a phase, with the changes made while it ran.

    :param in_bytes: the rates are in bytes.
    :param steps: one after another; the last one never ends.
    :param stages: ascending; empty without stages.
    :param sizes: ascending, from 0 on.
    """

    in_bytes: bool
    steps: tuple[PlannedStep, ...]
    stages: tuple[PlannedStage, ...] = ()
    sizes: tuple[PlannedSizes, ...]

    def changed(self, at: int, rate: float) -> PlannedLoad:
        """Return the load with another rate from ``at`` on, ns after the phase's start."""
        steps = []
        start = 0
        for number, step in enumerate(self.steps):
            last = number + 1 == len(self.steps)
            length = at - start if last else min(step.length, at - start)
            if length <= 0:
                break
            steps.append(replace(step, length=length))
            start += length
        return replace(self, steps=(*steps, PlannedStep(length=0, rate=rate)))

    def amounts(self, instants: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the integral of the rate from the phase's start to each instant (ns after it), in
        messages or bytes.
        """
        rates = np.array([step.rate for step in self.steps])
        # The last step never ends, so it is cut nowhere. Steps of 2 s, 3 s and no end at 10/s, 20/s
        # and 5/s start at 0 s, 2 s and 5 s, before which 0, 20 and 80 are due.
        lengths = np.array([step.length for step in self.steps[:-1]], np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        before = np.concatenate([[0.0], np.cumsum(rates[:-1] * lengths / SECOND)])
        step = np.searchsorted(starts, instants, side="right") - 1
        within = rates[step] * (instants - starts[step]) / SECOND
        amounts: NDArray[np.float64] = before[step] + within
        return amounts

    def windows(self, duration: int) -> list[PlannedWindow]:
        """Return the windows of a phase, which may have been ended early.

        :param duration: ns.
        """
        stages = [stage for stage in self.stages if stage.start < duration]
        if not stages:
            stages = [PlannedStage(name="", start=0)]
        names: list[str] = []
        edges: list[int] = []
        for stage, after in zip_longest(stages, stages[1:]):
            end = after.start if after else duration
            count = max((end - stage.start) // INTERVAL, 1)
            names += [stage.name] * count
            edges += range(stage.start, stage.start + count * INTERVAL, INTERVAL)
        edges.append(duration)
        amounts = np.diff(self.amounts(np.array(edges, np.int64))).tolist()
        windows = []
        for name, (start, end), amount in zip(names, pairwise(edges), amounts, strict=True):
            mix = self._mix(start, end)
            windows.append(PlannedWindow(stage=name, start=start, end=end, amount=amount, mix=mix))
        return windows

    def _mix(self, start: int, end: int) -> SizeMix | None:
        """Return the sizes from which all messages between two instants are drawn; None if they
        change in between.
        """
        mix = None
        for sizes in self.sizes:
            if start < sizes.at < end:
                return None
            if sizes.at <= start:
                mix = sizes.mix
        return mix

    @property
    def largest(self) -> int:
        """The largest message, bytes."""
        return max((sizes.mix.largest for sizes in self.sizes), default=0)


@record
class PlannedWindow:
    """A window of the plan. Times are ns after the phase's start.

    :param stage: its name; empty without stages.
    :param amount: messages or bytes.
    :param mix: the sizes of its messages; None if they change in it.
    """

    stage: str
    start: int
    end: int
    amount: float
    mix: SizeMix | None


@record
class OfferedWindow:
    """A window of the plan with the messages whose intended times are in it.

    :param in_bytes: the planned amount is in bytes.
    :param largest: message of the run, bytes.
    :param messages: offered.
    :param size: their bytes.
    """

    planned: PlannedWindow
    in_bytes: bool
    largest: int
    messages: int
    size: int


def window_of(intended: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the window of each message; times before the first window belong to it, and those
    after the last to that.

    :param intended: ns after the phase's start.
    :param starts: ``(n,)``, of the windows, ascending.
    """
    return np.maximum(np.searchsorted(starts, intended, side="right") - 1, 0)


def count_offers(
    sent: Mapping[str, NDArray[Any]], start: int, planned: Sequence[PlannedWindow]
) -> tuple[list[int], list[int]]:
    """Return the messages of each window, and their bytes.

    :param sent: ``intended`` and ``size`` of messages that were due.
    """
    if not planned:
        return [], []
    starts = np.array([window.start for window in planned], np.int64)
    window = window_of(sent["intended"] - start, starts)
    size = np.zeros(len(starts), np.int64)
    np.add.at(size, window, sent["size"])
    return np.bincount(window, minlength=len(starts)).tolist(), size.tolist()


def offered_windows(
    load: PlannedLoad | None,
    planned: Sequence[PlannedWindow],
    messages: Sequence[int],
    sizes: Sequence[int],
) -> tuple[OfferedWindow, ...]:
    """Return each window with what was offered in it; none without a plan, as in folders of older
    releases.
    """
    if load is None:
        return ()
    windows = []
    for window, count, size in zip(planned, messages, sizes, strict=True):
        windows.append(
            OfferedWindow(
                planned=window,
                in_bytes=load.in_bytes,
                largest=load.largest,
                messages=count,
                size=size,
            )
        )
    return tuple(windows)
