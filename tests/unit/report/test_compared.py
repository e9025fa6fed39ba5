"""The runs of two results folders, paired and compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from builders.documents import document
from builders.results import put
from builders.runs import run_of, wandering

from pytest_loadtest.report.compared import compare_pair, compare_results
from pytest_loadtest.report.document import ScaleSection
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from pathlib import Path


def test_a_pair_has_both_runs_and_a_single_run_has_its_side(tmp_path: Path) -> None:
    """The command's tests compare the texts."""
    other = document(facts={"test": "loadtests/test_other.py::test_other"})
    put(tmp_path / "a", document())
    put(tmp_path / "b", document({"loss": 0}))
    put(tmp_path / "b", other, "test_other")
    compared, unreadable = compare_results(tmp_path / "a", tmp_path / "b")
    by_test = {test.name.partition("::")[2].partition(" ")[0]: test for test in compared}
    assert unreadable == []
    both = by_test["test_smoke"]
    assert [run.verdict.outcome.value for run in both.documents] == ["missed", "met"]
    assert both.section is not None
    alone = by_test["test_other"]
    assert (alone.was, alone.section) == (None, None)
    assert [run.test for run in alone.documents] == [other.test]


@pytest.mark.parametrize(
    ("slo", "scaled", "outcome"),
    [("10%", "60%", Outcome.MET), (None, "10%", Outcome.MISSED), ("10%", None, Outcome.MISSED)],
)
def test_scaled_runs_are_judged_by_the_bounds_of_scaled_runs(
    slo: str | None, scaled: str | None, outcome: Outcome
) -> None:
    """The p99 is 31 % larger."""

    def bounds(share: str | None) -> dict[str, object]:
        return {} if share is None else {"regression": {"endToEndLatency.p99": share}}

    runs = []
    for seed, factor in ((1, 1.0), (3, 1.3)):
        run = run_of(wandering(seed, factor=factor))
        written = {**run.profile.document, "slo": bounds(slo), "scaled": {"slo": bounds(scaled)}}
        profile = replace(run.profile, document=written)
        scale = ScaleSection(factor=0.01, changes={})
        runs.append(replace(run, profile=profile, scale=scale))
    assert compare_pair(*runs).outcomes == (outcome,)
