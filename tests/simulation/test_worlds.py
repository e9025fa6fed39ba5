"""Fixed worlds, and every world that once violated a rule, are judged without a violation."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from simulation.campaign import Campaign, Job, drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

REGRESSIONS = Path(__file__).parent / "regressions"
SEED = 1
WORLDS = 150
CORES = 2


def violations(jobs: Iterable[Job], folder: Path) -> list[str]:
    """Return what is violated in which world."""
    # Other lanes of the tests compete for the cores: a world may take long.
    campaign = Campaign(folder=folder, jobs=min(os.cpu_count() or 1, CORES), limit=600)
    return [
        f"world {report.world.seed}: {rule}: {text}"
        for report in campaign.run(jobs)
        for rule, text in report.violations
    ]


@pytest.mark.timeout(1500)  # a minute on two cores that do nothing else
def test_no_drawn_world_violates_a_rule(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The verdicts of drawn worlds follow from what the target and the generator did.

    A world that fails is replayed with ``scripts/simulate --worlds 1 --seed SEED``.
    """
    started = time.monotonic()
    assert violations(drawn(SEED, WORLDS), tmp_path) == []
    record_property("seconds", round(time.monotonic() - started, 1))


def test_no_world_that_once_failed_violates_a_rule(tmp_path: Path) -> None:
    """Documents are kept, not their seeds: a seed draws another world when a shape or a fault is added."""
    documents = [
        yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted(REGRESSIONS.glob("*.yaml"))
    ]
    assert violations([Job(document=document) for document in documents], tmp_path) == []
