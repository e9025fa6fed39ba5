"""A run that missed its objectives fails its test, whatever its body checked, and a live run without a result is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders.results import Page

if TYPE_CHECKING:
    from .projects import Project

TESTS = """\
import os, signal, threading, time, unittest
from pathlib import Path
import pytest
from pytest_loadtest import NoData, SloMissed, s

DOWN = dict(start=2000, hold="500ms", warmup="0s", repeats=1)  # from the lowest rate that has samples enough: two steps

@pytest.mark.load("lossy")
def test_asks_for_latency_alone(load):
    assert load.end_to_end.p99 <= s(60)

@pytest.mark.load("missed")
def test_expects_the_miss(load):
    with pytest.raises(SloMissed):
        load.assert_slo()

@pytest.mark.load("missed", judge=False)
def test_not_to_be_judged(load):
    assert load.loss == 0

@pytest.mark.xfail
@pytest.mark.load("missed")
def test_expected_to_fail(load): ...

@pytest.mark.xfail(strict=True, raises=SloMissed)
@pytest.mark.load("missed")
def test_strictly_expected_to_fail(load): ...

@pytest.mark.load("missed")
def test_fails_by_itself(load):
    raise ValueError("of the body")

@pytest.mark.load("staged")
def test_asks_one_stage_of_two(load):
    with pytest.raises(SloMissed):
        load.stage("first").assert_slo()

@pytest.mark.load("missed", search=DOWN)
def test_finds_no_rate(load):
    assert load.peak.rate is None

@pytest.mark.load("missed", live=True)
def test_live_asks_nothing(load):
    load.start()

@pytest.mark.load("missed", live=True)
def test_live_expects_the_miss(load):
    with pytest.raises(SloMissed):
        load.start().assert_slo()

@pytest.mark.load("missed", live=True)
def test_live_finds_no_rate(load):
    load.find_peak(**DOWN)

@pytest.mark.load("missed", live=True, judge=False)
def test_live_finds_no_rate_and_goes_on(load):
    assert load.find_peak(**DOWN).rate is None

@pytest.mark.load("missed", live=True)
def test_live_never_started(load): ...

@pytest.mark.load("good", live=True)
def test_live_never_finished(load):
    load.begin()
    over()

@pytest.mark.load("good", live=True, testDuration="5min")
def test_live_broken_behind_the_body(load):
    load.begin()
    kill_relay()
    over()

@pytest.mark.load("good", live=True, testDuration="5min")
def test_live_gives_up_on_the_target_unheard(load):
    load.begin()
    kill_relay()
    over()
    pytest.xfail("expected of this target")

@pytest.mark.load("good", live=True, testDuration="5min")
def test_live_fails_by_itself(load):
    load.begin()
    raise ValueError("of the body")

@pytest.mark.load("good", live=True, testDuration="5min")
def test_live_expects_the_break(load):
    load.begin()
    kill_relay()
    with pytest.raises(NoData, match="loopback://"):
        load.finish()

@pytest.mark.load("good", live=True, search=dict(start=500, hold="500ms", warmup="2s", repeats=1))
def test_live_search_breaks_in_a_warm_up(load, pytestconfig):
    load.begin()
    of_test = "*/test_it.py-test_live_search_breaks_in_a_warm_up-*"
    while not list(Path(pytestconfig.rootpath, ".loadtest").glob(f"{of_test}/1/good/step-01/results.json")):
        load.wait("50ms")
    kill_relay()
    with pytest.raises(NoData, match="loopback://"):
        load.finish()

@pytest.mark.load("missed")
def test_skips_after_the_miss(load):
    pytest.skip("not today")

@pytest.fixture
def doubtful(load):
    pytest.skip("not today")

@pytest.mark.load("missed")
def test_is_skipped_by_a_fixture_after_the_miss(doubtful): ...

@pytest.mark.load("good")
def test_skips_after_its_objectives_were_met(load):
    pytest.skip("not today")

@pytest.mark.load("missed", judge=False)
def test_not_to_be_judged_and_skips(load):
    pytest.skip("not today")

