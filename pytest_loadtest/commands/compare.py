"""``compare``: two results folders or documents. ``trend``: the runs in a history file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report import history
from pytest_loadtest.report.compared import compare_results, comparison_json, comparison_text
from pytest_loadtest.report.comparison_markdown import comparison_markdown
from pytest_loadtest.values.wording import counted, visible
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    import argparse

EXAMPLES = (
    " .loadtest/SESSION .loadtest/LATER\n release-4.0/results.json results.json --json\n"
    " base/.loadtest .loadtest --markdown"
)


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
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json",
        action="store_true",
        help="print a JSON list with an entry for each test, profile and workload",
    )
    form.add_argument(
        "--markdown",
        action="store_true",
        help="print Markdown for a comment on a pull request, below 60 000 characters",
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
        read, or no test is in both results.
    """
    compared, problems = compare_results(options.baseline, options.now, force=options.force)
    if not any(test.section is not None for test in compared):
        problems.append(
            "no test, profile and workload is in both; to compare runs of different ones,"
            " name their results.json files"
        )
    if options.json:
        print(comparison_json(compared), flush=True)
    elif options.markdown:
        # A reference such as &#8593; is the same in Markdown.
        encoding = _encoding()
        text = comparison_markdown(compared, problems).encode(encoding, "xmlcharrefreplace")
        print(text.decode(encoding), end="", flush=True)
    else:
        lines = comparison_text(compared, unicode=prints_unicode())
        print("\n".join(map(visible, lines)), flush=True)
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
        print(json.dumps(trend, indent=1), flush=True)
    else:
        table = history.trend_table(trend, unicode=prints_unicode())
        print("\n".join(map(visible, table)), flush=True)
    return 0


def prints_unicode() -> bool:
    """Return True if standard output can show more than ASCII."""
    return _encoding().lower().startswith("utf")


def _encoding() -> str:
    """Return the encoding of standard output, which may be closed."""
    return str(getattr(sys.stdout, "encoding", None) or "utf-8")


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
