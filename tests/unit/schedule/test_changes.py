"""Changes as ``run.json`` has them."""

from __future__ import annotations

import json

from pytest_loadtest.schedule.changes import Aborted, Change


def test_a_document_has_every_entry_and_null_for_what_does_not_change() -> None:
    assert Change(at=5).document(in_bytes=False) == {
        "at": 5, "rate": None, "bytes": False, "distribution": False, "paused": None, "consumers": None, "end": False, "unattainable": None,
        "aborted": None,
    }  # fmt: skip


def test_a_document_has_plain_values() -> None:
    """Of a new distribution only that there is one, of an aborted run the reason."""
    change = Change(
        at=1, rate=2.5, distribution={"a": 1}, paused=False, consumers=0, end=True, unattainable="loss", aborted=Aborted(reason="lost"),
    )  # fmt: skip
    assert json.loads(json.dumps(change.document(in_bytes=True))) == {
        "at": 1, "rate": 2.5, "bytes": True, "distribution": True, "paused": False, "consumers": 0, "end": True, "unattainable": "loss",
        "aborted": "lost",
    }  # fmt: skip
    assert Change(at=1, distribution=0).document(in_bytes=False)["distribution"] is True
