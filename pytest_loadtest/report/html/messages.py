"""What became of the messages of a run, as counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.metrics.catalogue import COUNTS
from pytest_loadtest.report import sections
from pytest_loadtest.report.html.blocks import Fold, Paragraph, Table, absent
from pytest_loadtest.report.terminal import MOST_RANGES
from pytest_loadtest.values.quantities import format_rate, format_size
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.html.blocks import Block

RANGES: Final = 200
"""Of lost messages that are listed; results.json has more."""


def messages_chapter(document: Document) -> Iterator[Block]:
    """Rates, counts, and which messages were lost."""
    measured = document["measurements"]
    if measured is None:
        yield absent("messages", "the run broke before anything could be measured")
    elif sections.only_connects(measured):
        yield Paragraph("messages: not applicable: the run had connections and no messages", "absent")
    else:
        yield _rates(measured)
        yield _counts(measured, bool(document["profile"]["document"].get("checksum")))
        if silent := sections.silent(measured):
            yield Paragraph(f"Nothing arrived of {silent}.", "missed")
        yield from _lost(measured["lost"])


def _rates(measured: Document) -> Table:
    absence = "none" if measured["subscriptions"] else "nowhere (nothing subscribes)"
    throughput = absence if measured["throughput"] is None else format_rate(measured["throughput"])
    rows = [
        ("offered", format_rate(measured["rate"])), ("sent", format_rate(measured["publishRate"])), ("delivered", throughput),
        ("payload sent", f"{format_size(measured['bytesSent'] * 1e9 / measured['duration'])}/s"),
    ]  # fmt: skip
    return Table(caption="Rates over the measured phase", head=("what", "rate"), rows=rows, numbers=frozenset((1,)))


def _counts(measured: Document, checksum: bool) -> Table:
    counts, subscriptions = measured["counts"], measured["subscriptions"]
    due = ("due", exact(counts["acked"] * subscriptions) if subscriptions else "not applicable", "deliveries: acked × subscriptions")
    rows = [*_rows(counts, inbound=False), due, *_rows(counts, inbound=True, applicable=bool(subscriptions))]
    looked = "" if checksum else "; corrupt: heads and sizes alone were looked at"
    caption = f"Messages of the measured phase{looked}" + ("" if subscriptions else "; nothing subscribes in this run")
    return Table(caption=caption, head=("what", "count", ""), rows=rows, numbers=frozenset((1,)))


def _rows(counts: Document, *, inbound: bool, applicable: bool = True) -> list[tuple[str, str, str]]:
    known = [row for row in COUNTS if row.inbound is inbound and row.key in counts]  # older results lack some
    texts = [exact(counts[row.key]) if applicable and counts[row.key] is not None else "not applicable" for row in known]
    return [(row.label, text, f"… {row.meaning}" if row.part else row.meaning) for row, text in zip(known, texts, strict=True)]


def _lost(ranges: Sequence[Document]) -> Iterator[Block]:
    if not ranges:
        return
    rows = [
        (exact(one["stream"]), str(one["topic"]), str(one["subscription"]), str(one["first"]), str(one["last"])) for one in ranges[:RANGES]
    ]
    more = f"; {exact(len(ranges) - RANGES)} more in results.json" if len(ranges) > RANGES else ""
    caption = f"Ranges of lost messages{more}"
    table = Table(caption=caption, head=("stream", "topic", "subscription", "first", "last"), rows=rows, numbers=frozenset((1, 2, 3, 4)))
    yield table if len(rows) <= MOST_RANGES else Fold(f"{exact(len(ranges))} ranges of lost messages", [table])
