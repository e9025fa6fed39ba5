"""The facts of a run's client, with the counts of all workers."""

from __future__ import annotations

import pytest

from pytest_loadtest.drivers.base import DriverFacts, add_worker_counts

FACTS = DriverFacts(client="native", version="1", applied={"qos": "1"})


def facts(losses: int | None, forgotten: int | None) -> DriverFacts:
    return DriverFacts(client="native", version="1", losses=losses, forgotten=forgotten)


@pytest.mark.parametrize(
    ("workers", "losses", "forgotten"),
    [
        ([facts(1, 0), facts(2, 3)], 3, 3),
        ([facts(0, None), facts(0, None)], 0, None),
        ([facts(1, 2), None], 1, 2),
        ([facts(None, None)], None, None),
        ([], None, None),
    ],
    ids=["sums", "never counted", "a worker without facts", "unknown", "no worker"],
)
def test_a_count_is_the_sum_of_the_workers_that_know_it(
    workers: list[DriverFacts | None], losses: int | None, forgotten: int | None
) -> None:
    """A count that no worker knows is None and not 0; everything else stays."""
    total = add_worker_counts(FACTS, workers)
    assert (total.losses, total.forgotten, total.applied) == (losses, forgotten, {"qos": "1"})


def test_workers_on_different_kernels_have_different_clocks() -> None:
    """Reads without a usable stamp are counted where the kernel stamps at all."""
    client, kernel = (
        DriverFacts(client="native", version="1"),
        DriverFacts(client="native", version="1", stamps="kernel", unstamped=2, late_stamps=3),
    )
    totals = [
        add_worker_counts(FACTS, workers)
        for workers in ([client, kernel], [kernel, kernel], [client], [None])
    ]
    assert [(total.stamps, total.unstamped, total.late_stamps) for total in totals] == [
        ("client and kernel", 2, 3), ("kernel", 4, 6), ("client", None, None), ("client", None, None)
    ]  # fmt: skip


def test_incidents_of_workers_are_added_up() -> None:
    """By their texts, the most frequent first."""
    workers = [
        DriverFacts(client="native", version="1", incidents=incidents)
        for incidents in ({"lost": 1}, {"refused": 2, "lost": 2}, {})
    ]
    assert list(add_worker_counts(FACTS, [*workers, None]).incidents.items()) == [
        ("lost", 3),
        ("refused", 2),
    ]
