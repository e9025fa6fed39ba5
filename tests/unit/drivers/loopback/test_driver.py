"""The loopback driver without a relay."""

from __future__ import annotations

import pytest

from pytest_loadtest.drivers.loopback.driver import listed


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        (range(1), "0"),
        (range(1, 11, 2), "1, 3, 5, 7, 9"),
        (range(0, 14, 2), "0, 2, 4, 6, 8 and 2 more"),
        ([7, 3], "7, 3"),
    ],
)
def test_a_list_of_numbers_shows_at_most_five(numbers, text):
    """The rest is given as a number."""
    assert listed(numbers) == text