@pytest.mark.load("missed", live=True)
def test_live_skips_after_the_miss(load):
    load.start()
    pytest.skip("not today")

@pytest.mark.load("good", live=True, testDuration="5min")
def test_live_skips_while_load_runs(load):
    load.begin()
    pytest.skip("not today")

@pytest.mark.load("good", live=True)
def test_live_skips_before_any_load(load):
    pytest.skip("not today")

class TestUnittest(unittest.TestCase):
    @pytest.mark.load("missed")
    @pytest.mark.usefixtures("load")
    def test_of_unittest_skips_after_the_miss(self):
        self.skipTest("not today")

def over():
    '''Until the load has come to its end behind the body.'''
    while any(thread.name == "loadtest-live" for thread in threading.enumerate()):
        time.sleep(0.05)

def kill_relay():
    mark = os.environ["LOADTEST_MARK"].encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if b"pytest_loadtest.drivers.loopback.relay" in (entry / "cmdline").read_bytes() and mark in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue
"""
# what JUnit has for a test, and what its text says
EXPECTED = {
    "test_asks_for_latency_alone": ("failure", "missed  loss "),
    "test_expects_the_miss": ("", ""),
    "test_not_to_be_judged": ("", ""),
    "test_expected_to_fail": ("skipped", ""),
    "test_strictly_expected_to_fail": ("skipped", ""),
    "test_fails_by_itself": ("failure", "of the body"),
    "test_asks_one_stage_of_two": (
        "failure",
        "1 of 2 objectives missed (profile staged)\n  missed  stage second: ",
    ),
    "test_finds_no_rate": ("failure", "no rate holds all objectives, down to 2 100/s"),
    "test_live_asks_nothing": ("failure", "missed  endToEndLatency.p99 "),
    "test_live_expects_the_miss": ("", ""),
    "test_live_finds_no_rate": ("failure", "no rate holds all objectives, down to 2 100/s"),
    "test_live_finds_no_rate_and_goes_on": ("", ""),
    "test_live_never_started": ("error", "load.start()"),
    "test_live_never_finished": ("error", "load.finish()"),
    "test_live_broken_behind_the_body": ("error", "loopback://"),
    "test_live_gives_up_on_the_target_unheard": ("error", "loopback://"),
    "test_live_fails_by_itself": ("failure", "of the body"),
    "test_live_expects_the_break": ("", ""),
    "test_live_search_breaks_in_a_warm_up": ("", ""),
    "test_skips_after_the_miss": ("failure", "missed  endToEndLatency.p99 "),
    "test_is_skipped_by_a_fixture_after_the_miss": ("failure", "missed  endToEndLatency.p99 "),
    "test_skips_after_its_objectives_were_met": ("skipped", "not today"),
    "test_not_to_be_judged_and_skips": ("skipped", "not today"),
    "test_live_skips_after_the_miss": ("failure", "missed  endToEndLatency.p99 "),
    "test_live_skips_while_load_runs": ("error", "the test ended before its load"),
    "test_live_skips_before_any_load": ("skipped", "not today"),
    "test_of_unittest_skips_after_the_miss": ("failure", "missed  endToEndLatency.p99 "),
}


CHOSEN = (
    "test_asks_for_latency_alone", "test_strictly_expected_to_fail", "test_live_never_started", "test_live_broken_behind_the_body",
    "test_is_skipped_by_a_fixture_after_the_miss", "test_asks_one_stage_of_two",
)  # fmt: skip


@pytest.mark.parametrize(("workers", "chosen"), [("-n0", ()), ("-n2", CHOSEN)])
def test_what_the_body_does_not_ask(
    project: Project, workers: str, chosen: tuple[str, ...]
) -> None:
    """A miss that the body did not judge is a failure of the call, which xfail handles; the body's own error stays; a live test without a
    result is an error."""
    project.profile("good", slo="{sent: 1%, throughput: 1%}")
    project.missed_profile(rate=3000, duration="500ms", percentile="p99")
    project.profile(
        "lossy",
        rate=3000,
        slo="{endToEndLatency: {p99: 60s}, throughput: 1%, sent: 1%}",
        more="drainTimeout: 500ms",
        driver="{name: loopback, loseEvery: 200}",
    )
    project.profile(
        "staged",
        slo="{sent: 1%, throughput: 1%}",
        more=STAGES,
        driver="{name: loopback, delay: 100ms}",
    )
    staged = (project.path / "profiles/staged.yaml").read_text(encoding="utf-8")
    project.write("profiles/staged.yaml", staged.replace("testDuration: 1s\n", "", 1))
    project.write("test_it.py", TESTS)
    run = project.run(
        workers,
        "-k",
        " or ".join(chosen),
        "--load-set",
        "consumerPerSubscription=1",
        "-p",
        "no:cacheprovider",
    )
    tags = {
        case.get("name"): [
            child.tag for child in case if child.tag in ("failure", "error", "skipped")
        ]
        for case in run.junit
    }
    assert tags == {
        name: [tag] if tag else []
        for name, (tag, _) in EXPECTED.items()
        if not chosen or name in chosen
    }
    texts = {
        case.get("name"): "".join(f"{child.get('message')}\n{child.text}" for child in case)
        for case in run.junit
    }
    assert {
        name: (said, texts[name])
        for name, (_, said) in EXPECTED.items()
        if name in tags and said not in texts[name]
    } == {}
    counts = {
        key: run.outcomes.get(key, 0) for key in ("failed", "error", "passed", "xfailed", "skipped")
    }
    assert list(counts.values()) == ([3, 2, 0, 1, 0] if chosen else [11, 5, 6, 2, 3])
    assert run.properties("test_asks_for_latency_alone")["load.set"] == "consumerPerSubscription=1"
    if not chosen:
        assert run.documents["test_finds_no_rate"]["verdict"]["outcome"] == "missed"
        (report,) = project.path.glob(".loadtest/*/report.html")
        overview = Page(report.read_text(encoding="utf-8")).rows
        assert ["test_live_search_breaks_in_a_warm_up", "no data"] in [row[:2] for row in overview]


SUBTESTS = """\
import pytest

