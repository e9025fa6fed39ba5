"""What the aggregation after the load needs, and what a machine must have for it."""

from __future__ import annotations

import pytest
from builders.plans import CLUSTER, HERE, made

from pytest_loadtest import profile as profiles
from pytest_loadtest.drivers import planned_facts
from pytest_loadtest.plan.aggregation import Aggregation, aggregation_reasons
from pytest_loadtest.report.plan import plan_table

GIB = 1 << 30
WINDOWS = (
    "{window: 1s, endToEndLatency: {p99: 100ms}, publishLatency: {p99: 100ms}, throughput: 95%}"
)


def aggregation(
    *,
    topics: int = 10,
    rate: int = 10_000,
    duration: str = "24h",
    slo: str = WINDOWS,
    stages: str = "",
) -> Aggregation:
    length = f"stages: {stages}" if stages else f"testDuration: {duration}"
    profile = profiles.loads(
        f"name: p\ntopics: {topics}\nproducerRate: {rate}\nmessageSize: 64\nwarmupDuration:"
        f" 1s\n{length}\n"
        f"driver: {{name: loopback}}\nslo: {slo}\n",
        "p.yaml",
    )
    return made(profile, machine=CLUSTER).needs.aggregation


def reasons(needs: Aggregation, memory: int = 16 * GIB, *, spark_here: bool = True) -> str:
    return "\n".join(aggregation_reasons([needs], 2, memory, spark_here=spark_here))


def test_a_day_of_one_second_windows_needs_less_than_two_gib_in_each_process() -> None:
    """Its counts are on disk: 6 bytes for each of some two thousand million."""
    needs = aggregation()
    assert max(needs.controller, needs.java) < 2 * GIB
    assert 5 * GIB < needs.disk < 20 * GIB
    assert reasons(needs) == ""
    assert "this machine has 2.00 GiB" in reasons(needs, 2 * GIB)


def test_shorter_windows_need_more_disk_and_time() -> None:
    """More objectives too, of time."""
    plain, wide, short = (
        aggregation(slo=slo) for slo in ("{throughput: 95%}", WINDOWS.replace("1s", "60s"), WINDOWS)
    )
    assert plain.disk < 1.2 * wide.disk < short.disk
    assert plain.duration(2) < wide.duration(2) < short.duration(2)
    one = aggregation(slo="{window: 1s, throughput: 95%}")
    assert one.serial < short.serial


def test_histograms_of_many_topics_are_refused_before_they_fail() -> None:
    """They are collected at once, and the controller holds them.

    Few messages of many topics are possible.
    """
    few, many = aggregation(topics=100_000, duration="100s"), aggregation(topics=100_000)
    assert reasons(few) == ""
    assert 25 < few.serial < 60
    assert "Spark returns at most 1.00 GiB at once: write fewer topics" in reasons(many)
    assert "--load-spark-master" in reasons(many)


def test_stages_are_counted_in_addition_to_the_run() -> None:
    """Each has its own windows."""
    whole, staged = (
        aggregation(),
        aggregation(
            stages="[{name: a, duration: 12h, rate: 10000}, {name: b, duration: 12h, rate: 10000}]"
        ),
    )
    assert staged.disk == pytest.approx(2 * whole.disk, rel=0.5)
    assert staged.parallel == pytest.approx(2 * whole.parallel)


def test_memory_of_spark_counts_where_spark_runs() -> None:
    """The controller's own counts in any case."""
    needs = aggregation()
    assert needs.memory(2, spark_here=True) == needs.controller + needs.java + 2 * needs.worker
    assert needs.memory(2, spark_here=False) == needs.controller
    assert "--load-spark-master" not in reasons(needs, 1, spark_here=False)


@pytest.mark.parametrize("cores", [1, 8, 64])
def test_a_small_run_needs_one_worker_of_spark_however_many_cores_there_are(cores: int) -> None:
    """Its samples are one task: a machine of 2 GiB can aggregate them."""
    needs = aggregation(rate=1000, duration="60s", slo="{throughput: 95%}")
    assert list(aggregation_reasons([needs], cores, 2 * GIB, spark_here=True)) == []
    assert needs.workers(cores) == 1
    assert aggregation().workers(cores) == cores


def test_the_plan_states_what_the_aggregation_needs() -> None:
    """Time, memory of each process, and disk."""
    profile = profiles.loads(
        "name: p\nproducerRate: 10\nmessageSize: 64\ntestDuration: 9s\ndriver: {name: loopback}\n",
        "p.yaml",
    )
    text = "\n".join(plan_table(made(profile), planned_facts(profile), HERE))
    assert "on the 2 cores here after the load" in text
    assert "in the controller" in text
    assert "on disk while it lasts" in text
