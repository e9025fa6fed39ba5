"""The rules for a saturated side: one for each conclusion, over the samples. Pure.

A rule has its evidence as text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.values.quantities import MILLISECOND, SECOND, format_duration, format_size
from pytest_loadtest.values.wording import counted, format_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.observe.telemetry import Telemetry

    Mask = NDArray[np.bool_]


SATURATED: Final = 0.9
"""Least share of the time for which a saturated thread runs or waits for a core."""
ON_DISK: Final = 0.3
"""Least share of the checks in which a thread of a broker waits for a slow disk."""
FULL: Final = 0.9
"""Least share of a memory limit at which memory is saturated."""
COLLECTING: Final = 0.1
"""Least share of the time for which a broker that lacks heap collects garbage.

With less, a full heap is mostly garbage.
"""
SLOW_WRITE: Final = 50 * MILLISECOND
"""Least mean time of a slow write to the bookies.

It must also be at least half of the publish latency.
"""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The rule for one side.

    :param saturated: returns the mask of the samples in which the side was saturated.
    :param needs: the columns, ``workers.X`` for those of all hosts and ``service.X`` also for
        those of each service; one of them is enough.
    :param describe: returns the evidence as text, from the samples of the mask.
    :param everywhere: every kind of broker has these columns; otherwise their absence is not
        reported as missing.
    """

    conclusion: str
    saturated: Callable[[Sampled], Mask]
    needs: tuple[str, ...]
    describe: Callable[[Sampled, Mask], str]
    everywhere: bool = True


def _no_core(sampled: Sampled) -> Mask:
    """The broker needed more CPU than there is.

    This is one thread all the time, or all its threads together.
    """
    return _needs_core(sampled, "broker")


def _needs_core(sampled: Sampled, process: str) -> Mask:
    one: Mask = sampled[f"{process}.busiestWanted"] >= SATURATED
    return one | (sampled[f"{process}.wanted"] >= SATURATED * sampled.cores)


def _describe_cpu(sampled: Sampled, mask: Mask) -> str:
    if sampled.mean("broker.busiestWanted", mask) >= SATURATED:
        return sampled.thread("broker", sampled.broker, mask)
    used = sampled.mean("broker.cpu", mask)
    wanted = sampled.mean("broker.wanted", mask)
    return (
        f"{sampled.broker}'s threads used {used:.2f} cores and needed {wanted:.2f} of this"
        f" machine's {sampled.cores}"
    )


def _on_disk(sampled: Sampled) -> Mask:
    return (sampled["broker.diskWait"] >= ON_DISK) & ~_no_core(sampled)


def _describe_disk(sampled: Sampled, mask: Mask) -> str:
    share = format_value(sampled.mean("broker.diskWait", mask), "ratio", 2)
    text = f"{sampled.broker} waited for the disk {share} of the time"
    if (sampled.has_value("broker.written") & mask).any():
        text += f" while it wrote {format_size(sampled.mean('broker.written', mask))}/s"
    return text


def _not_reading(sampled: Sampled) -> Mask:
    """The broker was stopped, did not read, or kept its TCP window closed.

    And CPU, disk and rate limits do not explain it.
    """
    mask: Mask = (
        (sampled["broker.stopped"] > 0)
        | sampled.unread("broker")
        | sampled.any_own(sampled.refused)
    )
    return mask & ~_no_core(sampled) & ~_on_disk(sampled) & ~_throttled(sampled)


def _describe_not_reading(sampled: Sampled, mask: Mask) -> str:
    own = sampled.fullest_own("unsent", mask)
    unsent = sampled.most(f"{own}.unsent", mask)
    where = sampled.place(own)
    if not (sampled.has_value("broker.unread", "broker.stopped") & mask).any():
        return (
            f"{unsent} waited in the generator's sockets{where} because the other side's window"
            " was closed; the reason was not sampled"
        )
    state = ""
    with_value = sampled.has_value("broker.cpu") & mask
    if (sampled["broker.stopped"][mask] > 0).any():
        state = ", which was stopped by a signal"
    elif with_value.any():
        state = f", which used {sampled.mean('broker.cpu', with_value):.2f} cores"
    return (
        f"{sampled.most('broker.unread', mask)} were unread at {sampled.broker}{state};"
        f" {unsent} more waited in the generator's sockets{where}"
    )


def _memory(sampled: Sampled) -> Mask:
    group: Mask = sampled["broker.memory"] >= FULL * sampled["broker.memoryLimit"]
    return group | _full_heap(sampled) | _full_direct(sampled)


