"""The phases of a run: a search, and the step whose results it shows."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from builders.measurements import made

from pytest_loadtest import profile as profiles
from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.measured_run import MeasuredRun
from pytest_loadtest.fleet.messages import Part
from pytest_loadtest.fleet.scripts import SearchScript
from pytest_loadtest.fleet.workload_run import WorkloadRun
from pytest_loadtest.kinds.registry import shipped_costs
from pytest_loadtest.plan.plan import make_plan, profile_pool
from pytest_loadtest.plan.scaling import Machine, profile_cost_key
from pytest_loadtest.results.load import Load
from pytest_loadtest.verdict.objectives import Objective
from pytest_loadtest.verdict.slo import Finding, Outcome, Verdict

if TYPE_CHECKING:
    from pytest_loadtest.verdict.peak import Peak

SEARCH = """\
name: p
producerRate: 0
messageSize: 64
driver: {name: loopback}
slo: {endToEndLatency: {p99: 100ms}}
search: {start: 2000, hold: 1s, confirm: 1s, warmup: 0s, precision: 5%, repeats: 2}
"""


class Target:
    """A target that meets every step up to ``holds``.

    :param first: the outcome of the first step at a rate, if another. :param went_away: that is what it misses, and no objective.
    """

    def __init__(
        self,
        holds: float,
        first: dict[float, Outcome] | None = None,
        text: str = SEARCH,
        *,
        went_away: bool = False,
    ) -> None:
        profile = profiles.loads(text, "p.yaml")
        plan = make_plan(
            profile, profile_pool(profile), workers=1, cost=shipped_costs()[profile_cost_key(profile)], machine=Machine(cores=2, memory=1 << 34),
            broker_here=True,
        )  # fmt: skip
        workload = WorkloadRun(
            name="",
            part=Part(profile=profile),
            plan=plan,
            root=Path("run"),
            nonce=1,
            test="t",
            source="p.yaml",
            run="r",
            workers=("main",),
        )
        self.lines: list[str] = []
        self.script, self.said = (
            SearchScript(workload, self._judge, self.lines.append),
            Counter[float](),
        )
        self._holds, self._first, self._went_away = holds, first or {}, went_away
        self._rate = 0.0

    def _judge(self) -> tuple[MeasuredRun, Load]:
        self.said[self._rate] += 1
        outcome = Outcome.MET if self._rate <= self._holds else Outcome.MISSED
        if self.said[self._rate] == 1:
            outcome = self._first.get(self._rate, outcome)
        objective = Objective(metric="loss", minimum=None, maximum=0, unit="messages")
        missed = Finding(
            objective=objective, outcome=Outcome.MISSED, observed=1, samples=9, text="loss 1 > 0"
        )
        findings = () if outcome is Outcome.MET or self._went_away else (missed,)
        measurements, verdict = (
            made(),
            Verdict(outcome=outcome, findings=findings, reasons=("why",)),
        )
        folder = Path(f"{self._rate:g}-{self.said[self._rate]}-{outcome.value}")
        samples = MeasuredRun(folder=folder, run={}, measurements=measurements, stages=())
        return samples, Load(profile_name="p", observed=measurements, verdict=verdict)

    def search(self) -> Peak:
        """Run all steps."""
        while (following := self.script.next()) is not None:
            self._rate = following.phase.pacer.highest
        return self.script.peak()


def test_the_shown_step_is_the_last_one_met_at_the_peak() -> None:
    """A rate met by luck and missed in its confirmation lies above the peak: its results are not shown."""
    lucky = Target(3000, {4000.0: Outcome.MET})
    peak = lucky.search()
    assert lucky.said[4000.0] > 1
    assert peak.rate is not None and 2800 < peak.rate <= 3000
    assert lucky.script.best_step(peak).folder.name == f"{peak.rate:g}-{lucky.said[peak.rate]}-met"


def test_without_a_peak_the_last_step_is_shown() -> None:
    """It shows why."""
    target = Target(0)
    peak = target.search()
    assert peak.rate is None
    assert target.script.best_step(peak).folder.name.endswith("missed")


def test_a_step_without_data_is_an_error() -> None:
    """The rate is unknown to hold, so the peak is unknown."""
    with pytest.raises(NoData, match="search step 1"):
        Target(0, {2000.0: Outcome.NO_DATA}).search()


def test_a_generator_limited_step_shows_the_evidence_and_a_missed_one_the_miss() -> None:
    """What the generator's own pauses made late is no finding about the target."""
    limited = Target(0, {2000.0: Outcome.GENERATOR_LIMITED})
    limited.search()
    assert limited.lines[0].endswith("generator-limited: why")
    missed = Target(0)
    missed.search()
    assert missed.lines[0].endswith("missed: loss 1 > 0")


def test_a_step_whose_target_went_away_says_so() -> None:
    """It has missed, though no objective is."""
    gone = Target(0, went_away=True)
    gone.search()
    assert gone.lines[0].endswith("missed: why")


def test_a_step_of_a_search_in_bytes_states_its_rate_in_bytes() -> None:
    target = Target(math.inf, text=SEARCH.replace("start: 2000", "start: 1MB/s, max: 1MB/s"))
    target.search()
    assert target.lines[0].startswith("search step 1 (bracket): 1.00 MiB/s for 1.00 s")
