"""Baselines: the earlier run that a run is compared with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.documents import PEAK, document

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report import baseline
from pytest_loadtest.report.build import with_comparison
from pytest_loadtest.report.comparison import compare_runs, missing_comparison
from pytest_loadtest.report.document import RunDocument, dumps
from pytest_loadtest.verdict.slo import Outcome

NOW = replace(document({"throughput": "1%"}), results="9/test/1/smoke/measure")
MISSED = replace(NOW.verdict, outcome=Outcome.MISSED)


def kept(
    root: Path, session: str, started: str | None, step: str = "measure", **changed: Any
) -> RunDocument:
    """Write a run in a results folder."""
    folder = root / session / "test" / "1" / "smoke" / step
    found = replace(NOW, started=started, results=str(folder), **changed)
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(dumps(found))
    return found


def test_the_baseline_is_the_newest_run_of_the_same_test_profile_and_workload(
    tmp_path: Path,
) -> None:
    kept(tmp_path, "1", "2026-01-01")
    newer = kept(tmp_path, "2", "2026-01-02")
    kept(tmp_path, "3", "2026-01-03", test="another")
    kept(tmp_path, "4", "2026-01-04", workload="one of several")
    assert baseline.baseline_at(tmp_path).find(NOW) == newer
    assert (
        baseline.baseline_at(
            tmp_path / "2" / "test" / "1" / "smoke" / "measure" / "results.json"
        ).find(NOW)
        == newer
    )
    assert "no run of this test" in str(baseline.baseline_at(tmp_path / "3").find(NOW))


def test_the_baseline_of_a_search_is_the_step_with_the_answer(tmp_path: Path) -> None:
    answer = kept(tmp_path, "1", "2026-01-01", "step-01", peak=document(parts={"peak": PEAK}).peak)
    kept(tmp_path / "more", "1", "2026-01-02", "step-02")
    assert baseline.baseline_at(tmp_path).find(NOW) == answer


def test_a_path_without_results_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("[]")
    for path in (tmp_path, tmp_path / "results.json", tmp_path / "gone"):
        with pytest.raises(UsageError):
            baseline.baseline_at(path)


def test_last_met_is_comparable_and_of_another_session(tmp_path: Path) -> None:
    kept(tmp_path, "1", "2026-01-01")
    met = kept(tmp_path, "2", "2026-01-02")
    kept(tmp_path, "3", "2026-01-03", verdict=MISSED)
    kept(tmp_path, "4", "2026-01-04", machine={"cores": 64})
    kept(tmp_path, "5", "2026-01-05")
    assert baseline.last_met(tmp_path, tmp_path / "5").find(NOW) == met


def test_last_met_includes_nine_earlier_runs(tmp_path: Path) -> None:
    """They are comparable, were met, and are sorted newest first."""
    runs = [kept(tmp_path, f"{number:02d}", f"2026-01-{number:02d}") for number in range(1, 13)]
    kept(tmp_path, "20", "2026-01-20", verdict=MISSED)
    found = baseline.last_met(tmp_path, tmp_path / "99")
    assert found.find(NOW) == runs[-1]
    assert list(found.earlier(NOW)) == runs[-2:-11:-1]


def test_last_met_ignores_the_steps_of_a_search_that_broke_off(tmp_path: Path) -> None:
    """They were met at a rate that is no answer."""
    peak = document(parts={"peak": PEAK}).peak
    answer = kept(tmp_path, "1", "2026-01-01", "step-02", peak=peak)
    kept(tmp_path, "2", "2026-01-02", "step-01")
    assert baseline.last_met(tmp_path, tmp_path / "9").find(replace(NOW, peak=peak)) == answer


def test_a_missing_last_met_run_has_a_reason(tmp_path: Path) -> None:
    """None was met yet, or none is comparable: then the newest is named with a difference."""
    said = str(baseline.last_met(tmp_path, tmp_path / "9").find(NOW))
    assert said.endswith("was met yet: make one run with --load-baseline none first")
    other = kept(tmp_path, "4", "2026-01-04", machine={"cores": 64})
    said = str(baseline.last_met(tmp_path, tmp_path / "9").find(NOW))
    assert f"{other.results} is the newest that was, and differs in machine.cores (64 → 2)" in said


def test_samples_judged_again_keep_their_baseline(tmp_path: Path) -> None:
    """If it is gone, the reason says so."""
    was = kept(tmp_path, "1", "2026-01-01")
    earlier = with_comparison(
        NOW, compare_runs(was, replace(NOW, machine={"cores": 64}), force=True).section, ()
    )
    found = baseline.recorded_baseline(earlier)
    assert found is not None
    assert (found.find(NOW), found.force) == (was, True)
    (Path(was.results) / "results.json").unlink()
    assert "is gone" in str(found.find(NOW))
    assert baseline.recorded_baseline(None) is baseline.recorded_baseline(NOW) is None


def test_samples_judged_again_stay_without_a_baseline_that_was_asked_for_and_not_found() -> None:
    """Without one their bounds on regression would not be judged, and no data would become met."""
    earlier = with_comparison(NOW, missing_comparison((), "none is there").section, ())
    found = baseline.recorded_baseline(earlier)
    assert found is not None
    assert found.find(NOW) == "none is there"


def test_the_later_run_of_a_pair_is_the_last_one_also_if_it_never_began(tmp_path: Path) -> None:
    """Of a search that broke off no step has the answer."""
    first = kept(tmp_path / "a", "1", "2026-01-01")
    kept(tmp_path / "b", "1", "2026-01-02")
    unbegun = kept(tmp_path / "b", "2", None)
    folders = [baseline.read_documents(tmp_path / name) for name in ("a", "b")]
    (pair,) = baseline.paired_runs(*folders, files=False)
    assert pair == (first, unbegun)


def test_runs_of_two_folders_are_paired_by_test_profile_and_workload(tmp_path: Path) -> None:
    """Two files are always a pair."""
    first = kept(tmp_path / "a", "1", "2026-01-01")
    second = kept(tmp_path / "b", "1", "2026-01-02")
    other = kept(tmp_path / "b", "2", "2026-01-02", test="another")
    folders = [baseline.read_documents(tmp_path / name) for name in ("a", "b")]
    assert list(baseline.paired_runs(*folders, files=False)) == [(first, second), (None, other)]
    files = [baseline.read_documents(Path(one.results, "results.json")) for one in (first, other)]
    assert list(baseline.paired_runs(*files, files=True)) == [(first, other)]
