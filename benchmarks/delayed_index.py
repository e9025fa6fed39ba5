"""Table and plot of the data from ``bench_delayed_index.py``, with the model.

Run ``python benchmarks/delayed_index.py [data.json]``.

The plot is an SVG in the folder of the data. It needs matplotlib (``pip install --group plots``);
without it only the table is printed.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from pytest_loadtest.drivers.pulsar.delayed_index import (
    CONTAINER,
    HEAP_ENTRY,
    LEDGER,
    BucketIndex,
    bits_of,
    index_of_one_delay,
    index_of_random_delays,
    time_buckets,
)

DATA = Path(__file__).parents[1] / "docs" / "howto" / "delayed-index.json"
TICK = 1000
BITS = bits_of(TICK)
LINE = tuple(round(10 ** (4 + step / 16)) for step in range(29))  # 10 000 to 562 000 messages

TOLD = (10_000, 20_000, 50_000, 100_000, 200_000, 400_000)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The distribution of due times.

    It is a number per millisecond one after the other, or at random within a number of
    milliseconds.
    """

    name: str
    per_ms: int = 0
    within: int = 0

    def bitmaps(self, messages: int) -> float:
        """The bytes of a message by the model of time buckets, as Roaring counts them."""
        return self._model(messages).bitmaps / messages

    def with_objects(self, messages: int) -> float:
        """The bytes of a message with Java's objects."""
        return self._model(messages).total / messages

    def rule(self, messages: int) -> float:
        """The bytes of a message by a rule of thumb.

        They are 2 up to 4096 messages a bucket, then 8192/M, and 8192/ledger if a bucket
        has ledgers.

        It ignores that ledgers cut buckets: 0.62 bytes instead of 0.5 at x = 16 and y = 10.
        """
        size = (self.per_ms or messages / self.within) * (1 << BITS)
        return 2.0 if size <= CONTAINER / 2 else CONTAINER / min(size, LEDGER)

    def _model(self, messages: int) -> BucketIndex:
        return (
            index_of_random_delays(messages, self.within, BITS)
            if self.within
            else index_of_one_delay(messages, self.per_ms, BITS)
        )