def _full_heap(sampled: Sampled) -> Mask:
    return (sampled["sys.heap"] >= FULL * sampled["sys.heapLimit"]) & ~(
        sampled["sys.gc"] < COLLECTING
    )


def _full_direct(sampled: Sampled) -> Mask:
    return sampled["sys.direct"] >= FULL * sampled["sys.directLimit"]


def _describe_memory(sampled: Sampled, mask: Mask) -> str:
    for full, what, column in (
        (_full_heap, "heap", "sys.heap"),
        (_full_direct, "direct memory", "sys.direct"),
    ):
        if (full(sampled) & mask).any():
            return (
                f"{sampled.broker}'s {what} had {sampled.most(column, mask)} of its limit of"
                f" {sampled.most(f'{column}Limit', mask)}"
            )
    limit = sampled.most("broker.memoryLimit", mask)
    return (
        f"{sampled.broker} had {sampled.most('broker.memory', mask)} of its control group's limit"
        f" of {limit}"
    )


def _throttled(sampled: Sampled) -> Mask:
    return (sampled["sys.throttled"] > 0) | (sampled["sys.dispatchThrottled"] > 0)


def _describe_throttling(sampled: Sampled, mask: Mask) -> str:
    sides = (
        ("sys.throttled", "producers", "publish"),
        ("sys.dispatchThrottled", "consumers", "dispatch"),
    )
    return "; ".join(
        f"{sampled.broker} held {whom} back {sampled.mean(column, mask):.3g} times a second for a"
        f" {limit} rate limit"
        for column, whom, limit in sides
        if (sampled[column][mask] > 0).any()
    )


def _slow_write(sampled: Sampled) -> Mask:
    """Writing to the bookies takes at least half of the publish latency.

    Time in their queue is not part of it, and CPU does not explain it.
    """
    write = sampled["sys.ledgerLatency"]
    return (write >= SLOW_WRITE) & (write >= sampled["sys.publishLatency"] / 2) & ~_no_core(sampled)


def _describe_write(sampled: Sampled, mask: Mask) -> str:
    write, publish = (
        format_duration(sampled.mean(f"sys.{name}", mask))
        for name in ("ledgerLatency", "publishLatency")
    )
    return (
        f"a write to {sampled.broker}'s bookies took {write} on average,"
        f" of the {publish} that the broker needed to publish"
    )


def _starved(sampled: Sampled) -> Mask:
    """A subscription was blocked, or at least 1 % of the consumers took no more of a backlog.

    And a worker's CPU does not explain it.
    """
    none = (
        (sampled["sys.starved"] > 0)
        & (sampled["sys.starved"] >= sampled["sys.consumers"] / 100)
        & (sampled["sys.backlog"] > 0)
    )
    mask: Mask = (sampled["sys.blocked"] > 0) | none
    return mask & ~_generator(sampled)


def _describe_starved(sampled: Sampled, mask: Mask) -> str:
    waits = ""
    if (sampled.has_value("sys.backlog") & mask).any():
        backlog = counted(np.nanmax(sampled["sys.backlog"][mask]), "entry", "entries")
        waits = f", with {backlog} in the backlog"
    if (sampled["sys.blocked"][mask] > 0).any():
        blocked = counted(np.nanmax(sampled["sys.blocked"][mask]), "subscription")
        return f"{blocked} had too many unacknowledged messages to get more{waits}"
    starved = np.nanmax(sampled["sys.starved"][mask])
    consumers = np.nanmax(sampled["sys.consumers"][mask])
    return (
        f"{starved:.0f} of {consumers:.0f} consumers had no permits left,"
        f" or too many unacknowledged messages{waits}"
    )


def _network(sampled: Sampled) -> Mask:
    return _inwards(sampled) | (sampled.stuck("broker") & ~sampled.any_own(sampled.unread))


def _inwards(sampled: Sampled) -> Mask:
    """Bytes stay in our sockets although the broker reads all that arrives."""
    return (
        sampled.any_own(sampled.stuck)
        & ~sampled.unread("broker")
        & ~(sampled["broker.stopped"] > 0)
        & ~_no_core(sampled)
    )


