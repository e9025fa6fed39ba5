"""Spark's answer is the definitions' answer, to the bit, whatever happened to the messages.

What its workers run decides that, and runs here without Java. A real session counts a few shapes, and what has to travel to its workers: stages, and corrections of clocks.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow.parquet as pq
import pytest
from frames_in_process import InProcess
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import (
    PLANNED,
    START,
    by_worker,
    differences,
    empty,
    generate,
    make_recorded,
    make_run,
    make_stages,
    write_run,
)

from pytest_loadtest.errors import NoData
from pytest_loadtest.message.due import Delays
from pytest_loadtest.message.samples import Flag, Status
from pytest_loadtest.metrics import gaps
from pytest_loadtest.metrics.clocks import ClockFit, ClockLine, HostTime, WithinHosts
from pytest_loadtest.metrics.expected import Expected, Recorded
from pytest_loadtest.metrics.measurements import Lost
from pytest_loadtest.metrics.silent import SilentStream
from pytest_loadtest.metrics.stats import measure
from pytest_loadtest.pipeline import bitmaps, executor, first_copies, gap_receipts, read
from pytest_loadtest.pipeline import transforms as T
from pytest_loadtest.pipeline.aggregate import _ask, aggregate, aggregate_with_stages
from pytest_loadtest.pipeline.assemble import _lost
from pytest_loadtest.pipeline.run_file import RunClock, RunFile
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANDOM = Delays(seed=7, least=0, most=3000, wall=1_700_000_000_123_456_789)
RUNS = {
    "one of everything": {},
    "two subscriptions, words begun in the middle": {
        "subscriptions": 2,
        "first": 60,
        "messages": 130,
    },
    "one message each": {"messages": 1},
    "exactly one word": {"messages": 64, "streams": 2, "topics": 1},
    "no acknowledgements, no order": {"publish_acks": False, "ordered": False},
    "more topics than columns": {"streams": 80, "topics": 40, "messages": 20},
    "more messages than lost ranges": {"streams": 1, "topics": 1, "messages": 120_000},
    "no subscriptions": {"subscriptions": 0},
    "a broadcast": {"subscriptions": 64, "messages": 40, "broadcasts": True},
    "broadcasts to an odd number, of several streams": {
        "subscriptions": 150,
        "messages": 10,
        "first": 3,
        "broadcasts": True,
    },
    "broadcasts of more lost ranges than are told": {
        "subscriptions": 999,
        "streams": 3,
        "topics": 3,
        "messages": 70,
        "broadcasts": True,
    },
    "random delays": {"subscriptions": 2, "first": 9, "delays": RANDOM, "ordered": False},
    "delays until one time, none early": {
        "delays": Delays(seed=1, at=SECOND, start=START, wall=3),
        "messages": 200,
    },
    "windows, a last one that is longer, and tenths": {
        "subscriptions": 2,
        "messages": 400,
        "duration": 23 * SECOND + 7,
        "window": 2 * SECOND,
        "drift": True,
    },
    "windows that do not meet the intervals": {
        "messages": 700,
        "first": 9,
        "duration": 41 * SECOND,
        "window": 7 * SECOND,
    },
    "windows of broadcasts": {
        "subscriptions": 70,
        "messages": 30,
        "broadcasts": True,
        "duration": 12 * SECOND,
        "window": SECOND,
        "drift": True,
    },
    "windows of delayed messages": {
        "delays": RANDOM,
        "ordered": False,
        "duration": 30 * SECOND,
        "window": 10 * SECOND,
        "drift": True,
    },
    "windows that nothing is received in": {
        "subscriptions": 0,
        "duration": 5 * SECOND,
        "window": SECOND,
    },
    "drift alone, of a run without acknowledgements": {
        "duration": 40 * SECOND,
        "drift": True,
        "publish_acks": False,
    },
    "a plan with stages": {"planned": PLANNED, "duration": 23 * SECOND + 7, "subscriptions": 2},
    "a window longer than the run": {"window": 3 * SECOND},
    "sequences around 2**31": {"subscriptions": 2, "first": 2**31 - 50},
    "sequences around 2**33": {
        "subscriptions": 2,
        "first": 2**33 - 50,
        "delays": RANDOM,
        "ordered": False,
    },
    "broadcasts of sequences around 2**33": {
        "subscriptions": 70,
        "messages": 30,
        "first": 2**33 - 9,
        "broadcasts": True,
    },
    "two outputs of each message": {"outputs": 2, "subscriptions": 2, "first": 60},
    "a service that chooses": {
        "selective": True,
        "subscriptions": 2,
        "duration": 5 * SECOND,
        "window": SECOND,
    },
    "three outputs, windows and tenths": {
        "outputs": 3,
        "messages": 400,
        "duration": 23 * SECOND + 7,
        "window": 2 * SECOND,
        "drift": True,
    },
    "a stream without messages, and one bucket": {
        "streams": 3,
        "end": np.array([40, 0, 70]),
        "buckets": ("all",),
    },
}


ON_SPARK = ("one of everything", "windows of broadcasts")
"""Shapes that a real session counts too: its rows, its shuffles and its broadcasts."""
MORE_ON_SPARK = ("random delays", "a plan with stages")
"""The same, by slow tests."""
IN_PROCESS = "in process"


@pytest.fixture
def session(request: pytest.FixtureRequest) -> SparkSession:
    """What Spark's workers run, without Java; with the parameter ``spark`` a real session."""
    if getattr(request, "param", IN_PROCESS) == "spark":
        real: SparkSession = request.getfixturevalue("spark")
        return real
    return cast("SparkSession", InProcess())


