"""Which earlier run a run is held against."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.documents import PEAK, document

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report import baseline
from pytest_loadtest.report.build import with_comparison
from pytest_loadtest.report.comparison import compare_runs
from pytest_loadtest.report.document import RunDocument, dumps
from pytest_loadtest.verdict.slo import Outcome

NOW = replace(document({"throughput": "1%"}), results="9/test/1/smoke/measure")
MISSED = replace(NOW.verdict, outcome=Outcome.MISSED)


def kept(root: Path, session: str, started: str, step: str = "measure", **changed: Any) -> RunDocument:
    """A run in a results folder."""
    folder = root / session / "test" / "1" / "smoke" / step
    found = replace(NOW, started=started, results=str(folder), **changed)
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(dumps(found))
    return found


def test_the_newest_run_of_a_folder(tmp_path: Path) -> None:
    """Of the same test, profile and workload."""
    kept(tmp_path, "1", "2026-01-01")
    newer = kept(tmp_path, "2", "2026-01-02")
    kept(tmp_path, "3", "2026-01-03", test="another")
    kept(tmp_path, "4", "2026-01-04", workload="one of several")
    assert baseline.baseline_at(tmp_path).find(NOW) == newer
    assert baseline.baseline_at(tmp_path / "2" / "test" / "1" / "smoke" / "measure" / "results.json").find(NOW) == newer
    assert "no run of this test" in str(baseline.baseline_at(tmp_path / "3").find(NOW))


def test_of_a_search_its_answer(tmp_path: Path) -> None:
    """The steps beside it are how it was found."""
    answer = kept(tmp_path, "1", "2026-01-01", "step-01", peak=document(parts={"peak": PEAK}).peak)
    kept(tmp_path / "more", "1", "2026-01-02", "step-02")
    assert baseline.baseline_at(tmp_path).find(NOW) == answer


def test_where_nothing_is(tmp_path: Path) -> None:
    """A wrong word is an error before any load."""
    (tmp_path / "results.json").write_text("[]")
    for path in (tmp_path, tmp_path / "results.json", tmp_path / "gone"):
        with pytest.raises(UsageError):
            baseline.baseline_at(path)


def test_the_last_that_was_met(tmp_path: Path) -> None:
    """Comparable, and of another session than this one."""
    kept(tmp_path, "1", "2026-01-01")
    met = kept(tmp_path, "2", "2026-01-02")
    kept(tmp_path, "3", "2026-01-03", verdict=MISSED)
    kept(tmp_path, "4", "2026-01-04", machine={"cores": 64})
    kept(tmp_path, "5", "2026-01-05")
    assert baseline.last_met(tmp_path, tmp_path / "5").find(NOW) == met


def test_the_runs_before_the_last_that_was_met_are_known_too(tmp_path: Path) -> None:
    """Comparable ones that were met, the newest first, ten in all."""
    runs = [kept(tmp_path, str(number), f"2026-01-{number:02d}") for number in range(1, 13)]
    kept(tmp_path, "20", "2026-01-20", verdict=MISSED)
    found = baseline.last_met(tmp_path, tmp_path / "99")
    assert found.find(NOW) == runs[-1]
    assert list(found.earlier(NOW)) == runs[-2:-11:-1]


def test_without_one_it_says_how_to_have_one(tmp_path: Path) -> None:
    """None was met yet, or none that can be compared: then the newest is named, with what differs."""
    said = str(baseline.last_met(tmp_path, tmp_path / "9").find(NOW))
    assert said.endswith("was met yet: the first one needs a run with --load-baseline none")
    other = kept(tmp_path, "4", "2026-01-04", machine={"cores": 64})
    said = str(baseline.last_met(tmp_path, tmp_path / "9").find(NOW))
    assert f"{other.results} is the newest that was, and differs in machine.cores (64 → 2)" in said


def test_samples_judged_again_keep_their_baseline(tmp_path: Path) -> None:
    """Or say that it is gone."""
    was = kept(tmp_path, "1", "2026-01-01")
    earlier = with_comparison(NOW, compare_runs(was, replace(NOW, machine={"cores": 64}), force=True).section, ())
    found = baseline.recorded_baseline(earlier)
    assert found is not None
    assert (found.find(NOW), found.force) == (was, True)
    (Path(was.results) / "results.json").unlink()
    assert "is gone" in str(found.find(NOW))
    assert baseline.recorded_baseline(None) is baseline.recorded_baseline(NOW) is None


def test_pairs_of_two_folders(tmp_path: Path) -> None:
    """By test, profile and workload; two files are a pair whatever they are of."""
    first = kept(tmp_path / "a", "1", "2026-01-01")
    second = kept(tmp_path / "b", "1", "2026-01-02")
    other = kept(tmp_path / "b", "2", "2026-01-02", test="another")
    assert list(baseline.paired_runs(tmp_path / "a", tmp_path / "b")) == [(first, second), (None, other)]
    files = [Path(one.results, "results.json") for one in (first, other)]
    assert list(baseline.paired_runs(files[0], files[1])) == [(first, other)]
