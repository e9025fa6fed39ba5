"""One workload at the controller: the sequences of its streams, and the files that describe it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders.plans import loopback, made
from builders.progress import made_progress

from pytest_loadtest import profile as profiles
from pytest_loadtest.drivers.base import DriverFacts
from pytest_loadtest.errors import NoData, TargetError
from pytest_loadtest.fleet.drain import GRACE, QUIET
from pytest_loadtest.fleet.messages import Part, PhaseFinished
from pytest_loadtest.fleet.workload_run import WorkloadRun
from pytest_loadtest.pipeline.run_file import Columns, RunFile
from pytest_loadtest.plan.phases import search_phases
from pytest_loadtest.schedule.changes import Change
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pytest_loadtest.profile import Profile

STAGED = """\
name: p
producersPerTopic: 5
producerRate: {rate}
messageSize: 100
driver: {{name: loopback}}
stages: [{{name: up, duration: 2s}}, {{name: more, duration: 2s, rate: {more}}}, {{name: down, duration: 2s}}]
"""


def staged(rate: str = "10", more: str = "30") -> Profile:
    return profiles.loads(STAGED.format(rate=rate, more=more), "p.yaml")


def workload_of(profile: Profile, root: Path, workers: int = 3) -> WorkloadRun:
    return WorkloadRun(
        name="", part=Part(profile=profile), plan=made(profile, workers=workers), root=root, nonce=1, test="t", source="p.yaml", run="r",
        workers=[f"gw{i}" for i in range(workers)],
    )  # fmt: skip


def reports_of(
    workload: WorkloadRun,
    ends: NDArray[np.int64],
    *marks: tuple[int, NDArray[np.int64]],
    disconnected: tuple[str | None, ...] = (),
    answered: bool = False,
) -> list[PhaseFinished]:
    """Return the reports of all workers, each on its own streams."""
    many = len(workload.workers)
    return [
        PhaseFinished(
            ends=ends[rank::many], marks=tuple((at, column[rank::many]) for at, column in marks),
            disconnected=disconnected[rank] if disconnected else None, answered=answered,
        )
        for rank in range(many)
    ]  # fmt: skip


def written(folder: Path) -> tuple[dict[str, Any], Columns]:
    run = json.loads((folder / "run.json").read_text())
    return run, Columns(folder, run["streams"]["file"], run["streams"]["count"])


def read(columns: Columns, suffix: str = "") -> list[list[int]]:
    return [columns.read(name + suffix).tolist() for name in ("first", "end")]


@pytest.mark.parametrize(
    ("output", "consumers", "quiet"),
    [("out", 1, GRACE), ('["out", "others"]', 1, QUIET), ("out", 2, QUIET)],
)
def test_a_drain_waits_for_quiet_where_second_copies_of_a_service_are_not_recognized(
    tmp_path: Path, output: str, consumers: int, quiet: int
) -> None:
    """They look like first ones on another topic, and at another consumer: as many copies as were due may hide a missing one."""
    document = f"""\
