"""Windows and drift beside what else a profile says."""

from __future__ import annotations

import jsonschema
import pytest
import yaml

from pytest_loadtest import profile
from pytest_loadtest.errors import ProfileError

PROFILE = "name: windows\nmessageSize: 100\nproducerRate: 1000\ntestDuration: 60s\ndriver: {name: loopback}\n"


def wrong(text: str) -> str:
    with pytest.raises(ProfileError) as caught:
        profile.loads(text, "p.yaml")
    return str(caught.value)


def test_the_issues_spelling() -> None:
    """A window, an error budget, a drift, in one line of YAML; the schema for editors agrees."""
    text = PROFILE + "slo: {window: 10s, endToEndLatency: {p99: 100ms}, violations: 1%, drift: {endToEndLatency.p99: 20%}}\n"
    found = [one.name for one in profile.loads(text, "p.yaml").objectives if not one.implicit]
    assert found == ["endToEndLatency.p99", "drift.endToEndLatency.p99"]
    jsonschema.validate(yaml.safe_load(text), profile.json_schema())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("slo: {window: 90s, throughput: 99%}\n", "p.yaml:6:15: slo.window: 90.0 s is longer than the measured phase, 60.0 s"),
        (
            "slo: {throughput: 99%}\nscaled: {slo: {window: 90s}}\n",
            "p.yaml:7:24: scaled.slo.window: 90.0 s is longer than the measured phase",
        ),
        (
            "slo: {window: 1s, publishLatency: {p99: 1s}, whole: {endToEndLatency: {p99: 1s}}}\nsubscriptionsPerTopic: 0\n",
            "p.yaml:6:54: slo.whole.endToEndLatency: nothing is received without consumers",
        ),
        (
            "slo: {drift: {endToEndLatency.p99: 5%}}\nsubscriptionsPerTopic: 0\n",
            "p.yaml:6:15: slo.drift.endToEndLatency.p99: nothing is received without consumers",
        ),
        ("slo: {window: 1s, sendDelay: {p99: 1s}, whole: {lateness: {p99: 1s}}}\n", "slo.whole.lateness: no message is delayed"),
        (
            "slo: {window: 10s, throughput: 99%, whole: {buckets: {1-2: {loss: 0}}}}\n",
            "slo.whole.buckets.1-2: '1-2' is not a size bucket of this profile",
        ),
        (
            "slo: {throughput: 99%}\nscaled: {slo: {violations: 1%}}\n",
            "p.yaml:7:16: scaled.slo.violations: 'violations' has no effect without",
        ),
    ],
)
def test_what_does_not_fit_is_said_with_its_place(more: str, message: str) -> None:
    """File, line and column."""
    assert message in wrong(PROFILE + more)


def test_windows_of_stages_and_searches_fit_into_them() -> None:
    """Each stage has its own; a search judges steps."""
    stages = PROFILE.replace("testDuration: 60s\n", "stages: [{duration: 5s, slo: {window: 6s, throughput: 1%}}]\n")
    assert "stages.0.slo.window: 6.00 s is longer than the stage 'stage 1', 5.00 s" in wrong(stages)
    tenth = stages.replace("{window: 6s, throughput: 1%}", "{drift: {throughput: 1%}}")
    assert "stages.0.slo.drift: a tenth of the stage 'stage 1', 5.00 s, is less than a second" in wrong(tenth)
    search = PROFILE.replace("producerRate: 1000\ntestDuration: 60s\n", "search: {hold: 20s}\n") + "slo: {window: 30s, throughput: 99%}\n"
    assert "slo.window: 30.0 s is longer than a step of the search, 20.0 s" in wrong(search)
    assert profile.loads(search.replace("30s, t", "10s, t"), "p.yaml").objectives[0].window


def test_there_are_not_too_many_windows() -> None:
    """A hundred thousand: more would take as long to judge as to measure."""
    text = PROFILE.replace("60s", "30h") + "slo: {window: 1s, throughput: 99%}\n"
    assert "the measured phase, 30.0 h, has more than 100,000 of them (write 2s or more)" in wrong(text).replace("1.25 d", "30.0 h")


def test_what_replaces_a_section_for_scaled_runs_may_lean_on_it() -> None:
    """Its violations are of the windows that the profile has."""
    found = profile.loads(PROFILE + "slo: {window: 10s, throughput: 99%}\nscaled: {slo: {violations: 5%}}\n", "p.yaml")
    assert (found.objectives[0].violations, found.as_scaled().objectives[0].violations) == (0.0, 0.05)
