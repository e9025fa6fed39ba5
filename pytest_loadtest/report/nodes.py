"""One row for each process of a cluster under test: CPU, memory, disk, messages and topics, from the columns of ``bottleneck``."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from pytest_loadtest.report.bottleneck import known_values
from pytest_loadtest.values.quantities import format_rate, format_size
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.report.document import BottleneckSection, RunDocument
    from pytest_loadtest.report.sections import Labelled

HEAD: Final = (
    "process",
    "cores used",
    "memory",
    "disk written",
    "messages in",
    "messages out",
    "topics",
)


@dataclass(frozen=True, kw_only=True)
class NodeUse:
    """One process; None: unknown.

    :param cpu: cores, the median. :param memory: bytes, the most. :param written: bytes a second, the mean.
    :param received: msg/s in, the mean. :param sent: msg/s out, the mean.
    :param topics: of the run, at the first and the last sample that has them; () if unknown.
    """

    name: str
    cpu: float | None
    memory: float | None
    written: float | None
    received: float | None
    sent: float | None
    topics: tuple[int, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """The row below :data:`HEAD`."""
        return (
            self.name,
            "" if self.cpu is None else f"{self.cpu:.2f}",
            "" if self.memory is None else format_size(self.memory),
            "" if self.written is None else f"{format_size(self.written)}/s",
            *("" if rate is None else format_rate(rate) for rate in (self.received, self.sent)),
            " → ".join(dict.fromkeys(map(exact, self.topics))),
        )


def node_uses(document: RunDocument) -> list[NodeUse]:
    """Return the processes of a cluster, in the order in which they were sampled; empty for a single broker."""
    section = document.bottleneck
    if section is None:
        return []
    names = [
        column.rpartition(".")[0]
        for column in section.columns
        if column.endswith((".memory", ".topics"))
    ]
    return [
        _use(section, name)
        for name in dict.fromkeys(names)
        if name != "broker" and not name.startswith("worker ")
    ]


def _use(section: BottleneckSection, name: str) -> NodeUse:
    cpu, memory, written, received, sent, topics = (
        known_values(section, f"{name}.{column}")
        for column in ("cpu", "memory", "written", "messagesIn", "messagesOut", "topics")
    )
    return NodeUse(
        name=name, cpu=median(cpu) if cpu else None, memory=max(memory, default=None), written=fmean(written) if written else None,
        received=fmean(received) if received else None, sent=fmean(sent) if sent else None,
        topics=(int(topics[0]), int(topics[-1])) if topics else (),
    )  # fmt: skip


def node_facts(document: RunDocument) -> Iterator[Labelled]:
    """Return ``nodes broker 1 0.52 cores, 380 MiB, topics 4 → 8; …``, one for each process."""
    texts = [_text(use) for use in node_uses(document)]
    if texts:
        yield "nodes", "; ".join(texts)


def _text(use: NodeUse) -> str:
    parts = [] if use.cpu is None else [f"{use.cpu:.2f} cores"]
    parts += [] if use.memory is None else [format_size(use.memory)]
    parts += [f"topics {use.cells[-1]}"] if use.topics else []
    return f"{use.name} {', '.join(parts)}"
