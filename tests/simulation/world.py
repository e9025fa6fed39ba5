"""A world: the document that says what is simulated. A seed draws one (draw.py); failures and regressions are kept as documents.

All times are integers, ns. Times of faults count from the start of the run's first phase of load, in true time: the clock of the
simulation, which is also the clock of the controller's host. Hosts have clocks of their own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

US: Final = 1_000
MS: Final = 1_000_000
SECOND: Final = 1_000_000_000
FOREVER: Final = 1 << 61
"""An instant that never comes, ns."""

CONTROLLER: Final = "controller"
"""The name of the host on which the controller runs; its clock is true time."""

QUARTZ: Final = 20e-6
"""Seconds per second by which any clock may drift (docs/decisions/050)."""
JITTER: Final = 50 * US
"""ns: the mean delay of packets in a network that is not at fault."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """A host and its monotonic clock: ``clock = true + offset + drift * true``, changed by ``steps``; and its path to the controller.

    :param offset: ns. :param drift: seconds per second. :param slews: ``[at, until, rate]``: in this time the clock runs faster by ``rate``
        in addition. :param steps: ``[at, by]``: the clock is set by so many ns; ``at`` as for faults.
    :param there: ns from the controller to the host. :param back: ns from the host to the controller. :param jitter: ns, the mean of an
        exponential delay in each direction in addition. :param lossy: probability that a packet is sent again after 200 ms.
    """

    name: str
    offset: int = 0
    drift: float = 0.0
    slews: tuple[tuple[int, int, float], ...] = ()
    steps: tuple[tuple[int, int], ...] = ()
    there: int = 50 * US
    back: int = 50 * US
    jitter: int = 0
    lossy: float = 0.0

    @property
    def is_ordinary(self) -> bool:
        """Whether nothing is wrong with the host: a quartz that drifts a little, and a short path that takes as long in both directions."""
        is_steady = not self.steps and not self.slews and abs(self.drift) <= QUARTZ
        return is_steady and self.there == self.back and self.jitter <= JITTER and not self.lossy


@dataclass(frozen=True, kw_only=True)
class Target:
    """The model of a target without faults.

    A message travels to the target (``up``), is stored (``store``) and acknowledged after ``down``; each copy travels to its consumer in
    ``down`` too. Order within a stream is kept at the target and on the way to each consumer, as on a TCP connection.

    With a route a service under test gets each message in ``down``, handles those of a stream one after the other in ``service``, and its
    outputs travel to their consumers as messages do.

    :param up: median ns; :param store: median ns; :param down: median ns. :param service: median ns.
    :param spread: sigma of the lognormal distribution of each.
    """

    up: int = 100 * US
    store: int = 500 * US
    down: int = 100 * US
    service: int = 200 * US
    spread: float = 0.3


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault.

    :param kind: a key of :data:`KINDS`. :param at: ns. :param duration: ns; 0 with kinds that are instants; None: until the end of the world.
    :param values: further parameters, see :data:`KINDS`.
    """

    kind: str
    at: int
    duration: int | None = 0
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> int | None:
        return None if self.duration is None else self.at + self.duration


TARGET: Final = "target"
GENERATOR: Final = "generator"


@dataclass(frozen=True)
class Kind:
    """A kind of fault. :param side: :data:`TARGET` or :data:`GENERATOR`. :param values: name → meaning of its parameters."""

    side: str
    meaning: str
    values: dict[str, str] = field(default_factory=dict)


_SHARE = (
    "probability of each message (true time of its arrival at the target within the fault's time)"
)
_TOPICS = "indexes of the affected topics; absent: all"
_NTH = "each n-th input of a stream; absent: all"

