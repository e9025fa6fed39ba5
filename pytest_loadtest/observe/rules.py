"""When a side is saturated: a rule for each, over what was sampled, and the sentence that tells it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.values.quantities import MILLISECOND, SECOND, format_duration, format_size
from pytest_loadtest.values.wording import format_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.observe.telemetry import Telemetry

    Held = NDArray[np.bool_]


SATURATED: Final = 0.9
"""Share of the time that a thread ran or waited for a core, from which on it is saturated."""
ON_DISK: Final = 0.3
"""Share of the looks at a broker in which one of its threads slept for the disk, from which on the disk holds it up."""
FULL: Final = 0.9
"""Share of a memory limit from which on memory is."""
COLLECTING: Final = 0.1
"""Share of the time that a broker collects garbage, from which on a full heap holds it up; below it, what fills the heap is garbage."""
SLOW_WRITE: Final = 50 * MILLISECOND
"""Mean time of a write to the bookies from which on they are slow, where it is also most of what publishing takes."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One side.

    :param holds: in which samples it was saturated. :param needs: columns of which one is enough to tell.
    :param tell: the evidence in words, of the samples in which it was. :param everywhere: any kind of broker shows it; what only one kind
        can be asked is nothing that is lacking of another.
    """

    conclusion: str
    holds: Callable[[Sampled], Held]
    needs: tuple[str, ...]
    tell: Callable[[Sampled, Held], str]
    everywhere: bool = True


def _no_core(sampled: Sampled) -> Held:
    """The broker wanted more of a core than there is: a thread of it all the time, or all its threads together."""
    held: Held = (sampled["broker.busiestWanted"] >= SATURATED) | (sampled["broker.wanted"] >= SATURATED * sampled.cores)
    return held


def _tell_cpu(sampled: Sampled, held: Held) -> str:
    if sampled.mean("broker.busiestWanted", held) >= SATURATED:
        return sampled.thread("broker", sampled.broker, held)
    used, wanted = sampled.mean("broker.cpu", held), sampled.mean("broker.wanted", held)
    return f"{sampled.broker}'s threads used {used:.2f} cores and wanted {wanted:.2f} of this machine's {sampled.cores}"


def _on_disk(sampled: Sampled) -> Held:
    held: Held = (sampled["broker.diskWait"] >= ON_DISK) & ~_no_core(sampled)
    return held


def _tell_disk(sampled: Sampled, held: Held) -> str:
    wrote = (
        f" while it wrote {format_size(sampled.mean('broker.written', held))}/s" if (sampled.known("broker.written") & held).any() else ""
    )
    return f"{sampled.broker} slept for the disk {format_value(sampled.mean('broker.diskWait', held), 'ratio', 2)} of the time{wrote}"


def _not_reading(sampled: Sampled) -> Held:
    """It was stopped, or left unread what had arrived, or kept its window shut; and neither a core nor the disk nor a limit was why."""
    held: Held = (sampled["broker.stopped"] > 0) | sampled.unread("broker") | sampled.refused("workers")
    return held & ~_no_core(sampled) & ~_on_disk(sampled) & ~_throttled(sampled)


def _tell_not_reading(sampled: Sampled, held: Held) -> str:
    unsent = sampled.most("workers.unsent", held)
    if not (sampled.known("broker.unread", "broker.stopped") & held).any():
        return f"{unsent} waited in our sockets because the other side's window was shut; why, was not sampled"
    stopped = (sampled["broker.stopped"][held] > 0).any()
    known = sampled.known("broker.cpu") & held
    used = f", which used {sampled.mean('broker.cpu', known):.2f} cores" if known.any() else ""
    did = ", which was stopped by a signal" if stopped else used
    return f"{sampled.most('broker.unread', held)} stood unread at {sampled.broker}{did}; {unsent} more waited in our sockets"


def _memory(sampled: Sampled) -> Held:
    return _of_group(sampled) | _of_heap(sampled) | _of_direct(sampled)


def _of_group(sampled: Sampled) -> Held:
    held: Held = sampled["broker.memory"] >= FULL * sampled["broker.memoryLimit"]
    return held


def _of_heap(sampled: Sampled) -> Held:
    held: Held = (sampled["sys.heap"] >= FULL * sampled["sys.heapLimit"]) & ~(sampled["sys.gc"] < COLLECTING)
    return held


def _of_direct(sampled: Sampled) -> Held:
    held: Held = sampled["sys.direct"] >= FULL * sampled["sys.directLimit"]
    return held


def _tell_memory(sampled: Sampled, held: Held) -> str:
    for full, what, column in ((_of_heap, "heap", "sys.heap"), (_of_direct, "direct memory", "sys.direct")):
        if (full(sampled) & held).any():
            return (
                f"{sampled.broker}'s {what} had {sampled.most(column, held)} of the {sampled.most(f'{column}Limit', held)} that it may have"
            )
    return (
        f"{sampled.broker} had {sampled.most('broker.memory', held)} of the {sampled.most('broker.memoryLimit', held)} of its control group"
    )


def _throttled(sampled: Sampled) -> Held:
    held: Held = (sampled["sys.throttled"] > 0) | (sampled["sys.dispatchThrottled"] > 0)
    return held


def _tell_throttling(sampled: Sampled, held: Held) -> str:
    sides = (("sys.throttled", "producers", "publish"), ("sys.dispatchThrottled", "consumers", "dispatch"))
    told = [
        f"{sampled.broker} held {whom} back {sampled.mean(column, held):.3g} times a second for a {limit} rate limit"
        for column, whom, limit in sides
        if (sampled[column][held] > 0).any()
    ]
    return "; ".join(told)


def _slow_write(sampled: Sampled) -> Held:
    """Writing to the bookies, without waiting to be written, takes most of what publishing takes; and no core is lacking."""
    write = sampled["sys.ledgerLatency"]
    held: Held = (write >= SLOW_WRITE) & (write >= sampled["sys.publishLatency"] / 2) & ~_no_core(sampled)
    return held


def _tell_write(sampled: Sampled, held: Held) -> str:
    write, publish = (format_duration(sampled.mean(f"sys.{name}", held)) for name in ("ledgerLatency", "publishLatency"))
    return f"a write to {sampled.broker}'s bookies took {write} on the average, of {publish} that the broker needed to publish"


def _starved(sampled: Sampled) -> Held:
    """A subscription was blocked, or one consumer in a hundred took nothing more of a backlog; and no worker lacked a core."""
    none = (sampled["sys.starved"] > 0) & (sampled["sys.starved"] >= sampled["sys.consumers"] / 100) & (sampled["sys.backlog"] > 0)
    held: Held = (sampled["sys.blocked"] > 0) | none
    return held & ~_generator(sampled)


def _tell_starved(sampled: Sampled, held: Held) -> str:
    backlog = np.nanmax(sampled["sys.backlog"][held]) if (sampled.known("sys.backlog") & held).any() else None
    waits = f", while {backlog:.0f} entries stood in the backlog" if backlog is not None else ""
    if (sampled["sys.blocked"][held] > 0).any():
        return f"{np.nanmax(sampled['sys.blocked'][held]):.0f} subscriptions had too many messages unacknowledged to get more{waits}"
    starved, all_of_them = (np.nanmax(sampled[name][held]) for name in ("sys.starved", "sys.consumers"))
    return f"{starved:.0f} of {all_of_them:.0f} consumers had no permits left, or too many messages unacknowledged{waits}"


def _network(sampled: Sampled) -> Held:
    return _inwards(sampled) | (sampled.stuck("broker") & ~sampled.unread("workers"))


def _inwards(sampled: Sampled) -> Held:
    """What our sockets cannot send does not stand at the broker's, which could read it."""
    return sampled.stuck("workers") & ~sampled.unread("broker") & ~(sampled["broker.stopped"] > 0) & ~_no_core(sampled)


