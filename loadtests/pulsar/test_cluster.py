"""A cluster of two brokers and three bookies.

A bundle split moves load to the second broker; what was pending survives the owner's death.

PULSAR_VERSION=4.0.0 pytest loadtests/pulsar/test_cluster.py
"""

import json
import urllib.request

import pytest

from pytest_loadtest.drivers.pulsar.metrics import MetricsReader

CLUSTER = {
    "broker.brokers": 2,
    "broker.bookies": 3,
    # The topics of a killed broker move when its session ends, by default after 30 s.
    "broker.settings.metadataStoreSessionTimeoutMillis": 10000,
    "broker.settings.zkTimeout": 10000,
    # ZooKeeper, bookies and brokers share the machine with the generator.
    "generator.sendDelayP99": "5min",
    "generator.stalled": 0.99,
}
SMALL = "1024-1025"  # the only bucket without chunks
IN_FLIGHT = 12  # the profile's window of 64 MB, in messages of 5 MB
# An outage makes messages late, and clients send again what was not acknowledged.
PATIENT = {
    "drainTimeout": "10min",
    "slo.duplicates": "5%",
    "slo.sent": "1%",
    "slo.throughput": "1%",
}


def ask(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def admin_urls(load):
    hosts = load.target.admin_url.removeprefix("http://").split(",")
    return [f"http://{host}" for host in hosts]


def topic_of(load):
    return f"public/loadtest-{load.run_name}/topic-0"


def owner(load):
    """Return the number of the broker that has the run's first topic, from 1."""
    url = json.loads(ask(f"{admin_urls(load)[0]}/lookup/v2/topic/persistent/{topic_of(load)}"))[
        "brokerUrl"
    ]
    return (
        load.target.url.removeprefix("pulsar://").split(",").index(url.removeprefix("pulsar://"))
        + 1
    )


def shares(load, seconds="10s"):
    """Return each broker's share of the run's messages in.

    It is by the broker's own counters over some seconds.
    """
    prefix = f"persistent://{topic_of(load).removesuffix('topic-0')}"

    def counts():
        readers = [
            MetricsReader(prefix, exact=False, of_topics=True).read(ask(f"{url}/metrics/"))
            for url in admin_urls(load)
        ]
        return [
            sum(reader.topics.get("pulsar_in_messages_total", {}).values()) for reader in readers
        ]

    before = counts()
    load.wait(seconds)
    grown = [after - count for count, after in zip(before, counts(), strict=True)]
    return [round(one / sum(grown), 3) for one in grown]


@pytest.mark.load(profile="pulsar/bundle-split", live=True, matrix={"client": "native"}, **CLUSTER)
def test_a_split_moves_load_to_the_second_broker(load, record_property):
    """Both bundles are closed and found a broker again.

    The load manager may give both to the same one, then one is moved by request.
    """
    load.begin()
    load.bundles.settle()
    before = shares(load)
    split = load.bundles.split_by_flow()
    load.bundles.settle()
    split_alone = after = shares(load)
    if max(split_alone) == 1.0:
        move(load, split.ring.bundles[-1], admin_urls(load)[split_alone.index(0.0)])
        load.bundles.settle()
        after = shares(load)
    result = load.stop()
    for name, value in {
        "before": before,
        "split": split_alone,
        "moved": after,
        "gap": result.delivery_gap.max,
    }.items():
        record_property(f"cluster.{name}", str(value))
        print(f"cluster  {name:<8} {value}")
    assert split.made == split.wanted
    assert max(before) == 1.0
    assert result.loss == result.out_of_order == 0
    assert 0.4 < max(after) < 0.7


def move(load, bundle, url):
    """Close the topics of a bundle, which the broker with this admin URL opens again."""
    destination = url.removeprefix("http://")
    load.bundles.admin._request(
        "PUT",
        f"namespaces/{load.bundles.admin.namespace}/{bundle}/unload?destinationBroker={destination}",
    )


def kill_the_owner(load, record_property):
    """Kill the broker that has the topic, and finish."""
    load.kill_broker(owner(load))
    result = load.finish()
    counts = result.measurements.counts
    facts = {
        name: getattr(counts, name)
        for name in ("sent", "acked", "failed", "received", "lost", "duplicates", "corrupt")
    }
    for name, value in (facts | {"gap": result.delivery_gap.max}).items():
        record_property(f"cluster.{name}", str(value))
        print(f"cluster  {name:<10} {value}")
    return result


@pytest.mark.load(
    profile="pulsar/delayed",
    live=True,
    matrix={"mode": "lenient"},
    deliverAfter={"min": "20s", "max": "25s"},
    **{"driver.sendTimeout": "10min", "slo.lateness.p99": "10min"},
    **PATIENT,
    **CLUSTER,
)
def test_delayed_messages_survive_their_owner(load, record_property):
    """It dies with all of them pending, and the index of delayed messages with it."""
    load.begin()
    load.wait("7s")
    result = kill_the_owner(load, record_property)
    result.assert_slo()
    assert result.loss == 0


def chunks(client, **changes):
    return pytest.mark.load(
        profile="pulsar/chunking",
        live=True,
        matrix={"client": client, "use": "one-ordered"},
        **PATIENT,
        **CLUSTER,
        **changes,
    )


@chunks("native")
def test_chunks_survive_their_owner(load, record_property):
    """It dies while chunks are under way."""
    load.begin()
    load.wait("3s")
    result = kill_the_owner(load, record_property)
    result.assert_slo()
    assert result.loss == result.corrupt == 0


@chunks("library", judge=False)
def test_pulsar_client_may_lose_chunks_under_way(load, record_property):
    """pulsar-client 3.13 drops a message of which chunks come again after a reconnect.

    See apache/pulsar-client-cpp#587. No other is lost.
    """
    load.begin()
    load.wait("3s")
    result = kill_the_owner(load, record_property)
    assert result.loss <= IN_FLIGHT
    assert result.loss == sum(
        part.lost for part in result.measurements.buckets if part.name != SMALL
    )
    assert result.corrupt == result.measurements.counts.failed == 0


# The profile's topics, partitions, clients and ensembles, at a rate for one machine. Its windows
# would need 596 GiB if they were full.
SHAPE = {
    "producerRate": 250, "warmupDuration": "5s", "testDuration": "20s", "maxSendDelay": "2min",
    "driver.persistence": {"ensembleSize": 3, "writeQuorum": 3, "ackQuorum": 2},
    "driver.clientMemoryLimitMB": 64, "driver.receiverQueueSize": 10, "driver.sendTimeout": "2min", "driver.operationTimeout": "60s",
    "slo.endToEndLatency": {"max": "2min"}, "slo.duplicates": "20%", "generator.receiveLagP99": "5min",
}  # fmt: skip


@pytest.mark.load(profile="prod-2m", live=True, **(PATIENT | CLUSTER | SHAPE))
def test_a_thousand_partitions_survive_the_death_of_a_broker(load, record_property):
    """1 000 partitions with 20 000 producers and 10 000 consumers of partitions.

    Half of them are at the broker that is killed.
    """
    load.begin()
    load.wait("3s")
    load.kill_broker(1)
    result = load.finish()
    counts = result.measurements.counts
    for name in ("sent", "acked", "received", "duplicates"):
        record_property(f"cluster.{name}", str(getattr(counts, name)))
    record_property("cluster.gap", str(result.delivery_gap.max))
    result.assert_slo()
    assert counts.lost == counts.failed == result.out_of_order == 0
