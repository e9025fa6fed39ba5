"""Makes ``report.html`` again from the results documents below folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.quantities import format_size

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

EXAMPLES = " .loadtest/SESSION\n .loadtest/MONDAY .loadtest/TUESDAY --output both.html\n .loadtest/SESSION --history history.jsonl"
FILE = "report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of the command line."""
    parser.add_argument("folders", metavar="FOLDER", type=Path, nargs="+", help="a session's folder, one above several, or a run's")
    parser.add_argument("--history", metavar="FILE", type=Path, help="show from it how the tests went from run to run")
    parser.add_argument("--output", metavar="FILE", type=Path, help="write it there (default: report.html in the one folder)")


def make(folders: Sequence[Path], output: Path | None, past: Path | None = None) -> str:
    """Write it; what was written, for people.

    :raises UsageError: a folder has no results, it is not said where the report of several goes, or it cannot be written.
    """
    from pytest_loadtest.report.html import page

    if output is None and len(folders) > 1:
        raise UsageError("the report of several folders goes into none of them: write --output FILE")
    file = output or folders[0] / FILE
    try:
        page.write_page(folders, file, past)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from error
    return f"{file} written, {format_size(file.stat().st_size)}"
