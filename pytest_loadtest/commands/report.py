"""``python -m pytest_loadtest report``: make ``report.html`` again.

It is made from the results documents below folders.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.quantities import format_size

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

EXAMPLES = (
    " .loadtest/SESSION\n .loadtest/MONDAY .loadtest/TUESDAY --output both.html\n"
    " .loadtest/SESSION --history history.jsonl"
)
FILE = "report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders",
        metavar="FOLDER",
        type=Path,
        nargs="+",
        help="a session's folder, one above several, or a run's",
    )
    parser.add_argument(
        "--history",
        metavar="FILE",
        type=Path,
        help="a history file: show each test's trend from it",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        help="write the report there (default: report.html in the only folder)",
    )


def rebuild_report(folders: Sequence[Path], output: Path | None, past: Path | None = None) -> str:
    """Write the report again from the stored results. :returns: its path and size as text.

    :raises UsageError: a folder has no results, there are several folders and no ``output``, or the
        file cannot be written.
    """
    from pytest_loadtest.report.html import page

    if output is None and len(folders) > 1:
        raise UsageError("several folders given: name the report with --output FILE")
    file = output or folders[0] / FILE
    try:
        page.write_page(folders, file, past)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error
    return f"{file} written, {format_size(file.stat().st_size)}"
