"""A load that is not the planned one is found, and one that is never is."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from builders.measurements import Limits, made
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_loadtest.message.payloads import Bucket, PayloadChooser, PayloadPool, build_pool
from pytest_loadtest.metrics.offering import (
    PlannedLoad,
    PlannedSizes,
    PlannedStage,
    PlannedStep,
    count_offers,
    offered_windows,
)
from pytest_loadtest.schedule.pacing import Pacer
from pytest_loadtest.schedule.schedules import ByteSchedule, Drawing, EvenSchedule
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.finding import Outcome
from pytest_loadtest.verdict.offering import offered_otherwise
from pytest_loadtest.verdict.slo import evaluate

FEW_LARGE = ((384, 98), (786_432, 2))
Sent = dict[str, np.ndarray[Any, Any]]


def pool_of(*distributions: tuple[tuple[int, int], ...]) -> PayloadPool:
    made = [
        [Bucket(name=str(size), low=size, high=size + 1, weight=weight) for size, weight in sizes]
        for sizes in distributions
    ]
    return build_pool(
        buckets=made[0], message_size=None, randomized=False, random_ratio=0.0, file_content=None, seed=1, checksum=False, max_size=None,
        more=made[1:],
    )  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A run of one worker. :param steps: ns and rate. :param changes: of the rate while load runs, ns and rate."""

    pool: PayloadPool
    in_bytes: bool
    steps: tuple[tuple[int, float], ...]
    duration: int
    streams: int = 3
    changes: tuple[tuple[int, float], ...] = ()
    stages: tuple[tuple[str, int, int], ...] = ()
    """Name, start and distribution."""

    @property
    def planned(self) -> PlannedLoad:
        load = PlannedLoad(
            in_bytes=self.in_bytes,
            steps=tuple(PlannedStep(length=length, rate=rate) for length, rate in self.steps),
            stages=tuple(PlannedStage(name=name, start=start) for name, start, _ in self.stages),
            sizes=tuple(
                PlannedSizes(at=at, mix=self.pool.mix(of))
                for _, at, of in self.stages or (("", 0, 0),)
            ),
        )
        for at, rate in self.changes:
            load = load.changed(at, rate)
        return load

    def sent(self) -> Sent:
        """Return the messages that the engine's schedule has."""
        everyone = range(self.streams)
        drawing = Drawing(
            PayloadChooser(self.pool, 1, everyone),
            everyone,
            np.zeros(self.streams, np.int64),
            self.pool.sizes,
        )
        pacer = Pacer.through(self.steps, self.streams)
        schedule: ByteSchedule | EvenSchedule = EvenSchedule(pacer, drawing, self.pool.table(0))
        if self.in_bytes:
            schedule = ByteSchedule(pacer, drawing, self.pool.table(0), everyone)
        for _, at, distribution in self.stages:
            schedule.change(at, self.pool.table(distribution))
        for at, rate in self.changes:
            schedule.change(at, None)
            schedule.pacer = schedule.pacer.changed(at, rate)
        due = schedule.due(self.duration - 1)
        if not due:
            return {"intended": np.zeros(0, np.int64), "size": np.zeros(0, np.int64)}
        rows = schedule.rows(0, due)
        return {"intended": rows.time, "size": self.pool.sizes[rows.payload]}

    def evidence(self, sent: Sent) -> list[str]:
        planned = self.planned.windows(self.duration)
        return offered_otherwise(
            offered_windows(self.planned, planned, *count_offers(sent, 0, planned))
        )


