"""The samples of a world that was played, aggregated by Spark's code too: every count and statistic must be equal to the bit.

Worlds are judged by the numpy definitions (``numpy_aggregation``). :func:`differing` takes a session: a real one, or ``InProcess``, which runs
what Spark's workers run without Java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from simulation.violation import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from simulation.truth import Played

CONFIGURATION: Final = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
}
SHOWN: Final = 5
"""Differences that a violation lists."""


def differing(played: Played, session: Any) -> Iterator[Violation]:
    """Yield a violation for each phase of a world whose samples give other measurements."""
    from numpy_aggregation import measured
    from runs import differences

    from pytest_loadtest.pipeline.aggregate import aggregate_with_stages
    from pytest_loadtest.pipeline.run_file import RunFile
    from pytest_loadtest.pipeline.samples import kinds_of

    for path in sorted(played.folder.rglob("run.json")):
        folder = path.parent
        if not kinds_of(RunFile.read(folder)):
            continue
        defined = _measurements(measured, folder)
        again = _measurements(lambda of: aggregate_with_stages(session, of), folder)
        found = differences(defined, again)
        if found:
            text = f"{folder.name}: {'; '.join(map(str, found[:SHOWN]))}"
            yield Violation(rule="aggregation", text=text)


def _measurements(measure: Callable[[Path], Any], folder: Path) -> Any:
    """Return the measurements of a phase and its stages, or why there are none."""
    from pytest_loadtest.errors import NoData

    try:
        return measure(folder)
    except NoData:
        return "no data"
