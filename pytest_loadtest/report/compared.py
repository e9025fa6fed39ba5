"""The runs of the same tests in two results folders or documents, compared; as text and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_loadtest.report import baseline
from pytest_loadtest.report.comparison import compare_runs, comparison_lines
from pytest_loadtest.report.document import RunDocument, json_members
from pytest_loadtest.report.sections import mark, scale_of, titled
from pytest_loadtest.values.records import immutable
from pytest_loadtest.verdict.objectives import Slo
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_loadtest.report.verdict_section import ComparisonSection


@immutable
class Compared:
    """One test's two runs.

    :param title: of the test; the name is part of it, and a scaled run says so.
    :param section: None if only one side has the test.
    :param outcomes: of the regression objectives in its profile.
    :param lines: the outcomes as text, or which side has the test.
    :param was: the baseline; None if only the later results have the test. :param now: likewise.
    """

    name: str
    title: str
    section: ComparisonSection | None
    outcomes: tuple[Outcome, ...]
    lines: tuple[str, ...]
    was: RunDocument | None
    now: RunDocument | None

    @property
    def documents(self) -> tuple[RunDocument, ...]:
        """The runs that exist, the baseline first."""
        return tuple(run for run in (self.was, self.now) if run is not None)


def compare_results(
    before: Path, after: Path, *, force: bool = False
) -> tuple[list[Compared], list[str]]:
    """Compare the runs of the same tests in two files or folders.

    A test that only one of them has is listed too.

    :returns: also a sentence for each results document that cannot be read.
    :raises UsageError: there are no results in one of them.
    """
    first = baseline.read_documents(before)
    second = baseline.read_documents(after)
    pairs = baseline.paired_runs(first, second, files=before.is_file() and after.is_file())
    compared = [compare_pair(was, now, force=force) for was, now in pairs]
    return compared, [*first.unreadable, *second.unreadable]


def compare_pair(
    was: RunDocument | None, now: RunDocument | None, *, force: bool = False
) -> Compared:
    """Compare two runs of a test; either may be missing, not both."""
    document = now or was
    assert document is not None
    name = titled(document.test, document.profile.name, document.workload)
    title = _title(document)
    if was is None or now is None:
        side = "the baseline" if now is None else "the later results"
        line = f"only in {side}: {document.results}"
        if not _section(document):
            return Compared(name, title, None, (), (line,), was, now)
        line += "; its bounds on regression cannot be judged"
        return Compared(name, title, None, (Outcome.NO_DATA,), (line,), was, now)
    if baseline.identity(was) != baseline.identity(now):
        title += f", compared with {_title(was)}"
    slo = Slo.read(_section(now))
    if slo.problems:
        unknown = "no data: the bounds on regression are in the grammar of another version"
        section = compare_runs(was, now).section
        return Compared(name, title, section, (Outcome.NO_DATA,), (unknown,), was, now)
    section, findings = compare_runs(was, now, slo.gates, force=force)
    lines = tuple(f"{finding.outcome.value}: {finding.text}" for finding in findings)
    outcomes = tuple(finding.outcome for finding in findings)
    return Compared(name, title, section, outcomes, lines, was, now)


def _title(document: RunDocument) -> str:
    title = titled(document.test, document.profile.name, document.workload)
    return " · ".join(filter(None, (title, scale_of(document).upper())))


def _section(document: RunDocument) -> dict[str, Any]:
    """Return the part of ``slo`` with the bounds on regression; empty if there are none."""
    written = document.profile.document
    slo = written.get("slo") or {}
    if document.scale is not None:
        slo = {**slo, **((written.get("scaled") or {}).get("slo") or {})}
    regression = slo.get("regression")
    return {"regression": regression} if regression else {}


def comparison_text(compared: Sequence[Compared], *, unicode: bool) -> Iterable[str]:
    """Yield the comparisons as lines, in the form of a run's summary."""
    for test in compared:
        yield test.title
        yield from comparison_lines(test.section, unicode=unicode)
        marks = [f"{mark(outcome, unicode)} " for outcome in test.outcomes]
        for sign, line in zip(marks or [""] * len(test.lines), test.lines, strict=True):
            yield f"  {sign}{line}"


def comparison_json(compared: Sequence[Compared]) -> str:
    """Return a JSON list with the section ``comparison`` of each test.

    Null if only one side has the test.
    """
    tests = [
        {"name": test.name, "comparison": test.section, "regression": list(test.lines)}
        for test in compared
    ]
    return json.dumps(tests, indent=1, default=json_members)
