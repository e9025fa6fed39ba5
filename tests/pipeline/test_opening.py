"""The opening of connections from manifests, and what they must contain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.run_file import made_run_file

from pytest_loadtest.errors import NoData
from pytest_loadtest.metrics.histogram import histogram
from pytest_loadtest.pipeline.read import opening_of
from pytest_loadtest.values.quantities import SECOND

RUN = made_run_file(connections=5, connects_only=True, connect_rate=2)
MANIFESTS = {
    "gw0": {
        "connecting": {
            "consumers": [0, 2 * SECOND, SECOND, 1],
            "producers": [10 * SECOND, 11 * SECOND, 0, 2],
        }
    },
    "gw1": {"connecting": {"producers": [10 * SECOND, 13 * SECOND, 2 * SECOND, 1]}},
}
TIMES = {"connect": histogram(np.array([1, 2, 3, 4, 5])), "dial": histogram(np.array([7] * 5))}
PATH = Path("run")


def test_connections_of_all_workers_are_added_up() -> None:
    """Consumers and producers count from the first instant until the last is up, without the wait between; the busiest worker is named."""
    found = opening_of(PATH, RUN, MANIFESTS, TIMES)
    assert found is not None
    assert (found.alone, found.connections, found.rate, found.took) == (True, 5, 2, 5 * SECOND)
    assert (found.busiest, found.cpu, found.begun_late, found.in_time) == (
        "gw1",
        pytest.approx(2 / 3),
        7,
        4,
    )


def test_a_run_with_messages_and_unpaced_connections_has_no_opening() -> None:
    """Neither paced nor all that there is; nor the runs of an older release, which could be neither."""
    assert opening_of(PATH, made_run_file(connections=5), {"gw0": {}}, {}) is None
    assert opening_of(PATH, made_run_file(), {"gw0": {}}, {}) is None


@pytest.mark.parametrize(
    ("manifests", "times", "named"),
    [
        (MANIFESTS, {**TIMES, "connect": histogram(np.array([1, 2, 3, 4]))}, "5 connections were to be opened, the workers' manifests have 4"),
        (MANIFESTS, {"connect": None, "dial": None}, "5 connections were to be opened, the workers' manifests have 0"),
        ({"gw0": {}}, TIMES, "have no valid times of opened connections"),
        ({"gw0": {"connecting": {"producers": [1]}}}, TIMES, "have no valid times of opened connections"),
    ],
)  # fmt: skip
def test_missing_connections_are_no_data(
    manifests: dict[str, Any], times: dict[str, Any], named: str
) -> None:
    """A connection that nobody noted may not have come up: such a run says nothing."""
    with pytest.raises(NoData, match=named):
        opening_of(PATH, RUN, manifests, times)
