"""Measure the CPU cost of a message on this machine, for each driver and client: in its sender, its receiver and the broker.

Three normal load tests on two workers drive short runs against a broker started for them: small messages at the rate that
``--load-scale auto`` would choose by the shipped costs, and small and large ones at a lower rate. The first gives the cost per message, the
other two the cost per byte; a loop's cost per tick is the same in both, so it cancels out. With one producer and one consumer, the plan
gives the first worker only the producer and the second only the consumer, so their CPU times are separate.

If the messages of a batch share costs (:attr:`~pytest_loadtest.kinds.costs.Cost.shared`), each batch has one message, and the measured
cost is the figure itself: dividing by the size of larger batches would rely on that size, which a late tick changes. The share is not
measured but shipped, as it is too small at these rates. There is only one producer, because a Pulsar that had just started used 1.7 times
the CPU time for the same number of batches from sixteen producers, measured on two cores; client and consumer used the same.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.planning import costs_file
from pytest_loadtest.kinds.costs import Cost
from pytest_loadtest.kinds.registry import kinds, shipped_costs
from pytest_loadtest.plan.auto import AUTO_LOAD
from pytest_loadtest.report.document import read_document
from pytest_loadtest.report.find_results import results_below
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_loadtest.report.document import BottleneckSection, RunDocument

SMALL, LARGE = 256, 16 * 1024  # bytes
PHASES = {"warmupDuration": "500ms", "testDuration": "3s", "drainTimeout": "5s"}
RUNS = ("slow", "large", "fast")
VERSION = 1
SETTLED = SECOND  # ns: the first second's sample also covers the time before the first message
_TEST = """
@pytest.mark.load("{0}")
def test_{0}(load):
    pass
"""
_SENDER, _RECEIVER = "gw0", "gw1"
_ANNOUNCED = "load: "
_TAIL = 15  # lines of pytest's output that an error shows


def measurable_rows() -> dict[str, dict[str, Any]]:
    """Return the rows of the cost table → the ``driver`` section that has that cost."""
    return {
        key: {"name": kind.name, **row.settings}
        for kind in kinds().values()
        for key, row in kind.costs.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PerMessage:
    """The CPU ns per message of sender, receiver and broker."""

    produce: float
    consume: float
    broker: float

    @classmethod
    def of(cls, run: RunDocument) -> PerMessage:
        """Compute the cost from a run with one producer and one consumer on separate workers.

        :raises NoData: it has no measurements, its CPU time is unknown, or less than half of the due messages arrived.
        """
        name, measured = run.profile.name, run.measurements
        if measured is None:
            raise NoData(f"the run {name} was not measured: {'; '.join(run.verdict.reasons)}")
        offered, sent, received = (
            measured.count(key) for key in ("offered", "sentInTime", "receivedInTime")
        )
        if received < offered / 2:
            raise NoData(
                f"{received} of {offered} messages arrived while the run {name} was measured"
            )

        def cpu(who: str) -> float:
            return _cores(run.bottleneck, f"{who}.cpu", measured.duration) * measured.duration

        return cls(
            produce=cpu(f"worker {_SENDER}") / sent,
            consume=cpu(f"worker {_RECEIVER}") / received,
            broker=cpu("broker") / received,
        )


def _cores(section: BottleneckSection | None, column: str, duration: int) -> float:
    """Return the mean over the samples after the first second. :raises NoData: there are none."""
    samples = (
        () if section is None else zip(section.time, section.columns.get(column, ()), strict=False)
    )
    cores = [
        value
        for at, value in samples
        if value is not None and SETTLED + SECOND // 2 <= at <= duration + SECOND // 10
    ]
    if not cores:
        raise NoData(
            f"the CPU time of {column.removesuffix('.cpu')} is unknown: {'; '.join(section.missing if section else ()) or 'no samples'}"
        )
    return sum(cores) / len(cores)


def calibrate(key: str, announce: Callable[[str], None]) -> Cost:
    """Measure one driver with one client; takes half a minute, and some seconds more to start Pulsar.

    :param key: a key of :func:`measurable_rows`.
    :raises NoData: no broker of its kind is available, or the load did not arrive.
    """
    with tempfile.TemporaryDirectory(prefix="pytest-loadtest-") as scratch:
        folder = Path(scratch)
        for name, (size, rate) in zip(RUNS, _rates(shipped_costs()[key]), strict=True):
            (folder / "profiles").mkdir(exist_ok=True)
            profile = json.dumps(profile_of(key, name, size, rate))  # JSON is YAML
            (folder / "profiles" / f"{name}.yaml").write_text(profile, encoding="utf-8")
        (folder / "test_calibrate.py").write_text(
            "import pytest\n" + "".join(map(_TEST.format, RUNS)), encoding="utf-8"
        )
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        output = _pytest(folder, key, announce)
        documents = [read_document(path) for path in results_below(folder / ".loadtest")]
    runs = {run.profile.name: run for run in documents}
    if missing := [name for name in RUNS if name not in runs]:
        raise NoData(
            f"the runs {', '.join(missing)} have no results; output of pytest:\n"
            + "\n".join(output)
        )
    slow, large, fast = (PerMessage.of(runs[name]) for name in RUNS)
    return cost_of(slow, large, fast, shipped_costs()[key].shared)


def _pytest(folder: Path, key: str, announce: Callable[[str], None]) -> Sequence[str]:
    """Run the tests in a folder on two workers. :returns: the last lines of pytest's output."""
    options = [
        "-n",
        "2",
        "--load-broker",
        "process",
        "--load-force",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    last: deque[str] = deque(maxlen=_TAIL)
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *options], cwd=folder, env=environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        starting = True  # only lines about the start of the broker are passed on: the user did not write the tests
        for line in process.stdout:
            last.append(line.rstrip())
            if starting and line.startswith(_ANNOUNCED) and "::" not in line:
                announce(last[-1].removeprefix(_ANNOUNCED))
                if last[-1].startswith(f"{_ANNOUNCED}target: "):
                    starting = False
                    announce(f"{key}: driving load")
    return list(last)