name: p
producerRate: 10
messageSize: 100
testDuration: 2s
consumerPerSubscription: {consumers}
route: {{input: in, output: {output}}}
driver: {{name: mqtt}}
"""
    workload = workload_of(profiles.loads(document, "p.yaml"), tmp_path, workers=1)
    drain = workload.begin(workload.plan.measure, "measure", 0)
    reports = {"a": made_progress(acked=20, received=20)}
    assert not drain.has_ended(reports, 1)
    assert not drain.has_ended(reports, quiet)
    assert drain.has_ended(reports, 1 + quiet)


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_phases_follow_one_another(tmp_path: Path, workers: int) -> None:
    """Each begins at the sequences where the workers ended the one before; recorded phases have files by stream."""
    workload = workload_of(loopback(producers=5, rate=13), tmp_path, workers)
    warmup, measure = workload.plan.phases
    workload.begin(warmup, None, 0)
    workload.end_phase(reports_of(workload, np.array([3, 3, 3, 2, 2])))
    workload.begin(measure, "measure", 0)
    assert workload.current.phase.first.tolist() == [3, 3, 3, 2, 2]
    workload.end_phase(reports_of(workload, np.array([11, 11, 11, 10, 9])))
    run, columns = written(tmp_path / "measure")
    assert (run["version"], run["ended"], run["streams"], run["stages"]) == (
        3,
        True,
        {"count": 5, "file": "streams.npz"},
        [],
    )
    assert read(columns) == [[3, 3, 3, 2, 2], [11, 11, 11, 10, 9]]


def test_columns_are_written_when_the_load_has_come_to_its_end(tmp_path: Path) -> None:
    """They are unknown before, and the start of load does not wait for a file of all streams."""
    workload = workload_of(loopback(producers=5), tmp_path)
    workload.begin(workload.plan.measure, "measure", 0)
    assert {path.name for path in (tmp_path / "measure").iterdir()} == {"run.json"}
    assert "ended" not in written(tmp_path / "measure")[0]
    workload.end_phase(
        reports_of(workload, workload.plan.measure.ends.column() - workload.plan.measure.first)
    )
    assert {path.name for path in (tmp_path / "measure").iterdir()} == {"run.json", "streams.npz"}


def test_a_worker_that_sent_another_number_than_planned_is_no_data(tmp_path: Path) -> None:
    """The error names its stream with both numbers."""
    workload = workload_of(loopback(producers=5, rate=10), tmp_path)
    workload.begin(workload.plan.measure, "measure", 0)
    with pytest.raises(
        NoData, match="7 messages of stream 2 were sent, 6 were planned .internal error."
    ):
        workload.end_phase(reports_of(workload, np.array([6, 6, 7, 6, 7])))
    with pytest.raises(TargetError, match="worker gw1: stream 4"):
        workload.end_phase(
            reports_of(workload, np.array([6, 6, 6, 6, 6]), disconnected=(None, "stream 4", None))
        )


@pytest.mark.parametrize(
    "lost", ["stream 4 (no answer to a ping within keepAlive) and 3 more", "stream 4"]
)
def test_a_target_that_answered_and_fell_silent_is_judged(tmp_path: Path, lost: str) -> None:
    workload = workload_of(loopback(producers=5, rate=10), tmp_path)
    workload.begin(workload.plan.measure, "measure", 0)
    workload.end_phase(
        reports_of(
            workload, np.array([6, 6, 6, 6, 6]), disconnected=(None, lost, None), answered=True
        )
    )
    run, _ = written(tmp_path / "measure")
    assert (
        run["went_away"]
        == f"the target loopback went away and was not back when the drain ended: worker gw1: {lost}"
    )
    workload.begin(workload.plan.measure, "again", 0)
    assert workload.went_away is None


@pytest.mark.parametrize(
    ("folder", "lost", "answered"),
    [
        ("measure", "a (no answer in 10 s)", False),
        ("measure", "a (Connection refused)", True),
        (None, "a (no answer in 10 s)", True),
    ],
)
def test_a_target_that_never_answered_or_ended_is_no_data(
    tmp_path: Path, folder: str | None, lost: str, answered: bool
) -> None:
    """Nor is there anything to judge in a phase without samples."""
    workload = workload_of(loopback(producers=5, rate=10), tmp_path)
    workload.begin(workload.plan.measure, folder, 0)
    with pytest.raises(
        TargetError, match="went away and was not back when the drain ended: worker gw1: a "
    ):
        workload.end_phase(
            reports_of(
                workload,
                np.array([6, 6, 6, 6, 6]),
                disconnected=(None, lost, None),
                answered=answered,
            )
        )


def test_a_changed_rate_changes_the_planned_ends_and_the_offered_rate(tmp_path: Path) -> None:
    workload = workload_of(loopback(producers=5, rate=10), tmp_path)
    workload.begin(workload.plan.measure, "measure", 0)
    workload.current.changes.append(Change(at=SECOND, rate=20.0))
    workload.end_phase(reports_of(workload, np.array([10, 10, 10, 10, 10])))
    assert written(tmp_path / "measure")[0]["rate"] == pytest.approx(50 / 3)


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_stages_have_their_own_columns(tmp_path: Path, workers: int) -> None:
    """Each begins where the one before ended, by the plan's arithmetic."""
    workload = workload_of(staged(), tmp_path, workers)
    workload.begin(workload.plan.measure, "measure", 7)
    workload.end_phase(reports_of(workload, np.array([20, 20, 20, 20, 20])))
    run, columns = written(tmp_path / "measure")
    assert [(s["name"], s["start"], s["duration"], s["rate"]) for s in run["stages"]] == [
        ("up", 7, 2 * SECOND, 10), ("more", 7 + 2 * SECOND, 2 * SECOND, 30), ("down", 7 + 4 * SECOND, 2 * SECOND, 10),
    ]  # fmt: skip
    edges = [[0] * 5, [4] * 5, [16] * 5, [20] * 5]
    assert [read(columns, f"_{i}") for i in range(3)] == [edges[i : i + 2] for i in range(3)]


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_if_bytes_are_paced_stages_begin_at_the_marks_of_the_workers(
    tmp_path: Path, workers: int
) -> None:
    """At the next mark if there is none at the instant; the last mark at an instant counts. The next phase begins at their ends."""
    workload = workload_of(staged("1KB/s", "2KB/s"), tmp_path, workers)
    workload.begin(workload.plan.measure, "measure", 0)
    ends, at_two, at_five = (
        np.array([41, 41, 41, 40, 40]),
        np.array([11, 11, 10, 10, 10]),
        np.array([20, 20, 20, 20, 20]),
    )
    marks = [(0, ends * 0), (2 * SECOND, ends // 9), (5 * SECOND, at_five), (2 * SECOND, at_two)]
    workload.end_phase(reports_of(workload, ends, *marks))
    run, columns = written(tmp_path / "measure")
    edges = [[0] * 5, at_two.tolist(), at_five.tolist(), ends.tolist()]
    assert read(columns) == [edges[0], edges[-1]]
    assert [read(columns, f"_{i}") for i in range(3)] == [edges[i : i + 2] for i in range(3)]
    assert [stage["rate"] for stage in run["stages"]] == [
        (sum(edges[i + 1]) - sum(edges[i])) / 2 for i in range(3)
    ]
    assert run["rate"] == ends.sum() / 6
    workload.begin(workload.plan.measure, None, 0)
    assert workload.current.phase.first.tolist() == ends.tolist()


def test_if_bytes_are_paced_streams_without_their_share_of_the_messages_are_no_data(
    tmp_path: Path,
) -> None:
    """The number of messages depends on the sizes that are drawn, but the streams have them in turn."""
    workload = workload_of(staged("1KB/s", "2KB/s"), tmp_path)
    workload.begin(workload.plan.measure, "measure", 0)
    with pytest.raises(
        NoData, match="40 messages of stream 1 were sent, 41 were planned .internal error."
    ):
        workload.end_phase(reports_of(workload, np.array([41, 40, 39, 44, 38])))


@pytest.mark.parametrize(
    ("at", "stages"),
    [
        (1, [("up", 1, [2] * 5)]),
        (2, [("up", 2, [4] * 5)]),
        (3, [("up", 2, [4] * 5), ("more", 1, [10] * 5)]),
    ],
)
def test_a_phase_that_is_ended_early_has_the_stages_that_began(
    tmp_path: Path, at: int, stages: list[tuple[str, int, list[int]]]
) -> None:
    """The last one with its actual length; later ones are left out."""
    workload = workload_of(staged(), tmp_path)
    workload.begin(workload.plan.measure, "measure", 0)
    workload.current.changes.append(Change(at=at * SECOND, end=True))
    workload.end_phase(reports_of(workload, np.array(stages[-1][2])))
    run, columns = written(tmp_path / "measure")
    assert [
        (s["name"], s["duration"] // SECOND, columns.read(f"end_{i}").tolist())
        for i, s in enumerate(run["stages"])
    ] == stages


@pytest.mark.parametrize("workers", [1, 16])
def test_the_document_does_not_grow_with_the_streams(tmp_path: Path, workers: int) -> None:
    sizes = []
    for streams in (1, 300_000):
        workload = workload_of(loopback(topics=streams, rate=1e6), tmp_path / str(streams), workers)
        workload.begin(workload.plan.measure, "measure", 0)
        ends = workload.current.phase.ends.column()
        workload.end_phase(reports_of(workload, ends))
        run, columns = written(workload.root / "measure")
        assert np.array_equal(columns.read("end"), ends)
        sizes.append(len(json.dumps(run)))
    assert sizes[1] < sizes[0] + 200


def test_connection_losses_are_unknown_before_all_workers_have_reported(tmp_path: Path) -> None:
    """A broken run, and a step of a search, do not claim that no connection was lost."""
    workload = workload_of(loopback(), tmp_path)
    facts = DriverFacts(client="c", version="1", losses=0)
    workload.set_driver_facts(facts)
    assert workload.run_file().facts.driver["losses"] is None
    workload.add_worker_facts({"gw0": facts, "gw1": replace(facts, losses=2)})
    assert workload.run_file().facts.driver["losses"] == 2
    assert workload.run_file().facts.driver["forgotten"] is None
    workload.add_worker_facts(
        {"gw0": replace(facts, forgotten=1), "gw1": replace(facts, forgotten=2)}
    )
    assert workload.run_file().facts.driver["forgotten"] == 3
    workload.add_worker_facts({"gw0": replace(facts, losses=None)})
    assert workload.run_file().facts.driver["losses"] is None


def planned_windows(folder: Path) -> list[tuple[str, int, int, float]]:
    """Return stage, start and end in seconds, and amount, of the windows that run.json has."""
    run = RunFile.read(folder)
    assert run.planned is not None
    windows = run.planned.windows(run.duration)
    return [
        (window.stage, window.start // SECOND, window.end // SECOND, round(window.amount, 3))
        for window in windows
    ]


@pytest.mark.parametrize(
    ("rate", "more", "amounts"),
    [("10", "30", [20, 60, 20]), ("1KB/s", "3KB/s", [2048, 6144, 2048])],
)
def test_the_requested_load_is_kept_by_stage(
    tmp_path: Path, rate: str, more: str, amounts: list[int]
) -> None:
    """In messages or bytes, as the rate is."""
    workload = workload_of(staged(rate, more), tmp_path)
    workload.begin(workload.plan.measure, "measure", 7)
    workload.write(ended=True)
    assert planned_windows(tmp_path / "measure") == [
        ("up", 0, 2, amounts[0]),
        ("more", 2, 4, amounts[1]),
        ("down", 4, 6, amounts[2]),
    ]
    planned = RunFile.read(tmp_path / "measure").planned
    assert planned is not None
    assert planned.in_bytes == rate.endswith("B/s")


def test_the_requested_load_has_the_changes_made_while_it_ran(tmp_path: Path) -> None:
    workload = workload_of(loopback(producers=5, rate=10), tmp_path)
    workload.begin(workload.plan.measure, "measure", 0)
    workload.current.changes += [Change(at=SECOND, rate=20.0), Change(at=2 * SECOND, end=True)]
    workload.end_phase(reports_of(workload, np.array([6, 6, 6, 6, 6])))
    assert planned_windows(tmp_path / "measure") == [("", 0, 2, 30.0)]


def test_a_step_of_a_search_has_the_load_of_its_rate(tmp_path: Path) -> None:
    workload = workload_of(loopback(producers=5, rate=10), tmp_path)
    step = search_phases(50.0, in_bytes=None, warmup=0, hold=4 * SECOND, number=1, streams=5)[-1]
    workload.begin(step, "step-01", 0)
    workload.write(ended=True)
    assert planned_windows(tmp_path / "step-01") == [("", 0, 4, 200.0)]


def test_a_run_that_sends_nothing_has_no_requested_load(tmp_path: Path) -> None:
    workload = workload_of(
        profiles.loads(
            "name: p\ntopic: t\nproducersPerTopic: 0\ntestDuration: 2s\ndriver: {name: mqtt}\n",
            "p.yaml",
        ),
        tmp_path,
    )
    workload.begin(workload.plan.measure, "measure", 0)
    workload.write(ended=True)
    assert RunFile.read(tmp_path / "measure").planned is None


def test_the_requested_load_is_written_when_the_load_has_come_to_its_end(tmp_path: Path) -> None:
    """A day's ramp has tens of thousands of pieces, for which the start of load does not wait."""
    workload = workload_of(staged(), tmp_path)
    workload.begin(workload.plan.measure, "measure", 0)
    assert RunFile.read(tmp_path / "measure").planned is None
    workload.write(ended=True)
    assert RunFile.read(tmp_path / "measure").planned is not None
