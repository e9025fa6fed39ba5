"""The truth about a world that was played: what the model of the target saw and did, and what the processes of the run did.

Everything is in true time, ns of the simulation's clock. The oracle compares this with the product's results.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.world import World


@dataclass(slots=True)
class Sent:
    """A message that the engine handed over to its client.

    :param worker: index. :param at: when the client took it. :param intended: as the engine states it, by the worker's clock.
    :param sends: how often the client sent it, more than 1 after a cut. :param stored: when the target stored it; None: never.
    :param answered: when the last answer reached the client; None: never. :param failed: the answer was a failure.
    :param run: the name of its workload's run. :param due: true time before which no copy of a delayed message may arrive; None: at once.
    :param struck: by faults of the target, each with its kind and number.
    """

    worker: int
    stream: int
    seq: int
    size: int
    at: int
    intended: int
    sends: int = 1
    stored: int | None = None
    answered: int | None = None
    failed: bool = False
    run: str = ""
    due: int | None = None
    struck: set[tuple[str, int]] = field(default_factory=set)


@dataclass(slots=True)
class Connection:
    """A connection of a client that the target accepted before the load.

    :param worker: index. :param side: ``consumers`` or ``producers``. :param begun: when the client sent its first packet.
    :param accepted: when the answer reached it. :param run: the name of its workload's run.
    """

    worker: int
    side: str
    begun: int
    accepted: int
    run: str


@dataclass(slots=True)
class Copy:
    """A copy of a message that reached a consumer's connection.

    :param arrived: when it was in the kernel's buffer of the consumer's host. :param taken: when the engine took it; None: never.
    :param stamped: the stamp of its arrival, in true time: later than ``arrived`` where the client read late and the kernel merged.
    :param damage: ``head``, ``body`` or None. :param output: the output topic of a route that it came on, from 0. :param foreign: it belongs to another topic, or to another run; then ``stream`` and
        ``seq`` are -1. :param number: of what the target sent, by which copies that arrive at one instant are read in order.
    """

    worker: int
    consumer: int
    subscription: int
    topic: int
    stream: int
    seq: int
    size: int
    arrived: int
    stamped: int | None = None
    taken: int | None = None
    redelivered: bool = False
    damage: str | None = None
    foreign: bool = False
    output: int = 0
    run: str = ""
    number: int = 0


@dataclass(slots=True)
class PlayedPhase:
    """A phase of load that began: its name and start as the controller decided them; ``recorded``: it has samples.

    :param ended: when the controller ended the phase, after its drain; None: it never did. :param workload: its name.
    """

    name: str
    start: int
    duration: int
    recorded: bool
    ended: int | None = None
    workload: str = ""


@dataclass(slots=True)
class Truth:
    """All that happened.

    :param tapped: copies of the inputs of a service that reached a tap.
    :param pauses: ``(worker, begin, end)`` in which a worker was stopped. :param killed: ``(worker, at)``.
    The engine's drops are due messages that are in no :class:`Sent`.
    """

    sent: list[Sent] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    tapped: list[Copy] = field(default_factory=list)
    phases: list[PlayedPhase] = field(default_factory=list)
    pauses: list[tuple[int, int, int]] = field(default_factory=list)
    killed: list[tuple[int, int]] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Played:
    """A world that was played to its end.

    :param outcome: ``met``, ``missed``, ``generator-limited``, ``no data``, as in ``results.json``; ``wrong profile`` if the product
        rejected it before load. :param results: the content of the ``results.json`` that the verdict is in; None if there is none.
    :param run: the content of its ``run.json``. :param documents: both of each part of the run: of each workload, of each step of a search;
        the one with the verdict is the last. :param error: the error that ended the run, as a user would see it.
    :param folder: where the run's files are. :param ended: true time at which the run ended, ns. :param events: hash of all events.
    :param cpu: CPU seconds that it took.
    """

    world: World
    truth: Truth
    outcome: str
    results: dict[str, Any] | None
    run: dict[str, Any] | None
    error: str | None
    folder: Path
    ended: int
    events: str
    cpu: float
    documents: tuple[tuple[dict[str, Any], dict[str, Any] | None], ...] = ()
