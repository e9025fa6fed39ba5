"""Which earlier run a run is held against: of a file, of a folder, or the newest met one that can be compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report import comparable
from pytest_loadtest.report.find_results import RESULTS, results_below

if TYPE_CHECKING:
    from pytest_loadtest.report.document import Document

LAST_MET = "last-met"
KEPT = 10
"""Runs of ``last-met`` beside whose best each run is held too: beside the newest alone, six steps of 9 % pass a bound of 10 %."""
Identity = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What ``--load-baseline`` names.

    :param find: the baseline of a run, or why there is none. :param force: ``--load-baseline-force``.
    :param earlier: more runs, beside whose best a run must not be certainly worse than its bounds on regression.
    """

    find: Callable[[Document], Document | str]
    force: bool = False
    earlier: Callable[[Document], Sequence[Document]] = lambda _: ()


def identity(document: Document) -> Identity:
    """What makes two documents runs of one thing: test, profile, workload."""
    return document["test"], document["profile"]["name"], document["workload"] or ""


def read_documents(path: Path) -> list[Document]:
    """The document in a file, or all below a folder.

    :raises UsageError: there is none.
    """
    if path.is_dir():
        found = [document for below in results_below(path) if (document := _document(below)) is not None]
        if not found:
            raise UsageError(f"{path}: no {RESULTS} below it; a results folder, a session's or a run's has some")
        return found
    if not path.is_file():
        raise UsageError(f"{path}: no such file or folder")
    one = _document(path)
    if one is None:
        raise UsageError(f"{path}: no results document; write the {RESULTS} of a run, or a folder")
    return [one]


def newest_runs(documents: Iterable[Document]) -> dict[Identity, Document]:
    """Of each test, profile and workload the newest run. Of a search it is the step that has its answer."""
    found: dict[Identity, list[Document]] = {}
    for document in documents:
        found.setdefault(identity(document), []).append(document)
    return {name: max(_answers(runs), key=_started) for name, runs in found.items()}


def baseline_at(path: Path, *, force: bool = False) -> Baseline:
    """The newest run of the same test, profile and workload in a file or folder.

    :raises UsageError: nothing is there.
    """
    known = newest_runs(read_documents(path))
    said = f"no run of this test, profile and workload in the baseline {path}"
    return Baseline(lambda document: known.get(identity(document), said), force)


def last_met(results: Path, session: Path, *, force: bool = False) -> Baseline:
    """The newest met run of the same test, profile and workload that can be compared, in any other session; and the ones before it.

    :param results: the folder of all sessions. :param session: the folder of this one.
    """

    def met(document: Document) -> list[Document]:
        """The runs that were met, the newest first."""
        of_test = Path(document["results"]).parents[2].name  # a test has one name in all sessions
        below = (path for path in sorted(results.glob(f"*/{of_test}/*/*/*/{RESULTS}")) if not path.is_relative_to(session))
        mine = [one for path in below if (one := _document(path)) is not None and identity(one) == identity(document)]
        return sorted((one for one in _answers(mine) if one["verdict"]["outcome"] == "met"), key=_started, reverse=True)

    def like(document: Document, runs: Iterable[Document]) -> list[Document]:
        key = comparable.comparable_key(document)
        return [one for one in runs if comparable.comparable_key(one) == key][:KEPT]

    def find(document: Document) -> Document | str:
        runs = met(document)
        return next(iter(like(document, runs)), None) or _none_met(document, runs, results)

    return Baseline(find, force, lambda document: like(document, met(document))[1:])


def recorded_baseline(earlier: Mapping[str, Any] | None) -> Baseline | None:
    """The baseline that earlier results of the same samples name; None where they name none."""
    comparison = (earlier or {}).get("comparison")
    if not comparison or comparison["baseline"] is None:
        return None
    path = Path(comparison["baseline"]["results"], RESULTS)
    best = [Path(folder, RESULTS) for folder in comparison.get("best", ())]  # older results have none
    known = lambda _: [one for file in best if (one := _document(file)) is not None]  # noqa: E731
    return Baseline(lambda _: _document(path) or f"the baseline {path} is gone", comparison["forced"], known)


def _none_met(document: Document, met: list[Document], results: Path) -> str:
    if not met:
        return f"no run of this test below {results} was met yet: the first one needs a run with --load-baseline none"
    one = comparable.differences(met[0], document)[0]  # what decides comes first, and something does
    return (
        f"no comparable run below {results} was met: {met[0]['results']} is the newest that was, and differs in {one.name}"
        f" ({one.baseline} → {one.now}); a run with --load-baseline none makes a new one"
    )


def _answers(documents: list[Document]) -> list[Document]:
    """Without the steps of searches that are not their answer."""
    return [one for one in documents if one.get("peak") is not None] or documents


def _started(document: Document) -> str:
    return document["started"] or ""


def _document(path: Path) -> Document | None:
    """A results document; None where the file is something else, or half of one."""
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"version", "test", "verdict", "measurements"} <= set(found) else None


def paired_runs(first: Path, second: Path) -> Iterator[tuple[Document | None, Document | None]]:
    """What two files or folders have of the same test, profile and workload; what only one of them has comes with None.

    A file stands for itself: two files are a pair, whatever they are of.

    :raises UsageError: nothing is there.
    """
    before, after = (newest_runs(read_documents(path)) for path in (first, second))
    if first.is_file() and second.is_file():
        yield next(iter(before.values())), next(iter(after.values()))
        return
    for name in dict.fromkeys((*after, *before)):
        yield before.get(name), after.get(name)
