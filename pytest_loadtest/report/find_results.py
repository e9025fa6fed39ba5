"""Where results are."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report.document import OUTCOMES, VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.report.document import Document


RESULTS: Final = "results.json"


def results_below(folder: Path) -> list[Path]:
    """Every results document in a folder and below it, in order of path.

    What vanishes meanwhile is passed over: Spark clears its scratch folder, which is among a session's results, when the session ends.
    """
    return sorted(Path(at, RESULTS) for at, _, files in os.walk(folder) if RESULTS in files)


# Which runs there are below folders, as their results documents tell it.

OLDEST: Final = 3
"""Version of results that can be read: those before have other histograms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRun:
    """One workload of one attempt of one test.

    :param session: name of the session's folder. :param attempt: 1 for the first. :param document: what stands for the run; of a search
        the step that it ends with. :param steps: documents of the steps of a search, by number; empty for any other run.
    """

    session: str
    attempt: int
    document: Document
    steps: dict[int, Document]

    @property
    def outcome(self) -> str:
        """As pytest shows it."""
        return str(self.document["verdict"]["outcome"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """:param runs: worst first, then in the order in which they ran. :param unreadable: files that are no results documents, and why."""

    runs: list[ReadRun]
    unreadable: list[str]


def find_runs(folders: Sequence[Path]) -> Found:
    """Every run below the folders; one that is below two of them is there once.

    :param folders: of sessions, of anything above them, or of single runs.
    :raises UsageError: there is none in one of the folders.
    """
    files: dict[Path, None] = {}
    for folder in folders:
        here = results_below(folder.resolve())
        if not here:
            raise UsageError(f"{folder}: no {RESULTS} here or below; a session's folder is .loadtest/SESSION")
        files |= dict.fromkeys(here)
    unreadable: list[str] = []
    by_workload: dict[Path, dict[str, Document]] = {}
    for file in files:
        try:
            by_workload.setdefault(file.parent.parent, {})[file.parent.name] = _read(file)
        except ValueError as error:
            unreadable.append(f"{file}: {error}")
    runs = [_run(workload, documents) for workload, documents in by_workload.items() if documents]
    runs.sort(key=lambda run: (OUTCOMES.index(run.outcome), run.document["started"] or "", run.session, run.document["test"]))
    return Found(runs=runs, unreadable=unreadable)


def _run(workload: Path, documents: dict[str, Document]) -> ReadRun:
    """:param workload: ``…/SESSION/TEST/ATTEMPT/PROFILE``. :param documents: by the name of the folder below."""
    attempt, session = workload.parent.name, workload.parents[2].name if len(workload.parents) > 3 else ""
    steps = {int(name[5:]): document for name, document in documents.items() if name.startswith("step-") and name[5:].isdecimal()}
    return ReadRun(
        session=session, attempt=int(attempt) if attempt.isdecimal() else 1, document=_stands_for([*documents.values()]), steps=steps
    )


def _stands_for(documents: Sequence[Document]) -> Document:
    """That which has the answer of a search; where it broke off, and of any other run, the last one."""
    return next((document for document in documents if document.get("peak") is not None), documents[-1])


def _read(file: Path) -> Document:
    """:raises ValueError: it is no results document that this package knows."""
    try:
        document: Document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be read: {error}") from error
    version = document.get("version") if isinstance(document, dict) else None
    if version not in range(OLDEST, VERSION + 1):
        raise ValueError(f"is no results document of version {OLDEST} to {VERSION}: version {version!r}")
    return document