IN_BYTES = Run(pool_of(FEW_LARGE), True, ((30 * SECOND, 2.0**20),), 30 * SECOND, streams=200)
IN_MESSAGES = Run(pool_of(FEW_LARGE), False, ((30 * SECOND, 200.0),), 30 * SECOND)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    distribution = st.lists(
        st.tuples(st.integers(32, 20_000), st.integers(1, 100)),
        min_size=1,
        max_size=3,
        unique_by=lambda row: row[0],
    )
    pool = pool_of(tuple(draw(distribution)), tuple(draw(distribution)))
    in_bytes = draw(st.booleans())
    rates = (st.just(0.0) | st.floats(0.001, 300)).map(
        lambda rate: rate * (pool.mean_size if in_bytes else 1)
    )
    lengths = st.integers(1, 15 * SECOND)
    steps = draw(st.lists(st.tuples(lengths, rates), min_size=1, max_size=6))
    whole = sum(length for length, _ in steps)
    starts = sorted({0, *draw(st.lists(st.integers(1, whole), max_size=2))})
    stages = tuple(
        (f"stage {number}", start, draw(st.sampled_from([0, 1])))
        for number, start in enumerate(starts)
    )
    changes = sorted(draw(st.lists(st.tuples(st.integers(0, whole), rates), max_size=2)))
    duration = draw(st.integers(max(1, whole // 3), whole))
    made = Run(pool, in_bytes, tuple(steps), duration, draw(st.integers(1, 20)))
    # a test cannot change the load of a profile with stages
    return (
        replace(made, stages=stages)
        if draw(st.booleans())
        else replace(made, changes=tuple(changes))
    )


@settings(deadline=None)
@given(run=runs())
def test_the_load_of_the_schedules_is_the_planned_one(run: Run) -> None:
    """Whatever its rates, sizes, stages and changes, and also if it is ended early."""
    assert run.evidence(run.sent()) == []


@given(rate=st.floats(0.001, 1e6) | st.floats(9e6, 8e9), hours=st.integers(0, 24))
def test_rounded_rates_are_the_planned_ones(rate: float, hours: int) -> None:
    """Of any size, after any time: only the numbers of messages are computed, not the messages."""
    seconds = hours * 3600 + 30
    load = replace(
        IN_MESSAGES, steps=((seconds * SECOND, rate),), duration=seconds * SECOND
    ).planned
    planned, pacer = load.windows(seconds * SECOND)[-3:], Pacer.of(rate, 1)
    messages = [pacer.total(window.end) - pacer.total(window.start) for window in planned]
    sizes = [round(count * load.sizes[0].mix.mean) for count in messages]
    assert offered_otherwise(offered_windows(load, planned, messages, sizes)) == []


def streams_of_their_own(run: Run) -> Sent:
    """Return what earlier releases sent: each stream follows its own share of the bytes, and begins with a message at once."""
    times, sizes = [], []
    for stream in range(run.streams):
        chooser = PayloadChooser(run.pool, 1, range(stream, stream + 1))
        length = run.pool.sizes[chooser.draw(np.zeros(1000, np.int64), np.arange(1000))].astype(
            np.int64
        )
        begins = (np.cumsum(length) - length) * run.streams + round(stream * run.pool.mean_size)
        times.append(begins * SECOND // round(run.steps[0][1]))
        sizes.append(length)
    intended, size = np.concatenate(times), np.concatenate(sizes)
    due = intended < run.duration
    return {"intended": intended[due], "size": size[due]}


def late(sent: Sent, by: int) -> Sent:
    return {**sent, "intended": sent["intended"] + by}


def twice(sent: Sent) -> Sent:
    return {name: np.repeat(column, 2) for name, column in sent.items()}


def thinned(sent: Sent, *, every: int) -> Sent:
    return {name: column[np.arange(len(column)) % every > 0] for name, column in sent.items()}


def test_streams_with_trains_of_their_own_are_found() -> None:
    (evidence,) = IN_BYTES.evidence(streams_of_their_own(IN_BYTES))
    said = "the generator did not offer the planned load: 1.. MiB instead of 10.0 MiB from 0 s to 10 s, and 2 more windows of 3 differed"
    assert re.fullmatch(said, evidence), evidence


@pytest.mark.parametrize(
    ("run", "sent"),
    [
        (IN_MESSAGES, late(IN_MESSAGES.sent(), SECOND // 50)),
        (IN_BYTES, late(IN_BYTES.sent(), 2 * SECOND)),
        (IN_MESSAGES, twice(IN_MESSAGES.sent())),
        (IN_BYTES, twice(IN_BYTES.sent())),
        (IN_MESSAGES, thinned(IN_MESSAGES.sent(), every=1000)),
        (IN_BYTES, thinned(IN_BYTES.sent(), every=4)),
        (replace(IN_MESSAGES, changes=((15 * SECOND, 300.0),)), IN_MESSAGES.sent()),
        (replace(IN_BYTES, changes=((15 * SECOND, 2.0**21),)), IN_BYTES.sent()),
    ],
    ids=[
        "late",
        "late bytes",
        "twice",
        "twice bytes",
        "gaps",
        "gaps in bytes",
        "a change not made",
        "a change of bytes not made",
    ],
)
def test_a_load_that_is_late_doubled_or_thinned_is_found(run: Run, sent: Sent) -> None:
    assert len(run.evidence(sent)) == 1


def test_messages_of_other_sizes_than_the_planned_ones_are_found() -> None:
    """Sizes that chance cannot explain: here all of them are the small one."""
    run = replace(IN_MESSAGES, steps=((30 * SECOND, 2000.0),))
    sent = run.sent()
    (evidence,) = run.evidence({**sent, "size": np.full_like(sent["size"], 384)})
    assert re.search(
        "7.32 MiB instead of 30. MiB in 20 000 messages from .* and 2 more windows of 3 differed",
        evidence,
    )


def test_the_worst_window_is_named_with_its_stage() -> None:
    run = replace(IN_MESSAGES, stages=(("low", 0, 0), ("high", 20 * SECOND, 0)))
    sent = run.sent()
    kept = sent["intended"] < 25 * SECOND
    evidence = run.evidence({name: column[kept] for name, column in sent.items()})
    expected = "1 000 messages instead of 2 000 from 20 s to 30 s in stage high"
    assert evidence == [f"the generator did not offer the planned load: {expected}"]


def test_another_load_than_the_planned_one_is_generator_limited() -> None:
    """Whatever the objectives say about it, and with both figures in the reason."""
    planned = IN_MESSAGES.planned.windows(IN_MESSAGES.duration)
    windows = offered_windows(
        IN_MESSAGES.planned, planned, *count_offers(twice(IN_MESSAGES.sent()), 0, planned)
    )
    verdict = evaluate([], replace(made(), offering=windows), Limits())
    assert verdict.outcome is Outcome.GENERATOR_LIMITED
    assert "4 000 messages instead of 2 000" in verdict.reasons[0]


def test_a_schedule_that_never_sends_is_found() -> None:
    """Nothing offered is nothing met, and a pause of the plan has nothing to offer."""
    paused = replace(IN_MESSAGES, steps=((10 * SECOND, 0.0), (20 * SECOND, 5.0)))
    none = {name: column[:0] for name, column in paused.sent().items()}
    assert paused.evidence(paused.sent()) == []
    assert len(paused.evidence(none)) == 1