def drive(load, subtests):
    load.begin()
    with subtests.test("optional"):
        pytest.skip("not on this broker")
    load.finish()

@pytest.mark.load("good", live=True)
def test_met(load, subtests):
    drive(load, subtests)

@pytest.mark.load("missed", live=True)
def test_missed(load, subtests):
    drive(load, subtests)
"""


@pytest.mark.skipif(not hasattr(pytest, "Subtests"), reason="this pytest has no subtests")
def test_a_skipped_subtest_is_not_the_end_of_its_test(project: Project) -> None:
    """The load goes on, and is judged once, when the body has returned."""
    project.profile("good", slo="{sent: 1%, throughput: 1%}")
    project.missed_profile()
    project.write("test_it.py", SUBTESTS)
    run = project.run("-p", "no:cacheprovider")
    assert run.outcomes == {"passed": 1, "failed": 1, "skipped": 2}
    assert "FAILED test_it.py::test_missed - 1 of " in run.out


# The largest latency: a stall of the generator for half a stage excuses the median, and not all messages.
STAGES = """\
stages:
  - {name: first, duration: 500ms, rate: 400, slo: {endToEndLatency: {max: 50ms}}}
  - {name: second, duration: 500ms, rate: 400, slo: {endToEndLatency: {max: 50ms}, sent: 1%}}
"""


SET_UP_ONLY = """\
import pytest

@pytest.mark.load("good")
def test_met(load): ...

@pytest.mark.load("missed")
def test_missed(load): ...

@pytest.mark.load("missed", judge=False)
def test_not_to_be_judged(load): ...
"""


def test_a_miss_fails_a_session_that_only_sets_up(project: Project) -> None:
    """With ``--setup-only`` no body runs after which a miss could be judged."""
    project.profile("good", slo="{sent: 1%, throughput: 1%}")
    project.missed_profile()
    project.write("test_it.py", SET_UP_ONLY)
    run = project.run("-p", "no:cacheprovider", "--setup-only")
    assert run.outcomes == {"error": 1}
    assert "1 error" in run.out
    assert run.ret == pytest.ExitCode.TESTS_FAILED
