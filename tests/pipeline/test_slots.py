"""Jobs that hold slots of a real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.fleet.slot_service import SlotService
from pytest_loadtest.pipeline.slot_task import CountedSlot
from pytest_loadtest.pipeline.slots import SlotJob, driver_host, failure_cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


NOT_STARTED = """\
An error occurred while calling o125.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Could not recover from a failed barrier ResultStage.
org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
    File "<frozen runpy>", line 189, in _run_module_as_main
  ModuleNotFoundError: No module named 'pandas'
PYTHONPATH was:
  /spark/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number
"""
RAISED = """\
Job aborted due to stage failure: Task 0 failed 4 times: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): PythonException:
Traceback (most recent call last):
  File "slot_task.py", line 12, in __call__
ConnectionError: cannot connect to the controller
\tat org.apache.spark.Task.run
"""


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (
            NOT_STARTED,
            "ModuleNotFoundError: No module named 'pandas': install it for the Python of Spark's nodes (spark.pyspark.python)",
        ),
        (RAISED, "10.0.0.7: ConnectionError: cannot connect to the controller"),
        ("Job 3 cancelled\n\tat org.apache", "Job 3 cancelled"),
        ("", ""),
    ],
)
def test_the_cause_of_a_failure_is_the_error_of_its_python(message: str, cause: str) -> None:
    assert failure_cause(message) == cause


@pytest.fixture
def service(spark: SparkSession) -> Iterator[SlotService]:
    made = SlotService(driver_host(spark, None)[1])
    yield made
    made.close()


def task(spark: SparkSession, service: SlotService, tokens: int) -> CountedSlot:
    return CountedSlot((driver_host(spark, None)[0], service.port), None, service.issue(tokens))


@pytest.mark.parametrize("barrier", [False, True])
def test_tasks_hold_their_slots_until_they_are_released(
    spark: SparkSession, service: SlotService, barrier: bool
) -> None:
    """A task without a token leaves its slot free for other jobs meanwhile."""
    slots = spark.sparkContext.defaultParallelism
    job = SlotJob(spark, task(spark, service, slots - 1), slots, barrier=barrier)
    assert len(service.wait(slots - 1, 60, lambda: job.ended)) == slots - 1
    assert not job.ended
    if slots > 1:
        assert spark.range(3).count() == 3
    service.release()
    job.join(60)
    assert (job.ended, job.cause) == (True, "")


def test_too_few_slots_are_counted_and_none_is_left_taken(
    spark: SparkSession, service: SlotService
) -> None:
    slots = spark.sparkContext.defaultParallelism
    job = SlotJob(spark, task(spark, service, slots + 1), slots + 1, barrier=False)
    assert len(service.wait(slots, 60, lambda: job.ended)) == slots
    assert len(service.wait(slots + 1, 0.5, lambda: job.ended)) == slots
    job.cancel()
    assert job.ended
    assert spark.range(3).count() == 3


def test_the_failure_of_a_task_ends_a_barrier_stage_and_nothing_is_tried_again(
    spark: SparkSession, service: SlotService
) -> None:
    """Its cause is that of the Python that ran it."""
    job = SlotJob(spark, task(spark, service, 1), 1, barrier=True)
    service.wait(1, 60, lambda: job.ended)
    service.release()
    job.join(60)
    port = service.port
    service.close()
    gone = CountedSlot(("127.0.0.1", port), None, ["0" * 32])
    failing = SlotJob(spark, gone, 1, barrier=True)
    failing.join(60)
    assert f"cannot connect to the controller at 127.0.0.1:{port}" in failing.cause
    stages = spark.sparkContext.statusTracker()
    assert stages.getActiveStageIds() == []


def test_the_way_to_a_connect_server_names_this_hosts_address(spark: SparkSession) -> None:
    """Nothing is sent there."""
    assert driver_host(spark, "sc://127.0.0.1") == ("127.0.0.1", "127.0.0.1")


def test_cancelling_leaves_the_jobs_of_other_sessions_alone(
    spark: SparkSession, service: SlotService
) -> None:
    """The user's, under spark-submit."""
    tokens = service.issue(2)
    place = ("127.0.0.1", service.port)
    jobs = [
        SlotJob(session, CountedSlot(place, None, [token]), 1, barrier=False)
        for session, token in zip((spark, spark.newSession()), tokens, strict=True)
    ]
    assert len(service.wait(2, 60, lambda: False)) == 2
    jobs[1].cancel()
    assert [job.ended for job in jobs] == [False, True]
    service.release()
    jobs[0].join(60)
    assert (jobs[0].ended, jobs[0].cause) == (True, "")
