"""What the numbers in a sample mean: they stand in files that are kept."""

from __future__ import annotations

from pytest_loadtest.message.samples import Flag, Status


def test_numbers_of_what_became_of_a_message() -> None:
    """0 is acked, and what is still open is none that a file may hold."""
    assert {status.name: int(status) for status in Status} == {"PENDING": -1, "ACKED": 0, "FAILED": 1, "DROPPED": 2, "UNKNOWN": 3}


def test_flags_are_bits() -> None:
    """Each of its own, so that they can be together."""
    assert {flag.name: int(flag) for flag in Flag} == {"REDELIVERED": 1, "LATE": 2, "CORRUPT": 4, "UNDUE": 8}
