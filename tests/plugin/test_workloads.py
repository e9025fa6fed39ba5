"""Workloads other than one rate: stages, changes from the body, a backlog, a search, several at once, overrides, a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .projects import Finished, Project

TESTS = """\
import pytest
import pytest_loadtest

@pytest.mark.load("staged")
def test_stages(load):
    load.assert_slo()
    assert [stage.name for stage in load.stages] == ["ramp", "large", "quiet"]
    assert [stage.measurements.counts.offered for stage in load.stages] == [300, 400, 50]
    assert sum(stage.measurements.counts.received for stage in load.stages) == load.measurements.counts.received == 750
    assert load.stage("large").bucket("1KB-2KB").sent == 400
    assert load.stage("ramp").bucket("1KB-2KB").sent == 0

@pytest.mark.load("paused", stages=[
    {"name": "before", "duration": "500ms", "rate": 0}, {"name": "load", "duration": "1s", "rate": 300, "slo": {"loss": 0}},
    {"name": "pause", "duration": "1s", "rate": 0}, {"name": "again", "duration": "1s", "rate": {"from": 0, "to": 400}},
    {"name": "after", "duration": "500ms", "rate": 0},
])
def test_pauses(load):
    load.assert_slo()
    assert [stage.measurements.counts.offered for stage in load.stages] == [0, 300, 0, 200, 0]
    assert load.measurements.counts.received == 500

@pytest.mark.load("paused", messageSize=1024, stages=[
    {"name": "load", "duration": "1s", "rate": "100KB/s"}, {"name": "pause", "duration": "1s", "rate": 0},
    {"name": "again", "duration": "1s", "rate": "50KB/s"},
])
def test_pauses_in_bytes(load):
    load.assert_slo()
    assert load.measurements.bytes_sent == pytest.approx(150 * 1024, abs=8 * 1024)
    assert load.stage("pause").measurements.counts.offered == 0

@pytest.mark.load("plain", live=True, judge=False, testDuration="20s")  # what was held back came late, and the end is early
def test_changes(load):
    load.begin()
    with pytest.raises(pytest_loadtest.UsageError, match="no size bucket 1KB-2KB: the payloads were made for"):
        load.set_distribution({"1KB-2KB": 1})
    load.pause_consumers()
    load.set_rate(0)  # a pause of everything; two seconds of it go by before the next rate
    load.set_rate(1000)
    load.resume_consumers()
    result = load.stop()
    assert result.loss == 0
    assert result.measurements.latencies["end_to_end"].maximum >= 10**9
    assert result.measurements.counts.offered > 500

@pytest.mark.load("plain", live=True, judge=False, testDuration="30s", drainTimeout="1s", consumerPerSubscription=2)
def test_consumers_leave(load):
    load.begin()
    with pytest.raises(pytest_loadtest.UsageError, match=r"set_consumers\\(3\\): not from 0 to 2, the profile's consumerPerSubscription"):
        load.set_consumers(3)
    for number in (1, 2, 0, 1):
        load.set_consumers(number)
    result = load.stop()
    assert 0 < result.loss < result.measurements.counts.offered / 2  # the relay keeps nothing for nobody
    assert result.duplicates == 0

@pytest.mark.load("plain", live=True, stages=[
    {"name": "calm", "duration": "20s", "rate": 200}, {"name": "spike", "duration": "5s", "rate": 400, "slo": {"loss": 0}},
])
def test_a_stage_that_never_began(load):
    load.begin()
    load.stop()

@pytest.mark.load("plain", live=True, testDuration="20s")
def test_forgotten(load):
    load.begin()

@pytest.mark.load("plain", consumerBacklogSizeGB=0.00002, testDuration="500ms")
def test_backlog(load):
    load.assert_slo()
    assert load.backlog.drained
    assert load.backlog.left <= load.backlog.allowed < 300 <= load.backlog.size_messages

