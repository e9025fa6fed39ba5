"""Comparisons as Markdown: of two results folders for a pull request, of one run for a summary.

GitHub rejects a comment of more than 65 536 characters.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pytest_loadtest.report.comparison import (
    MOST_DIFFERENCES,
    change_word,
    figure_cells,
    noise_text,
)
from pytest_loadtest.report.document import OUTCOMES, RunDocument
from pytest_loadtest.report.markdown import (
    escaped,
    folded,
    limited,
    markdown_lines,
)
from pytest_loadtest.report.sections import (
    causes_and_remedy,
    counts_text,
    mark,
    scale_warning,
)
from pytest_loadtest.report.tables import Cell, Table
from pytest_loadtest.values.wording import counted
from pytest_loadtest.verdict.slo import Outcome, worst

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.report.compared import Compared
    from pytest_loadtest.report.verdict_section import ComparisonSection, FigureEntry

LIMIT: Final = 60_000
"""The largest size, bytes; a hidden marker and a link have room below GitHub's limit."""
_MOST_PROBLEMS: Final = 10
_LONGEST_PROBLEM: Final = 300
_CERTAIN: Final = ("worse", "better")
_WORDS: Final = (
    "worse",
    "not comparable",
    "only in the baseline",
    "only in the later results",
    "better",
    "without a certain change",
)
"""Every test is one of these, in the order of the headline."""
_NOTABLE: Final = 0.1
"""A change of which the noise is unknown is above the fold if it is larger than this share."""
_ORDER: Final = ("missed", "worse", "no data", "better", "notable", "")
"""Figures above the fold, in this order, and the folded ones."""
_HEAD: Final = ("", "test", "outcome", "bounds on regression", "figures")


def comparison_markdown(
    compared: Sequence[Compared], problems: Sequence[str] = (), room: int = LIMIT
) -> str:
    """Return a table of all tests, then each test with its figures, worst first.

    Figures without a certain change are folded. If there is not enough room for all, the folded
    ones are left out, and then tests from the end; both are said.

    :param problems: sentences on results that could not be compared.
    :param room: the largest size, bytes.
    """
    ordered = sorted(
        compared, key=lambda test: (OUTCOMES.index(_outcome(test)), _WORDS.index(_word(test)))
    )
    lines = [_headline(ordered), ""]
    for problem in problems[:_MOST_PROBLEMS]:
        lines.append(f"- **no data**: {escaped(problem[:_LONGEST_PROBLEM])}")
    if len(problems) > _MOST_PROBLEMS:
        lines.append(f"- **no data**: … and {len(problems) - _MOST_PROBLEMS} more")
    if problems:
        lines.append("")
    head = "\n".join([*lines, ""])
    table = Table(head=_HEAD, align="<<<<<", rows=list(map(_overview_row, ordered)))
    details = [_details(test, short=False) for test in ordered]
    short = [_details(test, short=True) for test in ordered]
    return limited(head, table, details, short, room, "tests")


def _headline(compared: Sequence[Compared]) -> str:
    words = Counter(map(_word, compared))
    counts = ", ".join(f"{words[word]} {word}" for word in _WORDS if words[word])
    judged = counts_text(outcome for test in compared for outcome in test.outcomes)
    bounds = f"; bounds on regression: {judged}" if judged else ""
    return f"## Load tests compared: {counts}{bounds}"


def _outcome(test: Compared) -> Outcome:
    """Return the worst of the later run and its bounds; a run that is gone is unknown."""
    now = Outcome.NO_DATA if test.now is None else test.now.verdict.outcome
    return worst((now, *test.outcomes))


def _judged(section: ComparisonSection) -> bool:
    """Return whether a difference between the runs says something about what was tested."""
    return section.comparable or (section.forced and not section.notes)


def _word(test: Compared) -> str:
    if test.now is None:
        return "only in the baseline"
    if test.section is None:
        return "only in the later results"
    if not _judged(test.section):
        return "not comparable"
    words = set(map(change_word, test.section.rows))
    return next((word for word in _CERTAIN if word in words), "without a certain change")


def _overview_row(test: Compared) -> list[str | Cell]:
    outcome = _outcome(test)
    changed = _outcome_text(test)
    cell = Cell(changed, outcome if "→" in changed else "")
    bounds = counts_text(test.outcomes) or "none"
    return [mark(outcome, unicode=True), test.title, cell, bounds, _word(test)]


def _outcome_text(test: Compared) -> str:
    """Return the outcome, ``met → missed`` if it changed."""
    return " → ".join(dict.fromkeys(run.verdict.outcome.value for run in test.documents))