def _describe_network(sampled: Sampled, mask: Mask) -> str:
    if not (_inwards(sampled) & mask).any():
        unsent = sampled.most("broker.unsent", mask)
        own = sampled.fullest_own("unread", mask)
        unread = sampled.most(f"{own}.unread", mask)
        return (
            f"{unsent} waited in {sampled.broker}'s sockets, and no more than {unread} were unread"
            f" in the generator's{sampled.place(own)}"
        )
    own = sampled.fullest_own("unsent", mask)
    unsent = sampled.most(f"{own}.unsent", mask)
    waited = f"{unsent} waited in the generator's sockets{sampled.place(own)}"
    if not (sampled.has_value("broker.unread") & mask).any():
        shut = format_value(sampled.mean(f"{own}.shut", mask), "ratio", 2)
        return (
            f"{waited}, and the other side's window was closed for no more than {shut} of the time"
        )
    return (
        f"{waited}, and no more than {sampled.most('broker.unread', mask)} were unread at"
        f" {sampled.broker}"
    )


def _asleep(sampled: Sampled) -> Mask:
    """Our sockets left received bytes unread, or kept their TCP window closed.

    And a worker's CPU does not explain it.
    """
    return (sampled.any_own(sampled.unread) | sampled.refused("broker")) & ~_generator(sampled)


def _describe_subscriber(sampled: Sampled, mask: Mask) -> str:
    own = sampled.fullest_own("unread", mask)
    unread = sampled.most(f"{own}.unread", mask)
    text = f"{unread} were unread at subscribers{sampled.place(own)}"
    if (sampled.has_value("broker.unsent") & mask).any():
        text += f"; {sampled.most('broker.unsent', mask)} more waited at {sampled.broker}"
    return text


def _service_cpu(sampled: Sampled) -> Mask:
    """A service under test needed more CPU than there is, as :func:`_no_core` for the broker."""
    mask: Mask = np.zeros(len(sampled.telemetry), np.bool_)
    for service in sampled.processes("service"):
        mask |= _needs_core(sampled, service)
    return mask


def _describe_service_cpu(sampled: Sampled, mask: Mask) -> str:
    services = sampled.processes("service")
    service = max(services, key=lambda name: np.count_nonzero(_needs_core(sampled, name) & mask))
    return sampled.thread(service, service, _needs_core(sampled, service) & mask)


def _service_not_reading(sampled: Sampled) -> Mask:
    """A service under test was stopped, or left messages unread; CPU does not explain it."""
    mask: Mask = sampled.unread("service")
    for service in sampled.processes("service"):
        mask |= sampled[f"{service}.stopped"] > 0
    return mask & ~_service_cpu(sampled)


def _describe_service_not_reading(sampled: Sampled, mask: Mask) -> str:
    unread = f"{sampled.most('service.unread', mask)} were unread at the services"
    return "; ".join([unread, *_service_states(sampled, mask)])


def _service_states(sampled: Sampled, mask: Mask) -> list[str]:
    states = []
    for service in sampled.processes("service"):
        if (sampled[f"{service}.stopped"][mask] > 0).any():
            states.append(f"{service} was stopped by a signal")
        elif (sampled.has_value(f"{service}.cpu") & mask).any():
            states.append(f"{service} used {sampled.mean(f'{service}.cpu', mask):.2f} cores")
    return states


def _service_waits(sampled: Sampled) -> Mask:
    """More inputs wait for the service than before in the phase, and from then on always more than
    those of a second above the fewest.

    Neither its CPU and connections nor the broker's CPU, disk and rate limits explain it.
    """
    # A service that acknowledges every 4 s has 1 2 3 4 1 2 3 4 s of inputs: it always returns to 1.
    backlog = sampled["service.backlog"]
    before = np.fmax.accumulate(np.append(0.0, backlog))[:-1]
    fewest_after = np.fmin.accumulate(backlog[::-1])[::-1]
    growth = fewest_after - fewest_after[:1]
    mask: Mask = (backlog > before) & (growth > sampled.input_rate)
    mask &= ~_service_cpu(sampled) & ~_service_not_reading(sampled)
    return mask & ~_no_core(sampled) & ~_on_disk(sampled) & ~_throttled(sampled)


def _describe_service_waits(sampled: Sampled, mask: Mask) -> str:
    backlog = f"up to {np.nanmax(sampled['service.backlog'][mask]):.0f} messages waited for"
    states = _service_states(sampled, mask) or ["what it used is unknown"]
    return f"{backlog} the service, more and more; {'; '.join(states)}"


def _generator(sampled: Sampled) -> Mask:
    mask: Mask = np.zeros(len(sampled.telemetry), np.bool_)
    for worker in sampled.processes("worker"):
        mask |= sampled[f"{worker}.busiestWanted"] >= SATURATED
    return mask