@pytest.mark.load(
    "plain", consumerBacklogSizeGB=0.00002, backlogDrainTimeout="1s", testDuration="500ms", drainTimeout="1s", **{"driver.loseEvery": 2}
)
def test_stuck(load):
    assert not load.backlog.drained
    with pytest.raises(AssertionError, match="backlogDrain .*NOT drained: .* still waiting"):
        load.assert_slo()

@pytest.mark.load("plain", consumerBacklogSizeGB=0.00002, testDuration="500ms", **{"driver.duplicateEvery": 10})
def test_drained_with_duplicates(load):
    assert load.duplicates > load.backlog.allowed
    assert load.backlog.drain is None
    first, certain = load.backlog.between
    assert 0 < first < certain

@pytest.mark.load("plain", messages=321)
def test_messages(load):
    assert load.measurements.counts.offered == 321

@pytest.mark.load("plain", producerRate="100KB/s", messageSize=1024)
def test_bytes(load):
    assert load.measurements.bytes_sent == pytest.approx(100 * 1024, abs=5 * 1024)

@pytest.mark.load("slow", search={"start": 200, "hold": "3s", "warmup": "0s", "precision": "50%", "repeats": 1})
def test_search(load):
    assert load.peak.confirmed and load.peak.limit == "target"
    assert 100 <= load.peak.rate <= 400
    load.assert_slo()

@pytest.mark.load("slow", live=True)
def test_live_search(load):
    peak = load.find_peak(start=100, max=100, hold="1s", warmup="0s")
    assert peak.at_least and peak.limit == "maximum"

@pytest.mark.load("late", search={"start": 175, "hold": "6s", "confirm": "6s", "warmup": "0s", "repeats": 1})
def test_ended_early(load):
    assert [step.early for step in load.peak.steps] == [True, True]
    assert load.peak.rate is None and load.peak.broke_first == "endToEndLatency.p99"
    assert load.measurements.latencies["end_to_end"].n < 1000
    with pytest.raises(AssertionError, match="could no longer be met when the run was ended early"):
        load.assert_slo()

@pytest.mark.load("fast", search={"start": 200, "hold": "3s", "confirm": "3s", "warmup": "0s", "precision": "50%", "repeats": 1})
def test_no_objectives(load):
    assert load.peak.rate <= 400 and load.peak.limit != "maximum"
    load.assert_slo()

@pytest.mark.load("both")
def test_several(load):
    load.assert_slo()
    assert load.workload("small").measurements.counts.offered == 200
    assert load.workload("large").measurements.counts.offered == 20

@pytest.mark.load("plain", subscriptionsPerTopic=0, slo={"sent": "50%"})
def test_producers_only(load):
    load.assert_slo()
    assert load.measurements.counts.received == 0

@pytest.mark.load("many")
def test_matrix(load, load_matrix):
    assert load.measurements.counts.offered == load_matrix["producerRate"]
"""
STAGED = """\
stages:
  - {name: ramp, duration: 1s, rate: {from: 100, to: 500}, slo: {endToEndLatency: {p50: 20s}}}
  - {name: large, duration: 1s, rate: 400, messageSizeDistribution: {"1KB-2KB": 1}, consumerPerSubscription: 2}
  - {name: quiet, duration: 1s, rate: 50, consumerPerSubscription: 1}
