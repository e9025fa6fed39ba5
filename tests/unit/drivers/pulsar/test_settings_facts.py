"""The profile's keys as all clients of Pulsar read them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from pytest_loadtest.drivers.base import Acks
from pytest_loadtest.drivers.pulsar.settings_facts import join_acks


def test_what_every_client_shares_needs_no_client_library() -> None:
    """A driver of the wire protocol runs without pulsar-client, whose threads and import it does not pay for."""
    shared = ("admin", "auth", "names", "settings_facts")
    code = f"import sys; {'; '.join(f'import pytest_loadtest.drivers.pulsar.{name}' for name in shared)}; print('_pulsar' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def acks(*rows: int, resends: int | None = None) -> Acks:
    row = np.array(rows, np.int64)
    return Acks(row, row * 10, np.ones(len(row), np.int8), None if resends is None else np.full(len(row), resends, np.uint8))


def test_answers_are_joined_in_their_order() -> None:
    """Where no part has resends, nor has the whole; where one has, the others have none of them."""
    whole = join_acks([acks(3, 4), acks(1)])
    assert whole is not None
    assert (whole.row.tolist(), whole.time.tolist(), whole.status.tolist(), whole.resends) == ([3, 4, 1], [30, 40, 10], [1, 1, 1], None)
    some = join_acks([acks(3, 4), acks(1, resends=2)])
    assert some is not None
    assert some.resends is not None
    assert (some.resends.tolist(), some.resends.dtype) == ([0, 0, 2], np.uint8)


def test_one_part_is_the_whole_and_none_is_nothing() -> None:
    one = acks(7)
    assert join_acks([one]) is one
    assert join_acks([]) is None
