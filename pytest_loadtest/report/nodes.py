"""One row for each process of a cluster under test, from the columns of ``bottleneck``."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from pytest_loadtest.report.bottleneck import if_any, known_values
from pytest_loadtest.report.tables import Writer, written
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

    :param cpu: cores, the median. :param memory: bytes, the most. :param written: bytes a second,
        the mean.
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
        figures: tuple[tuple[float | None, Writer], ...] = (
            (self.cpu, "{:.2f}".format),
            (self.memory, format_size),
            (self.written, lambda rate: f"{format_size(rate)}/s"),
            (self.received, format_rate),
            (self.sent, format_rate),
        )
        topics = " → ".join(dict.fromkeys(map(exact, self.topics)))
        return (self.name, *written(figures, ""), topics)


def node_uses(document: RunDocument) -> list[NodeUse]:
    """Return the processes of a cluster, in the order in which they were sampled.

    A single broker has none.
    """
    section = document.bottleneck
    if section is None:
        return []
    names: dict[str, None] = {}
    for column in section.columns:
        name, _, kind = column.rpartition(".")
        if kind in ("memory", "topics") and name != "broker" and not name.startswith("worker "):
            names[name] = None
    return [_use(section, name) for name in names]


def _use(section: BottleneckSection, name: str) -> NodeUse:
    def values(column: str) -> list[float]:
        return known_values(section, f"{name}.{column}")

    topics = values("topics")
    return NodeUse(
        name=name,
        cpu=if_any(median, values("cpu")),
        memory=if_any(max, values("memory")),
        written=if_any(fmean, values("written")),
        received=if_any(fmean, values("messagesIn")),
        sent=if_any(fmean, values("messagesOut")),
        topics=(int(topics[0]), int(topics[-1])) if topics else (),
    )


def node_facts(document: RunDocument) -> Iterator[Labelled]:
    """Return ``nodes broker 1 0.52 cores, 380 MiB, topics 4 → 8; …``, one for each process."""
    texts = [_text(use) for use in node_uses(document)]
    if texts:
        yield "nodes", "; ".join(texts)


def _text(use: NodeUse) -> str:
    parts = []
    if use.cpu is not None:
        parts.append(f"{use.cpu:.2f} cores")
    if use.memory is not None:
        parts.append(format_size(use.memory))
    if use.topics:
        parts.append(f"topics {use.cells[-1]}")
    return f"{use.name} {', '.join(parts)}"