def assert_agrees(
    session: SparkSession,
    folder: Path,
    run: Expected,
    sent: dict[str, Any],
    received: dict[str, Any],
    **how: int,
) -> None:
    write_run(folder, run, sent, received, **how)
    workers = how.get("workers", 2)
    assert (
        differences(
            aggregate(session, folder),
            measure(*by_worker(run, sent, received, workers), make_recorded(workers)),
        )
        == []
    )


@pytest.mark.parametrize(
    ("session", "shape"),
    [
        *((IN_PROCESS, shape) for shape in RUNS),
        *(("spark", shape) for shape in ON_SPARK),
        *(pytest.param("spark", shape, marks=pytest.mark.slow) for shape in MORE_ON_SPARK),
    ],
    indirect=["session"],
)
def test_any_shape_is_counted_as_it_is_defined(
    session: SparkSession, tmp_path: Path, shape: str
) -> None:
    """Lost, doubled, late, damaged, misplaced, refused, dropped and unanswered messages, clock errors, and rows of other phases."""
    run = make_run(**RUNS[shape])
    assert_agrees(
        session, tmp_path / "run", run, *generate(run, seed=list(RUNS).index(shape)), chunk=100_000
    )


def at_edges(rows: dict[str, Any], run: Expected) -> dict[str, Any]:
    """The rows with half of the messages intended, sent and received at the edges of the phase and its seconds, and beyond."""
    end = run.start + run.duration
    edges = np.array(
        [
            run.start,
            run.start - 1,
            run.start - run.duration,
            end,
            end - 1,
            end + SECOND,
            run.start + SECOND,
            run.start + SECOND - 1,
        ]
    )
    # By the message, so that all of its rows agree.
    own = (rows["seq"] * 5 + rows["stream"]) % (2 * len(edges))
    intended = np.where(own < len(edges), edges[own % len(edges)], rows["intended"])
    later = {
        name: np.where(own % 3 == 0, edges[own % len(edges)], rows[name])
        for name in ("sent", "received")
        if name in rows
    }
    later |= {"sent": np.where(rows["sent"] == 0, 0, later["sent"])} if "sent" in rows else {}
    return rows | {"intended": intended} | later


SHAPES = st.fixed_dictionaries({
    "streams": st.integers(0, 4), "topics": st.integers(1, 3), "subscriptions": st.integers(0, 3), "messages": st.sampled_from([0, 1, 63, 64, 130]),
    "outputs": st.sampled_from([1, 1, 2, 3]), "selective": st.sampled_from([False, False, True]),
    "first": st.sampled_from([0, 1, 64, 2**32 - 20, 2**40]), "duration": st.sampled_from([1, SECOND, 12 * SECOND + 7, 61 * SECOND]),
    "window": st.sampled_from([None, SECOND, 7 * SECOND]), "drift": st.booleans(), "delays": st.sampled_from([None, None, RANDOM]),
    "publish_acks": st.booleans(), "bounds_gaps": st.booleans(), "bounds_throughput": st.booleans(),
    "planned": st.sampled_from([None, PLANNED]),
})  # fmt: skip