def _details(test: Compared, *, short: bool) -> str:
    """Return the part of one test. :param short: leave out its folded figures."""
    sign = mark(_outcome(test), unicode=True)
    lines = ["", f"### {sign} {escaped(test.title)}: {_outcome_text(test)}", ""]
    for run in test.documents:
        side = "baseline" if run is test.was else "now"
        lines += [f"- {side}: {escaped(text)}" for text in _caveats(run)]
    lines += [f"- {escaped(line)}" for line in test.lines]
    if test.section is not None:
        shown, unchanged = section_lines(test.section)
        if short and unchanged:
            unchanged = ["\nThe folded figures are left out: too long."]
        lines += [*shown, *unchanged]
    return "\n".join([*lines, ""])


def _caveats(run: RunDocument) -> Iterator[str]:
    """Yield what a reader must know about a run: it was scaled, or has no valid outcome."""
    if warning := scale_warning(run):
        yield warning
    outcome = run.verdict.outcome
    if outcome in (Outcome.MET, Outcome.MISSED):
        return
    causes, remedy = causes_and_remedy(run)
    for cause in causes or ("no cause is known",):
        yield f"{outcome}: {cause}"
    if remedy:
        yield f"remedy: {remedy}"


# One comparison: what a pull request and the summary of a run have in common.


def section_lines(section: ComparisonSection) -> tuple[list[str], list[str]]:
    """Return the lines of a comparison: changed figures, and the folded lines of all others."""
    if section.baseline is None:
        return [f"- no baseline: {escaped('; '.join(section.notes))}"], []
    ranked = sorted(section.rows, key=lambda row: _ORDER.index(_rank(row, section)))
    above = [row for row in ranked if _rank(row, section)]
    below = ranked[len(above) :]
    lines = list(_facts(section))
    if above:
        lines += ["", *_table(above, section)]
    inside = _table(below, section) if below else []
    others = list(_difference_texts(section, decides=False))
    if others:
        inside += ["", "Other differences between the runs, which decide nothing:", "", *others]
    if not inside:
        return lines, []
    what = "without a certain change" if _judged(section) else "of runs that are not comparable"
    return lines, folded(f"{counted(len(below), 'figure')} {what}", inside)


def _facts(section: ComparisonSection) -> Iterator[str]:
    """Yield as a list whether the runs are comparable, and what is known of noise."""
    deciding = list(_difference_texts(section, decides=True))
    if deciding:
        forced = "; judged anyway, as requested" if section.forced else ""
        yield f"- NOT COMPARABLE: deciding facts differ{forced}"
        yield from (f"  {line}" for line in deciding)
    for note in section.notes:
        yield f"- NOT COMPARABLE: {escaped(note)}"
    yield f"- {escaped(noise_text(section.blocks))}"


def _difference_texts(section: ComparisonSection, *, decides: bool) -> Iterator[str]:
    facts = [fact for fact in section.differences if fact.decides == decides]
    for fact in facts[:MOST_DIFFERENCES]:
        yield f"- {escaped(f'{fact.name}: {fact.baseline} → {fact.now}')}"
    if len(facts) > MOST_DIFFERENCES:
        yield f"- … and {len(facts) - MOST_DIFFERENCES} more in results.json"


def _rank(row: FigureEntry, section: ComparisonSection) -> str:
    """Return why a figure is above the fold; empty if it is folded."""
    if not _judged(section):
        return ""
    if row.outcome is Outcome.MISSED:
        return "missed"
    word = change_word(row)
    if word in _CERTAIN:
        return word
    if row.outcome is Outcome.NO_DATA:
        return "no data"
    return "" if word or not _differs(row, _NOTABLE) else "notable"


def _differs(row: FigureEntry, share: float) -> bool:
    """Return whether both values are known, and differ by more than this share of the baseline."""
    if row.baseline is None or row.now is None:
        return False
    return abs(row.now - row.baseline) > share * abs(row.baseline)


def _table(rows: Sequence[FigureEntry], section: ComparisonSection) -> list[str]:
    cells = []
    for row in rows:
        *figure, word = figure_cells(row)
        if not _judged(section):
            word = ""
        elif word in _CERTAIN:
            # The arrow is the value's, the word is its meaning.
            word = f"{'↑' if (row.change or 0) > 0 else '↓'} {word}"
        elif not word and _differs(row, 0):
            word = "noise unknown"
        bound = Cell(row.outcome, row.outcome) if row.outcome else ""
        cells.append((*figure, word, bound))
    head = ("figure", "baseline", "now", "change", "interval", "", "bound")
    return list(markdown_lines(Table(head=head, align="<>>>><<", rows=cells)))
