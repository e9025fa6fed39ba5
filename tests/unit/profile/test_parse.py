"""Texts as profiles, or all their problems at once; workloads."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest import profile
from pytest_loadtest.errors import ProfileError
from pytest_loadtest.values.quantities import SECOND

HEAD = "name: a\nproducerRate: 1\ntestDuration: 1s\n"


LEAST = HEAD + "messageSize: 100\n"


def problems(text: str) -> str:
    with pytest.raises(ProfileError) as caught:
        profile.loads(text, "p.yaml")
    return str(caught.value)


def places(text: str) -> list[str]:
    """Return line and column of each problem."""
    return [line.split(": ")[0].removeprefix("p.yaml:") for line in problems(text).splitlines()]


WRONG = """\
name: no
topics: 3
topics: 4
prodcerRate: 5
messageSize: 100
messageSizeDistribution: {"0-10": 0, "256-1024": 1, "512-2048": 1}
testDuration: 30 sec
testDurationMinutes: 1
driver:
  name: mqtt
  qos: 0
slo:
  endToEndLatency: {p101: 1ms}
target: {url: pulsar://x}
"""


def test_all_problems_of_keys_are_reported_in_the_order_of_the_file() -> None:
    """Those of the text, of values, of missing keys, and of objectives."""
    assert places(WRONG) == ["1:1", "1:7", "3:1", "4:1", "5:1", "6:35", "7:15", "8:1", "13:21"]


def test_all_problems_between_keys_follow_once_every_key_is_valid() -> None:
    """A check never meets a default in place of an invalid value."""
    valid = """\
name: "no"
topics: 3

producerRate: 5

messageSizeDistribution: {"0-10": 1, "256-1024": 1, "512-2048": 1}
testDuration: 30s

driver:
  name: mqtt
  qos: 0
slo:
  endToEndLatency: {p99: 1ms}
target: {url: pulsar://x}
"""
    assert places(valid) == ["6:27", "6:53", "14:15"]


def test_problems_between_keys_wait_for_all_workloads() -> None:
    """The keys of each are reported, then what they contradict."""
    text = f"{LEAST}workloads:\n  - {{name: a, target: {{url: pulsar://x}}, driver: {{name: mqtt}}}}\n  - {{name: b, topics: TOPICS}}\n"
    assert places(text.replace("TOPICS", "x")) == ["7:23"]
    assert places(text.replace("TOPICS", "2")) == ["6:29"]


def test_an_objective_that_yaml_misreads_is_one_problem() -> None:
    """The section is not read again with the value that YAML made of it."""
    assert places(f"{LEAST}slo: {{loss: 010, endToEndLatency: {{p99: no}}}}\n") == ["5:13", "5:41"]


def test_a_wrong_value_hides_no_problem_of_other_keys() -> None:
    """An invalid section next to it is reported too."""
    text = f"{LEAST}topics: x\ndriver: {{name: mqtt, qos: 7}}\nslo: {{publishLatency: {{p50: 1}}, outOfOrder: 0}}\nconsumerPerSubscription: 2\n"
    assert places(text) == ["5:9", "6:27", "7:29"]
    repaired = text.replace("topics: x", "topics: 1").replace("qos: 7", "qos: 1")
    assert places(repaired.replace("p50: 1}", "p50: 1s}")) == ["7:34"]


WORDS = """name topics driver slo messageSize target broker qos p99 loss scalable url x stages workloads matrix search rate sine from replay
    duration producersPerTopic buckets driver.qos"""


KEYS = st.sampled_from(WORDS.split())


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.floats()
    | st.sampled_from(["1e6", "pulsar", "mqtt", "5s", "99%", "1KB", "", "0-9"])
)


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_mapping_is_a_profile_or_a_list_of_problems(value: dict[str, object]) -> None:
    """The only error is ProfileError, and each problem has a line and a message."""
    text = "\n".join(f"{key}: {_flow(item)}" for key, item in value.items())
    with pytest.raises(ProfileError) as caught:
        profile.loads(text, "p.yaml")
    assert all(
        1 <= problem.line <= max(1, len(value)) and problem.message
        for problem in caught.value.problems
    )


def _flow(value: object) -> str:
    """YAML in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return (
        "~"
        if value is None
        else f'"{value}"'
        if isinstance(value, str) and not value.isalnum()
        else str(value)
    )


SENDING = "name: a\nproducerRate: 1000\nmessageSize: 100\ntestDuration: 1s\n"


TOGETHER = """\
name: mixed
messageSize: 1KB
testDuration: 5s
driver: {name: loopback}
workloads:
  - {name: telemetry, producerRate: 100}
  - name: files
    producerRate: 5
    messageSizeDistribution: {1KB-1MB: 1}
    testDuration: 3s
    slo: {loss: 0}
"""


def lines_of(text: str) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        profile.loads(text, "p.yaml")
    return str(caught.value).splitlines()


def test_workloads_share_the_keys_next_to_their_list() -> None:
    """Their own keys replace them."""
    whole = profile.loads(TOGETHER, "p.yaml")
    telemetry, files = whole.workloads
    assert (whole.name, whole.peak_search, whole.search) == ("mixed", False, None)
    assert (telemetry.name, telemetry.message_size, telemetry.test_duration, telemetry.slo) == (
        "telemetry",
        1024,
        5 * SECOND,
        {},
    )
    assert (files.name, files.message_size, files.test_duration, files.slo) == (
        "files",
        None,
        3 * SECOND,
        {"loss": 0},
    )
    assert [one.driver.name for one in whole.workloads] == ["loopback", "loopback"]
    assert profile.loads(SENDING, "p.yaml").workloads == ()


def test_workloads_read_back_from_results() -> None:
    whole = profile.loads(TOGETHER, "p.yaml")
    again = profile.from_document(json.loads(json.dumps(whole.document())))
    assert again.document() == whole.document()
    assert [one.test_duration for one in again.workloads] == [5 * SECOND, 3 * SECOND]


def test_a_problem_of_a_workload_has_its_place() -> None:
    """A problem of a shared key is reported once."""
    text = """\
name: all
messageSize: 1K
testDuration: 5s
workloads:
 - {name: a, producerRat: 100}
 - {name: a, producerRate: 5, slo: {los: 0}}
 - {matrix: 3, producerRate: 5}
 - 5
"""
    assert lines_of(text) == [
        "p.yaml:2:14: messageSize: '1K' is not a size (write bytes, or a number and B, KB, MB or GB (1KB is 1024 bytes))",
        "p.yaml:5:4: producerRate is missing (write producerRate: 1000)",
        "p.yaml:5:14: unknown key 'producerRat' (did you mean producerRate?)",
        "p.yaml:6:11: there are two workloads 'a' (give each its own name)",
        "p.yaml:6:37: slo.los: 'los' is not a metric (did you mean loss?)",
        "p.yaml:7:4: workloads.2.name is missing (write name: and its name in reports)",
        "p.yaml:7:5: a workload cannot have matrix (move it to the top level)",
        "p.yaml:8:4: workloads.3 is not a mapping (write {name: a, producerRate: 100})",
    ]
    assert lines_of(SENDING + "workloads: 5\n") == [
        "p.yaml:5:12: workloads is not a list of workloads (write workloads: [{name: a, producerRate: 100}, …])"
    ]


def test_a_search_next_to_other_workloads_is_an_error() -> None:
    """A single workload may search."""
    searched = "{name: b, producerRate: 0, slo: {endToEndLatency: {p99: 1s}}}"
    told = (
        "p.yaml:7:4: workloads.1 'b' searches its peak (producerRate 0), and the other workloads end before it"
        " (write a producerRate, or search in a profile of its own)"
    )
    assert lines_of(
        SENDING + f"workloads:\n - {{name: a, producerRate: 100}}\n - {searched}\n"
    ) == [told]
    assert profile.loads(SENDING + f"workloads: [{searched}]\n", "p.yaml").workloads[0].peak_search
