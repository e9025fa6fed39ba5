"""What one worker's engine is made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_loadtest.drivers.base import Clock, Driver, Joined
    from pytest_loadtest.message.due import Delays
    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.schedule.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One workload on one worker, connected and ready.

    :param streams: of this worker. :param opened: its consumers that take messages from the beginning.
    :param later: indexes of those that may join while load runs.
    :param max_send_delay: ns after its intended time at which a message is dropped instead of sent.
    :param ordered: whether order is judged.
    :param delays: of messages that a consumer is to get later than they leave; the phase and its clock are told when it begins.
    :param bounds: latencies in ns that the controller wants to know about while load runs: how many copies took longer.
    :param prompt: latencies in ns of which it wants to know, second by second, how many copies took no longer.
    :param kept: seconds of which that is told.
    """

    driver: Driver
    clock: Clock
    pool: PayloadPool
    topology: Topology
    streams: range
    opened: Joined
    later: Sequence[int] = ()
    nonce: int
    seed: int
    key_distributor: str
    max_send_delay: int
    ordered: bool
    bounds: Sequence[int] = ()
    prompt: Sequence[int] = ()
    kept: int = 0
    delays: Delays | None = None
