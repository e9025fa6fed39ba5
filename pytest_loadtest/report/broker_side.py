"""What a broker said of itself while load ran, beside what the run measured: one line of the summary, some JUnit properties."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_loadtest.values.quantities import format_duration, format_size
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Iterator

_COUNTED = {"in": "sys.totalIn", "out": "sys.totalOut"}
_LATENCIES = {"publish": "sys.publishLatency", "write": "sys.writeLatency", "ledger": "sys.ledgerLatency"}


def _known(section: dict[str, Any], column: str) -> list[float]:
    return [value for value in section["columns"].get(column, ()) if value is not None]


def broker_lines(section: dict[str, Any] | None) -> Iterator[str]:
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
        yield f"  broker     {'; '.join(said)}"


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
