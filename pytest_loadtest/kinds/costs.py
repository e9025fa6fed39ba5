"""The CPU time of a message by driver and client, from which the plan estimates cores.

A client library takes the same time for every message. A client that works in batches takes it for
each batch, and little for each further message in it: see :attr:`Cost.shared`, and
:func:`~pytest_loadtest.plan.needs.expected_batch` for the size of a batch.

Each kind of broker ships its figures in its :class:`~pytest_loadtest.kinds.kind.DriverKind`,
rounded up from measurements on a slow shared machine; ``python -m pytest_loadtest calibrate``
measures this machine's.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Self

from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping


@record
class Cost:
    """CPU time of a message that is alone in its batch, and of a payload byte, both in ns.

    :param produce: in the worker that sends it.
    :param consume: in the worker that receives one copy.
    :param broker: in the target, in both directions together.
    :param per_byte: in all of them together, for a batch of any size.
    :param shared: 0 to 1, the part of ``produce``, ``consume`` and ``broker`` that a batch takes
        only once: each of ``n`` messages takes ``(1 - shared) + shared / n`` of them.
    """

    produce: float
    consume: float
    broker: float
    per_byte: float
    shared: float = 0.0

    def cores(
        self, rate: float, fan_out: float, size: float, *, broker_here: bool, batch: float = 1.0
    ) -> float:
        """Return the cores that messages keep busy on this machine.

        :param rate: msg/s. :param fan_out: deliveries of each. :param size: bytes.

        :param batch: mean number of messages in a batch, at least 1.
        """
        message = self.produce + self.consume * fan_out
        if broker_here:
            message += self.broker * (1 + fan_out) / 2
        payload = self.per_byte * size * (1 + fan_out) / 2
        return rate * (message * self._part(batch) + payload) / 1e9

    def busiest_worker(
        self, rate: float, fan_out: float, size: float, workers: int, *, batch: float = 1.0
    ) -> float:
        """Return the share of one core that the busiest of ``workers`` needs.

        The Python code of a worker runs on one core.

        :param batch: see :meth:`cores`.
        """
        message = self.produce + self.consume * fan_out
        payload = self.per_byte * size * (1 + fan_out) / 4
        return rate * (message * self._part(batch) + payload) / 1e9 / workers

    def _part(self, batch: float) -> float:
        """Return the cost of a message in a batch of this size, as a part of its cost alone."""
        return 1 - self.shared + self.shared / batch

    @classmethod
    def of(cls, document: Mapping[str, float], shared: float = 0.0) -> Self:
        """Read what :meth:`document` wrote.

        :param shared: for a document that has no such figure because it is older.
        :raises KeyError: another figure is missing.
        """
        document = {"shared": shared, **document}
        return cls(**{field.name: float(document[field.name]) for field in fields(cls)})

    def document(self) -> dict[str, float]:
        return asdict(self)


def cost_key(driver: str, variant: str = "", client: str = "library") -> str:
    """Return the key of the cost table for a driver, its client and its variant (``qos1``).

    The library client has no name in it.

    :returns: ``pulsar-native``, ``mqtt-qos1``, ``mqtt-native-qos1``.
    """
    client = "" if client == "library" else client
    return "-".join(filter(None, (driver, client, variant)))
