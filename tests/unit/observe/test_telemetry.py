"""Samples as columns, and as JSON and back."""

from __future__ import annotations

import json
import math

import numpy as np

from pytest_loadtest.observe.telemetry import Telemetry
from pytest_loadtest.values.quantities import SECOND

TIME = [1 * SECOND, 2 * SECOND, 3 * SECOND]
ROWS = [{"broker.cpu": 0.123456789}, {"broker.cpu": 0.5, "broker.memory": 8_478_720.0}, {}]


def made() -> Telemetry:
    return Telemetry.of_rows(TIME, ROWS, missing=("worker gw1: it runs on another machine",), cost=0.0041234, broker="mosquitto")


def test_what_a_sample_does_not_know_is_nan() -> None:
    telemetry = made()
    assert len(telemetry) == 3
    np.testing.assert_array_equal(telemetry.column("broker.memory"), [math.nan, 8_478_720, math.nan])
    assert np.isnan(telemetry.column("broker.unread")).all()
    assert (telemetry.knows("broker.memory"), telemetry.knows("broker.unread")) == (True, False)


def test_it_survives_json_with_nulls() -> None:
    document = json.loads(json.dumps(made().document(), allow_nan=False))
    assert document["columns"] == {"broker.cpu": [0.123457, 0.5, None], "broker.memory": [None, 8478720, None]}
    again = Telemetry.from_document(document)
    assert again.document() == document
    assert (again.missing, again.broker) == (made().missing, "mosquitto")


def test_the_sample_of_the_last_second_is_taken_a_moment_later() -> None:
    late = Telemetry.of_rows([SECOND, 2 * SECOND + 90_000_000, 2 * SECOND + 110_000_000], [{"a": 1.0}, {"a": 2.0}, {"a": 3.0}])
    assert late.until(2 * SECOND).column("a").tolist() == [1, 2]
