"""Two documents held against each other: the section ``comparison``, and the findings of what the profile says of a baseline."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_loadtest.report.comparable import Difference, differences
from pytest_loadtest.report.figures import Figure, figures, latency_percentiles, measure_noise, own_delay
from pytest_loadtest.values.quantities import format_duration
from pytest_loadtest.verdict.changes import Changed, judge_change
from pytest_loadtest.verdict.grammar import LATENCY, REGRESSION, THROUGHPUT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.metrics.resampled import RelativeChange
    from pytest_loadtest.report.document import Document
    from pytest_loadtest.verdict.objectives import Objective
    from pytest_loadtest.verdict.slo import Finding

SHOWN = tuple(f"{LATENCY}.{statistic}" for statistic in ("p50", "p90", "p99", "p99.9"))
"""Percentiles that every comparison has."""
TELLING = ("met", "missed")
"""Outcomes of a run that a figure can be taken from."""


class Comparison(NamedTuple):
    """The section of results, and the findings of the profile's bounds."""

    section: dict[str, Any]
    findings: tuple[Finding, ...]


def compare_runs(baseline: Document, now: Document, gates: Sequence[Objective] = (), *, force: bool = False) -> Comparison:
    """Hold a run against a baseline. :param force: judge also where the two cannot be compared."""
    wanted = latency_percentiles(dict.fromkeys((*(gate.statistic for gate in gates), *SHOWN)))  # type: ignore[arg-type]
    differing = differences(baseline, now)
    silent = [f"the {which} is {run['verdict']['outcome']}" for which, run in (("baseline", baseline), ("run", now)) if not _tells(run)]
    why = _incomparable(differing, silent)
    mine = figures(now, wanted)
    changed, blocks = _changed(baseline, now, mine, wanted)
    held = not why or (force and not silent)
    findings = tuple(
        judge_change(gate, _ours(gate, changed.get(gate.statistic), baseline, now) if held else _nothing(why)) for gate in gates
    )
    if why and force:
        findings = tuple(replace(finding, text=f"{finding.text}; forced, the runs are not comparable") for finding in findings)
    rows = [_row(name, figure, changed[name], findings) for name, figure in mine.items()]
    section = {
        "baseline": _about(baseline),
        "comparable": not why,
        "forced": bool(why) and force,
        "best": [],
        "differences": [difference._asdict() for difference in differing],
        "blocks": blocks,
        "rows": rows,
        "notes": silent,
    }
    return Comparison(section, findings)


def missing_comparison(gates: Sequence[Objective], why: str) -> Comparison:
    """A baseline was asked for, and there is none for this run."""
    findings = tuple(judge_change(gate, _nothing(why)) for gate in gates)
    section: dict[str, Any] = {"baseline": None, "comparable": False, "forced": False, "best": [], "differences": [], "blocks": None}
    section |= {"rows": [], "notes": [why]}
    return Comparison(section, findings)


def _about(baseline: Document) -> dict[str, Any]:
    """What the baseline was; with its histogram, so that both curves can be drawn when it is gone."""
    measured = baseline["measurements"]
    latency = None if measured is None else measured["latencies"]["endToEnd"]
    return {
        **{key: baseline[key] for key in ("test", "results", "started")},
        "outcome": baseline["verdict"]["outcome"],
        "histogram": None if latency is None else latency["histogram"],
    }


def _tells(run: Document) -> bool:
    """Whether it has an outcome of its own; that it could not be told from another baseline is no flaw of it."""
    verdict = run["verdict"]
    untold = {finding["text"] for finding in verdict["findings"] if finding["metric"] == REGRESSION}
    return run["measurements"] is not None and (
        verdict["outcome"] in TELLING or (bool(verdict["reasons"]) and untold.issuperset(verdict["reasons"]))
    )


