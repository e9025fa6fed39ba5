"""Find the earlier run that a run is compared with.

It is in a file, in a folder, or the newest comparable one that was met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report.comparable import comparable_key, differences
from pytest_loadtest.report.document import RunDocument, read_document
from pytest_loadtest.report.find_results import RESULTS, results_below, session_and_attempt
from pytest_loadtest.values.records import immutable
from pytest_loadtest.verdict.slo import Outcome

LAST_MET = "last-met"
KEPT = 10
"""Number of earlier runs, from which the best is a second baseline.

With the newest alone, six steps of 9 % pass a bound of 10 %.
"""
Identity = tuple[str, str, str]


@immutable
class Baseline:
    """The baseline that ``--load-baseline`` names.

    :param find: returns the baseline of a run, or the reason why there is none.
    :param force: ``--load-baseline-force``.
    :param earlier: returns further runs: a run must not be certainly worse than the best of them by
        more than its bounds on regression.
    """

    find: Callable[[RunDocument], RunDocument | str]
    force: bool = False
    earlier: Callable[[RunDocument], Sequence[RunDocument]] = lambda _: ()


def identity(document: RunDocument) -> Identity:
    """Return test, profile and workload: documents with the same are runs of the same thing."""
    return document.test, document.profile.name, document.workload or ""


class StoredRuns(NamedTuple):
    """Documents that were read.

    :param unreadable: a sentence for each file that is none: truncated, or of another version.
    """

    documents: list[RunDocument]
    unreadable: list[str]


def read_documents(path: Path) -> StoredRuns:
    """Read the document in a file, or all below a folder.

    :raises UsageError: there is none.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    stored = StoredRuns([], [])
    for file in results_below(path) if path.is_dir() else [path]:
        try:
            stored.documents.append(read_document(file))
        except ValueError as error:
            stored.unreadable.append(f"{file} {error}")
    if not stored.documents:
        what = stored.unreadable[0] if stored.unreadable else f"{path}: no {RESULTS} below it"
        remedy = f"write the {RESULTS} of a run, or the folder of a session or a run"
        raise UsageError(f"{what}; {remedy}")
    return stored


def newest_runs(documents: Iterable[RunDocument]) -> dict[Identity, RunDocument]:
    """Return the newest run of each test, profile and workload.

    For a search it is the step that has its answer.
    """
    groups: dict[Identity, list[RunDocument]] = {}
    for document in documents:
        groups.setdefault(identity(document), []).append(document)
    return {name: max(_answers(runs), key=_started) for name, runs in groups.items()}


def last_runs(documents: Iterable[RunDocument]) -> dict[Identity, RunDocument]:
    """Return the last run of each test, profile and workload, also if it never began.

    For a search it is the step that has its answer, or without an answer its last step.
    """
    steps: dict[Identity, dict[Path, list[RunDocument]]] = {}
    for document in documents:
        runs = steps.setdefault(identity(document), {})
        runs.setdefault(Path(document.results).parent, []).append(document)
    last = {}
    for name, runs in steps.items():
        of_run = runs[max(runs, key=session_and_attempt)]
        last[name] = max(_answers(of_run), key=_started)
    return last


def baseline_at(path: Path, *, force: bool = False) -> Baseline:
    """Return the newest run of the same test, profile and workload in a file or folder.

    :raises UsageError: nothing is there.
    """
    stored = read_documents(path)
    runs = newest_runs(stored.documents)
    missing = f"no run of this test, profile and workload in the baseline {path}"
    if stored.unreadable:
        missing += f"; {stored.unreadable[0]}"
    return Baseline(lambda document: runs.get(identity(document), missing), force)


def last_met(results: Path, session: Path, *, force: bool = False) -> Baseline:
    """Return the newest comparable run that was met, and those before it.

    They are of the same test, profile and workload in any other session.

    :param results: the folder of all sessions. :param session: the folder of this one.
    """

    def met(document: RunDocument) -> Iterator[RunDocument]:
        """Yield the runs that were met, the newest first.

        Documents can be large, so one session's are read at a time.
        """
        # A test has one name in all sessions, and their names sort by time.
        of_test = Path(document.results).parents[2].name
        for folder in sorted(results.glob(f"*/{of_test}"), reverse=True):
            if folder.is_relative_to(session):
                continue
            runs = _readable(sorted(folder.glob(f"*/*/*/{RESULTS}")))
            answers = _answers([run for run in runs if identity(run) == identity(document)])
            for run in sorted(answers, key=_started, reverse=True):
                if run.verdict.outcome is Outcome.MET:
                    yield run

    def comparable(document: RunDocument) -> Iterator[RunDocument]:
        key = comparable_key(document)
        return islice((run for run in met(document) if comparable_key(run) == key), KEPT)

    def find(document: RunDocument) -> RunDocument | str:
        newest = next(comparable(document), None)
        return newest or _none_met(document, next(met(document), None), results)

    return Baseline(find, force, lambda document: [*comparable(document)][1:])


def recorded_baseline(earlier: RunDocument | None) -> Baseline | None:
    """Return the baseline that earlier results of the same samples were compared with.

    If it was not found then, it is not found again. None if no baseline was asked for.
    """
    comparison = None if earlier is None else earlier.comparison
    if comparison is None:
        return None
    if comparison.baseline is None:
        why = "; ".join(comparison.notes)
        return Baseline(lambda _: why, comparison.forced)
    path = Path(comparison.baseline.results, RESULTS)
    best = [Path(folder, RESULTS) for folder in comparison.best]
    return Baseline(
        lambda _: _document(path) or f"the baseline {path} is gone",
        comparison.forced,
        lambda _: _readable(best),
    )


def _none_met(document: RunDocument, newest: RunDocument | None, results: Path) -> str:
    if newest is None:
        remedy = "make one run with --load-baseline none first"
        return f"no run of this test below {results} was met yet: {remedy}"
    # Deciding facts come first, and at least one of them differs.
    first, *_ = differences(newest, document)
    change = f"{first.name} ({first.baseline} → {first.now})"
    return (
        f"no comparable run below {results} was met: {newest.results} is the newest that was,"
        f" and differs in {change}; a run with --load-baseline none makes a new one"
    )


def _answers(documents: list[RunDocument]) -> list[RunDocument]:
    """Leave out the steps of searches that do not have the answer."""
    return [document for document in documents if document.peak is not None] or documents


def _started(document: RunDocument) -> str:
    return document.started or ""


def _readable(paths: Iterable[Path]) -> list[RunDocument]:
    """Read these results documents, but those that are something else, or incomplete."""
    return list(filter(None, map(_document, paths)))


def _document(path: Path) -> RunDocument | None:
    """Read a results document; None if the file is something else, or incomplete."""
    try:
        return read_document(path)
    except ValueError:
        return None


def paired_runs(
    first: StoredRuns, second: StoredRuns, *, files: bool
) -> Iterator[tuple[RunDocument | None, RunDocument | None]]:
    """Pair runs by test, profile and workload; a run on one side alone has None as partner.

    :param files: both sides are single files, which are always a pair, whatever their runs are.
    """
    if files:
        yield first.documents[0], second.documents[0]
        return
    before = newest_runs(first.documents)
    after = last_runs(second.documents)
    for name in dict.fromkeys((*after, *before)):
        yield before.get(name), after.get(name)
