"""Fixed worlds, and every world that once violated a rule, are judged without a violation."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from simulation.campaign import Campaign, Job, Report, drawn
from simulation.world import world_from

if TYPE_CHECKING:
    from collections.abc import Callable

REGRESSIONS = Path(__file__).parent / "regressions"
SEED = 1
WORLDS = 150
DEAR = frozenset({1, 2, 6, 12, 49, 61, 66, 69, 81, 90, 105, 121, 122, 133, 136})
"""Seeds from 1 on whose worlds take two to five CPU seconds each: ``scripts/simulate`` draws them."""
CORES = 2


pytestmark = pytest.mark.timeout(1500)  # a minute and a half on two cores that do nothing else


@dataclass(frozen=True)
class Reports:
    """The reports of all worlds, and the jobs of those that are documents."""

    done: list[Report]
    kept: list[Job]
    seconds: float

    def violations(self, *, drawn: bool) -> list[str]:
        """Return what is violated in which world, of the drawn ones or of the documents."""
        return [
            f"world {report.world.seed}: {rule}: {text}"
            for report in self.done
            for rule, text in report.violations
            if (report.job not in self.kept) is drawn
        ]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """Judge all worlds in the same processes, because one takes some seconds to start: the drawn ones, and those of documents."""
    documents = [
        yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted(REGRESSIONS.glob("*.yaml"))
    ]
    kept = [Job(document=document) for document in documents]
    # Other lanes of the tests compete for the cores: a world may take long.
    folder = tmp_path_factory.mktemp("worlds")
    campaign = Campaign(folder=folder, jobs=min(os.cpu_count() or 1, CORES), limit=600)
    started = time.monotonic()
    fixed = [
        job for job in drawn(SEED, WORLDS + len(DEAR)) if world_from(job.document).seed not in DEAR
    ]
    done = list(campaign.run([*fixed, *kept]))
    return Reports(done=done, kept=kept, seconds=time.monotonic() - started)


def test_no_drawn_world_violates_a_rule(
    reports: Reports, record_property: Callable[[str, object], None]
) -> None:
    """The verdicts of drawn worlds follow from what the target and the generator did.

    A world that fails is replayed with ``scripts/simulate --worlds 1 --seed SEED``.
    """
    assert reports.violations(drawn=True) == []
    assert len(reports.done) == WORLDS + len(reports.kept)
    record_property("seconds", round(reports.seconds, 1))


def test_no_world_that_once_failed_violates_a_rule(reports: Reports) -> None:
    """Documents are kept, not their seeds: a seed draws another world when a shape or a fault is added."""
    assert reports.violations(drawn=False) == []
    assert len(reports.kept) > 50
