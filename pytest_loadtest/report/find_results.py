"""Find the runs below folders by their results documents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report.document import OUTCOMES, RunDocument, read_document
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.verdict.slo import Outcome


RESULTS: Final = "results.json"


def results_below(folder: Path) -> list[Path]:
    """Return every results document in a folder and below it, in order of path.

    Folders that vanish during the search are ignored: Spark clears its scratch folder, which is
    among a session's results, when the session ends.
    """
    return sorted(Path(at, RESULTS) for at, _, files in os.walk(folder) if RESULTS in files)


@record
class ReadRun:
    """One workload of one attempt of one test.

    :param session: name of the session's folder. :param attempt: 1 for the first.
    :param document: the run's document; for a search that of the step with its answer.
    :param steps: documents of the steps of a search by number; empty for any other run.
    """

    session: str
    attempt: int
    document: RunDocument
    steps: dict[int, RunDocument]

    @property
    def outcome(self) -> Outcome:
        """The outcome of the run."""
        return self.document.verdict.outcome


@record
class ResultSet:
    """The runs that were found.

    :param runs: worst first, then in the order in which they ran.
    :param unreadable: files that cannot be read, each with the reason.
    """

    runs: list[ReadRun]
    unreadable: list[str]


def find_runs(folders: Sequence[Path]) -> ResultSet:
    """Find every run below the folders; a run that is below two of them is returned once.

    :param folders: of sessions, of anything above them, or of single runs.
    :raises UsageError: one of the folders has no run.
    """
    files: dict[Path, None] = {}
    for folder in folders:
        here = results_below(folder.resolve())
        if not here:
            raise UsageError(
                f"{folder}: no {RESULTS} here or below; a session's folder is .loadtest/SESSION"
            )
        files |= dict.fromkeys(here)
    unreadable = []
    by_workload: dict[Path, dict[str, RunDocument]] = {}
    for file in files:
        try:
            by_workload.setdefault(file.parent.parent, {})[file.parent.name] = read_document(file)
        except ValueError as error:
            unreadable.append(f"{file}: {error}")
    runs = [_run(workload, documents) for workload, documents in by_workload.items() if documents]
    runs.sort(key=_place)
    return ResultSet(runs=runs, unreadable=unreadable)


def _place(run: ReadRun) -> tuple[int, str, str, str]:
    document = run.document
    return OUTCOMES.index(run.outcome), document.started or "", run.session, document.test


def session_and_attempt(workload: Path) -> tuple[str, int]:
    """Return session and attempt of a folder ``SESSION/TEST/ATTEMPT/PROFILE``.

    They sort the folders of one test by time.
    """
    *_, session, _, attempt, _ = ("", "", "", *workload.parts)
    return session, int(attempt) if attempt.isdecimal() else 1


def _run(workload: Path, documents: dict[str, RunDocument]) -> ReadRun:
    """Return one workload.

    :param workload: ``…/SESSION/TEST/ATTEMPT/PROFILE``.
    :param documents: by the name of the folder below it.
    """
    steps = {}
    # The last document of a search that broke off, and of any other run.
    *_, whole = documents.values()
    for name, document in documents.items():
        number = name.removeprefix("step-")
        if number != name and number.isdecimal():
            steps[int(number)] = document
        else:
            # A search that broke off between two steps, e.g. in a warm-up, has one besides them.
            whole = document
    for document in documents.values():
        if document.peak is not None:
            # The step with the answer of a search.
            whole = document
            break
    session, attempt = session_and_attempt(workload)
    return ReadRun(session=session, attempt=attempt, document=whole, steps=steps)
