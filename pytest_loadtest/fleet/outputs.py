"""What a session does with results documents: hold them against a baseline, add them to a history, write them as others want them."""

from __future__ import annotations

import hashlib
import os
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.report.baseline import Baseline


class Outputs:
    """:ivar baseline: what runs are held against; None where nothing was asked for.
    :ivar unwritten: what could not be written, and why, each once: a verdict stands without it.

    :param session: the folder of this session's results.
    :raises UsageError: the baseline is not there.
    """

    def __init__(self, options: Options, session: Path) -> None:
        self._options = options
        self.baseline = _baseline(options, session)
        self.unwritten: list[str] = []

    def measured(self, documents: Sequence[dict[str, Any]]) -> None:
        """A run has its results."""
        self.ended(documents)
        folder = self._options.omb_json
        if folder is not None:
            from pytest_loadtest.report import omb

            for document in documents:
                self._write("--load-omb-json", folder, partial(omb.write_test_result, document, folder))

    def ended(self, documents: Sequence[dict[str, Any]]) -> None:
        """A run has come to its end, be it a broken one."""
        file = self._options.history
        if file is not None and documents:
            from pytest_loadtest.report import history

            self._write(
                "--load-history", file, lambda: history.append_history(file, [history.history_line(document) for document in documents])
            )

    def _write(self, option: str, path: Path, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            said = f"WARNING: {option} {path} cannot be written: {error.strerror or error}"
            self.unwritten += [] if said in self.unwritten else [said]


def _baseline(options: Options, session: Path) -> Baseline | None:
    if options.baseline is None:
        return None
    from pytest_loadtest.report.baseline import LAST_MET, baseline_at, last_met  # loads numpy: a session without a baseline must not

    if options.baseline == LAST_MET:
        return last_met(options.results, session, force=options.baseline_force)
    try:
        return baseline_at(options.root / options.baseline, force=options.baseline_force)
    except UsageError as error:
        raise UsageError(f"{options.baseline_source}: {error}") from None


# Where the results of a session go: ``<results>/<session>/<test>/<attempt>/<workload>/<stage>/``.

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 80


def session_folder(results: Path) -> Path:
    """The folder of this pytest session; its name sorts by time. Not made yet."""
    return results / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def run_folder(session: Path, nodeid: str, attempt: int, workload: str, stage: str = "measure") -> Path:
    """The folder of one stage of one run. Not made yet."""
    return session / safe_name(nodeid) / str(attempt) / safe_name(workload) / stage


def safe_name(text: str) -> str:
    """A folder name that a shell, Spark (to which ``[`` is a glob) and a person can read; a short hash keeps different texts apart."""
    name = _UNSAFE.sub("-", text).strip("-.")
    if name == text and len(name) <= _LONGEST:
        return name
    return f"{name[-_LONGEST:]}-{hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:6]}".lstrip("-.")
