"""The profile's keys as all clients of Pulsar read them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from pytest_loadtest.drivers.base import Acks
from pytest_loadtest.drivers.pulsar.settings_facts import join_acks


def test_shared_modules_do_not_import_the_client_library() -> None:
    """The native client runs without pulsar-client, its threads and its import time."""
    shared = ("admin", "auth", "names", "settings_facts")
    code = f"import sys; {'; '.join(f'import pytest_loadtest.drivers.pulsar.{name}' for name in shared)}; print('_pulsar' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )


def acks(*rows: int, resends: int | None = None) -> Acks:
    row = np.array(rows, np.int64)
    return Acks(
        row,
        row * 10,
        np.ones(len(row), np.int8),
        None if resends is None else np.full(len(row), resends, np.uint8),
    )


def test_answers_are_joined_in_their_order() -> None:
    """If one part has resends, they are 0 for the others; if none has, the result has none."""
    whole = join_acks([acks(3, 4), acks(1)])
    assert whole is not None
    assert (whole.row.tolist(), whole.time.tolist(), whole.status.tolist(), whole.resends) == (
        [3, 4, 1],
        [30, 40, 10],
        [1, 1, 1],
        None,
    )
    some = join_acks([acks(3, 4), acks(1, resends=2)])
    assert some is not None
    assert some.resends is not None
    assert (some.resends.tolist(), some.resends.dtype) == ([0, 0, 2], np.uint8)


def test_one_part_is_returned_as_it_is_and_none_is_none() -> None:
    one = acks(7)
    assert join_acks([one]) is one
    assert join_acks([]) is None
