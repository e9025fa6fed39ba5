"""Which side limited a run: the section of its document, its line of the summary."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_loadtest.report.sections import precise
from pytest_loadtest.values.quantities import format_duration, format_size
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_loadtest.observe.conclusion import Bottleneck
    from pytest_loadtest.observe.telemetry import Telemetry
    from pytest_loadtest.report.sections import Labelled


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


# What a broker said of itself while load ran, beside what the run measured: one line of the summary, some JUnit properties.

_COUNTED = {"in": "sys.totalIn", "out": "sys.totalOut"}
_LATENCIES = {"publish": "sys.publishLatency", "write": "sys.writeLatency", "ledger": "sys.ledgerLatency"}


def _known(section: dict[str, Any], column: str) -> list[float]:
    return [value for value in section["columns"].get(column, ()) if value is not None]


def broker_facts(section: dict[str, Any] | None) -> Iterator[Labelled]:
    """``broker counted 6 000 in, 12 000 out; publish 2.10 ms, write 1.88 ms; 0.44 cores``: totals, and medians of its samples."""
    if section is None:
        return
    counted = [f"{exact(int(known[-1]))} {way}" for way, column in _COUNTED.items() if (known := _known(section, column))]
    took = [f"{name} {format_duration(median(known))}" for name, column in _LATENCIES.items() if (known := _known(section, column))]
    uses = [f"{median(known):.2f} cores"] if (known := _known(section, "sys.cpu")) else []
    for what, column in (("heap", "sys.heap"), ("direct memory", "sys.direct")):
        most = _known(section, column)
        uses += [f"{what} up to {format_size(max(most))}"] if most and uses else []
    said = [f"counted {', '.join(counted)}"] if counted else []
    said += [part for part in (", ".join(took), ", ".join(uses)) if part]
    if said:
        yield "broker", "; ".join(said)


def broker_properties(section: dict[str, Any] | None) -> list[tuple[str, str]]:
    """The same for tools; what the broker did not tell is left out."""
    if section is None:
        return []
    found = [(f"load.broker.counted.{way}", str(int(known[-1]))) for way, column in _COUNTED.items() if (known := _known(section, column))]
    found += [
        (f"load.broker.{name}.ms", f"{median(known) / 1e6:.3f}")
        for name, column in _LATENCIES.items()
        if (known := _known(section, column))
    ]
    return found + ([("load.broker.cores", f"{median(known):.3f}")] if (known := _known(section, "sys.cpu")) else [])
