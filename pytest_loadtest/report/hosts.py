"""The CPU, queues and stalls of each host of the generator, if there are several.

They come from ``bottleneck`` and from the workers' own evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from pytest_loadtest.plan.hosts import CONTROLLER
from pytest_loadtest.report.bottleneck import if_any, known_values
from pytest_loadtest.report.sections import Labelled, known_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_loadtest.report.document import BottleneckSection, RunDocument
    from pytest_loadtest.report.measurements_section import WorkerEntry

    Column = Sequence[float | None]

LISTED: Final = 4
"""Number of hosts in the summary; the report has all."""


@dataclass(frozen=True, kw_only=True)
class HostUse:
    """One host. ``None`` and an empty column: unknown.

    :param cores: cores that its workers may use. :param cpu: cores that they used together, by
        sample. :param busiest: cores that the busiest thread of all of them used or waited for, by
        sample. :param longest_stall: ns; of all workers.
    :param unsent: bytes, the most in all sockets. :param unread: the same.
    :param retransmits: segments a second, the most. :param cost: cores that sampling used.
    """

    name: str
    workers: tuple[str, ...]
    cores: int | None
    cpu: Column
    busiest: Column
    longest_stall: int | None
    unsent: float | None
    unread: float | None
    retransmits: float | None
    cost: float | None

    @property
    def usual_cpu(self) -> float | None:
        """Median of the cores used."""
        return if_any(median, known_of(self.cpu))

    @property
    def usual_busiest(self) -> float | None:
        """Median of the need of the busiest thread."""
        return if_any(median, known_of(self.busiest))


def host_uses(document: RunDocument) -> list[HostUse]:
    """Return the hosts, the busiest first; empty if all workers ran on the controller's."""
    section = document.bottleneck
    if section is None or not section.hosts:
        return []
    away = {worker for host in section.hosts for worker in host.workers}
    uses = [
        _use(document, section, host.name, host.workers, host.cores, host.cost)
        for host in section.hosts
    ]
    here = tuple(entry.worker for entry in _workers(document) if entry.worker not in away)
    if here:
        cores = document.machine.get("cores")
        uses.append(_use(document, section, CONTROLLER, here, cores, section.cost))
    return sorted(uses, key=lambda use: -(use.usual_busiest or 0.0))


def _workers(document: RunDocument) -> Sequence[WorkerEntry]:
    return () if document.measurements is None else document.measurements.workers


def _use(
    document: RunDocument,
    section: BottleneckSection,
    name: str,
    workers: tuple[str, ...],
    cores: int | None,
    cost: float | None,
) -> HostUse:
    side = "workers" if name == CONTROLLER else f"workers {name}"
    stalls = [entry.longest_stall for entry in _workers(document) if entry.worker in workers]
    return HostUse(
        name=name,
        workers=workers,
        cores=cores,
        cost=cost,
        cpu=_over(sum, section, workers, "cpu"),
        busiest=_over(max, section, workers, "busiestWanted"),
        longest_stall=max(stalls, default=None),
        unsent=max(known_values(section, f"{side}.unsent"), default=None),
        unread=max(known_values(section, f"{side}.unread"), default=None),
        retransmits=max(known_values(section, f"{side}.retransmits"), default=None),
    )


def _over(
    combine: Callable[[list[float]], float],
    section: BottleneckSection,
    workers: Sequence[str],
    name: str,
) -> list[float | None]:
    """Return one value for each sample; None if that of any worker is unknown."""
    unknown = (None,) * len(section.time)
    columns = [section.columns.get(f"worker {worker}.{name}", unknown) for worker in workers]
    combined = []
    for values in zip(*columns, strict=True):
        combined.append(None if None in values else combine(known_of(values)))
    return combined


def host_use_facts(document: RunDocument) -> Iterator[Labelled]:
    """Return ``hosts h1 1.07 of 2 cores, busiest thread 0.99; h2 not sampled``.

    The numbers are medians of the samples.
    """
    uses = host_uses(document)
    texts = list(map(_use_text, uses[:LISTED]))
    if len(uses) > LISTED:
        texts.append(f"and {len(uses) - LISTED} more")
    if texts:
        yield "hosts", "; ".join(texts)


def _use_text(use: HostUse) -> str:
    if use.usual_cpu is None or use.usual_busiest is None:
        return f"{use.name} not sampled"
    of = "" if use.cores is None else f" of {use.cores}"
    busiest = f"busiest thread needed {use.usual_busiest:.2f}"
    return f"{use.name} {use.usual_cpu:.2f}{of} cores, {busiest}"
