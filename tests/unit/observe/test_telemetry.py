"""Samples as columns, as JSON, and read back."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.measurements import DelayedIndex
from pytest_loadtest.observe.telemetry import COUNTERS, SampledHost, Telemetry, fullest, merge_host
from pytest_loadtest.values.quantities import SECOND

TIMES = st.lists(st.integers(0, 20 * SECOND), max_size=20, unique=True).map(sorted)
TIME = [1 * SECOND, 2 * SECOND, 3 * SECOND]
ROWS = [{"broker.cpu": 0.123456789}, {"broker.cpu": 0.5, "broker.memory": 8_478_720.0}, {}]


def made() -> Telemetry:
    return Telemetry.of_rows(
        TIME,
        ROWS,
        missing=("worker gw1: it runs on another machine",),
        cost=0.0041234,
        broker="mosquitto",
    )


def test_an_unknown_value_is_nan() -> None:
    telemetry = made()
    assert len(telemetry) == 3
    np.testing.assert_array_equal(
        telemetry.column("broker.memory"), [math.nan, 8_478_720, math.nan]
    )
    assert np.isnan(telemetry.column("broker.unread")).all()


def test_json_keeps_unknown_values_as_null() -> None:
    document = json.loads(json.dumps(made().document(), allow_nan=False))
    assert document["columns"] == {
        "broker.cpu": [0.123457, 0.5, None],
        "broker.memory": [None, 8478720, None],
    }
    again = Telemetry.from_document(document)
    assert again.document() == document
    assert (again.missing, again.broker) == (made().missing, "mosquitto")


def test_the_sample_of_the_last_second_is_taken_a_moment_later() -> None:
    late = Telemetry.of_rows(
        [SECOND, 2 * SECOND + 90_000_000, 2 * SECOND + 110_000_000],
        [{"a": 1.0}, {"a": 2.0}, {"a": 3.0}],
    )
    assert late.until(2 * SECOND).column("a").tolist() == [1, 2]


H1 = SampledHost(name="h1", workers=("h1-1",), cores=4, cost=0.001)


def numbered(times: list[int], column: str) -> Telemetry:
    """Return telemetry whose values are their own times."""
    return Telemetry.of_rows(times, [{column: float(time)} for time in times])


@given(TIMES, TIMES)
def test_every_sample_of_a_host_is_kept_within_half_a_second_of_its_time(
    own: list[int], of_host: list[int]
) -> None:
    """The controller's own samples stay where they are, and times stay in order."""
    merged = merge_host(numbered(own, "broker.cpu"), H1, numbered(of_host, "worker h1-1.cpu"))
    assert (np.diff(merged.time) > 0).all()
    for column, times, tolerance in (
        ("broker.cpu", own, 0),
        ("worker h1-1.cpu", of_host, SECOND // 2),
    ):
        values = merged.column(column)
        known = np.isfinite(values)
        assert values[known].tolist() == times
        assert (np.abs(merged.time[known] - values[known]) <= tolerance).all()


def test_a_sample_of_a_host_joins_that_of_the_same_second() -> None:
    merged = merge_host(
        made(),
        H1,
        Telemetry.of_rows([time + 4_000_000 for time in TIME], [{"worker h1-1.cpu": 0.5}] * 3),
    )
    assert merged.time.tolist() == TIME
    assert merged.column("worker h1-1.cpu").tolist() == [0.5] * 3


def test_missing_and_lost_sources_of_a_host_have_its_name() -> None:
    part = Telemetry.of_rows(
        [], [], missing=("worker h1-1: gone",), lost={"worker h1-1": "worker h1-1: gone"}
    )
    merged = merge_host(made(), H1, part)
    assert merged.missing == (*made().missing, "host h1: worker h1-1: gone")
    assert merged.lost == {"host h1: worker h1-1": "host h1: worker h1-1: gone"}
    assert merged.columns.keys() == made().columns.keys()


def test_workers_of_one_host_in_several_containers_add_up() -> None:
    """The share with a closed window is that of the worst; a value that one part lacks is unknown."""
    rows = [{"workers h1.unsent": 5.0, "workers h1.shut": 0.2}, {"workers h1.unsent": 1.0}]
    other = [{"workers h1.unsent": 7.0, "workers h1.shut": 0.1}, {}]
    merged = merge_host(made(), H1, Telemetry.of_rows(TIME[:2], rows))
    merged = merge_host(
        merged,
        SampledHost(name="h1", workers=("h1-2",), cores=4, cost=0.002),
        Telemetry.of_rows(TIME[:2], other),
    )
    np.testing.assert_array_equal(merged.column("workers h1.unsent"), [12, math.nan, math.nan])
    np.testing.assert_array_equal(merged.column("workers h1.shut"), [0.2, math.nan, math.nan])
    assert merged.hosts == (SampledHost(name="h1", workers=("h1-1", "h1-2"), cores=4, cost=0.003),)


def test_hosts_are_in_the_document_only_if_there_are_any() -> None:
    """That of a run on one host is as it was before there were hosts."""
    assert "hosts" not in made().document()
    document = merge_host(made(), H1, made()).document()
    again = Telemetry.from_document(json.loads(json.dumps(document)))
    assert again.hosts == (H1,)
    assert again.document() == document


def sampled(*rows: tuple[float, float] | None) -> Telemetry:
    found = [
        {} if row is None else {"sys.delayed": row[0], "sys.delayedIndex": row[1]} for row in rows
    ]
    return Telemetry.of_rows(list(range(len(rows))), found)


def test_the_fullest_index_has_the_most_messages() -> None:
    """The largest one may include memory that stays allocated after messages left."""
    found = fullest(sampled((10, 300), None, (100, 250), (5, 900), (0, 900)))
    assert found == DelayedIndex(bytes=250, messages=100)
    assert found.bytes_per_message == 2.5


def test_without_delayed_messages_the_index_is_unknown() -> None:
    assert fullest(None) is None
    assert fullest(sampled()) is None
    assert fullest(sampled(None, (0, 100))) is None


def test_the_fullest_index_is_unknown_if_the_source_was_lost() -> None:
    """A fuller one may have followed."""
    assert fullest(replace(sampled((10, 300)), lost={COUNTERS: "why"})) is None
    assert fullest(replace(sampled((10, 300)), lost={"worker gw0": "why"})) is not None
