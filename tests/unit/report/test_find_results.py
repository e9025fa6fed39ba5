"""Results documents below folders."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import pytest
from builders.documents import FACTS, PEAK, document
from builders.results import put

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report.build import build_document
from pytest_loadtest.report.find_results import find_runs, results_below
from pytest_loadtest.verdict.slo import Outcome, Verdict


def test_results_documents_are_found_in_order_of_path(tmp_path: Path) -> None:
    """A missing folder has none."""
    for name in ("b/1/results.json", "a/results.json", "a/other.json", "results.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert [str(path.relative_to(tmp_path)) for path in results_below(tmp_path)] == [
        "a/results.json",
        "b/1/results.json",
        "results.json",
    ]
    assert results_below(tmp_path / "none") == []


def test_folders_that_vanish_during_the_search_are_ignored(tmp_path: Path) -> None:
    """Spark removes its folders when the session ends."""
    (tmp_path / "measure").mkdir()
    (tmp_path / "measure" / "results.json").touch()
    done = Event()

    def come_and_go() -> None:
        while not done.is_set():
            for folder in (tmp_path / "spark" / str(number) for number in range(20)):
                folder.mkdir(parents=True, exist_ok=True)
            for folder in (tmp_path / "spark" / str(number) for number in range(20)):
                folder.rmdir()

    thread = Thread(target=come_and_go)
    thread.start()
    try:
        assert all(
            results_below(tmp_path) == [tmp_path / "measure" / "results.json"] for _ in range(200)
        )
    finally:
        done.set()
        thread.join()


LOOSE = {"endToEndLatency": {"p99": "1s"}}
BROKEN = build_document(
    FACTS, Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died",)), None
)


def test_the_worst_run_comes_first(tmp_path: Path) -> None:
    """Runs of several sessions are sorted together; each has its session and attempt."""
    put(tmp_path, document(LOOSE), "met")
    put(tmp_path, document(), "missed", attempt=2)
    put(tmp_path, BROKEN, "broken", session="tuesday")
    found = find_runs([tmp_path])
    assert [(run.outcome, run.session, run.attempt) for run in found.runs] == [
        ("no data", "tuesday", 1),
        ("missed", "monday", 2),
        ("met", "monday", 1),
    ]
    assert found.unreadable == []


def test_workloads_that_ran_together_are_separate_runs(tmp_path: Path) -> None:
    put(tmp_path, document(facts={"workload": "in"}), workload="in")
    put(tmp_path, document(facts={"workload": "out"}), workload="out")
    assert sorted(run.document.workload for run in find_runs([tmp_path]).runs) == ["in", "out"]


def test_a_search_is_one_run(tmp_path: Path) -> None:
    """Its document is that of the step with the answer."""
    put(tmp_path, document(), stage="step-01")
    put(tmp_path, document(LOOSE, parts={"peak": PEAK}), stage="step-02")
    put(tmp_path, document(), stage="step-03")
    (run,) = find_runs([tmp_path]).runs
    assert run.document.peak.rate == PEAK.rate
    assert sorted(run.steps) == [1, 2, 3]


def test_a_search_that_broke_off_has_the_document_of_its_last_step(tmp_path: Path) -> None:
    put(tmp_path, document(LOOSE), stage="step-01")
    put(tmp_path, BROKEN, stage="step-02")
    (run,) = find_runs([tmp_path]).runs
    assert (run.outcome, sorted(run.steps)) == ("no data", [1, 2])


def test_a_search_that_broke_off_between_two_steps_has_the_document_that_says_so(
    tmp_path: Path,
) -> None:
    """A warm-up has no folder: the document is in ``measure``, which sorts before the steps."""
    put(tmp_path, BROKEN)
    put(tmp_path, document(LOOSE), stage="step-01")
    (run,) = find_runs([tmp_path]).runs
    assert (run.outcome, sorted(run.steps)) == ("no data", [1])


def test_a_run_below_two_folders_is_found_once(tmp_path: Path) -> None:
    put(tmp_path, document())
    assert len(find_runs([tmp_path, tmp_path / "monday"]).runs) == 1


def test_a_run_is_found_in_its_own_folder(tmp_path: Path) -> None:
    (run,) = find_runs([put(tmp_path, document())]).runs
    assert run.document.test == FACTS.test


def test_a_folder_without_runs_is_a_usage_error(tmp_path: Path) -> None:
    put(tmp_path, document())
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="a session's folder is"):
            find_runs([tmp_path, folder])


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"version": 99}', '{"version": 2}', '{"version": "3"}', '{"version": null}'],
)
def test_an_unreadable_file_is_named_and_the_others_are_read(tmp_path: Path, text: str) -> None:
    put(tmp_path, document(), "good")
    file = put(tmp_path, document(), "bad") / "results.json"
    file.write_text(text, encoding="utf-8")
    found = find_runs([tmp_path])
    assert len(found.runs) == 1
    (told,) = found.unreadable
    assert told.startswith(f"{file.resolve()}: ")
