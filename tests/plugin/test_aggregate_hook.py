"""``pytest_loadtest_aggregate`` in users' projects: Spark on raw samples, in the controller, judged like any metric."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import jsonschema
import numpy_aggregation
import pytest

from pytest_loadtest.commands import cli
from pytest_loadtest.report.document import results_schema

from .test_aggregate_again import aggregate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .projects import Finished, Project

CONFTEST = """\
import pyarrow as pa
from pyspark.sql import functions as F

from pytest_loadtest import Rate, ms


def rows(batches):  # goes to Spark's workers, which have no conftest to import it from
    for batch in batches:
        yield pa.record_batch([pa.array([batch.num_rows])], names=["n"])


def pytest_loadtest_aggregate(spark, run, samples):
    measured = samples.received.where(F.col("intended") >= run.start)
    (found,) = measured.agg(F.percentile(F.col("received") - F.col("intended"), 0.99).alias("p99"), F.count("*").alias("n")).collect()
    if "explodes" in run.test:
        return {"gold.p99": [][0]}
    n = sum(row.n for row in samples.sent.mapInArrow(rows, "n bigint").collect())
    return {"gold.p99": ms(found.p99 / 1e6), "gold.rate": Rate(found.n / (run.duration / 1e9)), "gold.sent": n, "silver.p99": None}
"""
WITHOUT_SPARK = """\
from pytest_loadtest import Rate, ms

def pytest_loadtest_aggregate(run):
    if "explodes" in run.test:
        return {"gold.p99": [][0]}
    return {"gold.p99": ms(0.002), "gold.rate": Rate(500), "gold.sent": 250, "silver.p99": None}
"""
PLUGIN = """\
def pytest_loadtest_aggregate(run):
    return {"gold.sent" if "twice" in run.test else "topics": run.topics}
"""
TESTS = """\
import pytest
from pytest_loadtest import ms

@pytest.mark.load("gold")
def test_bounded(load):
    load.assert_slo()
    custom = load.measurements.custom
    assert custom["gold.sent"] == load.measurements.counts.offered == load.samples.sent.count_rows()
    assert custom["gold.rate"] * 0.5 == load.measurements.counts.received == load.samples.received.count_rows()
    assert ms(0) < custom["gold.p99"] <= load.end_to_end.max
    assert custom["topics"] == 2

@pytest.mark.load("tight")
def test_missed(load):
    load.assert_slo()

@pytest.mark.load("silver")
def test_nothing_to_tell(load): ...

@pytest.mark.load("gold")
def test_explodes(load): ...

@pytest.mark.load("gold")
def test_twice(load): ...
"""
WHY = {
    "test_nothing_to_tell": "custom.silver.p99: pytest_loadtest_aggregate returned None for it",
    "test_explodes": "pytest_loadtest_aggregate failed: IndexError: list index out of range",
    "test_twice": "'gold.sent' is returned by two implementations of pytest_loadtest_aggregate",
}


@pytest.fixture
def gold(spark_project: Project) -> Project:
    """Return a project with custom metrics in its conftest and in a plugin."""
    project = spark_project
    for name, slo in (
        ("gold", "gold.p99: 30s, gold.rate: {min: 1/s}, topics: 2"),
        ("tight", "gold.p99: 1us"),
        ("silver", "silver.p99: 1s"),
    ):
        project.profile(
            name, duration="500ms", slo=f"{{custom: {{{slo}}}, throughput: 1%, sent: 1%}}"
        )
    project.write("conftest.py", CONFTEST)
    project.write("more_metrics.py", PLUGIN)
    project.write("loadtests/test_gold.py", TESTS)
    project.environment["PYTHONPATH"] = os.pathsep.join(
        [os.environ.get("PYTHONPATH", ""), str(project.path)]
    )
    return project


def check_session(run: Finished, broken: Mapping[str, str]) -> None:
    """Check outcomes, results, JUnit and output. :param broken: tests without a value, and why."""
    for name, why in broken.items():
        (error,) = run.case(name).iter("error")
        assert why in str(error.text), name
        assert run.documents[name]["verdict"]["outcome"] == "no data"
        assert run.documents[name]["measurements"]["counts"]["received"] == 250
        jsonschema.validate(run.documents[name], results_schema())
    assert "conftest.py" in run.out and 'return {"gold.p99": [][0]}' in run.out
    found = run.documents["test_bounded"]["measurements"]["custom"]
    assert set(found) == {"topics", "gold.p99", "gold.rate", "gold.sent", "silver.p99"}
    assert found["gold.rate"] == {"value": 500.0, "unit": "msg/s", "shown": "500 msg/s"}
    properties = run.properties("test_bounded")
    assert float(properties["load.custom.gold.p99.ms"]) == pytest.approx(
        found["gold.p99"]["value"] / 1e6, rel=1e-5
    )
    assert (
        properties["load.custom.gold.rate.msg_per_s"],
        properties["load.custom.gold.sent"],
    ) == ("500", "250")
    assert "             topics      2\n" in run.out


def test_the_only_process_calls_the_hook(gold: Project) -> None:
    """A hook that does not query Spark, which is therefore not started here."""
    gold.environment["PYTHONPATH"] += os.pathsep + numpy_aggregation.ENVIRONMENT["PYTHONPATH"]
    gold.write("conftest.py", WITHOUT_SPARK)
    plugins = ("-p", "numpy_aggregation", "-p", "more_metrics", "-p", "no:cacheprovider")
    run = gold.run("-n0", *plugins)
    assert run.outcomes == {"passed": 1, "failed": 1, "error": len(WHY)}
    check_session(run, WHY)
    missed = run.properties("test_missed")["load.objective.custom.gold.p99"]
    assert missed.startswith("missed: custom.gold.p99 ")


@pytest.mark.slow
def test_custom_metrics_are_judged_and_reported(gold: Project) -> None:
    """The values of queries, with two workers, and from the samples later. An error in the hook keeps the run's own metrics."""
    chosen = "bounded or explodes"
    run = gold.run("-n2", "-k", chosen, "-p", "more_metrics", "-p", "no:cacheprovider")
    assert run.outcomes == {"passed": 1, "error": 1}
    check_session(run, {"test_explodes": WHY["test_explodes"]})

    (folder,) = [path for path in gold.runs() if "test_bounded" in str(path)]
    before = (folder / "results.json").read_text()
    gold.write(
        "conftest.py",
        CONFTEST.replace('"silver.p99": None', '"silver.p99": None, "topics": run.topics'),
    )
    done = aggregate(gold, folder, "--conftest", "conftest.py")
    assert done.returncode == cli.OK
    assert json.loads((folder / "results.json").read_text()) == json.loads(before)


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_conftest_that_the_controller_does_not_read_is_an_error(
    spark_project: Project, workers: str
) -> None:
    """Before any load; the error names the conftest to use instead."""
    project = spark_project
    project.profile("gold")
    project.write("deep/er/conftest.py", CONFTEST)
    project.write(
        "deep/er/test_gold.py", TESTS.replace('"tight"', '"gold"').replace('"silver"', '"gold"')
    )
    run = project.run(workers, "-p", "no:cacheprovider")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "deep/er/conftest.py: pytest_loadtest_aggregate is called by the controller" in run.out
    assert f"move the hook to {project.path / 'conftest.py'}" in run.out
    assert project.runs() == []
