"""Where results are."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

from pytest_loadtest.report.find_results import results_below


def test_every_results_document_in_order(tmp_path: Path) -> None:
    """And nothing else; of no folder there are none."""
    for name in ("b/1/results.json", "a/results.json", "a/other.json", "results.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert [str(path.relative_to(tmp_path)) for path in results_below(tmp_path)] == ["a/results.json", "b/1/results.json", "results.json"]
    assert results_below(tmp_path / "none") == []


def test_folders_that_vanish_meanwhile_are_passed_over(tmp_path: Path) -> None:
    """As Spark's do when the session ends."""
    (tmp_path / "measure").mkdir()
    (tmp_path / "measure" / "results.json").touch()
    done = Event()

    def come_and_go() -> None:
        while not done.is_set():
            for folder in (tmp_path / "spark" / str(number) for number in range(20)):
                folder.mkdir(parents=True, exist_ok=True)
            for folder in (tmp_path / "spark" / str(number) for number in range(20)):
                folder.rmdir()

    thread = Thread(target=come_and_go)
    thread.start()
    try:
        assert all(results_below(tmp_path) == [tmp_path / "measure" / "results.json"] for _ in range(200))
    finally:
        done.set()
        thread.join()