KINDS = (
    Kind(name="in order, 1 a ms", per_ms=1),
    Kind(name="in order, 100 a ms", per_ms=100),
    Kind(name="at random in 10 min", within=600_000),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One look at one broker; bytes of a message unless said otherwise.

    :param turn: round, from 0. :param messages: in the index.
    :param roaring: a real library's, of time buckets.
    :param broker: its own metric. :param heap: Java's, freed with the index; None: unknown.
    :param direct: of the pool of direct memory, likewise.
    :param cpu: of the broker, µs of a message. :param rate: msg/s sent.
    """

    turn: int
    version: str
    due: str
    messages: int
    roaring: float
    broker: float
    heap: float | None
    direct: float | None
    cpu: float
    rate: float


def grouped(rows: Iterable[Row]) -> Iterator[tuple[Kind, int, str, list[Row]]]:
    """Return the rounds of each measurement, versions side by side."""
    rows = list(rows)
    for kind in KINDS:
        for messages in sorted({row.messages for row in rows if row.due == kind.name}):
            for version in sorted({row.version for row in rows}):
                found = [
                    row
                    for row in rows
                    if (row.due, row.messages, row.version) == (kind.name, messages, version)
                ]
                if found:
                    yield kind, messages, version, found


def show(rows: Iterable[Row]) -> None:
    """Return the table; if rounds differ, with least and largest values."""
    head = (
        "due",
        "pending",
        "Pulsar",
        "model",
        "rule",
        "Roaring",
        "broker",
        "with objects",
        "freed",
        "CPU µs",
        "sent/s",
    )
    print("\n" + "| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for kind, messages, version, found in grouped(rows):
        new = time_buckets(version)
        told = (
            (
                f"{kind.bitmaps(messages):.2f}",
                f"{kind.rule(messages):.2f}",
                span(found, lambda row: row.roaring, 2),
            )
            if new
            else (f"{HEAP_ENTRY:.2f}", f"{HEAP_ENTRY:.2f}", "–")
        )
        cells = (
            kind.name, f"{messages:,}", version, *told, span(found, lambda row: row.broker, 2),
            f"{kind.with_objects(messages):.1f}" if new else "–",
            span(found, freed, 1),
            span(found, lambda row: row.cpu, 0), span(found, lambda row: row.rate, 0),
        )  # fmt: skip
        print("| " + " | ".join(cells) + " |")


def freed(row: Row) -> float | None:
    """Return the bytes freed with the index, of the memory that it uses.

    The other one changes by megabytes of read and cached data.
    """
    return row.heap if time_buckets(row.version) else row.direct


def span(rows: list[Row], of: Callable[[Row], float | None], digits: int) -> str:
    values = [value for row in rows if (value := of(row)) is not None]
    if not values:
        return "–"
    low, high = (f"{value:,.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} … {high}"


def draw(data: Path) -> None:
    """Write the plot next to the data; prints a line if that is impossible."""
    if importlib.util.find_spec("matplotlib") is None:
        print("no plot: matplotlib is not installed (pip install --group plots)")
        return
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = load(data)
    with mpl.rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "delayed-index",
            "font.size": 9,
            "font.sans-serif": ["DejaVu Sans"],
        }
    ):
        figure = Figure(figsize=(9, 7), layout="constrained")
        panels = list(figure.subplots(2, 2).flat)
        for axes, kind in zip(panels[:3], KINDS, strict=True):
            _memory(
                axes,
                kind,
                [row for of, _, _, found in grouped(rows) if of is kind for row in found],
            )
        _cpu(panels[3], rows)
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
        )
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    data.with_suffix(".svg").write_text(_short(text.getvalue()))
    print(f"drawn: {data.with_suffix('.svg').name}")


def _short(svg: str) -> str:
    """Shorten the SVG: no indentation, and coordinates to a hundredth of a point."""
    return re.sub(r"(\.\d\d)\d+", r"\1", re.sub(r" *\n\s*", "\n", svg))


COLORS = ("tab:orange", "tab:blue")  # heap, time buckets


def _memory(axes: Any, kind: Kind, rows: list[Row]) -> None:
    axes.axhline(HEAP_ENTRY, ls="--", color=COLORS[0], lw=1, label="model: heap")
    axes.plot(
        LINE,
        list(map(kind.bitmaps, LINE)),
        "--",
        color=COLORS[1],
        lw=1,
        label="model: time buckets",
    )
    axes.plot(
        LINE,
        list(map(kind.with_objects, LINE)),
        ":",
        color=COLORS[1],
        lw=1,
        label="… with Java's objects",
    )
    buckets = [row for row in rows if time_buckets(row.version)]
    axes.plot(*_points(buckets, "roaring"), "k+", ms=9, label="real Roaring library")
    for version in sorted({row.version for row in rows}):
        own = [row for row in rows if row.version == version]
        new = time_buckets(version)
        freed, where = ("heap", "Java heap") if new else ("direct", "direct memory")
        axes.plot(
            *_points(own, "broker"),
            "os"[new],
            color=COLORS[new],
            ms=4,
            label=f"{version}: the broker's metric",
        )
        axes.plot(
            *_points(own, freed),
            "os"[new],
            color=COLORS[new],
            mfc="none",
            ms=7,
            label=f"{version}: {where} freed with it",
        )
    axes.set(yscale="log", ylim=(0.1, 100), title=f"due {kind.name}", ylabel="bytes a message")
    axes.set_yticks((0.1, 1, 10, 100), ("0.1", "1", "10", "100"))
    _abscissa(axes)


def _cpu(axes: Any, rows: list[Row]) -> None:
    for version in sorted({row.version for row in rows}):
        new = time_buckets(version)
        for kind, fill in zip(KINDS, ("full", "none", "left"), strict=True):
            own = [row for row in rows if (row.version, row.due) == (version, kind.name)]
            axes.plot(
                *_points(own, "cpu"),
                "os"[new],
                color=COLORS[new],
                fillstyle=fill,
                ms=6,
                label=f"{version}, {kind.name}",
            )
    axes.set(title="broker's CPU: store, read, index", ylabel="µs a message")
    axes.set_ylim(bottom=0)
    _abscissa(axes)
    axes.legend(fontsize=7)


def _abscissa(axes: Any) -> None:
    axes.set(xscale="log", xlabel="messages pending", xlim=(LINE[0], LINE[-1]))
    axes.set_xticks(TOLD, [f"{messages // 1000}k" for messages in TOLD])
    axes.minorticks_off()
    axes.grid(visible=True, lw=0.3)


def _points(rows: list[Row], name: str) -> tuple[list[int], list[float]]:
    """Return the points above zero, as the axis is logarithmic.

    Only one is returned if rounds agree to a hundredth.
    """
    found = sorted(
        {
            (row.messages, round(value, 2))
            for row in rows
            if (value := getattr(row, name)) is not None and value > 0
        }
    )
    xs = [x for x, _ in found]
    ys = [y for _, y in found]
    return xs, ys


def load(data: Path) -> list[Row]:
    return [Row(**row) for row in json.loads(data.read_text())["rows"]]


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if sys.argv[1:] else DATA
    show(load(chosen))
    draw(chosen)
