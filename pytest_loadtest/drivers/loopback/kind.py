"""The descriptor of the loopback relay."""

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

KIND: Final = DriverKind(
    name="loopback",
    label="loopback",
    target="relay",
    settings="pytest_loadtest.drivers.loopback.settings:LoopbackSettings",
    clients={
        "library": Client(
            driver="pytest_loadtest.drivers.loopback.driver:LoopbackDriver",
            source_addresses=True,
            envelopes={"body": 0, "json": 0, "properties": 48, "correlationData": 32},
        )
    },
    checks="pytest_loadtest.drivers.loopback.settings:CHECKS",
    costs={
        "loopback": CostRow(cost=Cost(produce=1_500, consume=1_000, broker=1_000, per_byte=1.0))
    },
    schemes={"loopback": Scheme(port=0)},
    brokers={
        "loopback": BrokerStart(
            ways={"process": "pytest_loadtest.drivers.loopback.relay:start_relay"}
        )
    },
    own_broker=True,
    # The relay rejects larger messages; a frame can have several.
    message_limit=MessageLimit(default=256 * 1024**2),
    delays=True,
    undelivered="pytest_loadtest.drivers.loopback.undelivered:relay_undelivered",
)
