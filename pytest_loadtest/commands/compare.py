"""``compare``: two results folders or documents. ``trend``: the runs in a history file."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report import baseline, history, sections
from pytest_loadtest.report.comparison import compare_runs
from pytest_loadtest.report.document import json_members
from pytest_loadtest.report.sections import mark, titled
from pytest_loadtest.values.wording import counted
from pytest_loadtest.verdict.objectives import Slo

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.verdict_section import ComparisonSection
    from pytest_loadtest.verdict.finding import Outcome
    from pytest_loadtest.verdict.objectives import Objective


@dataclass(frozen=True, slots=True)
class Compared:
    """One test's two runs.

    :param section: None if only one side has the test. :param outcomes: of the regression objectives in its profile.
    :param lines: the outcomes as text, or which side has the test.
    """

    name: str
    section: ComparisonSection | None
    outcomes: tuple[Outcome, ...]
    lines: tuple[str, ...]


def compare_results(before: Path, after: Path, *, force: bool = False) -> list[Compared]:
    """Compare the runs of the same tests in two files or folders; a test that only one has is listed too.

    :raises UsageError: there are no results in one of them.
    """
    return [_pair(was, now, force=force) for was, now in baseline.paired_runs(before, after)]


def _pair(was: RunDocument | None, now: RunDocument | None, *, force: bool) -> Compared:
    if was is None or now is None:
        side, document = ("the baseline", was) if now is None else ("the later results", now)
        assert document is not None
        return Compared(_name(document), None, (), (f"only in {side}: {document.results}",))
    section, findings = compare_runs(was, now, _gates(now), force=force)
    lines = tuple(f"{finding.outcome.value}: {finding.text}" for finding in findings)
    return Compared(_name(now), section, tuple(finding.outcome for finding in findings), lines)


def _gates(document: RunDocument) -> tuple[Objective, ...]:
    """Return the regression objectives of the run's profile; none if another version wrote them in a different grammar."""
    section = document.profile.document.get("slo") or {}
    slo = Slo.read({"regression": section["regression"]} if "regression" in section else {})
    return () if slo.problems else slo.gates


def _name(document: RunDocument) -> str:
    return titled(document.test, document.profile.name, document.workload)


def comparison_text(compared: Sequence[Compared], *, unicode: bool) -> Iterable[str]:
    """Yield the comparisons as lines, in the form of a run's summary."""
    for test in compared:
        yield test.name
        yield from sections.comparison_lines(test.section, unicode=unicode)
        for outcome, line in zip(test.outcomes, test.lines, strict=False):
            yield f"  {mark(outcome, unicode)} {line}"
        if test.section is None:
            yield from (f"  {line}" for line in test.lines)


def comparison_json(compared: Sequence[Compared]) -> str:
    """Return a JSON list with the section ``comparison`` of each test; null if only one side has the test."""
    tests = [{"name": test.name, "comparison": test.section, "regression": list(test.lines)} for test in compared]
    return json.dumps(tests, indent=1, ensure_ascii=False, default=json_members)


def add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("baseline", metavar="A", type=Path, help="the baseline: a folder with results below it, or a results.json")
    parser.add_argument("now", metavar="B", type=Path, help="the later results: a folder or a results.json")
    parser.add_argument("--force", action="store_true", help="judge regression also if the runs are not comparable")
    parser.add_argument("--json", action="store_true", help="print a JSON list with an entry for each test, profile and workload")


def add_trend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("history", metavar="FILE", type=Path, help="the file that --load-history wrote")
    parser.add_argument("--test", metavar="TEXT", default="", help="only tests with this in their node id, or in their profile's name")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_compare(options: argparse.Namespace) -> list[str]:
    """Print the comparison. :returns: the outcomes of the regression objectives; *no data* if no test is in both results."""
    compared = compare_results(options.baseline, options.now, force=options.force)
    print(comparison_json(compared) if options.json else "\n".join(comparison_text(compared, unicode=prints_unicode())), flush=True)
    paired = any(test.section is not None for test in compared)
    return [outcome for test in compared for outcome in test.outcomes] if paired else ["no data"]


def run_trend(options: argparse.Namespace) -> int:
    """Print the trend. :returns: always 0."""
    trend = read_trend(options.history, options.test)
    lines = [json.dumps(trend, indent=1, ensure_ascii=False)] if options.json else history.trend_table(trend, unicode=prints_unicode())
    print("\n".join(lines), flush=True)
    return 0


def prints_unicode() -> bool:
    """Return True if standard output can show more than ASCII."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def read_trend(path: Path, test: str = "") -> list[dict[str, Any]]:
    """Return one trend for each test in a history file. :param test: a part of a node id or of a profile's name.

    :raises UsageError: the file cannot be read, or has no such test.
    """
    lines, wrong = history.read_history(path)
    if wrong:
        print(f"{path}: skipped {counted(wrong, 'line')}: not from a history file, or from a later version", file=sys.stderr)
    matching = [line for line in lines if test in line["test"] or test in line["profile"]]
    if not matching:
        raise UsageError(f"{path} has no run{f' of {test!r}' if test else ''}")
    return history.build_trend(matching)
