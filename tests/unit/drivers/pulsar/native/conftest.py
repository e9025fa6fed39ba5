"""A fake broker for the native client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fake_pulsar import FakeBroker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        yield made