def _tell_network(sampled: Sampled, held: Held) -> str:
    if not (_inwards(sampled) & held).any():
        arrived = sampled.most("workers.unread", held)
        return (
            f"{sampled.most('broker.unsent', held)} waited in {sampled.broker}'s sockets, and no more than {arrived} stood unread at ours"
        )
    waited = f"{sampled.most('workers.unsent', held)} waited in our sockets"
    if not (sampled.known("broker.unread") & held).any():
        shut = format_value(sampled.mean("workers.shut", held), "ratio", 2)
        return f"{waited}, and the other side's window was shut for no more than {shut} of the time"
    return f"{waited}, and no more than {sampled.most('broker.unread', held)} stood unread at {sampled.broker}"


def _asleep(sampled: Sampled) -> Held:
    """Our sockets left unread what had arrived, or kept their window shut; and no worker wanted more of a core than there is."""
    return (sampled.unread("workers") | sampled.refused("broker")) & ~_generator(sampled)


def _tell_subscriber(sampled: Sampled, held: Held) -> str:
    behind = (
        f"; {sampled.most('broker.unsent', held)} more waited at {sampled.broker}" if (sampled.known("broker.unsent") & held).any() else ""
    )
    return f"{sampled.most('workers.unread', held)} stood unread at subscribers{behind}"


def _workers(sampled: Sampled) -> list[str]:
    ending = ".busiestWanted"
    return [name.removesuffix(ending) for name in sampled.telemetry.columns if name.startswith("worker ") and name.endswith(ending)]


def _generator(sampled: Sampled) -> Held:
    held: Held = np.zeros(len(sampled.telemetry), np.bool_)
    for worker in _workers(sampled):
        held |= sampled[f"{worker}.busiestWanted"] >= SATURATED
    return held


