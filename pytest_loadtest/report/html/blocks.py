"""The blocks of a page: paragraphs, lists, tables, and places where charts are drawn.

The template selects them by ``block``.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pytest_loadtest.report.sections import Absences
from pytest_loadtest.report.tables import Table
from pytest_loadtest.values.records import immutable, record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_loadtest.report.find_results import ReadRun
    from pytest_loadtest.report.measurements_section import MeasurementsSection

NOT_MEASURED: Final = "not measured"
ON_PAGE: Final = Absences(NOT_MEASURED, "never began", "not applicable", "nothing")


@immutable
class Paragraph:
    """A paragraph. :param kind: ``absent``, ``warning`` or an outcome."""

    block: ClassVar = "paragraph"
    text: str
    kind: str = ""


@immutable
class Flow:
    """The way of the messages of a run, with the counts of those that went wrong.

    :param routed: it leads through a service.
    """

    block: ClassVar = "flow"
    measured: MeasurementsSection
    routed: bool


@immutable
class Listing:
    """A list of sentences under a title."""

    block: ClassVar = "listing"
    title: str
    items: Sequence[str]


@immutable
class Verbatim:
    """Lines that are aligned already. :param title: their description for screen readers."""

    block: ClassVar = "verbatim"
    title: str
    lines: Sequence[str]


@immutable
class Fold:
    """Blocks that are shown on demand."""

    block: ClassVar = "fold"
    title: str
    blocks: Sequence[Block]


@immutable
class ChartFigure:
    """The place of a chart; its title and summary are shown without scripts, too.

    :param name: unique on the page. :param chart: from
        :func:`pytest_loadtest.report.html.charts.make_chart`.
    """

    block: ClassVar = "figure"
    name: str
    chart: dict[str, Any]


Block = Table | Paragraph | Flow | Listing | Verbatim | Fold | ChartFigure


@immutable
class Chapter:
    """:param name: its id on the page."""

    name: str
    title: str
    blocks: Sequence[Block]


@record
class RunPage:
    """The chapters of one run, after its verdict.

    :param bands: from :func:`pytest_loadtest.report.html.over_time.drawn_bands`.
    :param baseline: the charts of its baseline, by the ends of their names.
    """

    name: str
    run: ReadRun
    chapters: Sequence[Chapter]
    bands: Sequence[dict[str, Any]] = ()
    baseline: Mapping[str, dict[str, Any]] = field(default_factory=dict)


def chart_figures(blocks: Iterable[Block]) -> Iterator[ChartFigure]:
    """Yield all charts, including those in folds."""
    for block in blocks:
        if isinstance(block, ChartFigure):
            yield block
        elif isinstance(block, Fold):
            yield from chart_figures(block.blocks)


def absent(what: str, why: str = "") -> Paragraph:
    """Return a paragraph such as ``end-to-end latency: not measured``."""
    text = f"{what}: {NOT_MEASURED}"
    return Paragraph(f"{text} ({why})" if why else text, "absent")