def _describe_generator(sampled: Sampled, mask: Mask) -> str:
    worker = max(
        sampled.processes("worker"),
        key=lambda worker: np.count_nonzero(sampled[f"{worker}.busiestWanted"] >= SATURATED),
    )
    host = sampled.host_of(worker.removeprefix("worker "))
    return sampled.thread(worker, worker, mask & sampled.has_value(f"{worker}.busiestWanted"), host)


RULES: Final = (
    Rule(
        conclusion="broker throttling", saturated=_throttled, needs=("sys.throttled", "sys.dispatchThrottled"),
        describe=_describe_throttling, everywhere=False,
    ),
    Rule(conclusion="broker memory", saturated=_memory, needs=("broker.memory", "sys.heap"), describe=_describe_memory),
    Rule(conclusion="broker disk", saturated=_on_disk, needs=("broker.diskWait",), describe=_describe_disk),
    Rule(conclusion="bookie write", saturated=_slow_write, needs=("sys.ledgerLatency",), describe=_describe_write, everywhere=False),
    Rule(
        conclusion="broker not reading", saturated=_not_reading, needs=("broker.stopped", "broker.unread", "workers.unsent"),
        describe=_describe_not_reading,
    ),
    Rule(
        conclusion="service not reading", saturated=_service_not_reading, needs=("service.unread", "service.stopped"),
        describe=_describe_service_not_reading, everywhere=False,
    ),
    Rule(conclusion="subscriber", saturated=_asleep, needs=("workers.unread",), describe=_describe_subscriber),
    Rule(conclusion="consumer", saturated=_starved, needs=("sys.starved", "sys.blocked"), describe=_describe_starved, everywhere=False),
    Rule(
        conclusion="service CPU", saturated=_service_cpu, needs=("service.busiestWanted",),
        describe=_describe_service_cpu, everywhere=False,
    ),
    Rule(
        conclusion="service waits", saturated=_service_waits, needs=("service.backlog",),
        describe=_describe_service_waits, everywhere=False,
    ),
    Rule(conclusion="broker CPU", saturated=_no_core, needs=("broker.wanted",), describe=_describe_cpu),
    Rule(conclusion="generator", saturated=_generator, needs=(), describe=_describe_generator),
    Rule(conclusion="network", saturated=_network, needs=("workers.unsent", "broker.unsent"), describe=_describe_network),
)  # fmt: skip
"""The order breaks ties.

If two sides were saturated in the same number of samples, the earlier one is the cause of the later
one.
"""


# The samples of the measured phase, as the rules read them.

QUEUED: Final = 64 * 1024
"""Bytes that the sockets of one side, together, may hold in normal operation."""
QUEUED_FOR: Final = SECOND // 50
"""The least queue: more than :data:`QUEUED`, and more than the traffic of so many ns."""
SHUT: Final = 0.5
"""Least share of the time with a closed window at which that side delays the data.

Otherwise the network does.
"""


