"""When a side is saturated: a rule for each, over what was sampled, and the sentence that tells it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.values.quantities import format_size
from pytest_loadtest.values.wording import format_value

if TYPE_CHECKING:
    from pytest_loadtest.observe.sampled import Held, Sampled

SATURATED: Final = 0.9
"""Share of the time that a thread ran or waited for a core, from which on it is saturated."""
ON_DISK: Final = 0.3
"""Share of the looks at a broker in which one of its threads slept for the disk, from which on the disk holds it up."""
FULL: Final = 0.9
"""Share of a memory limit from which on memory is."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One side.

    :param holds: in which samples it was saturated. :param needs: columns of which one is enough to tell.
    :param tell: the evidence in words, of the samples in which it was.
    """

    conclusion: str
    holds: Callable[[Sampled], Held]
    needs: tuple[str, ...]
    tell: Callable[[Sampled, Held], str]


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
    """It was stopped, or left unread what had arrived, or kept its window shut; and neither a core nor the disk was why."""
    held: Held = (sampled["broker.stopped"] > 0) | sampled.unread("broker") | sampled.refused("workers")
    return held & ~_no_core(sampled) & ~_on_disk(sampled)


def _tell_not_reading(sampled: Sampled, held: Held) -> str:
    unsent = sampled.most("workers.unsent", held)
    if not (sampled.known("broker.unread", "broker.stopped") & held).any():
        return f"{unsent} waited in our sockets because the other side's window was shut; why, was not sampled"
    stopped = (sampled["broker.stopped"][held] > 0).any()
    did = "was stopped by a signal" if stopped else f"used {sampled.cores_of('broker.cpu', held)} cores"
    return f"{sampled.most('broker.unread', held)} stood unread at {sampled.broker}, which {did}; {unsent} more waited in our sockets"


def _memory(sampled: Sampled) -> Held:
    return _of_group(sampled) | _of_heap(sampled)


def _of_group(sampled: Sampled) -> Held:
    held: Held = sampled["broker.memory"] >= FULL * sampled["broker.memoryLimit"]
    return held


def _of_heap(sampled: Sampled) -> Held:
    held: Held = sampled["sys.heap"] >= FULL * sampled["sys.heapLimit"]
    return held


def _tell_memory(sampled: Sampled, held: Held) -> str:
    if (_of_heap(sampled) & held).any():
        return (
            f"{sampled.broker}'s heap had {sampled.most('sys.heap', held)} of the {sampled.most('sys.heapLimit', held)} of its memory_limit"
        )
    return (
        f"{sampled.broker} had {sampled.most('broker.memory', held)} of the {sampled.most('broker.memoryLimit', held)} of its control group"
    )


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
    Rule(conclusion="broker memory", holds=_memory, needs=("broker.memory", "sys.heap"), tell=_tell_memory),
    Rule(conclusion="broker disk", holds=_on_disk, needs=("broker.diskWait",), tell=_tell_disk),
    Rule(
        conclusion="broker not reading", holds=_not_reading, needs=("broker.stopped", "broker.unread", "workers.unsent"),
        tell=_tell_not_reading,
    ),
    Rule(
        conclusion="subscriber", holds=_asleep, needs=("workers.unread",), tell=_tell_subscriber,
    ),
    Rule(conclusion="broker CPU", holds=_no_core, needs=("broker.wanted",), tell=_tell_cpu),
    Rule(conclusion="generator", holds=_generator, needs=(), tell=_tell_generator),
    Rule(conclusion="network", holds=_network, needs=("workers.unsent", "broker.unsent"), tell=_tell_network),
)  # fmt: skip
"""Of sides that were saturated in as many samples, the first explains those after it."""