def _rates(shipped: Cost) -> tuple[tuple[int, float], ...]:
    """Return size and msg/s for each of :data:`RUNS`. The CPU time per message is valid also if these rates are far from ideal."""
    busiest = max(shipped.produce, shipped.consume)
    slow = (
        AUTO_LOAD * 1e9 / (busiest + shipped.per_byte * LARGE / 3)
    )  # sender, receiver and broker have a third of a byte's cost each
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

    :param slow: small messages at the rate of ``large``. :param large: large messages. :param fast: small messages at the higher rate. All
        of them: one message per batch. :param shared: as in :class:`Cost`.
    """

    def split(small: float, at_large: float, at_fast: float) -> tuple[float, float]:
        per_byte = max(0.0, (at_large - small) / (LARGE - SMALL))  # noise can make it negative
        return max(0.0, at_fast - per_byte * SMALL), per_byte

    produce, consume, broker = (
        split(*(getattr(run, part) for run in (slow, large, fast)))
        for part in ("produce", "consume", "broker")
    )
    per_byte = produce[1] + consume[1] + broker[1]
    return Cost(
        produce=produce[0], consume=consume[0], broker=broker[0], per_byte=per_byte, shared=shared
    )


def keep(measured: Mapping[str, Cost]) -> Path:
    """Write the costs to the file that plans read, with the earlier costs of other drivers."""
    path = costs_file()
    costs = {**_kept(path), **{key: cost.document() for key, cost in measured.items()}}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    document = {
        "version": VERSION,
        "measured": now,
        "python": platform.python_version(),
        "costs": costs,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(
        f".{path.name}.{os.getpid()}"
    )  # a plan that reads at the same time never sees half a file
    temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def _kept(path: Path) -> dict[str, Any]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["costs"]
        return {
            key: Cost.of(row, shipped_costs()[key].shared).document()
            for key, row in rows.items()
            if key in shipped_costs()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def table(measured: Mapping[str, Cost]) -> list[str]:
    """Return a table of the measured costs and the shipped ones: µs of CPU time of a message without a batch, and per KiB."""
    rows = [f"{'µs of CPU time':<14}{'send':>18}{'receive':>18}{'broker':>18}{'each KiB':>18}"]
    for key, cost in measured.items():
        shipped = shipped_costs()[key]
        pairs = [
            (getattr(cost, part), getattr(shipped, part))
            for part in ("produce", "consume", "broker")
        ]
        pairs.append((cost.per_byte * 1024, shipped.per_byte * 1024))
        rows.append(
            f"{key:<14}"
            + "".join(f"{f'{here / 1e3:.1f} ({there / 1e3:.1f})':>18}" for here, there in pairs)
        )
    shares = {key: cost.shared for key, cost in measured.items() if cost.shared}
    shared = [
        f"{key}: messages of one batch share {share:.0%} of send, receive and broker"
        for key, share in shares.items()
    ]
    return [*rows, *shared, "in parentheses: the shipped figures"]
