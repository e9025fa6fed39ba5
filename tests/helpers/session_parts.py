"""The parts of an ended pytest session that belong to one of its load tests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugin.projects import Finished


def summary_of(out: str, test: str) -> str:
    """Return a load test's lines in the summary at the end of the terminal output.

    :param out: the output of the session.
    :param test: the node id.
    """
    found = re.search(rf"^{re.escape(test)} · .*\n(?:  .*\n)*", out, re.MULTILINE)
    assert found, f"no summary of {test} in:\n{out}"
    return found[0]


def status_of(finished: Finished, test: str) -> int:
    """Return the exit status of a session with this test alone: 0 if it passed, 1 if it did not.

    :raises AssertionError: the test was skipped.
    """
    end = finished.ending(test)
    assert end != "skipped"
    return int(end != "passed")
