"""The form of the package's dataclasses."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from pytest_loadtest.values.records import record


@record
class Point:
    """A class with a default."""

    x: int
    y: int = 0


def test_a_record_is_made_by_keywords_and_does_not_change() -> None:
    point = Point(x=1)
    assert (point, replace(point, y=2).y) == (Point(x=1, y=0), 2)
    with pytest.raises(TypeError, match="positional"):
        Point(1)  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    assert not hasattr(point, "__dict__")
