"""Which side limited a run: the section of its document, its line of the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.report.sections import precise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_loadtest.observe.conclusion import Bottleneck
    from pytest_loadtest.observe.telemetry import Telemetry


def bottleneck_section(found: Bottleneck, telemetry: Telemetry) -> dict[str, Any]:
    """As JSON values, with everything that was sampled."""
    sampled = telemetry.document()
    return {
        "conclusion": found.conclusion,
        "evidence": found.evidence,
        "also": [{"conclusion": one.conclusion, "evidence": one.evidence} for one in found.also],
        "missing": list(found.missing),
        "cost": sampled["cost"],
        "time": sampled["time"],
        "columns": sampled["columns"],
    }


def peak_bottleneck(peak: dict[str, Any], of_step: Callable[[int], dict[str, Any] | None]) -> dict[str, Any] | None:
    """What limited a search: the section of the step that was missed just above the peak; None where no such step tells.

    :param of_step: the section of the step of that number.
    """
    missed = (step for step in reversed(peak["steps"]) if step["rate"] == peak["high"] and step["outcome"] == "missed")
    for step in missed:
        found = of_step(step["number"])
        if found is not None and found["conclusion"] is not None:
            return found | {"evidence": f"at {precise(step['rate'], peak['unit'])}, which was missed: {found['evidence']}"}
    return None


def bottleneck_text(section: dict[str, Any]) -> str:
    """``broker CPU: mosquitto's busiest thread used 0.97 of a core, in 10 of 10 samples``."""
    return f"{section['conclusion'] or 'unknown'}: {section['evidence']}"


def bottleneck_lines(section: dict[str, Any] | None) -> Iterable[str]:
    """For the summary: the conclusion, what else was saturated, and what was not sampled."""
    if section is None:
        return
    yield f"  bottleneck {bottleneck_text(section)}"
    yield from (f"             also {one['conclusion']}: {one['evidence']}" for one in section["also"])
    yield from (f"             not sampled: {missing}" for missing in section["missing"])
