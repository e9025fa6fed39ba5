"""Parts of a session add up to the session."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pytest_loadtest.fleet.stopwatch import Stopwatch

if TYPE_CHECKING:
    import pytest


def test_parts_of_one_name_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part lasts until the next begins; what came before the first is pytest's own start."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "time", lambda: 5000.0 + now[0])
    watch = Stopwatch()
    for part, seconds in (("load", 2.0), ("verdict", 5.0), ("load", 1.0), ("report", 4.0)):
        now[0] += seconds
        watch.begin(part)
    now[0] += 0.0005
    text = watch.text(5099.0)
    assert text == "pytest 1.00 s, collection, workers 2.00 s, load 9.00 s, verdict 1.00 s"
