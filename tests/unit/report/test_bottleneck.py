"""The section of what limited a run."""

from __future__ import annotations

from typing import Any

from builders.documents import BOTTLENECK, PEAK, document

from pytest_loadtest.report.bottleneck import peak_bottleneck

FOUND = document(parts={"peak": PEAK})["peak"]


def test_a_search_was_limited_by_what_the_step_above_the_peak_shows() -> None:
    """Its second step, at 20 240 msg/s; the step at the peak itself held."""
    sections = {1: None, 2: BOTTLENECK, 3: {**BOTTLENECK, "conclusion": "network"}}
    found = peak_bottleneck(FOUND, sections.get)
    assert found == {**BOTTLENECK, "evidence": f"at 20 240 msg/s, which was missed: {BOTTLENECK['evidence']}"}


def test_a_step_that_tells_nothing_gives_nothing() -> None:
    """It ended too early, was judged by an older version, or nothing was missed."""
    short: dict[str, Any] = {**BOTTLENECK, "conclusion": None}
    assert peak_bottleneck(FOUND, {2: short}.get) is None
    assert peak_bottleneck(FOUND, lambda _: None) is None
    assert peak_bottleneck({**FOUND, "high": None}, {2: BOTTLENECK}.get) is None
