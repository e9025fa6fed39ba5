"""What a message costs in CPU time, by driver and client: what the plan estimates cores with.

A client library costs the same for every message. One that works by the batch costs for each batch, and next to nothing for each further
message of it: see :attr:`Cost.shared`, and :func:`~pytest_loadtest.plan.needs.expected_batch` for their number.

Each kind of broker ships its figures in its :class:`~pytest_loadtest.kinds.kind.DriverKind`, rounded up from measurements on a slow shared
machine; ``python -m pytest_loadtest calibrate`` measures this machine's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """CPU time of one message that travels alone in ns, and per payload byte in ns.

    :param produce: in the worker that sends it. :param consume: in the worker that receives one copy. :param broker: in the target, each
        way together.
    :param per_byte: in all of them together, whatever shares a batch.
    :param shared: 0 to 1, what the messages of one batch have in common of ``produce``, ``consume`` and ``broker``: each of ``n`` costs
        ``(1 - shared) + shared / n`` of them.
    """

    produce: float
    consume: float
    broker: float
    per_byte: float
    shared: float = 0.0

    def cores(self, rate: float, fan_out: float, size: float, *, broker_here: bool, batch: float = 1.0) -> float:
        """Cores that ``rate`` msg/s of ``size`` bytes, delivered ``fan_out`` times each, keep busy on this machine.

        :param batch: messages that share one, on the average; at least 1.
        """
        broker = self.broker * (1 + fan_out) / 2 if broker_here else 0.0
        message = (self.produce + self.consume * fan_out + broker) * self._part(batch)
        return rate * (message + self.per_byte * size * (1 + fan_out) / 2) / 1e9

    def busiest_worker(self, rate: float, fan_out: float, size: float, workers: int, *, batch: float = 1.0) -> float:
        """Share of one core that the busiest of ``workers`` needs: a worker's Python runs on one core.

        :param batch: as for :meth:`cores`.
        """
        message = (self.produce + self.consume * fan_out) * self._part(batch)
        return rate * (message + self.per_byte * size * (1 + fan_out) / 4) / 1e9 / workers

    def _part(self, batch: float) -> float:
        """Of what a message costs alone, what it costs in a batch of so many."""
        return 1 - self.shared + self.shared / batch

    @classmethod
    def of(cls, document: Mapping[str, float], shared: float = 0.0) -> Self:
        """What :meth:`document` gave.

        :param shared: where the document is older than that figure. :raises KeyError: another figure is missing.
        """
        document = {"shared": shared, **document}
        return cls(**{field.name: float(document[field.name]) for field in fields(cls)})

    def document(self) -> dict[str, float]:
        return asdict(self)


def cost_key(driver: str, variant: str = "", client: str = "library") -> str:
    """The row of the cost table for a driver, its client and its variant (``qos1``); the client library adds no name.

    :returns: ``pulsar-native``, ``mqtt-qos1``, ``mqtt-native-qos1``.
    """
    name = driver if client == "library" else f"{driver}-{client}"
    return f"{name}-{variant}" if variant else name