@settings(max_examples=15)
@given(
    shape=SHAPES,
    broadcast=st.sampled_from([None, None, 64, 70]),
    seed=st.integers(0, 99),
    again=st.sampled_from([0.0, 0.02, 1.0]),
    few=st.booleans(),
    cells=st.sampled_from([1, 9, gaps.CELLS]),
)
def test_any_run_is_counted_as_it_is_defined(
    tmp_path_factory: pytest.TempPathFactory,
    shape: dict[str, Any],
    broadcast: int | None,
    seed: int,
    again: float,
    few: bool,
    cells: int,
) -> None:
    """What Spark's workers run, without Spark.

    :param few: rows of a task, and of what it keeps before it sends. :param cells: in which delivery gaps are looked for first.
    """
    if broadcast is not None:
        shape |= {
            "subscriptions": broadcast,
            "broadcasts": True,
            "delays": None,
            "outputs": 1,
            "selective": False,
            # Four streams with five messages are already some thousand copies, in many small tasks.
            "messages": min(shape["messages"], 5 if few else 20),
        }
    run = make_run(**shape)
    sent, received = (at_edges(rows, run) for rows in generate(run, seed, again=again))
    stages = make_stages(run, seed) if len(run.first) else {}
    folder = write_run(
        tmp_path_factory.mktemp("run") / "run",
        run,
        sent,
        received,
        workers=3,
        chunk=90,
        stages=stages,
    )
    with pytest.MonkeyPatch.context() as patch:
        for module, name, number in (
            (read, "TASK_ROWS", 200),
            (executor, "BLOCK", 128),
            (executor, "CELLS", 50),
            (first_copies, "CELLS", 50),
            (gap_receipts, "CELLS", 50),
            (gap_receipts, "SLOT_RECEIPTS", 20),
        ):
            patch.setattr(module, name, number if few else getattr(module, name))
        patch.setattr(gaps, "CELLS", cells)
        whole, parts = aggregate_with_stages(cast("SparkSession", InProcess()), folder)
    assert differences(whole, measure(*by_worker(run, sent, received, 3), make_recorded(3))) == []
    for name, found in parts:
        rows, workers = by_worker(stages[name], sent, received, 3), make_recorded(3).workers
        during = tuple(
            worker.during(stages[name].start - run.start, stages[name].duration, run.duration)
            for worker in workers
        )
        assert differences(found, measure(*rows, Recorded(foreign=None, workers=during))) == []


