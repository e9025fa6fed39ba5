"""How a phase goes on one worker: what crosses to the controller while load runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One worker's counts in the current phase; ``sending`` until all its messages are handed over or dropped.

    :param elapsed: when it was told, ns after the phase's start; what arrived up to
        :data:`~pytest_loadtest.engine.run.COLLECT` before is counted.
    :param repeats: how many of the received copies may be second ones.
    :param beyond_bounds: for each latency bound that the controller watches, how many copies took longer.
    """

    phase: str
    elapsed: int
    sending: bool
    offered: int
    sent: int
    acked: int
    failed: int
    dropped: int
    received: int
    repeats: int
    in_flight: int
    send_delay_p99: int | None
    blocked: bool
    beyond_bounds: tuple[int, ...] = ()
    workload: str = ""
