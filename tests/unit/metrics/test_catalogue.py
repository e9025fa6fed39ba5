"""The catalogue of metrics against what it describes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from pytest_loadtest.metrics.catalogue import CATALOGUE, COUNTS, LATENCIES, OBJECTIVES
from pytest_loadtest.metrics.measurements import Counts

ROOT = Path(__file__).parents[3]


def test_each_field_of_the_counts_has_one_row() -> None:
    """A count without a row would be in no report; a row without a field would fail in each."""
    assert sorted(row.attribute for row in COUNTS) == sorted(field.name for field in fields(Counts))


def test_names_keys_and_attributes_are_unique() -> None:
    """One word for each metric, in profiles, in results and in code."""
    for of in ("name", "attribute", "key"):
        found = [value for metric in CATALOGUE if (value := getattr(metric, of))]
        assert len(found) == len(set(found)), of
    assert len({row.key for row in COUNTS}) == len(COUNTS)


def test_a_metric_that_counts_messages_names_a_count() -> None:
    """An objective on a count is judged by a field that reports show too."""
    counted = {row.attribute: row.key for row in COUNTS}
    rows = [
        metric
        for metric in OBJECTIVES.values()
        if metric.form in ("count", "share") and metric.attribute
    ]
    assert [(metric.attribute, counted.get(metric.attribute)) for metric in rows] == [
        (metric.attribute, metric.key) for metric in rows
    ]


def test_each_metric_of_an_objective_is_documented() -> None:
    """The reference and the editors' schema have a sentence for each."""
    assert [name for name, metric in OBJECTIVES.items() if not metric.meaning] == []


def test_each_latency_says_why_it_can_be_missing() -> None:
    """A test that asks for a latency that was not measured reads this sentence."""
    assert [name for name, metric in LATENCIES.items() if not metric.absent] == []


def test_committed_schemas_are_what_the_code_generates() -> None:
    """scripts/schemas writes them anew."""
    found = subprocess.run(
        [sys.executable, ROOT / "scripts/schemas", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
