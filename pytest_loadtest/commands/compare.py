"""Two results folders, or two results documents, side by side."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report import baseline, history, sections
from pytest_loadtest.report.comparison import compare_runs as compare_documents
from pytest_loadtest.report.sections import mark, titled
from pytest_loadtest.verdict.objectives import Slo

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.verdict.objectives import Objective


@dataclass(frozen=True, slots=True)
class Compared:
    """One test's two runs. :param section: None where only one side has it, and ``said`` says which.

    :param outcomes: of what its profile says of regression. :param said: in words.
    """

    name: str
    section: dict[str, Any] | None
    outcomes: tuple[str, ...]
    said: tuple[str, ...]


def compare(before: Path, after: Path, *, force: bool = False) -> list[Compared]:
    """What two files or folders have in common, and what only one of them has.

    :raises UsageError: there are no results in one of them.
    """
    return [_pair(was, now, force=force) for was, now in baseline.paired_runs(before, after)]


def _pair(was: Document | None, now: Document | None, *, force: bool) -> Compared:
    if was is None or now is None:
        which, one = ("the baseline", was) if now is None else ("what is held against it", now)
        assert one is not None
        return Compared(_name(one), None, (), (f"only in {which}: {one['results']}",))
    section, findings = compare_documents(was, now, _gates(now), force=force)
    said = tuple(f"{finding.outcome.value}: {finding.text}" for finding in findings)
    return Compared(_name(now), section, tuple(finding.outcome.value for finding in findings), said)


def _gates(document: Document) -> tuple[Objective, ...]:
    """What the run's profile says of regression; nothing where its grammar is of another version."""
    section = document["profile"]["document"].get("slo") or {}
    slo = Slo.read({"regression": section["regression"]} if "regression" in section else {})
    return () if slo.problems else slo.gates


def _name(document: Document) -> str:
    return titled(document["test"], document["profile"]["name"], document["workload"])


def in_words(found: Sequence[Compared], *, unicode: bool) -> Iterable[str]:
    """As the summary of a run has it."""
    for one in found:
        yield one.name
        yield from sections.comparison_lines(one.section, unicode=unicode)
        for outcome, said in zip(one.outcomes, one.said, strict=False):
            yield f"  {mark(outcome, unicode)} {said}"
        if one.section is None:
            yield from (f"  {said}" for said in one.said)


def in_json(found: Sequence[Compared]) -> str:
    """A list, with the section ``comparison`` of each; null where only one side has the test."""
    return json.dumps(
        [{"name": one.name, "comparison": one.section, "regression": list(one.said)} for one in found], indent=1, ensure_ascii=False
    )


# ``compare`` and ``trend`` on the command line: runs beside other runs.


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("baseline", metavar="A", type=Path, help="the baseline: a folder with results below it, or a results.json")
    parser.add_argument("now", metavar="B", type=Path, help="what is held against it")
    parser.add_argument("--force", action="store_true", help="judge what the profiles say of regression also where runs are not comparable")
    parser.add_argument("--json", action="store_true", help="for programs: a list, an entry for each test, profile and workload")


def add_trend(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("history", metavar="FILE", type=Path, help="what --load-history wrote")
    parser.add_argument("--test", metavar="TEXT", default="", help="only tests with this in their node id, or in their profile's name")
    parser.add_argument("--json", action="store_true", help="for programs")


def run_compare(options: argparse.Namespace) -> list[str]:
    """Print the comparison; the outcomes of what the profiles say of regression, *no data* where nothing is a pair."""

    found = compare(options.baseline, options.now, force=options.force)
    print(in_json(found) if options.json else "\n".join(in_words(found, unicode=unicode())), flush=True)
    paired = any(one.section is not None for one in found)
    return [outcome for one in found for outcome in one.outcomes] if paired else ["no data"]


def run_trend(options: argparse.Namespace) -> int:
    """Print the trend; always 0."""

    found = series(options.history, options.test)
    print(trend_in_json(found) if options.json else "\n".join(trend_in_words(found, unicode=unicode())), flush=True)
    return 0


def unicode() -> bool:
    """Whether what reads our output can show more than ASCII."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


# A history file as a table.


def series(path: Path, wanted: str = "") -> list[dict[str, Any]]:
    """Of each test one. :param wanted: a part of a node id or of a profile's name.

    :raises UsageError: the file cannot be read, or has none of it.
    """
    lines, wrong = history.read_history(path)
    if wrong:
        print(f"{path}: {wrong} lines are none of a history, or of a later version; they are left out", file=sys.stderr)
    found = [line for line in lines if wanted in line["test"] or wanted in line["profile"]]
    if not found:
        raise UsageError(f"{path} has no run{f' of {wanted!r}' if wanted else ''}")
    return history.build_trend(found)


def trend_in_words(found: Sequence[dict[str, Any]], *, unicode: bool) -> Iterable[str]:
    """A table for each test."""
    return history.trend_table(found, unicode=unicode)


def trend_in_json(found: Sequence[dict[str, Any]]) -> str:
    """For programs, and for whoever draws it."""
    return json.dumps(found, indent=1, ensure_ascii=False)
