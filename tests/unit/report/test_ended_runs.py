"""The runs of a session that have ended: their documents are read from their files, and their verdicts outlive these."""

from __future__ import annotations

import gc
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from builders.documents import BOTTLENECK, document, stage
from builders.results import put

from pytest_loadtest.report.ci import github_summary, gitlab_metrics, workflow_commands
from pytest_loadtest.report.document import RunDocument, dumps
from pytest_loadtest.report.ended_runs import EndedRuns
from pytest_loadtest.report.terminal import summary_lines
from pytest_loadtest.verdict.slo import Outcome


def written(root: Path, run: RunDocument, **place: str) -> RunDocument:
    """Write a document as a session does; return it with its folder."""
    folder = put(root, run, **place)  # type: ignore[arg-type]
    run = replace(run, results=str(folder))
    (folder / "results.json").write_text(dumps(run), encoding="utf-8")
    return run


STAGED = document(
    parts={"stages": (stage("ramp", {}), stage("plateau", {"endToEndLatency": {"p99": "1ms"}}))}
)


@pytest.mark.parametrize(
    "run", [document({"loss": 0}), replace(document(), bottleneck=BOTTLENECK), STAGED]
)
def test_a_document_is_read_from_its_file_unchanged(tmp_path: Path, run: RunDocument) -> None:
    ended = EndedRuns()
    assert not ended
    ended.add([run := written(tmp_path, run)])
    assert list(ended) == [run]


def test_documents_come_in_the_order_of_their_ends(tmp_path: Path) -> None:
    """Each is of its own folder."""
    ended = EndedRuns()
    runs = [
        written(tmp_path, replace(document(), seed=seed), test=f"test_{9 - seed}")
        for seed in range(3)
    ]
    for run in runs:
        ended.add([run])
    assert [run.seed for run in ended] == [0, 1, 2]
    assert len(ended) == 3


def test_a_deleted_folder_leaves_the_verdict_and_the_cause(tmp_path: Path) -> None:
    """With the findings of stages, in every report of the session."""
    ended = EndedRuns()
    ended.add([run := written(tmp_path, STAGED)])
    shutil.rmtree(run.results)
    (found,) = ended
    cause = f"only the verdict is known, because {run.results}/results.json cannot be read: No such file or directory"
    assert found.notes == (*run.notes, cause)
    assert found.measurements is None
    assert (found.verdict.outcome, found.verdict.reasons) == (
        run.verdict.outcome,
        run.verdict.reasons,
    )
    assert [finding.text for finding in found.verdict.findings] == [
        *(finding.text for finding in run.verdict.findings),
        *(
            f"stage {part.name}: {finding.text}"
            for part in run.stages
            for finding in part.verdict.findings
        ),
    ]
    lines = summary_lines(found)
    assert lines[0].startswith(f"{run.test} · profile smoke · MISSED (2 of ")
    assert f"  note       {cause}" in lines
    assert [line for line in lines if "stage plateau: endToEndLatency.p99" in line]
    assert "only the verdict is known" in github_summary(ended)
    assert 'outcome="missed"' in gitlab_metrics(ended)
    (command,) = workflow_commands(ended, {})
    assert "stage plateau: endToEndLatency.p99" in command


def test_a_file_that_changed_after_the_run_is_not_shown_as_its_result(tmp_path: Path) -> None:
    """The summary agrees with the outcomes of the tests, whatever another program wrote."""
    ended = EndedRuns()
    ended.add([run := written(tmp_path, document())])
    assert run.verdict.outcome is Outcome.MISSED
    put(tmp_path, document({"loss": 0}))
    (found,) = ended
    assert found.verdict.outcome is Outcome.MISSED
    assert (
        found.notes[-1]
        == f"only the verdict is known, because {run.results}/results.json was changed after the run"
    )


def test_a_document_that_could_not_be_written_is_kept(tmp_path: Path) -> None:
    """Neither a missing file nor that of an earlier verdict takes its place."""
    ended = EndedRuns()
    missing = replace(document(), results=str(tmp_path / "none"))
    earlier = written(tmp_path, document({"loss": 0}))
    unwritten = replace(document(), results=earlier.results)
    ended.add([missing, unwritten])
    assert list(ended) == [missing, unwritten]


def test_the_last_document_of_a_folder_counts(tmp_path: Path) -> None:
    """A run that breaks after its verdict is one run, and its file has the later document."""
    ended = EndedRuns()
    ended.add([written(tmp_path, document({"loss": 0}))])
    ended.add([broken := written(tmp_path, document())])
    assert list(ended) == [broken]
    assert list(ended.outcomes().values()) == [(Outcome.MISSED, 1)]


def test_the_outcome_of_a_test_is_that_of_its_last_attempt(tmp_path: Path) -> None:
    """Outcomes need no file."""
    ended = EndedRuns()
    ended.add([written(tmp_path, document())])
    ended.add([run := written(tmp_path, document({"loss": 0}), attempt=2)])  # type: ignore[arg-type]
    shutil.rmtree(tmp_path)
    assert ended.outcomes() == {(run.test, "smoke", ""): (Outcome.MET, 2)}


def test_little_is_kept_of_a_run_however_much_was_measured(tmp_path: Path) -> None:
    """A session may have thousands of runs; the document of an hour has megabytes."""
    many = replace(
        STAGED,
        stages=tuple(replace(STAGED.stages[0], name=f"stage {number}") for number in range(100)),
    )
    many = written(tmp_path, replace(many, bottleneck=BOTTLENECK))
    ended = EndedRuns()
    ended.add([many])
    list(ended)  # fills the caches of modules
    # Threads that earlier tests left may take memory too, but not each time.
    assert min(growth(ended, many) for _ in range(3)) < len(dumps(many)) / 20


def growth(ended: EndedRuns, document: RunDocument) -> int:
    """Return the bytes that stay after a document is added and all are read."""
    tracemalloc.start()
    try:
        ended.add([document])
        list(ended)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after
