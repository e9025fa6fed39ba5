"""The numpy definitions in place of Spark, for tests of other things: ``-p numpy_aggregation``.

``tests/pipeline`` proves that both agree exactly; a Java process for each pytest session would only cost time.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import pytest
    from numpy.typing import NDArray

    from pytest_loadtest.engine.sample_store import SampleStore
    from pytest_loadtest.fleet.measured_run import MeasuredRun
    from pytest_loadtest.metrics.clocks import Correction
    from pytest_loadtest.metrics.measurements import Measurements

ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join(
        filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
    )
}
"""What a pytest process needs to find this module."""


def samples(
    folder: Path,
    kind: str,
    corrections: Mapping[str, Correction] | None = None,
    store: SampleStore | None = None,
    workers: Sequence[str] = (),
    hosts: Mapping[str, int] | None = None,
) -> Mapping[str, NDArray[np.int64]]:
    """Return all rows of ``sent`` or ``received`` as columns; the latter may be stored as broadcast rows.

    :param store: where the samples are if not in the folder. :param workers: their names, for the column ``worker``.
    :param hosts: number of each worker's host, for the column ``host``.
    """
    import numpy as np

    from pytest_loadtest.engine.sample_store import SampleStore
    from pytest_loadtest.message.broadcast import unpack_copies
    from pytest_loadtest.message.samples import KINDS

    store = store or SampleStore(str(folder.resolve()))
    paths = sorted(path for path in store.sizes() if path.endswith(".parquet"))
    packed = kind == "received" and any(path.startswith("broadcast/") for path in paths)
    stored_kind = "broadcast" if packed else kind
    schema = KINDS[stored_kind]
    files: list[Mapping[str, NDArray[Any]]] = []
    for path in (path for path in paths if path.startswith(f"{stored_kind}/")):
        with store.open_parquet(path) as file:
            table = file.read()
        columns = {one.name: _numbers(table[one.name].combine_chunks()) for one in schema}
        rows = unpack_copies(columns) if packed else columns
        worker = path.rpartition("/")[2].rpartition("-")[0]
        correction = (corrections or {}).get(worker)
        rows = rows if correction is None else correction.of_rows(rows)
        numbers = {"worker": workers.index(worker)} if workers else {}
        numbers |= {"host": hosts[worker]} if hosts else {}
        files.append(
            {
                **rows,
                **{name: np.full(len(rows["stream"]), number) for name, number in numbers.items()},
            }
        )
    nothing: Mapping[str, NDArray[Any]] = {one.name: np.empty(0, np.int64) for one in schema}
    nothing = {
        **(unpack_copies(nothing) if packed else nothing),
        **{
            name: np.empty(0, np.int64)
            for name, there in (("worker", workers), ("host", hosts))
            if there
        },
    }
    return {
        name: np.concatenate([none, *(rows[name] for rows in files)]).astype(np.int64)
        for name, none in nothing.items()
    }


def _numbers(column: Any) -> NDArray[Any]:
    """Return the numbers of a column; of lists, all their items.

    Arrow's own ``to_numpy()`` imports pandas, which takes longer than counting a small run.
    """
    import numpy as np
    import pyarrow as pa

    return np.from_dlpack(column.flatten() if pa.types.is_list(column.type) else column)


def measured(folder: Path) -> tuple[Measurements, tuple[tuple[str, Measurements], ...]]:
    """Return the same as ``pipeline.aggregate_with_stages``, without Spark.

    :raises NoData: the samples are incomplete, or do not match the plan.
    """
    import numpy as np

    from pytest_loadtest.metrics.expected import Recorded
    from pytest_loadtest.metrics.stats import measure
    from pytest_loadtest.pipeline import read

    found = read.load_run(folder)
    run, workers = found.run, found.recorded.workers
    sent, received, taps = (
        samples(folder, kind, found.corrections, found.store, run.workers, found.hosts)
        for kind in ("sent", "received", "tap")
    )
    tapped = taps if run.tapped else None
    streams, rows = np.unique(sent["stream"], return_counts=True)
    distinct = [len(np.unique(sent["seq"][sent["stream"] == stream])) for stream in streams]
    found.check_offered(run, read.Offered(streams, rows, np.array(distinct, np.int64)))
    stages = []
    for name, stage in found.stages.items():
        during = tuple(
            worker.during(stage.start - run.start, stage.duration, run.duration)
            for worker in workers
        )
        stages.append(
            (
                name,
                measure(
                    sent,
                    received,
                    stage,
                    Recorded(foreign=None, workers=during, clocks=found.recorded.clocks),
                    tapped,
                ),
            )
        )
    return measure(sent, received, run, found.recorded, tapped), tuple(stages)


class NumpyAggregation:
    """Replaces ``fleet.spark_service.SparkService``."""

    def __init__(
        self,
        _folder: Path,
        _options: object,
        _announce: Callable[[str], None],
        custom: Any = None,
        _host: Any = None,
    ) -> None:
        self._custom = custom

    def measure(self, folder: Path) -> MeasuredRun:
        """Measure the samples in ``folder``."""
        from pytest_loadtest.fleet.measured_run import MeasuredRun, custom_metrics
        from pytest_loadtest.pipeline import read
        from pytest_loadtest.pipeline.run_file import RunFile
        from pytest_loadtest.pipeline.samples import kinds_of

        run = RunFile.read(folder)
        whole, stages = measured(folder) if kinds_of(run) else (read.measure_arrivals(folder), ())
        run_measured = MeasuredRun(folder=folder, run=run, measurements=whole, stages=stages)
        if self._custom is None:
            return run_measured
        spark: Any = None  # only hooks that query Spark would need it
        metrics, failure = custom_metrics(self._custom, spark, run, run_measured.files)
        return replace(run_measured, measurements=replace(whole, custom=metrics), failure=failure)

    def _nothing(self) -> None: ...

    start = wait_until_ready = interrupt = begin_stop = stop = _nothing


def pytest_configure(config: pytest.Config) -> None:
    """Replace Spark on the controller, the only process that aggregates."""
    if not hasattr(config, "workerinput"):
        from pytest_loadtest.fleet import run_controller

        place: Any = run_controller
        place.SparkService = NumpyAggregation
