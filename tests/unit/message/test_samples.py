"""The numbers in samples, which are in stored files."""

from __future__ import annotations

from pytest_loadtest.message.samples import Flag, Status


def test_the_numbers_of_a_status_never_change() -> None:
    assert {status.name: int(status) for status in Status} == {
        "PENDING": -1,
        "ACKED": 0,
        "FAILED": 1,
        "DROPPED": 2,
        "UNKNOWN": 3,
        "BLOCKED": 4,
    }


def test_the_numbers_of_a_flag_are_bits_and_never_change() -> None:
    assert {flag.name: int(flag) for flag in Flag} == {
        "REDELIVERED": 1,
        "LATE": 2,
        "CORRUPT": 4,
        "UNDUE": 8,
    }