def _tell_generator(sampled: Sampled, held: Held) -> str:
    worker = max(_workers(sampled), key=lambda worker: np.count_nonzero(sampled[f"{worker}.busiestWanted"] >= SATURATED))
    return sampled.thread(worker, worker, held & sampled.known(f"{worker}.busiestWanted"))


RULES: Final = (
    Rule(
        conclusion="broker throttling", holds=_throttled, needs=("sys.throttled", "sys.dispatchThrottled"), tell=_tell_throttling,
        everywhere=False,
    ),
    Rule(conclusion="broker memory", holds=_memory, needs=("broker.memory", "sys.heap"), tell=_tell_memory),
    Rule(conclusion="broker disk", holds=_on_disk, needs=("broker.diskWait",), tell=_tell_disk),
    Rule(conclusion="bookie write", holds=_slow_write, needs=("sys.ledgerLatency",), tell=_tell_write, everywhere=False),
    Rule(
        conclusion="broker not reading", holds=_not_reading, needs=("broker.stopped", "broker.unread", "workers.unsent"),
        tell=_tell_not_reading,
    ),
    Rule(
        conclusion="subscriber", holds=_asleep, needs=("workers.unread",), tell=_tell_subscriber,
    ),
    Rule(conclusion="consumer", holds=_starved, needs=("sys.starved", "sys.blocked"), tell=_tell_starved, everywhere=False),
    Rule(conclusion="broker CPU", holds=_no_core, needs=("broker.wanted",), tell=_tell_cpu),
    Rule(conclusion="generator", holds=_generator, needs=(), tell=_tell_generator),
    Rule(conclusion="network", holds=_network, needs=("workers.unsent", "broker.unsent"), tell=_tell_network),
)  # fmt: skip
"""Of sides that were saturated in as many samples, the first explains those after it."""


# What the rules look at: the samples of the measured phase, and in which of them a queue stood.

QUEUED: Final = 64 * 1024
"""Bytes that any number of sockets may hold without anybody waiting for them."""
QUEUED_FOR: Final = SECOND // 50
"""A queue stands when it holds more than :data:`QUEUED` and more than the traffic of so many ns."""
QUEUES: Final = ("workers.unsent", "workers.unread", "broker.unsent", "broker.unread")
SHUT: Final = 0.5
"""Share of the time in which one side's window was shut, from which on that side, not what lies between, holds things up."""


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """:param telemetry: of the measured phase. :param sent_rate: payload bytes a second to the broker. :param received_rate: from it.

    :param cores: of this machine.
    """

    telemetry: Telemetry
    sent_rate: float
    received_rate: float
    cores: int

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return self.telemetry.column(name)

    @property
    def broker(self) -> str:
        """What it is called."""
        return self.telemetry.broker

    def known(self, *names: str) -> Held:
        """In which samples there is a number for one of these."""
        known: Held = np.any([np.isfinite(self[name]) for name in names], axis=0)
        return known

    def stands(self, name: str) -> Held:
        """In which samples that queue stands."""
        rate = self.sent_rate if name in ("workers.unsent", "broker.unread") else self.received_rate
        held: Held = self[name] > max(QUEUED, rate * QUEUED_FOR / SECOND)
        return held

    def unread(self, side: str) -> Held:
        """In which samples one side did not read: the queue stands, or a hundredth of its connections has left something for long."""
        stale = self[f"{side}.stale"]
        held: Held = self.stands(f"{side}.unread") | ((stale > 0) & (stale >= self[f"{side}.connections"] / 100))
        return held

    def refused(self, side: str) -> Held:
        """In which samples one side could not send because the other's window was shut. Of a relay's window that says nothing."""
        held: Held = self.stands(f"{side}.unsent") & ~(self["broker.relayed"] > 0) & (self[f"{side}.shut"] >= SHUT)
        return held

    def stuck(self, side: str) -> Held:
        """In which samples one side could not send although the other's window was open, or the window was a relay's."""
        held: Held = self.stands(f"{side}.unsent") & ((self["broker.relayed"] > 0) | (self[f"{side}.shut"] < SHUT))
        return held

    def mean(self, name: str, held: Held) -> float:
        """Over the samples chosen; NaN where none has a number: what costs much is not sampled every second."""
        found = self[name][held]
        return float(np.nanmean(found)) if np.isfinite(found).any() else math.nan

    def most(self, name: str, held: Held) -> str:
        """The most bytes in the samples chosen."""
        found = self[name][held]
        return format_size(float(np.nanmax(found))) if np.isfinite(found).any() else "nobody knows how much"

    def thread(self, whose: str, name: str, held: Held) -> str:
        """What somebody's busiest thread did."""
        ran, wanted = self.mean(f"{whose}.busiest", held), self.mean(f"{whose}.busiestWanted", held)
        waited = f" and waited for one {format_value(wanted - ran, 'ratio', 2)} of the time" if wanted - ran >= 0.05 else ""
        return f"{name}'s busiest thread used {ran:.2f} of a core{waited}"
