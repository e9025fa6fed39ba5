"""Fixed worlds, and every world that once violated a rule, are judged without a violation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from simulation.campaign import Campaign, Job, Report
from simulation.draw import draw
from simulation.judge_world import judge
from simulation.mutants import MUTANTS, applied, named
from simulation.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

REGRESSIONS = Path(__file__).parent / "regressions"
FOUND_IN: Mapping[str, int] = {
    "silent topics pass": 483,
    "a bound removes the implicit throughput": 33,
    "foreign messages pass": 10,
    "duplicates drain a backlog": 81,
    "latencies of all copies": 12,
    "max of what came": 31,
    "second copies end a drain": 309,
    "damaged messages pass": 36,
    "a train of bytes for each stream": 44,
    "drops before full windows are ours": 77,
    "any late send excuses": 90,
    "an excuse forgets tolerances": 370,
    "our consumer's pause is the target's": 475,
    "a clock that is set is not seen": 80,
    "gaps of whole cells": 11,
    "a drain that never ends has an end": 88,
    "everything that came was in time": 4,
    "percentiles of what came": 76,
    "nothing missing is ever too much": 122,
    "one window more may miss": 160,
    "drift is no drift": 340,
    "no evidence against the generator": 7,
    "stalls are not limited": 281,
    "every stage is met": 265,
    "the last size bucket for each": 44,
    "a percentile of one sample": 207,
    "an abort without a reason": 674,
    "blocked time is our own": 77,
    "half of the losses": 76,
    "unanswered messages are acknowledged": 8,
    "nothing is out of order": 205,
    "the first copy completes a broadcast": 313,
    "delays are 5 ms shorter": 21,
    "connections in time by the median of each worker": 172,
    "each worker connects at the whole rate": 138,
    "second outputs are duplicates": 31,
    "latencies of first outputs alone": 31,
    "one output is due for each input": 31,
    "a share without its interval": 792,
    "order across output topics": 61,
    "a tap is compared with one subscription": 31,
    "any answer of the target ends a drain": 136,
    "a drain ends after a second": 123,
    "a peak that was missed": 61,
    "one vote of several": 61,
    "one late message ends a step": 1239,
    "times are never corrected": 882,
    "drift of the other sign": 426,
    "clocks are exact": 13,
    "half a period late": 1,
    "one message more is due": 2,
    "all topics have one weight": 21,
    "one rate for all stages": 3,
}
"""Mutant → the seed of a drawn world that violates a rule with it, as ``scripts/simulate --mutants`` prints them."""
WRITTEN = "a late read excuses what the target was late with"
"""The mutant that a world of test_mutants.py finds."""
BROAD = (5, 17, 53, 56, 63, 65, 82, 85, 87, 89, 91, 100, 114, 131, 137, 144, 153, 1170)
"""Seeds of cheap worlds with the classes of coverage that the first 165 worlds have, and laws, that those of mutants do not have."""
SEEDS = sorted({*FOUND_IN.values(), *BROAD})
OFTEN = sorted(seed for seed, mutants in Counter(FOUND_IN.values()).items() if mutants > 1)
"""Seeds of the worlds that violate a rule with several mutants. The other worlds are judged by slow tests."""
PROCESSES = 1
"""A second one would start for three CPU seconds, while other tests use the other cores."""


pytestmark = pytest.mark.timeout(1500)  # two minutes on a core that does nothing else


def reports_of(folder: Path, jobs: Sequence[Job]) -> list[Report]:
    """Judge worlds in the same process, because one takes some seconds to start."""
    # Other lanes of the tests compete for the cores: a world may take long.
    campaign = Campaign(folder=folder, jobs=PROCESSES, limit=600)
    return list(campaign.run(jobs))


def drawn(seeds: Iterable[int]) -> list[Job]:
    """Return the worlds of these seeds."""
    return [Job(document=draw(seed).document()) for seed in seeds]


def violations(reports: Iterable[Report]) -> list[str]:
    """Return what is violated in which world."""
    return [
        f"world {report.world.seed}: {rule}: {text}"
        for report in reports
        for rule, text in report.violations
    ]


@pytest.fixture(scope="module")
def all_drawn(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    """Judge all drawn worlds."""
    return reports_of(tmp_path_factory.mktemp("drawn"), drawn(SEEDS))


def test_no_world_violates_a_rule_that_once_did_or_finds_several_mutants(tmp_path: Path) -> None:
    """Documents are kept, not their seeds: a seed draws another world when a shape or a fault is added."""
    documents = [
        yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted(REGRESSIONS.glob("*.yaml"))
    ]
    assert len(documents) > 50
    jobs = [*drawn(OFTEN), *(Job(document=document) for document in documents)]
    reports = reports_of(tmp_path, jobs)
    assert violations(reports) == []
    assert len(reports) == len(jobs)


@pytest.mark.slow
def test_no_drawn_world_violates_a_rule(all_drawn: list[Report]) -> None:
    """The verdicts of drawn worlds follow from what the target and the generator did.

    A world that fails is replayed with ``scripts/simulate --worlds 1 --seed SEED``.
    """
    assert violations(all_drawn) == []
    assert len(all_drawn) == len(SEEDS)


@pytest.mark.slow
def test_each_law_is_applied_to_some_world(all_drawn: list[Report]) -> None:
    tally = Tally()
    for report in all_drawn:
        tally.add(report)
    assert tally.missing(spark=False) == []


def test_each_mutant_has_a_fixed_world() -> None:
    assert {*FOUND_IN, WRITTEN} == {mutant.name for mutant in MUTANTS}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND_IN)
def test_a_mutant_violates_a_rule_in_its_world(name: str, tmp_path: Path) -> None:
    """Without the mutant the same world violates none: the tests above judge it."""
    with applied(named(name)):
        judged = judge(draw(FOUND_IN[name]), tmp_path, lawful=False, twice=False, hurried=True)
    assert judged.violations
