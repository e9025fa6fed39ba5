"""What a message costs in CPU time, by driver: what the plan estimates cores with.

Shipped figures are rounded up from measurements on a slow shared machine; ``python -m pytest_loadtest calibrate`` measures this machine's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """CPU time of one message in ns, and per payload byte in ns.

    :param produce: in the worker that sends it. :param consume: in the worker that receives one copy. :param broker: in the target, each
        way together.
    :param per_byte: in all of them together.
    """

    produce: float
    consume: float
    broker: float
    per_byte: float

    def cores(self, rate: float, copies: float, size: float, *, broker_here: bool) -> float:
        """Cores that ``rate`` msg/s of ``size`` bytes, delivered ``copies`` times each, keep busy on this machine."""
        broker = self.broker * (1 + copies) / 2 if broker_here else 0.0
        return rate * (self.produce + self.consume * copies + broker + self.per_byte * size * (1 + copies) / 2) / 1e9

    def busiest_worker(self, rate: float, copies: float, size: float, workers: int) -> float:
        """Share of one core that the busiest of ``workers`` needs: a worker's Python runs on one core."""
        return rate * (self.produce + self.consume * copies + self.per_byte * size * (1 + copies) / 4) / 1e9 / workers

    @classmethod
    def of(cls, document: Mapping[str, float]) -> Self:
        return cls(**{field.name: float(document[field.name]) for field in fields(cls)})

    def document(self) -> dict[str, float]:
        return asdict(self)


SHIPPED: Mapping[str, Cost] = {
    # broker: below the 90 to 180 µs measured in the first minute of a JVM that still compiles; calibrate shows those
    "pulsar": Cost(produce=75_000, consume=20_000, broker=75_000, per_byte=8.0),
    "mqtt-qos0": Cost(produce=40_000, consume=80_000, broker=12_000, per_byte=6.0),
    "mqtt-qos1": Cost(produce=125_000, consume=110_000, broker=23_000, per_byte=6.0),
    "mqtt-qos2": Cost(produce=200_000, consume=190_000, broker=43_000, per_byte=6.0),
    "loopback": Cost(produce=1_500, consume=1_000, broker=1_000, per_byte=1.0),
}


def cost_key(driver: str, qos: int | None) -> str:
    """The table's row for a driver: MQTT's differ by QoS."""
    return driver if qos is None else f"{driver}-qos{qos}"
