"""``compare`` and ``trend`` on the command line: runs beside other runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("baseline", metavar="A", type=Path, help="the baseline: a folder with results below it, or a results.json")
    parser.add_argument("now", metavar="B", type=Path, help="what is held against it")
    parser.add_argument("--force", action="store_true", help="judge what the profiles say of regression also where runs are not comparable")
    parser.add_argument("--json", action="store_true", help="for programs: a list, an entry for each test, profile and workload")


def add_trend(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("history", metavar="FILE", type=Path, help="what --load-history wrote")
    parser.add_argument("--test", metavar="TEXT", default="", help="only tests with this in their node id, or in their profile's name")
    parser.add_argument("--json", action="store_true", help="for programs")


def run_compare(options: argparse.Namespace) -> list[str]:
    """Print the comparison; the outcomes of what the profiles say of regression, *no data* where nothing is a pair."""
    from pytest_loadtest.commands.compare import compare, in_json, in_words

    found = compare(options.baseline, options.now, force=options.force)
    print(in_json(found) if options.json else "\n".join(in_words(found, unicode=unicode())), flush=True)
    paired = any(one.section is not None for one in found)
    return [outcome for one in found for outcome in one.outcomes] if paired else ["no data"]


def run_trend(options: argparse.Namespace) -> int:
    """Print the trend; always 0."""
    from pytest_loadtest.commands.trend import in_json, in_words, series

    found = series(options.history, options.test)
    print(in_json(found) if options.json else "\n".join(in_words(found, unicode=unicode())), flush=True)
    return 0


def unicode() -> bool:
    """Whether what reads our output can show more than ASCII."""
    return (sys.stdout.encoding or "").lower().startswith("utf")