"""
ASSERTED = (
    "test_stages", "test_pauses", "test_pauses_in_bytes", "test_changes", "test_consumers_leave", "test_backlog", "test_stuck", "test_drained_with_duplicates", "test_messages", "test_bytes", "test_search",
    "test_live_search", "test_several", "test_ended_early", "test_no_objectives",
    "test_producers_only", "test_matrix[producerRate=100-messageSize=64]", "test_matrix[producerRate=200-messageSize=64]",
)  # fmt: skip


@pytest.fixture
def workloads(project: Project) -> Project:
    """Return a project with one test for each."""
    project.profile("plain")
    # At 400/s half of the messages are later than 1.2 s, after three seconds; at 200/s each waits for some ms.
    project.profile(
        "slow",
        slo="{endToEndLatency: {p50: 300ms}, throughput: 1%, sent: 1%, dropped: 100%}",
        driver="{name: loopback, capacity: 220}",
    )
    project.profile("paused", slo="{throughput: 1%, sent: 1%, endToEndLatency: {p50: 20s}}")
    project.profile(
        "late",
        slo="{sent: 1%, throughput: 1%, endToEndLatency: {p99: 100ms}}",
        driver="{name: loopback, delay: 400ms}",
    )
    project.profile("fast", slo="{}", driver="{name: loopback, capacity: 300}")
    project.profile("many", more="matrix: {producerRate: [100, 200], messageSize: [64]}")
    project.profile(
        "both",
        rate=200,
        more="workloads: [{name: small}, {name: large, messageSize: 16KB, producerRate: 20}]",
    )
    project.profile("staged", size='messageSizeDistribution: {"64-128": 1}', more=STAGED)
    for name, old, new in (
        ("staged", "testDuration: 1s\n", ""), ("staged", "consumerPerSubscription: 1\n", "consumerPerSubscription: 2\n"),
        ("paused", "producerRate: 500\n", ""), ("paused", "testDuration: 1s\n", ""),
    ):  # fmt: skip
        text = (project.path / f"profiles/{name}.yaml").read_text(encoding="utf-8")
        project.write(f"profiles/{name}.yaml", text.replace(old, new, 1))
    project.write("test_it.py", TESTS)
    return project


def test_every_kind_of_workload_runs_on_two_workers(workloads: Project) -> None:
    """A load that the body does not end is an error; results in OMB's form are in the requested folder."""
    run = workloads.run(
        "-n2", "-p", "no:cacheprovider", "--load-omb-json", "omb", "--maxfail", "20"
    )
    for name in ASSERTED:
        ends = [
            (child.tag, child.get("message"))
            for child in run.case(name)
            if child.tag in ("failure", "error")
        ]
        assert ends == [], name
    assert "load.finish()" in str(
        [child.get("message") or child.text for child in run.case("test_forgotten")]
    )
    assert len(list((workloads.path / "omb").glob("plain-*.json"))) == 9
    shown(run)


def shown(run: Finished) -> None:
    """Check the output of the session."""
    assert "search step 1 (bracket): 200 msg/s" in run.out
    assert "backlog" in run.out
    assert run.documents["test_stages"]["stages"][1]["name"] == "large"
    assert "stage spike: never began" in str(
        [child.get("message") for child in run.case("test_a_stage_that_never_began")]
    )
    assert run.properties("test_search")["load.peak.at_least"] == "false"
    assert "load.peak.msg_per_s" in run.properties("test_live_search")
    assert "the profile has no objectives, so the implicit ones had to hold: loss <= 0" in run.out
    assert run.documents["test_ended_early"]["verdict"]["outcome"] == "missed"


@pytest.mark.parametrize(
    ("mark", "error"),
    [
        ('"plain", search={"begin": 5}', "begin"),
        ('"plain", mesageSize=5', "messageSize"),
        (
            '"plain", stages=[{"duration": "1s", "rate": {"sine": {"mean": 500, "amplitude": 700, "period": "1s"}}}]',
            "-200",
        ),
        ('"plain", messages=5, testDuration="3s"', "messages"),
        ('"plain", payloadFile="conftest.py"', "messageSize is 64 B"),
    ],
)
def test_a_wrong_mark_is_a_usage_error_before_anything_starts(
    project: Project, mark: str, error: str
) -> None:
    """It names the value."""
    project.profile("plain")
    project.write("profiles/conftest.py", "")
    project.write(
        "test_it.py", f"import pytest\n@pytest.mark.load({mark})\ndef test_it(load): ...\n"
    )
    run = project.run("-n0")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert error in run.out