def _incomparable(differences: Sequence[Difference], silent: Sequence[str]) -> str:
    deciding = [f"{one.name} {one.baseline} → {one.now}" for one in differences if one.decides]
    if not deciding:
        return "; ".join(silent)
    more = f" and {len(deciding) - 3} more" if len(deciding) > 3 else ""
    return "; ".join([f"not comparable: {', '.join(deciding[:3])}{more} (--load-baseline-force judges all the same)", *silent])


def _changed(
    baseline: Document, now: Document, after: Mapping[str, Figure], wanted: Sequence[str]
) -> tuple[dict[str, Changed], dict[str, Any] | None]:
    """Each figure that either has, and the blocks that intervals rest on. :param after: the figures of ``now``."""
    before = figures(baseline, wanted)
    quiet = [measure_noise(run, wanted) for run in (baseline, now)]
    samples = _samples(now)
    found = {}
    for name in dict.fromkeys((*after, *before)):
        values = [of.get(name, Figure(None, "")).value for of in (before, after)]
        unit = (after.get(name) or before[name]).unit
        interval, why = _interval(values, [of.errors.get(name) for of in quiet], [of.blocks for of in quiet])
        short = next((of.why for of in quiet if name not in of.errors), "") if why == "" and interval is None else why
        found[name] = Changed(unit=unit, baseline=values[0], now=values[1], samples=samples, interval=interval, why=short)
    if not all(of.errors for of in quiet):
        return found, None
    from pytest_loadtest.metrics.resampled import LEVEL

    return found, {"length": quiet[1].length, "baseline": quiet[0].blocks, "now": quiet[1].blocks, "level": LEVEL}


def _samples(run: Document) -> int:
    latency = None if run["measurements"] is None else run["measurements"]["latencies"]["endToEnd"]
    return 0 if latency is None else int(latency["samples"])


def _interval(values: Sequence[float | None], errors: Sequence[float | None], blocks: Sequence[int]) -> tuple[RelativeChange | None, str]:
    """Or why there is none; empty where noise is what is not known."""
    from pytest_loadtest.metrics.resampled import Estimate, between

    (before, after), (was, now) = values, errors
    if not before or not after:
        return None, f"not measured in the {'baseline' if not before else 'run'}, or on too few samples"
    if was is None or now is None:
        return None, ""
    return between(Estimate(before, was, blocks[0]), Estimate(after, now, blocks[1])), ""


def _nothing(why: str) -> Changed:
    return Changed(unit="", baseline=None, now=None, why=why)


def _ours(gate: Objective, changed: Changed | None, baseline: Document, now: Document) -> Changed:
    """What a bound is held against: nothing, where the generator itself was later in one run than in the other by more than is asked about.

    That stays for the whole of a run, so no interval shows it.
    """
    if changed is None:
        return _nothing("measured in neither run")
    if changed.interval is None or gate.statistic == THROUGHPUT:
        return changed
    own = [own_delay(run, gate.statistic) for run in (baseline, now)]
    allowed = (gate.maximum or 0.0) * (changed.baseline or 0.0)
    if own[0] is None or own[1] is None or abs(own[1] - own[0]) <= allowed:
        return changed
    was, became, most = (format_duration(value) for value in (own[0], own[1], allowed))
    name = gate.statistic.partition(".")[2]
    return _nothing(
        f"the generator's own send delay went from {was} to {became} ({name}), which is more than the {most} that are asked about"
    )


def _row(name: str, figure: Figure, changed: Changed, findings: Sequence[Finding]) -> dict[str, Any]:
    outcome = next((finding.outcome.value for finding in findings if finding.objective.statistic == name), None)
    before, after, interval = changed.baseline, changed.now, changed.interval
    plain = None if before is None or after is None or not before else after / before - 1
    return {
        "name": name,
        "unit": figure.unit,
        "better": "more" if figure.more else "less",
        "baseline": before,
        "now": after,
        "change": plain if interval is None else interval.change,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
        "outcome": outcome,
    }
