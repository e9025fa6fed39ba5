"""The dashboard queries only existing series."""

from __future__ import annotations

import json
import re
from pathlib import Path

from builders.progress import made_progress

from pytest_loadtest.plan.phases import Phase
from pytest_loadtest.report.live_metrics import LiveMetrics
from pytest_loadtest.schedule.pacing import Pacer, StreamCounts
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.slo import Outcome

DASHBOARD = json.loads(
    (Path(__file__).parents[2] / "docs" / "grafana" / "loadtest.json").read_text(encoding="utf-8")
)


def served() -> dict[str, set[str]]:
    """Return the labels of each series."""
    metrics = LiveMetrics(lambda: {("a", "p", ""): (Outcome.MET, 1)})
    phase = Phase(
        name="measure",
        duration=SECOND,
        pacer=Pacer.of(1, 1),
        before=StreamCounts(streams=1),
        recorded=True,
    )
    metrics.show(
        "b",
        "p",
        "",
        phase,
        [made_progress(beyond_bounds=(0,) * 15, send_delay_p99=1, receive_lag_p99=1)],
        1,
    )
    return {
        sample.name: set(sample.labels) for metric in metrics.collect() for sample in metric.samples
    }


def test_every_query_has_existing_series_and_labels() -> None:
    """Each panel has a query."""
    series = served()
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            found = re.findall(r"(loadtest_\w+)\{([^}]*)\}", target["expr"])
            assert found, panel["title"]
            for name, labels in found:
                assert set(re.findall(r"(\w+)=", labels)) <= series[name], panel["title"]
                assert (
                    set(re.findall(r"by \(([\w, ]+)\)", target["expr"])[0].split(", "))
                    <= series[name]
                    if " by (" in target["expr"]
                    else True
                )


def test_panels_do_not_overlap() -> None:
    """The grid of Grafana has 24 columns."""
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
