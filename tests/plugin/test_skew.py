"""Topics with shares and sizes of their own, in whole runs: the same messages for any number of workers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .projects import Project

TESTS = """\
import json
import os
import pytest
import pytest_loadtest

TOPICS = [(topic, 20 * weight, 20 * weight * size) for topic, (weight, size) in enumerate(zip((1, 2, 6), (100, 1000, 100)))]

@pytest.mark.load("skewed", warmupDuration="300ms")
def test_shares(load):
    load.assert_slo()
    assert load.loss == load.out_of_order == load.duplicates == 0
    rows = load.samples.sent.to_table(["topic", "stream", "seq", "size"]).to_pylist()
    for topic, messages, size in TOPICS:
        mine = [row["size"] for row in rows if row["topic"] == topic]
        assert (len(mine), sum(mine)) == (messages, size)
    with open(os.environ["ROWS"], "w") as file:
        json.dump(sorted((row["stream"], row["seq"], row["size"]) for row in rows), file)

@pytest.mark.load("skewed", live=True, testDuration="30s")
def test_changes(load):
    load.begin()
    with pytest.raises(pytest_loadtest.UsageError, match="skew.messageSizes in the profile: each topic has its own size"):
        load.set_distribution({"100": 1})
    with pytest.raises(pytest_loadtest.UsageError, match="only Pulsar has bundles, not the driver loopback"):
        load.bundles
    load.set_rate(333)
    result = load.stop()
    assert result.loss == result.out_of_order == 0

@pytest.mark.load("skewed", stages=[{"duration": "400ms"}, {"duration": "600ms", "rate": 90}])
def test_stages(load):
    load.assert_slo()
    assert [stage.measurements.counts.offered for stage in load.stages] == [72, 54]

@pytest.mark.load("skewed", **{"skew.swing": "100ms"})
def test_swings(load):
    load.assert_slo()
    assert load.measurements.counts.offered == 180
"""


@pytest.fixture
def skewed(project: Project) -> Project:
    """Return a project with three topics of two producers each."""
    project.profile(
        "skewed",
        rate=180,
        size="skew: {weights: [1, 2, 6], messageSizes: [100, 1000, 100]}",
        slo="{throughput: 1%, sent: 1%, loss: 0}",
    )
    text = (
        (project.path / "profiles/skewed.yaml")
        .read_text(encoding="utf-8")
        .replace("topics: 2\n", "topics: 3\n")
    )
    project.write("profiles/skewed.yaml", text)
    project.write("test_it.py", TESTS)
    return project


def test_shares_are_exact_and_the_same_for_every_number_of_workers(skewed: Project) -> None:
    """To the message and byte, through a warm-up, stages, a change of rate and a swing; on one worker and on three."""
    found = {}
    for workers, only in ((0, ()), (3, ("-k", "shares"))):
        path = skewed.path / f"rows-{workers}.json"
        skewed.environment["ROWS"] = str(path)
        run = skewed.run(f"-n{workers}", "-p", "no:cacheprovider", *only)
        assert run.ret == 0, run.out
        found[workers] = json.loads(path.read_text(encoding="utf-8"))
    assert found[0] == found[3]
    assert len(found[0]) == 180


def test_the_plan_shows_the_busiest_and_the_quietest_topic(skewed: Project) -> None:
    run = skewed.run("--load-plan", "-n2", "-k", "shares", "-p", "no:cacheprovider")
    assert (
        "skew         the busiest topic has 66.7 % of the messages, the quietest 11.1 %" in run.out
    )