_SINGLE: Final = ("broker", "service")
"""Sides whose sockets are sampled in one place; those of workers may be on several hosts."""


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """The samples of a run.

    :param telemetry: samples of the measured phase.
    :param sent_rate: payload bytes a second to the broker.
    :param received_rate: payload bytes a second from it.
    :param cores: number of cores of this machine.
    :param input_rate: messages a second to the broker; NaN: unknown.
    """

    telemetry: Telemetry
    sent_rate: float
    received_rate: float
    cores: int
    input_rate: float = math.nan

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return self.telemetry.column(name)

    @property
    def broker(self) -> str:
        """The target's name."""
        return self.telemetry.broker

    def has_value(self, *names: str) -> Mask:
        """Return the mask of the samples with a number in one of these columns."""
        columns = [column for name in names for column in self._columns(name)]
        mask: Mask = np.any([np.isfinite(self[column]) for column in columns], axis=0)
        return mask

    @cached_property
    def own_sides(self) -> tuple[str, ...]:
        """First parts of the names of the columns about our sockets.

        ``workers`` is on the controller's host, ``workers h1`` on another.
        """
        hosts = tuple(f"workers {host.name}" for host in self.telemetry.hosts)
        return tuple(
            side for side in ("workers", *hosts) if f"{side}.connections" in self.telemetry.columns
        ) or ("workers",)

    def processes(self, kind: str) -> list[str]:
        """Return the first parts of the columns of the workers, or of the services."""
        ending = ".busiestWanted"
        return [
            name.removesuffix(ending)
            for name in self.telemetry.columns
            if name.startswith(f"{kind} ") and name.endswith(ending)
        ]

    @property
    def queues(self) -> tuple[str, ...]:
        """The columns with bytes that wait in sockets."""
        return tuple(
            f"{side}.{queue}"
            for side in (*self.own_sides, "broker", "service")
            for queue in ("unsent", "unread")
        )

    def _columns(self, name: str) -> list[str]:
        side, _, value = name.rpartition(".")
        sides = [side]
        if side == "workers":
            sides = [*self.own_sides]
        elif side == "service":
            sides += self.processes(side)
        return [f"{side}.{value}" for side in sides]

    def any_own(self, condition: Callable[[str], Mask]) -> Mask:
        """Return the mask of the samples in which the condition is true on any host."""
        mask: Mask = np.any([condition(side) for side in self.own_sides], axis=0)
        return mask

    def fullest_own(self, queue: str, mask: Mask) -> str:
        """Return the generator's side with the most bytes in this queue in the masked samples."""
        return max(self.own_sides, key=lambda side: float(np.nansum(self[f"{side}.{queue}"][mask])))

    def place(self, side: str) -> str:
        """Return the host of our sockets as text; empty if there is only the controller's."""
        if self.own_sides == ("workers",):
            return ""
        host = side.removeprefix("workers").strip()
        return f" on host {host}" if host else " on the controller's host"

    def host_of(self, worker: str) -> str | None:
        """Return the host of a worker; None if it is the controller's."""
        return next((host.name for host in self.telemetry.hosts if worker in host.workers), None)

    def _share(self, side: str) -> NDArray[np.float64]:
        """Return the share of our connections on this side: about its share of the traffic."""
        if side in _SINGLE or len(self.own_sides) == 1:
            return np.ones(len(self.telemetry))
        total = np.nansum([self[f"{own}.connections"] for own in self.own_sides], axis=0)
        share: NDArray[np.float64] = self[f"{side}.connections"] / np.maximum(total, 1.0)
        return share

    def is_queued(self, name: str) -> Mask:
        """Return the mask of the samples in which this queue has built up."""
        side, _, queue = name.rpartition(".")
        # What we send is unsent here, or unread at the broker or a service.
        sending = (side in _SINGLE) == (queue == "unread")
        rate = self.sent_rate if sending else self.received_rate
        traffic = rate * self._share(side) * QUEUED_FOR / SECOND
        return self[name] > np.maximum(QUEUED, traffic)

    def unread(self, side: str) -> Mask:
        """Return the mask of the samples in which one side did not read.

        It has a queue, or old unread bytes on 1 % of its connections.
        """
        stale = self[f"{side}.stale"]
        waited = (stale > 0) & (stale >= self[f"{side}.connections"] / 100)
        return self.is_queued(f"{side}.unread") | waited

    def refused(self, side: str) -> Mask:
        """Return the mask of the samples in which the other side's window was closed.

        One side could then not send. The window of a relay does not count.
        """
        return (
            self.is_queued(f"{side}.unsent")
            & ~(self["broker.relayed"] > 0)
            & (self[f"{side}.shut"] >= SHUT)
        )

    def stuck(self, side: str) -> Mask:
        """Return the mask of the samples in which one side could not send for another reason.

        The other side's window was open, or it was a relay's.
        """
        return self.is_queued(f"{side}.unsent") & (
            (self["broker.relayed"] > 0) | (self[f"{side}.shut"] < SHUT)
        )

    def mean(self, name: str, mask: Mask) -> float:
        """Return the mean over the samples of the mask.

        NaN if none has a number, as expensive sources are not sampled every second.
        """
        values = self[name][mask]
        return float(np.nanmean(values)) if np.isfinite(values).any() else math.nan

    def most(self, name: str, mask: Mask) -> str:
        """Return the largest number of bytes in the samples of the mask, as text."""
        values = self[name][mask]
        if not np.isfinite(values).any():
            return "an unknown amount"
        return format_size(float(np.nanmax(values)))

    def thread(self, whose: str, name: str, mask: Mask, host: str | None = None) -> str:
        """Return the CPU use of the busiest thread as text.

        :param whose: first part of the columns' names. :param name: for the text.
        :param host: None if it is the controller's.
        """
        ran = self.mean(f"{whose}.busiest", mask)
        wanted = self.mean(f"{whose}.busiestWanted", mask)
        busiest = f"{name}'s busiest thread"
        if host is not None:
            busiest = f"the busiest thread of {name} on host {host}"
        text = f"{busiest} used {ran:.2f} of a core"
        if wanted - ran >= 0.05:
            text += f" and waited for one {format_value(wanted - ran, 'ratio', 2)} of the time"
        return text
