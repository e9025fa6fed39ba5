"""Keys replaced by a test's mark or the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_loadtest import profile
from pytest_loadtest.drivers.loopback.settings import LoopbackSettings
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import ProfileError, UsageError
from pytest_loadtest.values.quantities import SECOND, ByteRate

if TYPE_CHECKING:
    from pathlib import Path


LEAST = "name: a\nproducerRate: 1000\nmessageSize: 100\ntestDuration: 1s\n"


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


def problems(text: str) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        profile.loads(text, "p.yaml")
    return str(caught.value).splitlines()


def written(folder: Path, text: str) -> Path:
    path = folder / "p.yaml"
    path.write_text(text)
    return path


def wrong(path: Path, **changes: object) -> list[str]:
    with pytest.raises(UsageError) as caught:
        profile.override(path, changes)
    return str(caught.value).replace(str(path), "p.yaml").splitlines()


def test_an_override_changes_one_key(tmp_path: Path) -> None:
    """With dots into sections."""
    path = written(
        tmp_path,
        LEAST + "driver: {name: mqtt, retain: true}\nslo: {endToEndLatency: {p99.9: 5s}}\n",
    )
    changes = {
        "messageSize": "1KB",
        "producerRate": "5MB/s",
        "driver.qos": 0,
        "slo.endToEndLatency.p99.9": "1s",
        "slo.loss": 0,
    }
    found = profile.override(path, changes)
    assert (found.message_size, found.producer_rate, found.name) == (
        1024,
        ByteRate(5 * 1024**2),
        "a",
    )
    assert found.slo == {"endToEndLatency": {"p99.9": "1s"}, "loss": 0}
    assert isinstance(found.driver, MqttSettings)
    assert (found.driver.qos, found.driver.retain) == (0, True)
    assert profile.override(path, {}) == profile.load(path)


SCALED = (
    "slo: {loss: 0, sent: 99%}\nscaled: {slo: {loss: 5, throughput: 50%}, generator: {cpu: 2}}\n"
)


@pytest.mark.parametrize(
    ("changes", "slo", "cpu"),
    [
        ({}, {"loss": 5, "sent": "99%", "throughput": "50%"}, 2),
        ({"slo.loss": 1}, {"loss": 1, "sent": "99%", "throughput": "50%"}, 2),
        ({"slo": {"sent": "90%"}}, {"sent": "90%"}, 2),
        (
            {"generator.cpu": 0.5, "scaled.slo.loss": 7},
            {"loss": 7, "sent": "99%", "throughput": "50%"},
            0.5,
        ),
        ({"slo.loss": 1, "scaled.slo.loss": 7}, {"loss": 7, "sent": "99%", "throughput": "50%"}, 2),
        ({"scaled": None}, {"loss": 0, "sent": "99%"}, 0.95),
    ],
)
def test_a_replaced_bound_applies_to_scaled_runs_too(
    tmp_path: Path, changes: dict[str, object], slo: dict[str, object], cpu: float
) -> None:
    """The file's bound for scaled runs belongs to the bound that was replaced."""
    found = profile.override(written(tmp_path, LEAST + SCALED), changes).as_scaled()
    assert (found.slo, found.generator.cpu) == (slo, cpu)


def test_a_workload_has_its_own_bounds_when_scaled() -> None:
    """Those next to the list apply to a workload without its own."""
    text = LEAST + SCALED + "workloads: [{name: b, slo: {loss: 1}}, {name: c}]\n"
    own, shared = (workload.as_scaled() for workload in profile.loads(text, "p.yaml").workloads)
    assert (own.slo, shared.slo) == ({"loss": 1}, {"loss": 5, "sent": "99%", "throughput": "50%"})


