"""The JSON Schema and the profiles that come with the project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from pytest_loadtest import profile
from pytest_loadtest.commands.starter import schema_text
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.errors import ProfileError
from pytest_loadtest.values.quantities import HOUR, MINUTE

FOLDER = Path(__file__).parents[3] / "profiles"
PROFILES = sorted(FOLDER.rglob("*.yaml"))
NOTHING = object()
"""Instead of a value: the key is left out."""
LEAST = {"name": "a", "producerRate": 1, "messageSize": 100, "testDuration": "1s"}


def schema_of_profiles() -> dict[str, Any]:
    """Return what ``pytest-loadtest schema`` prints; ``scripts/schemas --check`` says whether it is current."""
    schema: dict[str, Any] = json.loads(schema_text("profile"))
    return schema


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = schema_of_profiles()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("file", PROFILES, ids=[file.stem for file in PROFILES])
def test_every_profile_of_the_project_is_valid(file: Path, validator: Draft202012Validator) -> None:
    """For the loader and for the schema, and it has objectives."""
    found = profile.load(file)
    assert any(not objective.implicit for objective in found.objectives)
    assert [
        error.message
        for error in validator.iter_errors(yaml.safe_load(file.read_text(encoding="utf-8")))
    ] == []


@pytest.mark.parametrize("file", PROFILES, ids=[file.stem for file in PROFILES])
def test_every_profile_begins_with_its_purpose(file: Path) -> None:
    """And with the line that lets editors complete it."""
    purpose, editor = file.read_text(encoding="utf-8").splitlines()[:2]
    assert purpose.startswith("# ")
    assert purpose.endswith((".", "?"))
    assert (
        editor
        == f"# yaml-language-server: $schema={'../' * (len(file.relative_to(FOLDER).parts) - 1)}schema.json"
    )


MATRICES = {
    # of each matrix its tests, and a part that stands for the rest where there are many
    "mqtt/tput-broadcast": (12 * 3 * 3 * 2, {}),
    "mqtt/tput-fanin": (3 * 28, {"size": "64B", "sessions": "qos2"}),
    "mqtt/mqttv5-properties": (7 * 3, {}),
    "mqtt/mqttv5-topicaliases": (7 * 2 * 3, {}),
    "mqtt/mqttbs": (8, {}),
    "pulsar/delayed": (2, {}),
    "pulsar/delayed-index": (3, {}),
    "pulsar/delayed-ticks": (10, {}),
    "mqtt/connburst": (6 * 6 * 6, {}),
}


@pytest.mark.parametrize("name", MATRICES)
def test_every_combination_of_a_matrix_is_valid(name: str) -> None:
    """Each has an id of its own."""
    count, part = MATRICES[name]
    found = profile.matrix_of(profile.find(name, FOLDER), part)
    assert len({one.id for one in found}) == len(found) == count


@pytest.mark.parametrize(
    ("subscribers", "each"), [("1x1-1M", 1_000_000), ("10x10-10K", 1000), ("10x10-1M", 100_000)]
)
@pytest.mark.parametrize(("sessions", "clean"), [("qos0", True), ("qos2", False)])
def test_the_broadcast_profiles_have_subscribers_for_every_topic(
    subscribers: str, each: int, sessions: str, clean: bool
) -> None:
    """Sessions outlive connections above QoS 0."""
    path = profile.find("mqtt/tput-broadcast", FOLDER)
    (one,) = profile.matrix_of(
        path, {"subscribers": subscribers, "size": "4KB", "sessions": sessions, "tls": "tls12"}
    )
    found = profile.override(path, one.changes)
    assert (found.topics, found.producers_per_topic) == (
        (1, 1) if subscribers.startswith("1x") else (10, 1)
    )
    assert (found.subscriptions_per_topic, found.consumer_per_subscription, found.ordered) == (
        each,
        1,
        True,
    )
    assert found.message_size == 4096
    assert isinstance(found.driver, MqttSettings)
    assert (found.driver.qos, found.driver.clean_start, found.driver.session_expiry > 0) == (
        int(sessions[-1]),
        clean,
        not clean,
    )
    assert found.driver.tls is not None
    assert (found.driver.tls.version, found.driver.tls.ciphers) == (
        "TLSv1.2",
        "ECDHE-RSA-AES256-GCM-SHA384",
    )
    assert found.target is not None
    assert found.target.security is not None
    assert found.target.security.tls == "subscribers"
    assert found.search is not None
    assert (found.peak_search, found.search.confirm) == (True, 10 * MINUTE)


@pytest.mark.parametrize(
    ("name", "rate", "duration", "warmup"),
    [("prod-2m", 2.5e6, HOUR, 5 * MINUTE), ("soak-24h", 2e6, 24 * HOUR, 10 * MINUTE)],
)
def test_the_production_profiles_have_the_measured_mix(
    name: str, rate: float, duration: int, warmup: int
) -> None:
    """Its topics, clients, weights, rate and phases."""
    found = profile.load(profile.find(name, FOLDER))
    assert (found.topics, found.partitions_per_topic, found.producers_per_topic) == (10, 100, 20)
    assert (found.subscriptions_per_topic, found.consumer_per_subscription) == (1, 10)
    assert [bucket.weight for bucket in found.buckets or ()] == [234, 456, 678, 312, 98, 45, 18, 6]
    assert [bucket.high for bucket in found.buckets or ()] == [
        256,
        1024,
        4096,
        16384,
        65536,
        262144,
        1048576,
        5242880,
    ]
    assert (found.use_randomized_payloads, found.random_bytes_ratio) == (True, 0.5)
    assert (found.producer_rate, found.test_duration, found.warmup_duration) == (
        rate,
        duration,
        warmup,
    )
    assert found.scalable == ("topics", "partitions", "producers", "consumers")


def test_schema_has_every_key_in_yaml_spelling() -> None:
    """Keys are camelCase, with a description each."""
    schema = schema_of_profiles()
    sections = {"Profile": schema} | schema["$defs"]
    assert "driver" in schema["properties"]
    assert {
        "PulsarSettings",
        "MqttSettings",
        "LoopbackSettings",
        "TargetSection",
        "GeneratorLimits",
    } <= sections.keys()
    for section, body in sections.items():
        for key, value in body.get("properties", {}).items():
            assert key[0].islower(), (section, key)
            assert "_" not in key, (section, key)
            assert "description" in value or "$ref" in value or "const" in value, (section, key)


def test_the_schema_has_no_keys_of_results() -> None:
    assert {"sizeSource", "notApplied"}.isdisjoint(schema_of_profiles()["properties"])


def test_schema_shows_durations_as_yaml_writes_them() -> None:
    """A default is 30s, not 30000000000."""
    assert schema_of_profiles()["properties"]["drainTimeout"]["default"] == "30s"


def named(change: dict[str, object]) -> str:
    return ", ".join(
        f"{key}: {'nothing' if value is NOTHING else value}" for key, value in change.items()
    )


GOOD: list[dict[str, object]] = [
    {},
    {"slo": {"throughput": "99%", "sent": "99.5%", "loss": 0, "duplicates": "0.01%"}},
    {
        "slo": {
            "throughput": "5000/s",
            "endToEndLatency": {"p99.9": "100ms", "p42": {"min": "1ms", "max": "2s"}, "max": "2s"},
        }
    },
    {"slo": {"throughput": {"min": "90%", "max": "100%"}}},
    {
        "slo": {
            "custom": {
                "gold.p99": "50ms",
                "rate": {"min": "5/s"},
                "share": {"min": "-1.5", "max": 0.3},
                "part": "30%",
            }
        }
    },
    {"driver": {"name": "mqtt", "qos": 0, "protocolVersion": 5}},
    {"driver": {"name": "loopback", "delay": 0, "stall": {"at": "1s", "duration": "2s"}}},
    {"broker": {"settings": {"a": 1, "b": "x", "c": True}}},
    {"messageSize": "1KB"},
    {"producerRate": "200MB/s"},
    {"producerRate": "5000 msg/s"},
    {"producerRate": 0, "search": {"start": 100, "precision": "5%"}, "slo": {"loss": 0}},
    {"producerRate": 0, "search": True, "slo": {"loss": 0}},
    {"subscriptionsPerTopic": 0},
    {"topic": "persistent://public/default/a"},
    {
        "slo": {"buckets": {"0-256": {"endToEndLatency": {"p99": "2s"}, "loss": 0}}},
        "messageSize": NOTHING,
        "messageSizeDistribution": {"0-256": 1},
    },
    {
        "scaled": {
            "slo": {"throughput": "50%", "endToEndLatency": {"p99": "5s"}},
            "generator": {"cpu": 2, "sendDelayP99": "1s"},
        }
    },
    {"slo": {"loss": {"min": 1, "max": 5}, "duplicates": {"min": 1}}},
    {"consumerBacklogSizeGB": 1, "slo": {"backlogDrain": "1min"}},
    {
        "testDuration": NOTHING,
        "stages": [
            {"name": "a", "duration": "1s", "rate": 5, "slo": {"loss": 0}},
            {"duration": "1s", "rate": "7/s"},
        ],
    },
    {
        "testDuration": NOTHING,
        "stages": [{"duration": "1s", "rate": {"from": 1, "to": 2}}, {"duration": "1s"}],
    },
    {
        "testDuration": NOTHING,
        "stages": [
            {"duration": "1s", "rate": {"sine": {"mean": 2, "amplitude": 1, "period": "1s"}}}
        ],
    },
    {
        "testDuration": NOTHING,
        "stages": [
            {"duration": "1s", "rate": {"spike": {"base": 1, "peak": 2, "at": 0, "for": "1s"}}}
        ],
    },
    {
        "testDuration": NOTHING,
        "stages": [{"duration": "1s", "rate": {"replay": [1, 2], "every": "500ms"}}],
    },
    {"testDuration": NOTHING, "messages": 1000},
    {"workloads": [{"name": "a", "producerRate": 5}, {"name": "b", "topics": 2}]},
    {"matrix": {"messageSize": [100, "1KB"], "driver.batchingEnabled": [True, False]}},
    {"messageSize": NOTHING, "matrix": {"messageSize": [100, "1KB"]}},
]


def changed(change: dict[str, object]) -> dict[str, object]:
    """The least profile with other keys, or without some."""
    return {key: value for key, value in (LEAST | change).items() if value is not NOTHING}


@pytest.mark.parametrize("change", GOOD, ids=[named(change) for change in GOOD])
def test_the_schema_accepts_valid_keys(
    change: dict[str, object], validator: Draft202012Validator
) -> None:
    assert [error.message for error in validator.iter_errors(changed(change))] == []
    profile.loads(json.dumps(changed(change)), "p.yaml")


BAD: list[dict[str, object]] = [
    {"prodcerRate": 1},
    {"slo": {"los": 0}},
    {"slo": {"endToEndLatency": {"p999": "1s"}}},
    {"slo": {"endToEndLatency": {"p99": 5}}},
    {"slo": {"loss": "5ms"}},
    {"slo": {"custom": {}}},
    {"slo": {"custom": {"gold.p99": "5 parsecs"}}},
    {"slo": {"custom": {"gold.p99": {"most": "5s"}}}},
    {"driver": {"name": "kafka"}},
    {"driver": {"name": "pulsar", "qos": 1}},
    {"testDurationMinutes": 1},
    {"messageSizeDistribution": {"0-256": 1}},
    {"drainTimeout": 30},
    {"messageSize": None},
    {"topics": 0},
    {"producerRate": "200Mbit/s"},
    {"messages": 5},
    {"stages": [{"duration": "1s"}]},
    {"testDuration": NOTHING, "stages": [{"duration": "1s", "rate": {"form": 1}}]},
    {"testDuration": NOTHING, "stages": [{"duration": "1s", "rate": {"from": 1}}]},
    {"testDuration": NOTHING},
    {"producerRate": NOTHING},
    {"slo": {"buckets": {}}},
    {"slo": {"buckets": {"0-256": {"sent": "99%"}}}},
    {"workloads": []},
    {"workloads": [{"producerRate": 5}]},
    {"workloads": [{"name": "a", "matrix": {"topics": [1]}}]},
    {"matrix": {"messageSize": 100}},
    {"sizeSource": "a.csv"},
    {"slo": {"loss": {"min": 1}}},
    {"slo": {"backlogDrain": 5}},
    {"scaled": {"slo": {"los": 0}}},
    {"scaled": {"topics": 1}},
    {"scaled": {"generator": {"cpus": 1}}},
]


@pytest.mark.parametrize("change", BAD, ids=[named(change) for change in BAD])
def test_the_schema_rejects_what_the_loader_rejects(
    change: dict[str, object], validator: Draft202012Validator
) -> None:
    wrong = changed(change)
    assert list(validator.iter_errors(wrong))
    with pytest.raises(ProfileError):
        profile.loads(json.dumps(wrong), "p.yaml")
