"""All faults, in the order of ``docs/reference/faults.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .brokers import MOSQUITTO
from .hostile import HOSTILE
from .machine import MACHINE, SAMPLES
from .messages import MESSAGES
from .processes import CONTROLLERS, HOST_WORKERS, SPARK, WORKERS
from .pulsar import PULSAR

if TYPE_CHECKING:
    from .fault import Fault

CATALOGUE: Mapping[str, Sequence[Fault]] = {
    "Messages": MESSAGES,
    "Workers": (*WORKERS, *HOST_WORKERS),
    "The controller": CONTROLLERS,
    "Spark": SPARK,
    "Brokers and connections": MOSQUITTO,
    "Pulsar": PULSAR,
    "Hostile brokers": HOSTILE,
    "Samples and disks": SAMPLES,
    "The machine": MACHINE,
}
"""Section of the page → its faults."""
FAULTS = {fault.name: fault for faults in CATALOGUE.values() for fault in faults}
