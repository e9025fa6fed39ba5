"""Worlds are judged in worker processes that are replaced when they fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from simulation.campaign import (
    JAVA,
    Campaign,
    Job,
    Report,
    Spark,
    Worker,
    belongs,
    drawn,
    grown,
    is_starved,
    text_of,
)
from simulation.draw import draw
from simulation.truth import Played, Truth
from simulation.world import world_from


def test_only_worlds_of_a_class_are_drawn() -> None:
    jobs = list(drawn(1, 5, only="search"))
    assert len(jobs) == 5
    assert all("search" in job.document["profile"] for job in jobs)


def test_a_class_is_named_with_or_without_its_group() -> None:
    subject = draw(1)
    assert belongs(subject, subject.tag)
    assert belongs(subject, f"tag: {subject.tag}")
    assert not belongs(subject, "fault: nothing")


def test_a_document_is_written_as_it_is_read() -> None:
    document = draw(7).document()
    assert world_from(yaml.safe_load(text_of(document))).document() == document


def test_a_world_without_results_leaves_spark_to_the_next_one(tmp_path: Path) -> None:
    spark = Spark(tmp_path)
    lost = Played(
        world=replace(draw(1), seed=500), truth=Truth(), outcome="no data", results=None, run=None, error="lost", folder=tmp_path, ended=0,
        events="", cpu=0.0,
    )  # fmt: skip
    measured = replace(lost, world=replace(draw(1), seed=501), results={}, outcome="met")
    assert spark.selects(lost, with_java=True) == ()
    assert spark.selects(measured, with_java=False) == (JAVA,)
    assert spark.selects(measured, with_java=False) == ()


def worker(files: int, blocks: int, done: int) -> Worker:
    return Worker(process=None, connection=None, done=done, files=files, blocks=blocks)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("files", "blocks", "expected"),
    [(10, 100, []), (16, 100, ["open files"]), (10, 10_000_000, ["memory"])],
)
def test_a_process_that_grows_is_a_violation(files: int, blocks: int, expected: list[str]) -> None:
    report = Report(job=Job(document={}), outcome="met", files=files, blocks=blocks)
    assert [rule for rule, _ in grown(worker(10, 100, 40), report)] == expected
    assert list(grown(worker(10, 100, 20), report)) == []


@pytest.mark.parametrize(
    ("used", "lately", "starved"),
    [(40, 40, True), (140, 30, True), (160, 20, False), (40, 0.2, False)],
)
def test_only_a_job_that_goes_on_without_cpu_gets_more_time(
    used: float, lately: float, starved: bool
) -> None:
    assert is_starved(used, lately, limit=300) is starved


def test_a_world_that_takes_too_long_is_a_violation_and_the_next_one_is_judged(
    tmp_path: Path,
) -> None:
    """The limit is far below the time in which a process starts, so no world is judged within it."""
    campaign = Campaign(folder=tmp_path, jobs=1, limit=0.01)
    reports = list(campaign.run(drawn(1, 2)))
    assert [report.violations[0][0] for report in reports] == ["time", "time"]