@pytest.mark.parametrize(
    ("text", "changes", "left"),
    [
        (LEAST, {"messageSizeDistribution": {"0-256": 3}}, {"message_size": None}),
        (LEAST.replace("messageSize: 100", "messageSizeDistribution: {0-9KB: 1}\npayloadsPerBucket: 4"), {"messageSize": 64}, {"buckets": None}),
        (LEAST, {"messages": 500}, {"test_duration": SECOND // 2}),
        (LEAST, {"stages": [{"duration": "7s"}]}, {"test_duration": 7 * SECOND}),
        (LEAST.replace("testDuration: 1s", "stages: [{duration: 7s}]"), {"testDuration": "2s"}, {"stages": ()}),
        (LEAST.replace("testDuration: 1s", "testDurationMinutes: 1"), {"testDuration": "2s"}, {"test_duration": 2 * SECOND}),
        (LEAST + "slo: {loss: 0}", {"search": {"hold": "1s"}}, {"peak_search": True}),
        (LEAST + "slo: {loss: 0}", {"search": True}, {"search": profile.SearchSection()}),
        (LEAST + "slo: {loss: 0}\ntarget: {url: pulsar://x:1}", {"target": None}, {"target": None}),
        (LEAST, {"driver.ioThreads": 3}, {"driver": PulsarSettings(io_threads=3)}),
    ],
)  # fmt: skip
def test_an_override_removes_the_keys_that_it_excludes(
    tmp_path: Path, text: str, changes: dict[str, object], left: dict[str, object]
) -> None:
    """Sizes and distributions; durations, messages and stages; a search and a rate."""
    found = profile.override(written(tmp_path, text), changes)
    assert {name: getattr(found, name) for name in left} == left


def test_a_wrong_override_names_its_mark(tmp_path: Path) -> None:
    """Problems that it causes in the file have their place, and the mark below."""
    path = written(tmp_path, LEAST + "driver: {name: pulsar, subscriptionType: Exclusive}\n")
    assert wrong(path, messageSize="1XB", producerRat=5, topics=0) == [
        "@pytest.mark.load(messageSize='1XB'): messageSize: '1XB' is not a size (write bytes, or a number and B, KB, MB or GB (1KB is 1024 bytes))",
        "@pytest.mark.load(producerRat=5): unknown key 'producerRat' (did you mean producerRate?)",
        "@pytest.mark.load(topics=0): topics: 0 must be at least 1",
    ]
    assert wrong(path, consumerPerSubscription=2) == [
        "p.yaml:5:42: driver.subscriptionType: Exclusive admits one consumer, consumerPerSubscription says 2 (write Failover, Shared or Key_Shared)",
        "p.yaml is read here with @pytest.mark.load(consumerPerSubscription=2)",
    ]
    assert wrong(path, **{"name.x": 5}) == [
        "@pytest.mark.load(**{'name.x': 5}): name is not a section (replace it as a whole)"
    ]
    assert wrong(path, topics=1j) == [
        "@pytest.mark.load(topics=1j): a profile cannot have such a value: write text, a number, a list or a dict"
    ]
    assert wrong(path, testDuration=5) == [
        "@pytest.mark.load(testDuration=5): testDuration: 5 has no unit (write 5s, or another of ns, us, ms, s, min, h, d)"
    ]
    assert (
        wrong(written(tmp_path, "name: 5\n"), topics=1)[-2]
        == 'p.yaml:1:7: name: 5 is not text (quote it: "5")'
    )


def test_an_override_reaches_a_workload_by_its_name(tmp_path: Path) -> None:
    """A shared key that every workload replaces is an error."""
    path = written(tmp_path, TOGETHER)
    found = profile.override(path, {"workloads.files.messageSize": "2KB", "driver.delay": "1ms"})
    assert [one.message_size for one in found.workloads] == [1024, 2048]
    assert [
        one.driver.delay for one in found.workloads if isinstance(one.driver, LoopbackSettings)
    ] == [1_000_000, 1_000_000]
    assert wrong(path, producerRate=5) == [
        "@pytest.mark.load(producerRate=5): every workload has its own producerRate (write workloads.telemetry.producerRate)"
    ]
    assert wrong(path, **{"workloads.x.topics": 5}) == [
        "@pytest.mark.load(**{'workloads.x.topics': 5}): there is no workload 'x' (write workloads.NAME.key with one of telemetry, files)"
    ]


def test_an_override_wins_over_a_matrix(tmp_path: Path) -> None:
    """It applies to the first combination, unless it chooses another."""
    path = written(tmp_path, LEAST + "matrix: {topics: [2, 3]}\n")
    assert (
        profile.load(path).topics,
        profile.override(path, {"topics": 7}).topics,
        profile.override(path, {"topics": 3}).topics,
    ) == (
        2,
        7,
        3,
    )


def test_an_override_may_name_a_file_of_sizes(tmp_path: Path) -> None:
    """Results keep the name."""
    (tmp_path / "sizes.csv").write_text("low,high,weight\n0,256,3\n256,1024,1\n")
    (tmp_path / "more.csv").write_text("low,high,weight\n1024,2048,1\n")
    path = written(
        tmp_path, LEAST.replace("messageSize: 100", "messageSizeDistribution: sizes.csv")
    )
    found = profile.load(path)
    assert (found.message_size_distribution, found.size_source) == (
        {"0-256": 3, "256-1024": 1},
        "sizes.csv",
    )
    assert profile.from_document(found.document()).size_source == "sizes.csv"
    assert profile.override(
        path, {"messageSizeDistribution": "more.csv"}
    ).message_size_distribution == {"1024-2048": 1}
    assert problems(path.read_text()) == [
        "p.yaml:3:26: messageSizeDistribution: 'sizes.csv' cannot be read from here (write the ranges: {\"0-256\": 3})"
    ]
    assert (
        "p.yaml:3:26: messageSizeDistribution: "
        in wrong(written(tmp_path, path.read_text().replace("sizes", "no")))[0]
    )


def test_the_command_line_wins_over_a_mark(tmp_path: Path) -> None:
    """Values are YAML, and null removes a key."""
    path = written(tmp_path, LEAST + "subscriptionsPerTopic: 3\n")
    options = {
        "messageSize": "2KB", "slo.endToEndLatency.p99.9": "50ms", "slo.loss": "0.1%", "driver": "{name: loopback, delay: 5ms}",
        "testDuration": "5s", "subscriptionsPerTopic": "null",
    }  # fmt: skip
    found = profile.override(
        path, {"messageSizeDistribution": {"64-128": 1}, "messages": 500, "topics": 7}, options
    )
    assert (found.message_size, found.message_size_distribution, found.topics) == (2048, None, 7)
    assert (found.test_duration, found.messages, found.subscriptions_per_topic) == (
        5 * SECOND,
        None,
        1,
    )
    assert found.slo == {"endToEndLatency": {"p99.9": "50ms"}, "loss": "0.1%"}
    assert found.driver.name == "loopback"
    assert profile.override(path, {}, {"topics": "4"}).topics == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"mesageSize": "1KB"},
            "--load-set mesageSize=1KB: unknown key 'mesageSize' (did you mean messageSize?)",
        ),
        ({"topics": "many"}, "--load-set topics=many: topics: 'many' is text, not a whole number"),
        (
            {"topics": "010"},
            "--load-set topics=010: topics: YAML reads 010 as 8 (write 10, or 8 if that is meant)",
        ),
        ({"slo": "{loss: 0"}, "--load-set slo={loss: 0: not valid YAML: "),
        ({"topics": "1\nname: a"}, "--load-set topics=1\nname: a: more than one value"),
        ({"name.x": "1"}, "--load-set name.x=1: name is not a section (replace it as a whole)"),
        ({"topics": "3", "producerRate": "-1"}, "--load-set producerRate=-1: "),
        (
            {"driver.name": "mqtt", "driver.password": "[hunter2]"},
            "--load-set driver.password=***: ",
        ),
    ],
)
def test_a_wrong_option_is_named_as_it_was_written(
    tmp_path: Path, options: dict[str, str], said: str
) -> None:
    """Without the keys of the mark."""
    with pytest.raises(UsageError) as caught:
        profile.override(written(tmp_path, LEAST), {"topics": 2}, options)
    assert str(caught.value).startswith(said)
    assert "pytest.mark" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "text", "shown"),
    [
        ("topics", "4", "topics=4"),
        ("driver.password", "hunter2", "driver.password=***"),
        ("driver", "{name: mqtt, password: hunter2}", "driver=***"),
        (
            "workloads.a.driver.authentication.token",
            "hunter2",
            "workloads.a.driver.authentication.token=***",
        ),
        ("target.url", "mqtt://user:hunter2@host", "target.url=mqtt://***@host"),
    ],
)
def test_secrets_of_options_are_not_shown(key: str, text: str, shown: str) -> None:
    """The value of a key that may hold one is hidden."""
    assert profile.setting(key, text) == shown


GATED = (
    LEAST.replace("1s", "10s")
    + """\
slo: {throughput: 90%, regression: {endToEndLatency.p99: 10%}, drift: {endToEndLatency.p99: 20%}}
abort: {endToEndLatency.p99: 30s}
"""
)


@pytest.mark.parametrize("nested", [False, True])
def test_an_override_replaces_a_key_with_dots(tmp_path: Path, nested: bool) -> None:
    """It is not added next to it, where it would have no effect."""
    text = (
        GATED.replace("abort: {endToEndLatency.p99: 30s}", "abort: {endToEndLatency: {p99: 30s}}")
        if nested
        else GATED
    )
    changes = {
        "abort.endToEndLatency.p99": "5s", "slo.regression.endToEndLatency.p99": "5%", "slo.drift.endToEndLatency.p99.9": "40%",
    }  # fmt: skip
    found = profile.override(written(tmp_path, text), changes)
    assert found.abort is not None
    assert [one.maximum for one in found.abort.latencies] == [5 * SECOND]
    assert found.slo["regression"] == {"endToEndLatency.p99": "5%"}
    assert found.slo["drift"] == {"endToEndLatency.p99": "20%", "endToEndLatency.p99.9": "40%"}
