"""The hunt for mutants plays worlds of the right classes, and ends with the first one that only the mutant breaks."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulation import hunt as module
from simulation.coverage import classes
from simulation.draw import draw
from simulation.hunt import Hunt, hunt, seeds_of
from simulation.judge_world import Judged
from simulation.mutants import Mutant, named
from simulation.violation import Violation

if TYPE_CHECKING:
    import pytest

NAME = "half of the losses"
SILENT = Violation(rule="counts.lost", text="2 lost, reported is 1")


def test_worlds_are_of_one_of_the_classes_by_turns() -> None:
    mutant = Mutant(
        name="any",
        source="test",
        place="metrics.stats:measure",
        make=lambda original: original,
        likely=(("fault: double",), ("shape: search",)),
    )
    found = [classes(draw(seed)) for seed in islice(seeds_of(mutant, 1), 4)]
    assert [
        "fault: double" in found[0],
        "shape: search" in found[1],
        "fault: double" in found[2],
        "shape: search" in found[3],
    ] == [True] * 4


def played(monkeypatch: pytest.MonkeyPatch, *violated: bool) -> Hunt:
    """Hunt while each play, with or without the mutant, violates a rule or not."""
    waiting = list(violated)

    def judge(world: Any, folder: Path, **keywords: Any) -> Judged:
        from pytest_loadtest.metrics import stats

        stats._counts.__wrapped__  # noqa: B018 - only a mutant has it
        violations = (SILENT,) if waiting.pop(0) else ()
        return Judged(world=world, played=None, calm=None, violations=violations, seconds=0.0)

    monkeypatch.setattr(module, "judge", judge)
    return hunt(NAME, 3, 1, Path())


def test_a_mutant_that_no_world_finds_was_hunted_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    result = played(monkeypatch, False, False, False)
    assert (result.worlds, result.seed) == (3, None)
    assert "NOT in 3 worlds" in result.line()


def test_a_result_names_the_mutant_and_the_rule() -> None:
    result = Hunt(name=NAME, source=named(NAME).source, worlds=2, seed=9, rules=("counts.lost",))
    assert "after 2 worlds: counts.lost (world 9)" in result.line()
    assert result.row(first=5) == f"| {NAME} | more | counts.lost | 2 | 5 |"


def test_a_row_says_that_no_world_finds_a_mutant() -> None:
    result = Hunt(name=NAME, source=named(NAME).source, worlds=7)
    assert result.row(first=1) == f"| {NAME} | more | not found | 7 |  |"
