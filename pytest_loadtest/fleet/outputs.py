"""What a session does with results documents: hold them against a baseline, add them to a history, write them as others want them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.report.baseline import LAST_MET, Baseline, last_met, of_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_loadtest.fleet.options import Options


class Outputs:
    """:ivar baseline: what runs are held against; None where nothing was asked for.

    :param session: the folder of this session's results.
    :raises UsageError: the baseline is not there.
    """

    def __init__(self, options: Options, session: Path) -> None:
        self._options = options
        self.baseline = _baseline(options, session)

    def measured(self, documents: Sequence[dict[str, Any]]) -> None:
        """A run has its results."""
        self.ended(documents)
        if self._options.omb_json is not None:
            from pytest_loadtest.report import omb

            for document in documents:
                omb.write(document, self._options.omb_json)

    def ended(self, documents: Sequence[dict[str, Any]]) -> None:
        """A run has come to its end, be it a broken one."""
        if self._options.history is not None and documents:
            from pytest_loadtest.report import history

            history.append(self._options.history, [history.line(document) for document in documents])


def _baseline(options: Options, session: Path) -> Baseline | None:
    if options.baseline is None:
        return None
    if options.baseline == LAST_MET:
        return last_met(options.results, session, force=options.baseline_force)
    return of_path(options.root / options.baseline, force=options.baseline_force)
