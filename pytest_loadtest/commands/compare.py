"""``compare``: two results folders or documents. ``trend``: the runs in a history file."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report import baseline, history
from pytest_loadtest.report.comparison import compare_runs, comparison_lines
from pytest_loadtest.report.document import json_members
from pytest_loadtest.report.sections import mark, scale_of, titled
from pytest_loadtest.values.wording import counted, visible
from pytest_loadtest.verdict.objectives import Slo
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.verdict_section import ComparisonSection


@dataclass(frozen=True, slots=True)
class Compared:
    """One test's two runs.

    :param title: of the test; the name is part of it, and a scaled run says so.
    :param section: None if only one side has the test.
    :param outcomes: of the regression objectives in its profile.
    :param lines: the outcomes as text, or which side has the test.
    """

    name: str
    title: str
    section: ComparisonSection | None
    outcomes: tuple[Outcome, ...]
    lines: tuple[str, ...]


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
    compared = [_pair(was, now, force=force) for was, now in pairs]
    return compared, [*first.unreadable, *second.unreadable]


def _pair(was: RunDocument | None, now: RunDocument | None, *, force: bool) -> Compared:
    document = now or was
    assert document is not None
    name = titled(document.test, document.profile.name, document.workload)
    title = _title(document)
    if was is None or now is None:
        side = "the baseline" if now is None else "the later results"
        line = f"only in {side}: {document.results}"
        if not _section(document):
            return Compared(name, title, None, (), (line,))
        line += "; its bounds on regression cannot be judged"
        return Compared(name, title, None, (Outcome.NO_DATA,), (line,))
    if baseline.identity(was) != baseline.identity(now):
        title += f", compared with {_title(was)}"
    slo = Slo.read(_section(now))
    if slo.problems:
        unknown = "no data: the bounds on regression are in the grammar of another version"
        return Compared(name, title, compare_runs(was, now).section, (Outcome.NO_DATA,), (unknown,))
    section, findings = compare_runs(was, now, slo.gates, force=force)
    lines = tuple(f"{finding.outcome.value}: {finding.text}" for finding in findings)
    outcomes = tuple(finding.outcome for finding in findings)
    return Compared(name, title, section, outcomes, lines)


def _title(document: RunDocument) -> str:
    title = titled(document.test, document.profile.name, document.workload)
    return " · ".join(filter(None, (title, scale_of(document).upper())))


def _section(document: RunDocument) -> dict[str, Any]:
    """Return the part of ``slo`` with the bounds on regression; empty if there are none."""
    regression = (document.profile.document.get("slo") or {}).get("regression")
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
    return json.dumps(tests, indent=1, ensure_ascii=False, default=json_members)


def add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "baseline",
        metavar="A",
        type=Path,
        help="the baseline: a folder with results below it, or a results.json",
    )
    parser.add_argument(
        "now", metavar="B", type=Path, help="the later results: a folder or a results.json"
    )
    parser.add_argument(
        "--force", action="store_true", help="judge regression also if the runs are not comparable"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a JSON list with an entry for each test, profile and workload",
    )


def add_trend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "history", metavar="FILE", type=Path, help="the file that --load-history wrote"
    )
    parser.add_argument(
        "--test",
        metavar="TEXT",
        default="",
        help="only tests with this in their node id, or in their profile's name",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_compare(options: argparse.Namespace) -> list[str]:
    """Print the comparison.

    :returns: the outcomes of the regression objectives; *no data* also if a document cannot be
        read,
    or no test is in both results."""
    compared, unreadable = compare_results(options.baseline, options.now, force=options.force)
    if options.json:
        print(comparison_json(compared), flush=True)
    else:
        lines = comparison_text(compared, unicode=prints_unicode())
        print("\n".join(map(visible, lines)), flush=True)
    problems = list(unreadable)
    if not any(test.section is not None for test in compared):
        problems.append(
            "no test, profile and workload is in both; to compare runs of different ones,"
            " name their results.json files"
        )
    for problem in problems:
        print(problem, file=sys.stderr)
    outcomes: list[str] = [outcome for test in compared for outcome in test.outcomes]
    if problems:
        outcomes.append(Outcome.NO_DATA)
    return outcomes


def run_trend(options: argparse.Namespace) -> int:
    """Print the trend. :returns: always 0."""
    trend = read_trend(options.history, options.test)
    if options.json:
        print(json.dumps(trend, indent=1, ensure_ascii=False), flush=True)
    else:
        table = history.trend_table(trend, unicode=prints_unicode())
        print("\n".join(map(visible, table)), flush=True)
    return 0


def prints_unicode() -> bool:
    """Return True if standard output can show more than ASCII."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def read_trend(path: Path, test: str = "") -> list[dict[str, Any]]:
    """Return one trend for each test in a history file.

    :param test: a part of a node id or of a profile's name.

    :raises UsageError: the file cannot be read, or has no such test.
    """
    lines, wrong = history.read_history(path)
    if wrong:
        print(
            f"{path}: skipped {counted(wrong, 'line')}: not from a history file,"
            " or from a later version",
            file=sys.stderr,
        )
    matching = [line for line in lines if test in line["test"] or test in line["profile"]]
    if not matching:
        wanted = f"run of {test!r}" if test else "run"
        raise UsageError(f"{path} has no {wanted}")
    return history.build_trend(matching)
