"""The descriptor of MQTT brokers."""

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


def _row(client: str, qos: int, produce: int, consume: int, broker: int) -> CostRow:
    cost = Cost(produce=produce, consume=consume, broker=broker, per_byte=6.0)
    return CostRow(cost=cost, settings={"client": client, "qos": qos})


# The broker's CPU cost with Artemis, ns per message by QoS, instead of mosquitto's in
# the rows: the higher value of 1 → 1 and 1 → 100, measured in a JVM that had run for
# a minute. Before that it is up to five times as high, but a plan with that cost
# would reject loads that the machine carries afterwards.
ARTEMIS: Final = {0: 120_000, 1: 180_000, 2: 360_000}

_ENVELOPES: Final = {"body": 0, "json": 0, "properties": 61, "correlationData": 35}

KIND: Final = DriverKind(
    name="mqtt",
    label="MQTT",
    remote="MQTT broker",
    packages=("paho-mqtt",),
    settings="pytest_loadtest.drivers.mqtt.settings:MqttSettings",
    clients={
        "library": Client(
            driver="pytest_loadtest.drivers.mqtt.paho.driver:PahoMqttDriver",
            spreads=True,
            source_addresses=True,
            envelopes=_ENVELOPES,
        ),
        "native": Client(
            driver="pytest_loadtest.drivers.mqtt.native.driver:NativeMqttDriver",
            connection_memory=3 << 10,
            setup_time=50_000,
            spreads=True,
            source_addresses=True,
            envelopes=_ENVELOPES,
        ),
    },
    checks="pytest_loadtest.drivers.mqtt.settings:CHECKS",
    costs={
        "mqtt-qos0": _row("library", 0, 40_000, 80_000, 24_000),
        "mqtt-qos1": _row("library", 1, 125_000, 110_000, 40_000),
        "mqtt-qos2": _row("library", 2, 200_000, 190_000, 70_000),
        "mqtt-native-qos0": _row("native", 0, 25_000, 20_000, 24_000),
        "mqtt-native-qos1": _row("native", 1, 80_000, 40_000, 40_000),
        "mqtt-native-qos2": _row("native", 2, 120_000, 50_000, 70_000),
    },
    schemes={"mqtt": Scheme(port=1883), "mqtts": Scheme(port=8883, tls=True)},
    brokers={
        "mqtt": BrokerStart(
            ways={
                "container": "pytest_loadtest.brokers.container:start",
                "process": "pytest_loadtest.drivers.mqtt.mosquitto:start_mosquitto",
            },
            container="pytest_loadtest.drivers.mqtt.mosquitto:RECIPE",
            secured=True,
        ),
        "artemis": BrokerStart(
            ways={"process": "pytest_loadtest.drivers.mqtt.artemis_pair:start_one_or_pair"},
            costs={
                f"mqtt{client}-qos{qos}": cost
                for client in ("", "-native")
                for qos, cost in ARTEMIS.items()
            },
            label="Artemis",
            secured=True,
            nodes=("broker",),
        ),
    },
    # The default is MQTT's largest "remaining length" (MQTT 5,
    # 2.1.4); mosquitto's 0 means no limit.
    message_limit=MessageLimit(default=268_435_455, key="message_size_limit"),
    subscriber_url=True,
    opening_times=True,
    security=("tls",),
    telemetry="pytest_loadtest.drivers.mqtt.observer:SysTopics",
    undelivered="pytest_loadtest.drivers.mqtt.undelivered:mosquitto_undelivered",
    observer="pytest_loadtest.drivers.mqtt.observer:observe_mqtt",
    doctor="pytest_loadtest.drivers.mqtt.needs:mqtt_machine_needs",
    omb_classes=("io.openmessaging.benchmark.driver.mqtt5.MqttBenchmarkDriver",),
    omb="pytest_loadtest.drivers.mqtt.settings:KEYS",
)
