"""The descriptor of Apache Pulsar."""

from __future__ import annotations

from typing import Final

from pytest_loadtest.kinds import (
    BrokerStart,
    Client,
    Cost,
    CostRow,
    DriverKind,
    MessageLimit,
    Scheme,
)

# Bytes left free below the broker's limit, which includes the message's metadata.
METADATA: Final = 1024

_ENVELOPES: Final = {"body": 0, "json": 0, "properties": 62}

KIND: Final = DriverKind(
    name="pulsar",
    label="Pulsar",
    packages=("pulsar-client",),
    settings="pytest_loadtest.drivers.pulsar.settings:PulsarSettings",
    clients={
        "library": Client(
            driver="pytest_loadtest.drivers.pulsar.library.driver:PulsarDriver",
            envelopes=_ENVELOPES,
        ),
        "native": Client(
            driver="pytest_loadtest.drivers.pulsar.native.driver:NativePulsarDriver",
            connection_memory=3 << 10,
            setup_time=50_000,
            source_addresses=True,
            envelopes=_ENVELOPES,
        ),
    },
    misspellings={
        "chunking": "chunkingEnabled",
        "enableChunking": "chunkingEnabled",
        "chunking_enabled": "chunkingEnabled",
        "batching": "batchingEnabled",
        "enableBatching": "batchingEnabled",
        "batching_enabled": "batchingEnabled",
        "compressionType": "compression",
    },
    checks="pytest_loadtest.drivers.pulsar.checks:CHECKS",
    costs={
        # The broker's cost is below the 90 to 180 µs of its first minute, in which the JVM still
        # compiles; calibrate shows those.
        "pulsar": CostRow(
            cost=Cost(produce=75_000, consume=20_000, broker=75_000, per_byte=8.0),
            settings={"client": "library"},
        ),
        # Costs of an entry, measured on a cold broker with one message in each; a further message
        # of a batch costs below 1 µs.
        "pulsar-native": CostRow(
            cost=Cost(produce=60_000, consume=30_000, broker=75_000, per_byte=4.0, shared=0.99),
            settings={"client": "native", "batchingMaxMessages": 1},
        ),
    },
    schemes={
        "pulsar": Scheme(port=6650),
        "pulsar+ssl": Scheme(port=6651, tls=True),
        "http": Scheme(port=8080, admin=True),
        "https": Scheme(port=8443, tls=True, admin=True),
    },
    brokers={
        "pulsar": BrokerStart(
            ways={
                "container": "pytest_loadtest.brokers.container:start",
                "process": "pytest_loadtest.drivers.pulsar.cluster:start_processes",
                "embedded": "pytest_loadtest.drivers.pulsar.embedded:start_pulsar_lite",
            },
            container="pytest_loadtest.drivers.pulsar.broker:RECIPE",
            secured=True,
            nodes=("broker", "bookie"),
        ),
    },
    describe="pytest_loadtest.drivers.pulsar.broker:describe_broker",
    message_limit=MessageLimit(default=5 * 1024**2, key="maxMessageSize", overhead=METADATA),
    delays=True,
    delayed_index="pytest_loadtest.drivers.pulsar.delayed_index:planned",
    topic_hashes=True,
    security=("token", "basic", "tls"),
    telemetry="pytest_loadtest.drivers.pulsar.scrape:Scrape",
    undelivered="pytest_loadtest.drivers.pulsar.undelivered:pulsar_undelivered",
    observer="pytest_loadtest.drivers.pulsar.observer:observe_topics",
    fixture={"bundles": "pytest_loadtest.drivers.pulsar.live_bundles:live_bundles"},
    doctor="pytest_loadtest.drivers.pulsar.broker:machine_needs",
    omb_classes=("io.openmessaging.benchmark.driver.pulsar.PulsarBenchmarkDriver",),
    omb="pytest_loadtest.drivers.pulsar.omb:KEYS",
)
