"""The comparison of a run with its entry in the catalogue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from .fault import MET, MISSED, NO_DATA, Fault, Seen, differences

FAULT = Fault(
    name="loss", happens="", made="", verdict=MISSED, status=1, says=("loss 20 … too many",), counts={"lost": 20},
    left={"known-*": "a known folder"}, kept=("sent/*.parquet",),
)  # fmt: skip
SEEN = Seen(
    status=1, verdict=MISSED, after=MET, workers=1, output="✗ loss\n   20 of 100: 20 too many", counts={"lost": 20}, left=["known-1"], processes=[],
    kept=["measure/sent/main-000001.parquet"], open=[], memory=100, seconds=1.0, ending=1.0,
)  # fmt: skip


def test_a_run_as_in_its_entry_has_no_differences() -> None:
    assert differences(FAULT, SEEN) == []


@pytest.mark.parametrize(
    "change",
    [
        {"status": 0}, {"verdict": MET}, {"verdict": NO_DATA}, {"verdict": None}, {"after": None}, {"after": NO_DATA}, {"workers": 2}, {"output": "loss 2"},
        {"output": SEEN.output + "\nTraceback (most recent call last):"}, {"counts": {"lost": 19}}, {"counts": {}}, {"left": ["other"]},
        {"processes": ["java"]}, {"kept": []}, {"open": ["socket:[1]"]}, {"memory": 5000},
    ],
    ids=str,
)  # fmt: skip
def test_each_deviation_is_one_difference(change: dict[str, Any]) -> None:
    assert len(differences(FAULT, replace(SEEN, **change))) == 1


def test_an_interrupted_session_must_end_soon_and_start_nothing() -> None:
    fault, seen = replace(FAULT, status=2), replace(SEEN, status=2, after=None, workers=None)
    assert differences(fault, seen) == []
    assert len(differences(fault, replace(seen, ending=11.0))) == 1
    assert len(differences(fault, replace(seen, after="started"))) == 1
