"""Measures what a message costs on this machine, by driver and client: CPU time of its sender, its receiver, and the broker between them.

One process that sends and one that receives drive three short runs against a broker started here: small messages at the rate that
``--load-scale auto`` would choose by the shipped costs, and small and large ones at a lower rate. The first gives the cost of a message,
the other two that of a byte; a loop's cost per tick is the same in both, so it cancels out.

Where messages of a batch share costs (:attr:`~pytest_loadtest.kinds.costs.Cost.shared`), there are so many producers that each has less
than a message while a batch waits. So every message is a batch of its own, and its cost is the figure itself: to divide by the size of
fuller batches would trust that size, which a late tick changes. The share is the shipped one: at these rates it cannot be seen.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest import brokers
from pytest_loadtest.brokers.base import BrokerRequest
from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.machine import costs_file, machine
from pytest_loadtest.fleet.pair import Pair, Spent
from pytest_loadtest.kinds.costs import Cost
from pytest_loadtest.kinds.registry import kinds, shipped_costs
from pytest_loadtest.profile import from_document
from pytest_loadtest.schedule.dealing import Assignment
from pytest_loadtest.schedule.plan import Plan, make_plan, profile_pool
from pytest_loadtest.schedule.scaling import AUTO_LOAD

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SMALL, LARGE = 256, 16 * 1024  # bytes
PRODUCERS = 16  # where a batch is shared: at the rates of the shipped costs each sends every few milliseconds
PHASES = {"warmupDuration": "500ms", "testDuration": "1500ms", "drainTimeout": "5s"}
VERSION = 1


def rows() -> dict[str, dict[str, Any]]:
    """What can be measured: row of the cost table → the ``driver`` section that has it."""
    return {key: {"name": kind.name, **row.settings} for kind in kinds().values() for key, row in kind.costs.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PerMessage:
    """CPU ns of one message: sender, receiver, broker."""

    produce: float
    consume: float
    broker: float

    @classmethod
    def of(cls, spent: Spent) -> PerMessage:
        """What each message took."""
        return cls(produce=spent.sender / spent.sent, consume=spent.receiver / spent.received, broker=spent.broker / spent.received)


def calibrate(key: str, announce: Callable[[str], None]) -> Cost:
    """Measure one driver with one client; takes some ten seconds, and as many more where Pulsar is to be started.

    :param key: of :func:`rows`.
    :raises TargetError: there is no broker of its kind here. :raises NoData: the load did not go through.
    """
    rates = _rates(shipped_costs()[key])
    with tempfile.TemporaryDirectory(prefix="pytest-loadtest-") as scratch:
        folder = Path(scratch)
        broker = brokers.start(BrokerRequest(kind=rows()[key]["name"], mode="process", folder=folder / "broker"), announce)
        announce(f"target: {broker.facts.describe()}")
        try:
            pid = broker.facts.pid
            if pid is None:
                raise NoData(f"{broker.facts.describe()} has no process here whose CPU time could be read")
            with closing(Pair(broker, folder, lambda: cpu_time(pid))) as pair:
                announce(f"{key}: driving load")
                pair.run(_plan(key, *rates[-1]))  # a warm-up; too short for a JVM, which is not warm in a load test either
                slow, large, fast = (PerMessage.of(pair.run(_plan(key, size, rate))) for size, rate in rates)
        finally:
            broker.stop()
    return cost_of(slow, large, fast, shipped_costs()[key].shared)


def _rates(shipped: Cost) -> tuple[tuple[int, float], ...]:
    """Size and msg/s of each run. A guess that is wrong by far still gives CPU time per message."""
    busiest = max(shipped.produce, shipped.consume)
    slow = AUTO_LOAD * 1e9 / (busiest + shipped.per_byte * LARGE / 3)  # a third of a byte's cost each: sender, receiver, broker
    return (SMALL, slow), (LARGE, slow), (SMALL, AUTO_LOAD * 1e9 / busiest)


def _plan(key: str, size: int, rate: float) -> Plan:
    """All producers are the first worker's, the one consumer is the second's."""
    shipped = shipped_costs()[key]
    producers = PRODUCERS if shipped.shared else 1
    workload = {"messageSize": size, "producersPerTopic": producers, "producerRate": round(rate)}
    profile = from_document({"name": "calibrate", **workload, "driver": rows()[key], **PHASES})
    plan = make_plan(profile, profile_pool(profile), workers=2, cost=shipped, machine=machine(), broker_here=True)
    nobody = range(0)
    apart = Assignment(streams=range(producers), consumers=nobody), Assignment(streams=nobody, consumers=range(1))
    return replace(plan, assignments=apart)


def cost_of(slow: PerMessage, large: PerMessage, fast: PerMessage, shared: float = 0.0) -> Cost:
    """Split into a part for each message and a part for each byte.

    :param slow: small messages at the rate of ``large``. :param large: large ones. :param fast: small ones at the higher rate; each message
        of all of them in a batch of its own. :param shared: as in :class:`Cost`.
    """

    def split(small: float, at_large: float, at_fast: float) -> tuple[float, float]:
        per_byte = max(0.0, (at_large - small) / (LARGE - SMALL))  # noise can make it negative
        return max(0.0, at_fast - per_byte * SMALL), per_byte

    produce, consume, broker = (split(*(getattr(run, part) for run in (slow, large, fast))) for part in ("produce", "consume", "broker"))
    per_byte = produce[1] + consume[1] + broker[1]
    return Cost(produce=produce[0], consume=consume[0], broker=broker[0], per_byte=per_byte, shared=shared)


def cpu_time(pid: int) -> int:
    """CPU time that a process and its threads have used, ns; in steps of the kernel's clock tick, mostly 10 ms. See proc(5), ``stat``.

    :raises NoData: there is no such process.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError as error:
        raise NoData(f"the broker's CPU time cannot be read: {error}") from error
    user, system = stat.rpartition(")")[2].split()[11:13]  # the name in parentheses may hold anything
    return (int(user) + int(system)) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def keep(measured: Mapping[str, Cost]) -> Path:
    """Write what was measured where plans look for it; what was measured earlier for other drivers stays."""
    path = costs_file()
    rows = {**_kept(path), **{key: cost.document() for key, cost in measured.items()}}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    document = {"version": VERSION, "measured": now, "python": platform.python_version(), "costs": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    aside.replace(path)
    return path


def _kept(path: Path) -> dict[str, Any]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["costs"]
        return {key: Cost.of(row, shipped_costs()[key].shared).document() for key, row in rows.items() if key in shipped_costs()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def table(measured: Mapping[str, Cost]) -> list[str]:
    """What was measured beside what is shipped, in µs of CPU time of a message that travels alone; a byte's cost per KiB."""
    rows = [f"{'µs of CPU time':<14}{'send':>18}{'receive':>18}{'broker':>18}{'each KiB':>18}"]
    for key, cost in measured.items():
        shipped = shipped_costs()[key]
        pairs = [(getattr(cost, part), getattr(shipped, part)) for part in ("produce", "consume", "broker")]
        pairs.append((cost.per_byte * 1024, shipped.per_byte * 1024))
        rows.append(f"{key:<14}" + "".join(f"{f'{here / 1e3:.1f} ({there / 1e3:.1f})':>18}" for here, there in pairs))
    shares = {key: cost.shared for key, cost in measured.items() if cost.shared}
    shared = [f"{key}: messages of one batch share {share:.0%} of send, receive and broker" for key, share in shares.items()]
    return [*rows, *shared, "in parentheses: the shipped figures"]
