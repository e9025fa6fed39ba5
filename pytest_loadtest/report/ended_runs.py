"""The runs of a session that have ended.

Reports read their documents from the files of the runs, so that a session keeps little of each. The
file of a run can be lost or changed before the session ends. Its verdict is kept for that case, and
the reports say what happened.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_loadtest.report.baseline import Identity
    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.verdict.slo import Outcome

# A session without load tests makes an object of this class under xdist: the modules of results
# documents are imported on use.


@record
class _EndedRun:
    """A run whose document was written.

    :param kept: the document if its file does not have it; otherwise its verdict alone, as
        compressed JSON.
    """

    identity: Identity
    outcome: Outcome
    file: str
    digest: bytes
    kept: RunDocument | bytes


class EndedRuns:
    """The documents of the runs that have ended, in the order of their ends.

    Several threads may use it.
    """

    def __init__(self) -> None:
        self._runs: dict[str, _EndedRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[RunDocument]:
        """Read one document after the other.

        One whose file is lost or changed has only its verdict, and a note.
        """
        return map(_read, list(self._runs.values()))

    def add(self, documents: Iterable[RunDocument]) -> None:
        """Add documents that were written into their folders.

        One for the folder of an earlier one replaces it, as its file does. A document that could
        not be written, e.g. on a full disk, is kept as it is.
        """
        for document in documents:
            self._runs[document.results] = _ended(document)

    def outcomes(self) -> dict[Identity, tuple[Outcome, int]]:
        """Return the last outcome of each test, profile and workload, and its attempt.

        The folder of a document is ``SESSION/TEST/ATTEMPT/PROFILE/PHASE``.
        """
        runs = list(self._runs.values())
        return {run.identity: (run.outcome, int(Path(run.file).parts[-4])) for run in runs}


def _ended(document: RunDocument) -> _EndedRun:
    from pytest_loadtest.report.baseline import identity
    from pytest_loadtest.report.document import dumps
    from pytest_loadtest.report.find_results import RESULTS

    file = Path(document.results, RESULTS)
    text = dumps(document).encode()
    try:
        is_written = file.read_bytes() == text
    except OSError:
        is_written = False
    kept: RunDocument | bytes = document
    if is_written:
        kept = zlib.compress(dumps(_verdict_alone(document)).encode())
    return _EndedRun(
        identity=identity(document),
        outcome=document.verdict.outcome,
        file=str(file),
        digest=sha256(text).digest(),
        kept=kept,
    )


def _read(run: _EndedRun) -> RunDocument:
    from pytest_loadtest.report.document import parse_document

    if not isinstance(run.kept, bytes):
        return run.kept
    try:
        text = Path(run.file).read_bytes()
    except OSError as error:
        lost = f"cannot be read: {error.strerror or error}"
    else:
        if sha256(text).digest() == run.digest:
            return parse_document(text.decode())
        lost = "was changed after the run"
    verdict = parse_document(zlib.decompress(run.kept).decode())
    note = f"only the verdict is known, because {run.file} {lost}"
    return replace(verdict, notes=(*verdict.notes, note))


def _verdict_alone(document: RunDocument) -> RunDocument:
    """Return the document without its measurements.

    The findings of its stages are among those of the run.
    """
    from pytest_loadtest.report.sections import all_findings

    nothing: dict[str, Any] = dict.fromkeys(
        ("measurements", "backlog", "bottleneck", "timeline", "comparison")
    )
    findings = []
    for prefix, finding in all_findings(document):
        text = prefix + finding.text
        name = prefix + finding.name
        findings.append(replace(finding, name=name, text=text, windows=None, tenths=None))
    verdict = replace(document.verdict, findings=tuple(findings))
    return replace(document, verdict=verdict, stages=(), **nothing)
