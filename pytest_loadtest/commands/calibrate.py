"""Measure the CPU cost of a message on this machine, for each driver and client.

It is measured in its sender, its receiver and the broker.

Three normal load tests on two workers drive short runs against a broker started for them: small
messages at the rate that ``--load-scale auto`` would choose by the shipped costs, and small and
large ones at a lower rate. The first gives the cost per message, the other two the cost per byte; a
loop's cost per tick is the same in both, so it cancels out. With one producer and one consumer, the
plan gives the first worker only the producer and the second only the consumer, so their CPU times
are separate.

If the messages of a batch share costs (:attr:`~pytest_loadtest.kinds.costs.Cost.shared`), each
batch has one message, and the measured cost is the figure itself: dividing by the size of larger
batches would rely on that size, which a late tick changes. The share is not measured but shipped,
as it is too small at these rates. There is only one producer, because a Pulsar that had just
started used 1.7 times the CPU time for the same number of batches from sixteen producers, measured
on two cores; client and consumer used the same.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.brokers.java import CACHE_REMEDY
from pytest_loadtest.errors import NoData, UsageError
from pytest_loadtest.fleet.planning import calibrated_costs, costs_file
from pytest_loadtest.kinds.costs import Cost
from pytest_loadtest.kinds.registry import kinds, shipped_costs
from pytest_loadtest.plan.auto import AUTO_LOAD
from pytest_loadtest.report.document import BottleneckSection, RunDocument, read_document
from pytest_loadtest.report.find_results import results_below
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


SMALL = 256  # bytes
LARGE = 16 * 1024  # bytes
PHASES = {"warmupDuration": "500ms", "testDuration": "3s", "drainTimeout": "5s"}
RUNS = ("slow", "large", "fast")
VERSION = 1
SETTLED = SECOND  # ns: the first second's sample also covers the time before the first message
_TEST = """
@pytest.mark.load("{0}")
def test_{0}(load):
    pass
"""
_SENDER = "gw0"
_RECEIVER = "gw1"
_ANNOUNCED = "load: "
_TAIL = 15  # lines of pytest's output that an error shows


def measurable_rows() -> dict[str, dict[str, Any]]:
    """Return the rows of the cost table → the ``driver`` section that has that cost."""
    return {
        key: {"name": kind.name, **row.settings}
        for kind in kinds().values()
        for key, row in kind.costs.items()
    }


@record
class PerMessage:
    """The CPU ns per message of sender, receiver and broker."""

    produce: float
    consume: float
    broker: float

    @classmethod
    def of(cls, run: RunDocument) -> PerMessage:
        """Compute the cost from a run with one producer and one consumer on separate workers.

        :raises NoData: it has no measurements, its CPU time is unknown, or less than half of the
            due messages arrived.
        """
        name = run.profile.name
        measured = run.measurements
        if measured is None:
            raise NoData(f"the run {name} was not measured: {'; '.join(run.verdict.reasons)}")
        offered = measured.count("offered")
        received = measured.count("receivedInTime")
        if received < offered / 2:
            raise NoData(
                f"{received} of {offered} messages arrived while the run {name} was measured"
            )

        def cpu(who: str) -> float:
            return _cores(run.bottleneck, f"{who}.cpu", measured.duration) * measured.duration

        return cls(
            produce=cpu(f"worker {_SENDER}") / measured.count("sentInTime"),
            consume=cpu(f"worker {_RECEIVER}") / received,
            broker=cpu("broker") / received,
        )


def _cores(section: BottleneckSection | None, column: str, duration: int) -> float:
    """Return the mean over the samples after the first second. :raises NoData: there are none."""
    cores = []
    reasons: Sequence[str] = ()
    if section is not None:
        reasons = section.missing
        for at, value in zip(section.time, section.columns.get(column, ()), strict=False):
            settled = SETTLED + SECOND // 2 <= at <= duration + SECOND // 10
            if settled and value is not None:
                cores.append(value)
    if not cores:
        process = column.removesuffix(".cpu")
        raise NoData(f"the CPU time of {process} is unknown: {'; '.join(reasons) or 'no samples'}")
    return sum(cores) / len(cores)


def calibrate(key: str, announce: Callable[[str], None]) -> Cost:
    """Measure one driver with one client.

    It takes half a minute, and some seconds more to start Pulsar.

    :param key: a key of :func:`measurable_rows`.
    :raises NoData: no broker of its kind is available, or the load did not arrive.
    """
    with tempfile.TemporaryDirectory(prefix="pytest-loadtest-") as scratch:
        folder = Path(scratch)
        (folder / "profiles").mkdir()
        for name, (size, rate) in zip(RUNS, _rates(shipped_costs()[key]), strict=True):
            profile = json.dumps(profile_of(key, name, size, rate))  # JSON is YAML
            (folder / "profiles" / f"{name}.yaml").write_text(profile, encoding="utf-8")
        (folder / "test_calibrate.py").write_text(
            "import pytest\n" + "".join(map(_TEST.format, RUNS)), encoding="utf-8"
        )
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        output = _pytest(folder, key, announce)
        documents = [read_document(path) for path in results_below(folder / ".loadtest")]
    runs = {run.profile.name: run for run in documents}
    missing = [name for name in RUNS if name not in runs]
    if missing:
        raise NoData(
            f"the runs {', '.join(missing)} have no results; output of pytest:\n"
            + "\n".join(output)
        )
    slow, large, fast = (PerMessage.of(runs[name]) for name in RUNS)
    return cost_of(slow, large, fast, shipped_costs()[key].shared)


def _pytest(folder: Path, key: str, announce: Callable[[str], None]) -> Sequence[str]:
    """Run the tests in a folder on two workers. :returns: the last lines of pytest's output."""
    options = "-n 2 --load-broker-mode process --load-force -p no:cacheprovider -p no:randomly"
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    last: deque[str] = deque(maxlen=_TAIL)
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *options.split()],
        cwd=folder,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        # only lines about the start of the broker are passed on: the user did not write the tests
        starting = True
        for line in process.stdout:
            last.append(line.rstrip())
            if starting and line.startswith(_ANNOUNCED) and "::" not in line:
                announce(last[-1].removeprefix(_ANNOUNCED))
                if last[-1].startswith(f"{_ANNOUNCED}target: "):
                    starting = False
                    announce(f"{key}: driving load")
    return list(last)


