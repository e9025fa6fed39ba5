"""Samples as columns, as JSON, and read back."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np

from pytest_loadtest.metrics.measurements import DelayedIndex
from pytest_loadtest.observe.telemetry import COUNTERS, Telemetry, fullest
from pytest_loadtest.values.quantities import SECOND

TIME = [1 * SECOND, 2 * SECOND, 3 * SECOND]
ROWS = [{"broker.cpu": 0.123456789}, {"broker.cpu": 0.5, "broker.memory": 8_478_720.0}, {}]


def made() -> Telemetry:
    return Telemetry.of_rows(TIME, ROWS, missing=("worker gw1: it runs on another machine",), cost=0.0041234, broker="mosquitto")


def test_an_unknown_value_is_nan() -> None:
    telemetry = made()
    assert len(telemetry) == 3
    np.testing.assert_array_equal(telemetry.column("broker.memory"), [math.nan, 8_478_720, math.nan])
    assert np.isnan(telemetry.column("broker.unread")).all()
    assert (telemetry.has_values("broker.memory"), telemetry.has_values("broker.unread")) == (True, False)


def test_json_keeps_unknown_values_as_null() -> None:
    document = json.loads(json.dumps(made().document(), allow_nan=False))
    assert document["columns"] == {"broker.cpu": [0.123457, 0.5, None], "broker.memory": [None, 8478720, None]}
    again = Telemetry.from_document(document)
    assert again.document() == document
    assert (again.missing, again.broker) == (made().missing, "mosquitto")


def test_the_sample_of_the_last_second_is_taken_a_moment_later() -> None:
    late = Telemetry.of_rows([SECOND, 2 * SECOND + 90_000_000, 2 * SECOND + 110_000_000], [{"a": 1.0}, {"a": 2.0}, {"a": 3.0}])
    assert late.until(2 * SECOND).column("a").tolist() == [1, 2]


def sampled(*rows: tuple[float, float] | None) -> Telemetry:
    found = [{} if row is None else {"sys.delayed": row[0], "sys.delayedIndex": row[1]} for row in rows]
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
