"""Workload files of OMB: those in its repository, those of its WorkloadGenerationTool, and what it does with a null or missing field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.plans import HERE, made

from pytest_loadtest import profile
from pytest_loadtest.drivers import planned_facts
from pytest_loadtest.errors import ProfileError
from pytest_loadtest.profile.omb_workload import KEYS, TEXTS, ZEROS, read_profile
from pytest_loadtest.report.plan import plan_table
from pytest_loadtest.values.quantities import MINUTE

TOPOLOGY = [
    "topics",
    "partitionsPerTopic",
    "messageSize",
    "subscriptionsPerTopic",
    "producersPerTopic",
    "consumerPerSubscription",
]
PLACED = [*TOPOLOGY, "producerRate", "consumerBacklogSizeGB", "testDurationMinutes", "name"]
RANDOM = ["useRandomizedPayloads", "randomBytesRatio", "randomizedPayloadPoolSize"]
IN_REPOSITORY = [
    # The keys that the 130 workload files of OMB's repository at 8559989 have: 97, 32 and 1 of them.
    [*PLACED, *RANDOM],
    [*PLACED, "payloadFile"],
    [*PLACED, "payloadFile", "keyDistributor"],
]
GENERATED = """\
name: "{name}"
topics: 1
partitionsPerTopic: 1
keyDistributor: "NO_KEY"
messageSize: 1024
useRandomizedPayloads: false
randomBytesRatio: 0.0
randomizedPayloadPoolSize: 0
payloadFile: null
subscriptionsPerTopic: 1
producersPerTopic: 1
consumerPerSubscription: 1
producerRate: {rate}
consumerBacklogSizeGB: 0
backlogDrainRatio: 1.0
testDurationMinutes: 5
warmupDurationMinutes: 1
"""
"""The form in which Jackson writes a ``Workload`` with the initial values of its fields, and of ``WorkloadSetTemplate``."""
VALUES: dict[str, Any] = {
    "name": "a", "topics": 2, "partitionsPerTopic": 3, "keyDistributor": "KEY_ROUND_ROBIN", "messageSize": 100, "useRandomizedPayloads": True,
    "randomBytesRatio": 0.5, "randomizedPayloadPoolSize": 7, "payloadFile": "payload/a.data", "subscriptionsPerTopic": 1, "producersPerTopic": 1,
    "consumerPerSubscription": 1, "producerRate": 1000, "consumerBacklogSizeGB": 0, "testDurationMinutes": 1,
}  # fmt: skip


def written(values: dict[str, Any]) -> str:
    return "".join(
        f"{key}: {str(value).lower() if isinstance(value, bool) else value}\n"
        for key, value in values.items()
    )


@pytest.mark.parametrize("keys", IN_REPOSITORY)
@pytest.mark.parametrize("rate", [0, 50_000])
def test_a_workload_of_the_repository_is_a_profile(keys: list[str], rate: int) -> None:
    found = profile.loads(
        written({key: VALUES[key] for key in keys} | {"producerRate": rate}), "w.yaml"
    )
    assert found.peak_search is (rate == 0)
    assert found.warmup_duration == MINUTE


@pytest.mark.parametrize("rate", [0, 1000])
def test_a_generated_workload_is_a_profile(rate: int) -> None:
    """All fields are present, with the zeros and the null that have no effect."""
    text = GENERATED.format(name="1-topics-1-partitions-1kb-1p-1c-1k", rate=rate)
    found = profile.loads(text, "w.yaml")
    assert (found.payload_file, found.randomized_payload_pool_size, found.peak_search) == (
        None,
        1,
        rate == 0,
    )
    assert (found.test_duration, found.warmup_duration) == (5 * MINUTE, MINUTE)
    assert read_profile(text, "w.yaml").omb


def test_objectives_may_be_added_to_a_generated_workload() -> None:
    """Its null and its zero are still no errors."""
    found = profile.loads(
        GENERATED.format(name="a", rate=1000) + "slo: {throughput: 95%}\n", "w.yaml"
    )
    assert "throughput" in found.slo


def test_a_pool_without_payloads_is_an_error_if_payloads_come_from_it() -> None:
    """OMB stops at it."""
    text = GENERATED.format(name="a", rate=1).replace(
        "useRandomizedPayloads: false", "useRandomizedPayloads: true"
    )
    with pytest.raises(
        ProfileError, match="w.yaml:8:28: randomizedPayloadPoolSize: 0 must be at least 1"
    ):
        profile.loads(text, "w.yaml")


def test_the_table_has_every_field_once() -> None:
    assert len(KEYS) == 17
    assert {*TEXTS} & ZEROS.keys() == set()
    assert {line.split(":")[0] for line in GENERATED.splitlines()} == KEYS


@pytest.mark.parametrize("line", ["", "name:\n", "name: null\n"])
def test_a_missing_name_is_that_of_the_file(tmp_path: Path, line: str) -> None:
    """As in OMB, up to the last dot."""
    path = tmp_path / "max.rate-1kb.yaml"
    path.write_text(line + "producerRate: 5\nmessageSize: 100\ntestDuration: 1s\n")
    assert profile.load(path).name == "max.rate-1kb"
    assert profile.override(path, {"producerRate": 7}).name == "max.rate-1kb"


def test_a_missing_rate_is_a_search_in_a_file_of_omb_and_the_plan_says_so() -> None:
    found = profile.loads("topics: 1\nmessageSize: 100\ntestDurationMinutes: 1\n", "w.yaml")
    assert found.peak_search
    text = "\n".join(plan_table(made(found), planned_facts(found), HERE))
    assert "because producerRate is missing, for which OMB searches the highest rate" in text
    chosen = profile.loads("topics: 1\nmessageSize: 100\nproducerRate: 0\n", "w.yaml")
    assert "because" not in "\n".join(plan_table(made(chosen), planned_facts(chosen), HERE))


@pytest.mark.parametrize(
    "line",
    [
        "slo: {throughput: 95%}",
        "driver: {name: mqtt}",
        "testDuration: 5s",
        "stages: [{duration: 1s}]",
        "description: a",
        "seed: 1",
    ],
)
def test_a_missing_rate_next_to_a_key_of_ours_is_an_error(line: str) -> None:
    minutes = "" if line.startswith(("testDuration", "stages")) else "testDurationMinutes: 1\n"
    with pytest.raises(ProfileError, match="w.yaml:1:1: producerRate is missing"):
        profile.loads(f"topics: 1\nmessageSize: 100\n{minutes}{line}\n", "w.yaml")


NULLS = [
    ("warmupDurationMinutes", "warmup_duration", 0),
    ("consumerBacklogSizeGB", "consumer_backlog_size_gb", 0),
    ("producerRate", "producer_rate", 0),
]


@pytest.mark.parametrize(("key", "field", "value"), NULLS)
def test_null_is_zero_in_a_file_of_omb(key: str, field: str, value: object) -> None:
    """As for Jackson: warmupDurationMinutes is 1 if it is missing, and 0 if it is null."""
    text = (
        written({name: value for name, value in VALUES.items() if name not in (key, "payloadFile")})
        + f"{key}:\n"
    )
    assert getattr(profile.loads(text, "w.yaml"), field) == value
    line = len(text.splitlines())
    with pytest.raises(ProfileError, match=f"w.yaml:{line}:{len(key) + 2}: {key}: no value"):
        profile.loads(text + "seed: 1\n", "w.yaml")


def test_null_at_which_omb_stops_is_an_error() -> None:
    text = written({"topics": 1, "messageSize": 100, "producerRate": 1, "testDurationMinutes": 1})
    with pytest.raises(ProfileError, match="keyDistributor: no value"):
        profile.loads(text + "keyDistributor:\n", "w.yaml")
    with pytest.raises(ProfileError, match="testDurationMinutes"):  # OMB would run without end
        profile.loads(text.replace("testDurationMinutes: 1", "testDurationMinutes:"), "w.yaml")


def test_a_drain_ratio_of_zero_counts_only_with_a_backlog() -> None:
    text = written(
        {"messageSize": 100, "producerRate": 1, "testDurationMinutes": 1, "backlogDrainRatio": 0.0}
    )
    assert profile.loads(text, "w.yaml").backlog_drain_ratio == 1
    with pytest.raises(ProfileError, match="backlogDrainRatio: 0.0 must be above 0"):
        profile.loads(text + "consumerBacklogSizeGB: 1\n", "w.yaml")
