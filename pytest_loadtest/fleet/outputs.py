"""Outputs of a session other than its own results: the history, files in other tools' formats, the
baseline; and the names of its folders.

Called by the run controller in the threads that end a run. A file that cannot be written never
changes a verdict: it is reported once, at the end of the session.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from functools import partial
from typing import TYPE_CHECKING

from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.report.baseline import Baseline
    from pytest_loadtest.report.document import RunDocument


class Outputs:
    """Writes the outputs.

    :ivar baseline: the earlier results that runs are compared with; None if not requested.
    :ivar unwritten: a warning for each file that could not be written.

    :param session: the folder of this session's results.
    :raises UsageError: the baseline does not exist.
    """

    def __init__(self, options: Options, session: Path) -> None:
        self._options = options
        self.baseline = _baseline(options, session)
        self.unwritten: list[str] = []

    def write_results(self, documents: Sequence[RunDocument]) -> None:
        """Write the results of a run that has a verdict."""
        self.add_to_history(documents)
        folder = self._options.omb_json
        if folder is not None:
            from pytest_loadtest.report import omb

            for document in documents:
                self._write(
                    "--load-omb-json", folder, partial(omb.write_test_result, document, folder)
                )

    def add_to_history(self, documents: Sequence[RunDocument]) -> None:
        """Add a run to the history, broken or not."""
        file = self._options.history
        if file is not None and documents:
            from pytest_loadtest.report import history

            lines = [history.history_line(document) for document in documents]
            self._write("--load-history", file, lambda: history.append_history(file, lines))

    def write_broken(self, folder: Path, write: Callable[[], object]) -> None:
        """Write a part of the results of a run that is given up: a full disk must not hide the
        reason for that.
        """
        self._write("the results in", folder, write)

    def _write(self, option: str, path: Path, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            warning = f"WARNING: {option} {path} cannot be written: {error.strerror or error}"
            self.unwritten += [] if warning in self.unwritten else [warning]


def _baseline(options: Options, session: Path) -> Baseline | None:
    if options.baseline is None:
        return None
    from pytest_loadtest.report.baseline import (
        LAST_MET,
        baseline_at,
        last_met,
    )  # loads numpy: a session without a baseline must not

    if options.baseline == LAST_MET:
        return last_met(options.results, session, force=options.baseline_force)
    try:
        return baseline_at(options.root / options.baseline, force=options.baseline_force)
    except UsageError as error:
        raise UsageError(f"{options.baseline_source}: {error}") from None


def store_part(session: Path, target: Path, part: bytes, *, last: bool) -> None:
    """Write a part of a sample file of another host; the file gets its name when it is whole.

    :param session: the folder of the session's results.
    :raises OSError: it cannot be written.
    """
    if not target.resolve().is_relative_to(session.resolve()):
        raise OSError(f"{target} is outside of {session}")
    aside = target.with_name(f".{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    with aside.open("ab") as stream:
        stream.write(part)
    if last:
        aside.replace(target)


# The results of a session are in ``<results>/<session>/<test>/<attempt>/<workload>/<phase>/``.

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 80


def session_folder(results: Path) -> Path:
    """Return the folder of this pytest session, without creating it; its name sorts by time."""
    return results / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def workload_folder(session: Path, nodeid: str, attempt: int, workload: str) -> Path:
    """Return the folder of one workload of one run, without creating it."""
    return session / safe_name(nodeid) / str(attempt) / safe_name(workload)


def safe_name(text: str) -> str:
    """Return a readable folder name without characters special to a shell or to Spark (where ``[``
    starts a glob).

    A name that had to be changed ends with a short hash, so that different texts have different
    names.
    """
    name = _UNSAFE.sub("-", text).strip("-.")
    if name == text and len(name) <= _LONGEST:
        return name
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:6]
    return f"{name[-_LONGEST:]}-{digest}".lstrip("-.")