def _rates(shipped: Cost) -> tuple[tuple[int, float], ...]:
    """Return size and msg/s for each of :data:`RUNS`.

    The CPU time per message is valid also if these rates are far from ideal.
    """
    busiest = max(shipped.produce, shipped.consume)
    # sender, receiver and broker have a third of a byte's cost each
    slow = AUTO_LOAD * 1e9 / (busiest + shipped.per_byte * LARGE / 3)
    return (SMALL, slow), (LARGE, slow), (SMALL, AUTO_LOAD * 1e9 / busiest)


def profile_of(key: str, name: str, size: int, rate: float) -> dict[str, Any]:
    """Return the profile of one run, with one producer and one consumer."""
    return {
        "name": name,
        "messageSize": size,
        "producerRate": round(rate),
        "driver": measurable_rows()[key],
        **PHASES,
    }


def cost_of(slow: PerMessage, large: PerMessage, fast: PerMessage, shared: float = 0.0) -> Cost:
    """Split the cost into a part per message and a part per byte.

    :param slow: small messages at the rate of ``large``. :param large: large messages.
    :param fast: small messages at the higher rate. All of them: one message per batch.
    :param shared: as in :class:`Cost`.
    """

    costs = {}
    total_per_byte = 0.0
    for part in ("produce", "consume", "broker"):
        # Noise can make a difference negative.
        per_byte = max(0.0, (getattr(large, part) - getattr(slow, part)) / (LARGE - SMALL))
        costs[part] = max(0.0, getattr(fast, part) - per_byte * SMALL)
        total_per_byte += per_byte
    return Cost(per_byte=total_per_byte, shared=shared, **costs)


def keep(measured: Mapping[str, Cost]) -> Path:
    """Write the costs to the file that plans read, with the earlier costs of other drivers.

    :raises UsageError: it cannot be written.
    """
    path = costs_file()
    costs = {**calibrated_costs(), **measured}
    document = {
        "version": VERSION,
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "costs": {key: cost.document() for key, cost in costs.items()},
    }
    # A plan that reads at the same time never sees half a file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; {CACHE_REMEDY}") from error
    return path


def table(measured: Mapping[str, Cost]) -> list[str]:
    """Return a table of the measured costs and the shipped ones.

    They are µs of CPU time of a message without a batch, and per KiB.
    """
    rows = [f"{'µs of CPU time':<14}{'send':>18}{'receive':>18}{'broker':>18}{'each KiB':>18}"]
    for key, cost in measured.items():
        shipped = shipped_costs()[key]
        row = f"{key:<14}"
        for part, unit in (
            ("produce", 1e3),
            ("consume", 1e3),
            ("broker", 1e3),
            ("per_byte", 1e3 / 1024),
        ):
            here = getattr(cost, part) / unit
            there = getattr(shipped, part) / unit
            row += f"{f'{here:.1f} ({there:.1f})':>18}"
        rows.append(row)
    for key, cost in measured.items():
        if cost.shared:
            rows.append(
                f"{key}: messages of one batch share {cost.shared:.0%} of send, receive and broker"
            )
    return [*rows, "in parentheses: the shipped figures"]
