"""Results of runs made up for tests, as the ``load`` fixture returns them."""

from __future__ import annotations

from typing import Any

from builders.measurements import Limits, made
from builders.objectives import parse_slo
from pytest_loadtest.results.load import Load
from pytest_loadtest.verdict.slo import evaluate

SLO = {"throughput": "99%", "endToEndLatency": {"p99": "15ms"}}


def load(
    section: dict[str, Any] = SLO,
    scale: float | None = None,
    name: str = "",
    stages: tuple[Load, ...] = (),
    **changed: Any,
) -> Load:
    """Return the result of a run with these measurements, judged by a section ``slo``."""
    run = made(**changed)
    judged = evaluate(parse_slo(section), run, Limits())
    return Load(
        profile_name="smoke", observed=run, verdict=judged, scale=scale, name=name, stages=stages
    )
