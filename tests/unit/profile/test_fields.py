"""Absurd values in profiles: each is a short error with its place, at once, and nothing large is made from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders.plans import made

from pytest_loadtest import profile
from pytest_loadtest.errors import LoadtestError, UsageError
from pytest_loadtest.plan.plan import profile_pool

BASE = {
    "name": "p",
    "producerRate": 10,
    "messageSize": 100,
    "testDuration": "1s",
    "driver": {"name": "loopback"},
}


LONG = "root:x:0:0:root:/root:/bin/sh " * 1000


def written(folder: Path, **keys: Any) -> Path:
    """The least profile with other keys; None leaves one out."""
    path = folder / "p.yaml"
    path.write_text(
        json.dumps({key: value for key, value in (BASE | keys).items() if value is not None})
    )
    return path


STAGE = {"testDuration": None}


SIZES = {"messageSize": None}


ABSURD: list[tuple[dict[str, Any], str]] = [
    ({"producerRate": 10**15}, "producerRate: 1000000000000000 is more than can be timed (write less than 9000000000/s)"),
    ({"producerRate": "10GB/s"}, "producerRate: '10GB/s' is more than can be timed (write less than 8583MB/s)"),
    ({"producerRate": "1e400/s"}, "producerRate: '1e400/s' is more than can be timed"),
    ({"producerRate": "1e99999999/s"}, "producerRate: '1e99999999/s' is more than can be timed"),
    ({"producerRate": 0.0001}, "producerRate: 0.0001 is slower than can be paced (write 0.001 or more)"),
    ({"messageSize": "10GB"}, "messageSize: 10737418240 B is above what the relay takes, 268435456 B (write 268435456 or less)"),
    ({"messageSize": 10**30}, "messageSize: 1000000000000000000000000000000 B is above what the relay takes"),
    ({"messageSize": "1e99999999"}, "messageSize: '1e99999999' is not a size"),
    ({"messageSize": "10GB", "driver": {"name": "mqtt"}}, "messageSize: 10737418240 B is above what the broker takes, 268435455 B"),
    (
        {"messageSize": "10GB", "driver": {"name": "pulsar"}, "broker": {"settings": {"maxMessageSize": 10**14}}},
        "messageSize: 10737418240 B is above what the broker takes, 2147482623 B (write 2147482623 or less)",
    ),
    ({**SIZES, "messageSizeDistribution": {"1GB-9GB": 1}}, "size range '1GB-9GB' starts above what the relay takes, 268435456 B"),
    ({"testDuration": "999999999d"}, "testDuration: '999999999d' is longer than ten years (write 3650d or less)"),
    ({"testDuration": "1e99999999h"}, "testDuration: '1e99999999h' is longer than ten years"),
    ({**STAGE, "testDurationMinutes": 10**12}, "testDurationMinutes: 1000000000000 must be at most 5256000"),
    ({"warmupDuration": "99999999d"}, "warmupDuration: '99999999d' is longer than ten years"),
    ({"drainTimeout": "99999999d"}, "drainTimeout: '99999999d' is longer than ten years"),
    ({**STAGE, "messages": 10**25}, "messages: 10000000000000000000000000 messages at 10 msg/s take longer than ten years"),
    ({"partitionsPerTopic": 10**9}, "partitionsPerTopic: 1000000000 gives 1,000,000,000 partitions"),
    ({"randomizedPayloadPoolSize": 10**9}, "randomizedPayloadPoolSize: 1000000000 must be at most 65536"),
    ({"consumerBacklogSizeGB": 10**12}, "consumerBacklogSizeGB: 10,737,418,240,000,000,000 messages take longer than ten years to build"),
    ({"name": "x" * 100_000}, "name has 100000 characters, at most 200 are possible (write a shorter one)"),
    ({"slo": {"loss": 10**400}}, f"slo.loss: '1{'0' * 78}… is not a whole number of messages"),
    ({"slo": {"loss": "1e400"}}, "slo.loss: '1e400' is not a whole number of messages"),
    ({"slo": {"throughput": "1e400/s"}}, "slo.throughput: '1e400/s' is not a bound"),
    ({"slo": {"throughput": LONG}}, f"slo.throughput: '{LONG[:80]}… is not a rate"),
    ({"driver": {"name": LONG}}, "driver.name: 'root:x:0:0:root:"),
    ({"target": {"url": LONG}}, "target.url: 'root:x:0:0:root:"),
    ({"keyDistributor": LONG}, "keyDistributor: 'root:x:0:0:root:"),
    ({"topics": LONG}, "topics: 'root:x:0:0:root:"),
    ({"drainTimeout": LONG}, "drainTimeout: 'root:x:0:0:root:"),
    ({**STAGE, "stages": [{"duration": "1h", "rate": {"replay": [1], "every": "1us"}}]}, "stage 'stage 1': 3600000000 pieces"),
    ({**STAGE, "stages": [{"duration": "300d", "rate": {"sine": {"mean": 2, "amplitude": 1, "period": "1s"}}}]}, "pieces"),
    ({"matrix": {"topics": list(range(1, 101)), "seed": list(range(101))}}, "matrix: 10100 combinations, at most 10000 are possible"),
    ({"search": {"start": 10**15}, "producerRate": 0, "slo": {"loss": 0}}, "search.start: 1000000000000000 is more than can be timed"),
    ({"search": {"precision": "0.000001%"}, "producerRate": 0, "slo": {"loss": 0}}, "search.precision: 0.000001% must be at least 0.001"),
    ({"search": {"hold": "1ns"}, "producerRate": 0, "slo": {"loss": 0}}, "search.hold: 1 ns is too short to judge a rate (write 100 ms or more)"),
    ({"search": {"repeats": 10**9}, "producerRate": 0, "slo": {"loss": 0}}, "search.repeats: 1000000000 must be at most 100"),
    ({"slo": {"endToEndLatency": {"p99.99999999999999": "1s"}}}, "percentile 99.99999999999999 needs more than 1,000,000,000 samples"),
    (
        {**STAGE, "producersPerTopic": 0, "topic": "t", "producerRate": 0, "messages": 5},
        "messages: the run has no producers (producersPerTopic: 0) (write testDuration: 30s instead)",
    ),
    ({"scaled": 5}, "scaled: 5 is not a mapping"),
    ({"payloadFile": "/dev/zero"}, "p.yaml:1:124: payloadFile /dev/zero is not a regular file"),
    ({"payloadFile": "/etc"}, "p.yaml:1:124: payloadFile /etc is not a regular file"),
    ({"driver": "/dev/zero"}, "driver file /dev/zero is not a regular file"),
    ({"driver": "/etc/passwd"}, "/etc/passwd"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "said"), ABSURD, ids=[json.dumps(keys)[:60] for keys, _ in ABSURD]
)
def test_an_absurd_value_is_one_short_error(
    keys: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """With its place, if it has one, and at most 80 characters of the value."""
    path = written(tmp_path, **keys)
    with pytest.raises(LoadtestError) as caught:
        found = profile.load(path)
        profile.payload_files(found, path, path.parent)
    assert isinstance(caught.value, UsageError)
    lines = str(caught.value).splitlines()
    assert said in "\n".join(lines)
    assert len(lines) <= 4
    assert max(map(len, lines)) < 400 + len(str(tmp_path))


def test_a_plan_makes_no_payloads(tmp_path: Path) -> None:
    """65 536 payloads of 5 MB, more than the machine has memory for, are planned at once."""
    found = profile.load(
        written(
            tmp_path, messageSize="5MB", randomizedPayloadPoolSize=65536, useRandomizedPayloads=True
        )
    )
    plan = made(found, workers=2)
    assert plan.needs.memory > 2 * 65536 * 5 * 1024**2 * 0.99
    pool = profile_pool(found)
    assert "bodies" not in vars(pool)


def test_a_scale_beyond_the_highest_rate_is_an_error_of_the_option(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"scaled to 1e-299 messages a second, at least 0.001 can be paced: use a larger --load-scale",
    ):
        made(profile.load(written(tmp_path)), scale=1e-300)
    with pytest.raises(
        UsageError,
        match=r"profile p: scaled to 1e\+11 messages a second, less than 9e\+09 can be timed: use a smaller --load-scale",
    ):
        made(profile.load(written(tmp_path)), scale=1e10)