KINDS: Final[dict[str, Kind]] = {
    # The target delays.
    "latency": Kind(TARGET, "store takes longer", {"by": "ns", "share": _SHARE, "topics": _TOPICS}),
    "stall": Kind(TARGET, "nothing is stored, acknowledged or delivered; goes on afterwards", {"topics": _TOPICS}),
    "hang": Kind(TARGET, "as stall, and never goes on (duration: None)", {"topics": _TOPICS}),
    "throttle": Kind(TARGET, "the target stores at most `rate` messages a second, in the order of arrival", {"rate": "msg/s"}),
    "slow-delivery": Kind(TARGET, "acknowledges as ever, and delivers later", {"by": "ns", "share": _SHARE}),
    "no-delivery": Kind(TARGET, "acknowledges as ever, and delivers nothing; goes on afterwards", {"topics": _TOPICS}),
    "early-delivery": Kind(TARGET, "delivers delayed messages before they are due", {"by": "ns", "share": _SHARE}),
    # The target loses, doubles, damages.
    "reject": Kind(TARGET, "answers FAILED, stores nothing", {"share": _SHARE}),
    "lose-unanswered": Kind(TARGET, "neither stored nor answered", {"share": _SHARE, "topics": _TOPICS}),
    "lose-acknowledged": Kind(TARGET, "acknowledged, delivered to nobody", {"share": _SHARE, "topics": _TOPICS}),
    "lose-copy": Kind(TARGET, "acknowledged, one subscription does not get it", {"share": _SHARE, "subscription": "index"}),
    "redeliver": Kind(TARGET, "a second copy, marked as redelivered, to the same subscription", {"share": _SHARE, "after": "ns"}),
    "double": Kind(TARGET, "a second copy without a mark, to the same subscription", {"share": _SHARE, "after": "ns"}),
    "reorder": Kind(TARGET, "a message is delivered after the next one of its stream", {"share": _SHARE}),
    "corrupt-body": Kind(TARGET, "bytes after the head are damaged (found with checksum: true)", {"share": _SHARE}),
    "corrupt-head": Kind(TARGET, "the head is damaged, the message cannot be told", {"share": _SHARE}),
    "misrouted": Kind(TARGET, "a copy goes to a consumer of the next topic, instead of one of its own", {"share": _SHARE}),
    "foreign": Kind(TARGET, "messages of another run arrive at a consumer, one every `every` ns", {"every": "ns"}),
    # Connections.
    "cut-resend": Kind(TARGET, "connections are down; the client sends unanswered messages again, so copies may double", {}),
    "cut-lose": Kind(TARGET, "connections are down; messages on their way are answered as failed, and are not stored", {}),
    "restart": Kind(TARGET, "as cut-resend; stored messages survive", {}),
    "forget": Kind(TARGET, "as cut-resend; the sessions of consumers are forgotten, with what was not delivered to them", {}),
    # The broker's own counters.
    "counters": Kind(TARGET, "the broker reports its backlog with `by` messages too many, and as it was `late` ns before", {"by": "messages", "late": "ns"}),
    # A service under test, between the input and the output topics of a route.
    "service-lose": Kind(TARGET, "the service sends nothing for an input", {"share": _SHARE, "nth": _NTH, "topics": _TOPICS}),
    "service-double": Kind(TARGET, "the service sends its outputs twice", {"share": _SHARE, "nth": _NTH, "topics": _TOPICS}),
    "service-slow": Kind(TARGET, "the service takes longer for an input, and those behind it in its stream wait", {"by": "ns", "share": _SHARE, "nth": _NTH}),
    "service-stall": Kind(TARGET, "the service stands still; works off its inputs afterwards", {"topics": _TOPICS}),
    "service-death": Kind(TARGET, "the service has ended, with the inputs that it has not answered; a new one begins afterwards", {}),
    # The generator.
    "pause": Kind(GENERATOR, "the worker is stopped, as by SIGSTOP", {"worker": "index"}),
    "slow-send": Kind(GENERATOR, "each call of the client's send takes longer", {"worker": "index", "by": "ns"}),
    "slow-read": Kind(
        GENERATOR,
        "the client reads late: what came meanwhile is read at once, and what waited in one connection has the stamp of the last",
        {"worker": "index", "by": "ns"},
    ),
    "slow-disk": Kind(GENERATOR, "writing samples takes longer", {"worker": "index", "by": "ns"}),
    "kill": Kind(GENERATOR, "the worker ends, as by SIGKILL", {"worker": "index"}),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class World:
    """One world.

    :param seed: what its random draws are keyed by. :param tag: ``calm`` (no faults), ``stormy`` (faults that a run must survive and
        report), ``unrestricted``. :param workers: the host of each worker, ``w0`` first. :param profile: the document of the profile, as a
        user writes it in YAML, with ``driver: {name: simulated, …}``; a list if several workloads run together.
    """

    seed: int
    tag: str = "calm"
    workers: tuple[str, ...] = (CONTROLLER,)
    hosts: tuple[Host, ...] = ()
    profile: dict[str, Any]
    target: Target = Target()
    faults: tuple[Fault, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names."""
        return tuple(f"w{number}" for number in range(len(self.workers)))

    def host_of(self, worker: int) -> Host | None:
        """Return the host of a worker; None for the controller's."""
        name = self.workers[worker]
        return next((host for host in self.hosts if host.name == name), None)

    def of_side(self, side: str) -> tuple[Fault, ...]:
        return tuple(fault for fault in self.faults if KINDS[fault.kind].side == side)

    @property
    def has_perfect_generator(self) -> bool:
        """Whether no worker has a fault, and nothing is wrong with any host."""
        return not self.of_side(GENERATOR) and all(host.is_ordinary for host in self.hosts)

    def without_generator_faults(self) -> World:
        """The same world with a perfect generator: no faults of workers, and hosts whose clocks are true."""
        true = tuple(Host(name=host.name, there=host.there, back=host.back) for host in self.hosts)
        return replace(self, faults=self.of_side(TARGET), hosts=true)

    def document(self) -> dict[str, Any]:
        return _plain(asdict(self))

    def dump(self) -> str:
        return yaml.safe_dump(self.document(), sort_keys=False, allow_unicode=True, width=120)

    def write(self, path: Path) -> None:
        path.write_text(self.dump(), encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def world_from(document: dict[str, Any]) -> World:
    """Return the world of a document."""
    hosts = [
        Host(**{key: _tuples(value) for key, value in host.items()})
        for host in document.get("hosts", ())
    ]
    faults = tuple(Fault(**fault) for fault in document.get("faults", ()))
    for fault in faults:
        unknown = set(fault.values) - set(KINDS[fault.kind].values)
        assert not unknown, f"{fault.kind} has no parameters {sorted(unknown)}"
    return World(
        seed=document["seed"],
        tag=document.get("tag", "calm"),
        workers=tuple(document.get("workers", (CONTROLLER,))),
        hosts=tuple(hosts),
        profile=document["profile"],
        target=Target(**document.get("target", {})),
        faults=faults,
    )


def load_world(path: Path) -> World:
    return world_from(yaml.safe_load(path.read_text(encoding="utf-8")))
