"""Two results folders, or two results documents, side by side."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_loadtest.report import baseline, sections
from pytest_loadtest.report.comparison import compare_runs as compare_documents
from pytest_loadtest.report.sections import mark, titled
from pytest_loadtest.verdict.changes import gates
from pytest_loadtest.verdict.objectives import ObjectiveErrors, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

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
    slo = document["profile"]["document"].get("slo") or {}
    try:
        parse({"regression": slo["regression"]} if "regression" in slo else {})
    except ObjectiveErrors:
        return ()
    return gates(slo)


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
