"""Spark's code counts the samples of worlds as the definitions do, and a difference is found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy_aggregation
import pytest
from frames_in_process import InProcess

from simulation.aggregated_again import differing
from simulation.draw import draw
from simulation.player import play

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = (2, 3, 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_code_of_sparks_workers_agrees(seed: int, tmp_path: Path) -> None:
    assert list(differing(play(draw(seed), tmp_path), InProcess())) == []


def test_a_difference_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = play(draw(SEEDS[0]), tmp_path)
    define = numpy_aggregation.measured

    def wrong(folder: Path) -> Any:
        whole, stages = define(folder)
        return replace(whole, counts=replace(whole.counts, lost=whole.counts.lost + 1)), stages

    monkeypatch.setattr(numpy_aggregation, "measured", wrong)
    violations = list(differing(played, InProcess()))
    assert [violation.rule for violation in violations] == ["aggregation"]
    assert "counts.lost" in violations[0].text