def test_spark_equals_the_definitions_when_it_shuffles(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many rows are read by many tasks."""
    monkeypatch.setattr(read, "TASK_ROWS", 500)
    monkeypatch.setattr(gaps, "CELLS", 8)
    run = make_run(subscriptions=2, first=7, messages=300)
    assert_agrees(spark, tmp_path / "run", run, *generate(run, seed=5), workers=3)


SHUFFLED = (
    "two subscriptions, words begun in the middle",
    "broadcasts to an odd number, of several streams",
    "random delays",
    "windows, a last one that is longer, and tenths",
    "windows of broadcasts",
    "two outputs of each message",
    "three outputs, windows and tenths",
)


@pytest.mark.parametrize("again", [0.01, 1.0])
@pytest.mark.parametrize("shape", SHUFFLED)
def test_first_copies_are_found_wherever_the_others_are(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str, again: float
) -> None:
    """The other copies are in another file, task or worker, read before or after; few deliveries came more than once, or all did."""
    monkeypatch.setattr(read, "TASK_ROWS", 1000)
    run = make_run(**RUNS[shape])
    assert_agrees(
        session, tmp_path / "run", run, *generate(run, seed=7, again=again), workers=3, chunk=400
    )


@pytest.mark.parametrize("shape", SHUFFLED)
def test_first_copies_are_the_same_however_coarse_their_words_and_slots(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    """One range of words for each slot, one word for each slot of rows, and rows that leave a task in small portions."""
    monkeypatch.setattr(read, "TASK_ROWS", 1000)
    monkeypatch.setattr(bitmaps, "RANGES", 1)
    monkeypatch.setattr(first_copies, "ROW_SLOT_BITS", 0)
    monkeypatch.setattr(first_copies, "CELLS", 100)
    monkeypatch.setattr(executor, "BLOCK", 128)
    monkeypatch.setattr(gaps, "CELLS", 8)
    monkeypatch.setattr(gap_receipts, "SLOT_RECEIPTS", 200)
    changed = {}
    if "broadcasts" in RUNS[shape]:
        # Each copy is a group of its own: a few thousand of them are enough.
        changed["messages"] = 4
    run = make_run(**{**RUNS[shape], **changed})
    assert_agrees(
        session, tmp_path / "run", run, *generate(run, seed=8, again=0.05), workers=2, chunk=400
    )


@pytest.mark.parametrize("ranges", [1, bitmaps.RANGES])
@pytest.mark.parametrize("again", [0.0, 0.005, 1.0])
def test_broadcasts_are_complete_with_first_copies(
    session: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    again: float,
    ranges: int,
) -> None:
    """Two in three messages reach all 70 subscriptions; between messages that came again to somebody lie others that did not."""
    monkeypatch.setattr(read, "TASK_ROWS", 1500)
    monkeypatch.setattr(bitmaps, "RANGES", ranges)
    run = make_run(
        streams=3,
        messages=30,
        subscriptions=70,
        broadcasts=True,
        duration=12 * SECOND,
        window=SECOND,
        drift=True,
    )
    sent, once = faultless(run)
    rng = np.random.default_rng(3)
    rows = {name: np.tile(column, 70) for name, column in once.items()}
    rows["subscription"] = np.repeat(np.arange(70), len(once["seq"]))
    times = np.where(rng.random(len(rows["seq"])) < again, rng.integers(2, 4, len(rows["seq"])), 1)
    times[(rows["subscription"] == 69) & (rows["seq"] % 3 == 0)] = 0
    received = {name: np.repeat(column, times) for name, column in rows.items()}
    received["received"] = received["intended"] + rng.lognormal(17, 1, int(times.sum())).astype(
        np.int64
    )
    order = rng.permutation(int(times.sum()))
    received = {name: column[order] for name, column in received.items()}
    assert_agrees(session, tmp_path / "run", run, sent, received, workers=3, chunk=500)
    completion = aggregate(session, tmp_path / "run").latencies["completion"]
    assert completion is not None
    assert completion.n == len(once["seq"]) - int((once["seq"] % 3 == 0).sum())


def test_only_what_came_more_than_once_costs_another_scan(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words are counted again only if the median has changed."""
    scans: list[str] = []
    for scan in (T.file_tables, T.deliveries, T.first_copies, T.gap_receipts):
        monkeypatch.setattr(
            T, scan.__name__, lambda *how, scan=scan: (scans.append(scan.__name__), scan(*how))[1]
        )
    run = make_run(streams=2, messages=50)
    sent, received = faultless(run)
    times = {"once": 1, "twice": np.where(received["seq"] == 7, 2, 1)}
    found = {}
    for name, many in times.items():
        scans.clear()
        aggregate(
            session,
            write_run(
                tmp_path / name,
                run,
                sent,
                {key: np.repeat(column, many) for key, column in received.items()},
            ),
        )
        found[name] = list(scans)
    assert found == {
        "once": ["file_tables", "deliveries"],
        "twice": ["file_tables", "deliveries", "first_copies"],
    }


def test_windows_are_the_same_however_many_read_them(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces of the phase come of many tasks, in parts of their own, and in their order all the same."""
    monkeypatch.setattr(read, "TASK_ROWS", 500)
    run = make_run(subscriptions=2, messages=300, duration=400 * SECOND, window=SECOND, drift=True)
    sent, received = generate(run, seed=6)
    assert_agrees(session, tmp_path / "run", run, sent, received, workers=3)
    windows = aggregate(session, tmp_path / "run").windows
    assert windows is not None
    assert len(windows) == 400
    assert int(windows.offered.sum()) == 4 * 300 + 2


def test_a_stage_has_windows_of_its_own(session: SparkSession, tmp_path: Path) -> None:
    """Their width differs from the run's, and they begin at the stage's start."""
    run = make_run(messages=200, duration=20 * SECOND, window=5 * SECOND)
    sent, received = generate(run, 4)
    stages = {
        name: dataclasses.replace(stage, duration=10 * SECOND, window=2 * SECOND)
        for name, stage in make_stages(run, 4).items()
    }
    whole, parts = aggregate_with_stages(
        session, write_run(tmp_path / "run", run, sent, received, stages=stages)
    )
    assert [
        None if one.windows is None else len(one.windows)
        for one in (whole, *(found for _, found in parts))
    ] == [4, 5, 5, 5]
    for name, found in parts:
        rows = by_worker(stages[name], sent, received)
        workers = make_recorded(2).workers
        during = tuple(
            worker.during(stages[name].start - run.start, stages[name].duration, run.duration)
            for worker in workers
        )
        defined = measure(*rows, Recorded(foreign=None, workers=during))
        assert differences(found.windows, defined.windows) == []


def test_stages_are_runs_of_some_of_the_messages(spark: SparkSession, tmp_path: Path) -> None:
    """Whole and stages, from the same scans: each as the definitions have it. Foreign and damaged heads are of no known stage."""
    run = make_run(subscriptions=2, messages=200, first=30)
    sent, received = generate(run, 4)
    stages = make_stages(run, 4)
    folder = write_run(tmp_path / "run", run, sent, received, stages=stages)
    whole, parts = aggregate_with_stages(spark, folder)
    assert differences(whole, measure(*by_worker(run, sent, received), make_recorded(2))) == []
    expected = tuple(
        measure(
            *by_worker(stage, sent, received),
            Recorded(
                foreign=None,
                workers=tuple(
                    worker.during(stage.start - run.start, stage.duration, run.duration)
                    for worker in make_recorded(2).workers
                ),
            ),
        )
        for stage in stages.values()
    )
    assert {measured.counts.foreign for _, measured in parts} == {None}
    assert len({measured.workers[0].cpu for _, measured in parts}) > 1
    assert differences(tuple(measured for _, measured in parts), expected) == []
    assert [name for name, _ in parts] == ["up", "down", "none"]


def test_a_run_without_stages_has_none(session: SparkSession, tmp_path: Path) -> None:
    """Only the whole is measured."""
    run = make_run(messages=5)
    assert (
        aggregate_with_stages(session, write_run(tmp_path / "run", run, *generate(run, 0)))[1] == ()
    )


@pytest.mark.parametrize("planned", [200_000_000, 2**31 - 1, 2**31, 2**31 + 1, 2**33])
def test_the_last_of_very_many_messages_reach_their_subscriptions(
    session: SparkSession, tmp_path: Path, planned: int
) -> None:
    """Four streams of so many messages and four subscriptions; the samples have a stream's last ten, of which subscription 2 lost one."""
    run = make_run(streams=4, topics=1, subscriptions=4, end=np.full(4, planned))
    few = dataclasses.replace(run, first=np.array([planned - 10, *run.end[1:]]))
    sent, received = faultless(few)
    copies = [{**received, "subscription": np.full(10, subscription)} for subscription in range(4)]
    rows = {name: np.concatenate([part[name] for part in copies]) for name in received}
    kept = (rows["subscription"] != 2) | (rows["seq"] != planned - 2)
    folder = write_run(
        tmp_path / "run", run, sent, {name: column[kept] for name, column in rows.items()}
    )
    with T.for_workers():
        (found,) = _ask(session, read.load_run(folder), [run])
    by_subscription = dict.fromkeys(range(4), 0)
    for subscription, count in zip(
        found.deliveries["subscription"].tolist(),
        found.deliveries["received"].tolist(),
        strict=True,
    ):
        by_subscription[subscription] += count
    assert by_subscription == {0: 10, 1: 10, 2: 9, 3: 10}
    assert found.edges is not None
    assert _lost(found.edges) == (
        Lost(topic=0, subscription=2, stream=0, first=planned - 2, last=planned - 2),
    )


def test_a_producer_only_run_has_no_deliveries(session: SparkSession, tmp_path: Path) -> None:
    """Nothing is received, nothing lost, nothing late; what was acked is still known."""
    run = make_run(streams=2, subscriptions=0)
    sent = generate(run, 3)[0]
    assert_agrees(session, tmp_path / "run", run, sent, empty("received"))
    counts = aggregate(session, tmp_path / "run").counts
    assert (counts.received, counts.lost, counts.duplicates, counts.acked > 0) == (0, 0, 0, True)


@pytest.mark.parametrize("messages", [0, 5])
def test_a_run_that_received_nothing_lost_every_acked_message(
    session: SparkSession, tmp_path: Path, messages: int
) -> None:
    """Every acked message is lost, and there is no latency; nor of a run of nothing."""
    run = make_run(messages=messages, streams=2)
    sent = generate(run, 3)[0]
    assert_agrees(session, tmp_path / "run", run, sent, empty("received"))
    assert "end_to_end" not in aggregate(session, tmp_path / "run").latencies


def faultless(run: Expected) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every message acked and received once, in order."""
    sent, _ = generate(run, 0)
    sent = {name: column[sent["seq"] < run.end[sent["stream"]]] for name, column in sent.items()}
    sent |= {
        "status": np.full(len(sent["seq"]), Status.ACKED),
        "acked": sent["intended"] + 5,
        "sent": sent["intended"] + 3,
    }
    received = {
        name: sent[name] for name in ("stream", "topic", "bucket", "size", "seq", "intended")
    }
    nothing = np.zeros(len(sent["seq"]), np.int64)
    received |= {
        "received": sent["intended"] + 9,
        "consumer": nothing,
        "subscription": nothing,
        "flags": nothing,
        "lag": nothing,
    }
    return sent, received


def test_known_faults_are_counted_and_named(session: SparkSession, tmp_path: Path) -> None:
    """Exact sequences of the lost, across words; duplicates; messages late in all their copies."""
    run = make_run(streams=2, topics=2, messages=200)
    sent, received = faultless(run)
    stream, seq = received["stream"], received["seq"]
    lost = (stream == 1) & (np.isin(seq, [0, 63, 64, 200]) | ((seq >= 100) & (seq < 192)))
    copies = np.where(lost, 0, np.where(seq % 50 == 3, 2, 1))
    received = {name: np.repeat(column, copies) for name, column in received.items()}
    received["flags"] = np.where(received["seq"] % 40 == 7, Flag.LATE, 0)
    found = aggregate(session, write_run(tmp_path / "run", run, sent, received))
    ranges = [(0, 0), (63, 64), (100, 191), (200, 200)]
    assert found.lost == tuple(
        Lost(topic=1, subscription=0, stream=1, first=first, last=last) for first, last in ranges
    )
    assert (found.counts.lost, found.counts.duplicates, found.counts.received) == (96, 6, 305)
    assert [(part.offered, part.lost) for part in found.topics] == [(200, 0), (201, 96)]
    assert (
        sum(part.offered for part in found.buckets),
        sum(part.lost for part in found.buckets),
    ) == (401, 96)
    assert found.counts.out_of_order == 5 + 3  # 7 47 87 127 167, of stream 1 without 127 and 167


def test_duplicates_of_resent_messages_are_counted_separately(
    session: SparkSession, tmp_path: Path
) -> None:
    """Some words have both; copies of one message are in several files, and one message came a hundred times."""
    run = make_run(streams=2, topics=2, messages=200)
    sent, received = faultless(run)
    resent = (sent["stream"] == 1) & (sent["seq"] >= 60) & (sent["seq"] < 70)
    sent["resends"] = np.where(resent, 1, 0)
    copies = np.where(
        sent["seq"] == 64, 100, np.where((sent["seq"] > 66) & (sent["seq"] < 80), 2, 1)
    )
    again = {
        name: np.concatenate([column, np.repeat(column, copies - 1)])
        for name, column in received.items()
    }
    assert_agrees(session, tmp_path / "run", run, sent, again, workers=3)
    counts = aggregate(session, tmp_path / "run").counts
    assert (counts.resent, counts.duplicates, counts.duplicates_of_resent) == (
        10,
        2 * 99 + 2 * 13,
        99 + 3,
    )


def test_the_time_before_full_windows_is_exact_beyond_63_bits(
    session: SparkSession, tmp_path: Path
) -> None:
    """A day of 2 million messages a second that waited 60 ms each has more nanoseconds. Here a few messages waited for years."""
    run = make_run(streams=2, messages=40, duration=40 * SECOND)
    sent, received = faultless(run)
    sent |= {"intended": START + sent["seq"] * SECOND, "sent": START + sent["seq"] * SECOND + 1}
    sent["blocked"] = np.full(len(sent["seq"]), 1 << 61)
    assert_agrees(session, tmp_path / "run", run, sent, received)
    assert aggregate(session, tmp_path / "run").blocked == len(sent["seq"]) << 61


def test_a_message_received_but_never_acked_is_not_lost(
    session: SparkSession, tmp_path: Path
) -> None:
    """Its answer went missing, it did not."""
    run = make_run(streams=1, topics=1, messages=70)
    sent, received = faultless(run)
    sent["status"] = np.where(sent["seq"] == 63, Status.UNKNOWN, sent["status"])
    counts = aggregate(session, write_run(tmp_path / "run", run, sent, received)).counts
    assert (counts.unknown, counts.acked, counts.received, counts.lost) == (1, 69, 70, 0)


@pytest.mark.parametrize("fault", ["missing", "twice"])
def test_sent_rows_that_are_not_the_plan_are_no_data(
    session: SparkSession, tmp_path: Path, fault: str
) -> None:
    """A message without a row, and one with two in the place of another."""
    run = make_run(streams=2, messages=100)
    sent, received = faultless(run)
    pick = np.arange(len(sent["seq"]))
    pick = np.delete(pick, 150) if fault == "missing" else np.where(pick == 150, 151, pick)
    folder = write_run(
        tmp_path / "run", run, {name: column[pick] for name, column in sent.items()}, received
    )
    with pytest.raises(NoData, match=r"stream 1 \(gw1\).* of 100 messages, the plan has 101"):
        aggregate(session, folder)


@pytest.mark.parametrize("subscriptions", [2, 100])
def test_samples_of_older_releases_have_no_receive_lag(
    session: SparkSession, tmp_path: Path, subscriptions: int
) -> None:
    """Everything else is as before, and unknown is not 0. 100 subscriptions are stored in broadcast rows."""
    run = make_run(subscriptions=subscriptions, messages=20, broadcasts=subscriptions > 64)
    folder = write_run(tmp_path / "run", run, *generate(run, 3))
    now = aggregate(session, folder).latencies
    for file in (folder / ("broadcast" if run.broadcasts else "received")).iterdir():
        pq.write_table(pq.read_table(file).drop_columns(["lag"]), file)
    before = aggregate(session, folder).latencies
    assert "receive_lag" not in before and now["receive_lag"].n > 0
    assert (
        before.keys() == now.keys() - {"receive_lag"}
        and before["end_to_end"].n == now["end_to_end"].n
    )


def test_a_file_damaged_inside_is_no_data(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its table of contents is whole, its pages are not; nothing but the exception tells of it."""
    run = make_run(streams=2)
    folder = write_run(tmp_path / "run", run, *generate(run, 0))
    file = folder / "received" / "gw0-000001.parquet"
    content = file.read_bytes()
    file.write_bytes(content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :])
    with pytest.raises(NoData, match="gw0-000001.parquet"):
        aggregate(spark, folder)
    assert capfd.readouterr() == ("", "")


def test_any_folder_name_will_do(spark: SparkSession, tmp_path: Path) -> None:
    """Characters that Spark would read as a pattern; and a file that a killed worker was writing is ignored."""
    run = make_run(streams=1)
    sent, received = generate(run, 2)
    folder = tmp_path / "test_x[1-{a}] 100% *? é#"
    assert_agrees(spark, folder, run, sent, received, workers=1)
    (folder / "sent" / ".gw0-000009.parquet.tmp").write_bytes(b"half")
    assert aggregate(spark, folder).counts.offered == 100


@pytest.mark.parametrize("broadcasts", [False, True])
def test_silent_subscriptions_and_streams_are_named(
    session: SparkSession, tmp_path: Path, broadcasts: bool
) -> None:
    """One of which a subscription got nothing, and a topic of which nobody did."""
    run = make_run(streams=6, topics=3, subscriptions=70, messages=20, broadcasts=broadcasts)
    sent, one = faultless(run)
    received = {name: np.tile(column, run.subscriptions) for name, column in one.items()}
    received["subscription"] = np.repeat(np.arange(run.subscriptions), len(one["seq"]))
    came = (
        (received["topic"] != 1)
        & ~((received["topic"] == 2) & (received["subscription"] == 65))
        & (received["stream"] != 5)
    )
    received = {name: column[came] for name, column in received.items()}
    assert_agrees(session, tmp_path / "run", run, sent, received, chunk=5000)
    found = aggregate(session, tmp_path / "run").silent
    assert found is not None
    assert (found.pairs, found.pairs_due, found.streams, found.streams_due) == (71, 210, 3, 6)
    assert found.first_streams == (SilentStream(1, 1), SilentStream(4, 1), SilentStream(5, 2))


@pytest.mark.parametrize("broadcasts", [False, True])
def test_samples_of_another_host_are_measured_in_the_controllers_clock(
    spark: SparkSession, tmp_path: Path, broadcasts: bool
) -> None:
    """One worker stamped 40 ms ahead and with a drift of 50 ppm; the better line of ``run.json`` undoes it, within 1 ns of rounding."""
    run = make_run(broadcasts=broadcasts)
    sent, received = faultless(run)
    used = ClockLine(at=START, offset=100 * SECOND)
    better = ClockLine(at=START, offset=100 * SECOND + 40 * MILLISECOND, drift=50e-6)

    def stamp(times: Any) -> Any:
        """Return the worker's times for these instants of the controller's clock."""
        hosts = START + (times - START + better.offset) / (1 - better.drift)
        return np.where(times == 0, 0, np.rint(hosts).astype(np.int64) - used.offset)

    here = aggregate(spark, write_run(tmp_path / "here", run, sent, received))
    gw1 = {"sent": sent["stream"] % 2 == 1, "received": np.arange(len(received["seq"])) % 2 == 1}
    for rows, kind, columns in (
        (sent, "sent", ("sent", "acked")),
        (received, "received", ("received",)),
    ):
        rows |= {name: np.where(gw1[kind], stamp(rows[name]), rows[name]) for name in columns}
    folder = write_run(tmp_path / "there", run, sent, received)
    fit = ClockFit(line=better, error=30_000, round_trip=60_000, exchanges=80, holds=True)
    dataclasses.replace(
        RunFile.read(folder), clocks=(RunClock(worker="gw1", host="h1", used=used, fit=fit),)
    ).write(folder)
    there = aggregate(spark, folder)
    assert there.counts == here.counts
    assert there.within_hosts is not None and not there.within_hosts.complete
    assert (there.clock_error, here.clock_error) == (30_000, 0)
    for name, latency in here.latencies.items():
        assert abs(there.latencies[name].maximum - latency.maximum) <= 1
        assert abs(there.latencies[name].minimum - latency.minimum) <= 1


CLOCK = RunClock(
    worker="gw1", host="h1", used=ClockLine(at=START, offset=0),
    fit=ClockFit(line=ClockLine(at=START, offset=3), error=30_000, round_trip=60_000, exchanges=80, holds=True),
)  # fmt: skip


@pytest.mark.parametrize("shape", SHUFFLED)
def test_deliveries_within_hosts_are_counted_by_first_copies(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    """One of three workers is on another host. Copies of a delivery come on both hosts, some at the same instant."""
    monkeypatch.setattr(read, "TASK_ROWS", 1000)
    run = make_run(**RUNS[shape])
    sent, received = generate(run, seed=9, again=0.5)
    folder = write_run(tmp_path / "run", run, sent, received, workers=3, chunk=400)
    same = dataclasses.replace(
        CLOCK, fit=dataclasses.replace(CLOCK.fit, line=CLOCK.used)
    )  # a correction by nothing
    dataclasses.replace(RunFile.read(folder), clocks=(same,)).write(folder)
    # The rows are dealt to the workers by turns, the streams too.
    hosts = {"host": (np.arange(len(received["seq"])) % 3 == 1).astype(np.int64)}
    expected = dataclasses.replace(
        run, stream_hosts=(np.arange(len(run.first)) % 3 == 1).astype(np.int64)
    )
    clocks = (HostTime(host="h1", error=30_000, round_trip=60_000, holds=True),)
    defined = measure(
        *by_worker(expected, sent, received | hosts, 3),
        dataclasses.replace(make_recorded(3), clocks=clocks),
    )
    assert differences(aggregate(session, folder), defined) == []
    assert defined.within_hosts is not None
    assert 0 < defined.within_hosts.deliveries < defined.counts.received


@pytest.mark.parametrize("broadcasts", [False, True])
def test_times_within_one_host_stay_as_they_were_stamped(
    session: SparkSession, tmp_path: Path, broadcasts: bool
) -> None:
    """All workers are on one host, whose line was wrong by 3 ns: no latency has this error, or any."""
    run = make_run(broadcasts=broadcasts)
    sent, received = faultless(run)
    folder = write_run(tmp_path / "run", run, sent, received, workers=2)
    here = aggregate(session, folder)
    clocks = tuple(dataclasses.replace(CLOCK, worker=worker) for worker in ("gw0", "gw1"))
    dataclasses.replace(RunFile.read(folder), clocks=clocks, within_hosts=True).write(folder)
    there = aggregate(session, folder)
    assert differences(there.latencies, here.latencies) == []
    assert there.within_hosts == WithinHosts(deliveries=there.counts.received, complete=True)
    assert there.clock_error == 0


def test_deliveries_between_hosts_that_the_plan_does_not_have_are_no_data(
    session: SparkSession, tmp_path: Path
) -> None:
    """Their times were not corrected."""
    run = make_run()
    folder = write_run(tmp_path / "run", run, *faultless(run))
    dataclasses.replace(RunFile.read(folder), clocks=(CLOCK,), within_hosts=True).write(folder)
    with pytest.raises(
        NoData, match="deliveries crossed hosts, but the plan keeps each within one host"
    ):
        aggregate(session, folder)
