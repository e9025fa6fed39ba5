"""Telemetry for tests: ten samples, a second apart, with nothing saturated; every value can be replaced."""

from __future__ import annotations

import numpy as np

from pytest_loadtest.observe.telemetry import SampledHost, Telemetry, merge_host
from pytest_loadtest.values.quantities import SECOND

SAMPLES = 10
QUIET = {
    "broker.cpu": 0.3, "broker.wanted": 0.4, "broker.busiest": 0.3, "broker.busiestWanted": 0.4, "broker.memory": 1e8, "broker.written": 0.0,
    "broker.diskWait": 0, "broker.stopped": 0, "broker.unread": 0, "broker.unsent": 0, "broker.stale": 0, "broker.shut": 0, "broker.connections": 2,
    "broker.relayed": 0, "workers.unread": 0, "workers.unsent": 0, "workers.stale": 0, "workers.shut": 0, "workers.connections": 2,
    "worker gw0.busiest": 0.3, "worker gw0.busiestWanted": 0.4,
}  # fmt: skip


def made_telemetry(
    held: int = SAMPLES,
    without: tuple[str, ...] = (),
    missing: tuple[str, ...] = (),
    **changed: float,
) -> Telemetry:
    """Return telemetry. :param held: number of samples with the changed values. Names have ``__`` for the dot.

    :param without: first parts of the names of missing columns.
    """
    values = {name: np.full(SAMPLES, float(value)) for name, value in QUIET.items()}
    for key, value in changed.items():
        name = (
            key.replace("__", ".").replace("worker_", "worker ").replace("service_o", "service o")
        )
        column = values.setdefault(name, np.zeros(SAMPLES))
        column[:held] = value
    columns = {
        name: column
        for name, column in values.items()
        if not name.startswith(without or ("nothing",))
    }
    return Telemetry(
        time=np.arange(1, SAMPLES + 1) * SECOND, columns=columns, missing=missing, cost=0.004, broker="mosquitto",
    )  # fmt: skip


def with_host(telemetry: Telemetry, name: str, held: int = SAMPLES, **changed: float) -> Telemetry:
    """Return the telemetry with that of another host, which has one worker, ``NAME-1``. Parameters as of :func:`made_telemetry`."""
    worker, side = f"worker {name}-1", f"workers {name}"
    quiet = {f"{worker}.cpu": 0.2, f"{worker}.busiest": 0.3, f"{worker}.busiestWanted": 0.4}
    quiet |= {
        f"{side}.{queue}": 0.0 for queue in ("unread", "unsent", "stale", "shut", "retransmits")
    } | {f"{side}.connections": 2.0}
    columns = {column: np.full(SAMPLES, value) for column, value in quiet.items()}
    for key, value in changed.items():
        columns[
            f"{side if key in ('unread', 'unsent', 'stale', 'shut', 'connections') else worker}.{key}"
        ][:held] = value
    part = Telemetry(time=telemetry.time, columns=columns)
    return merge_host(
        telemetry, SampledHost(name=name, workers=(f"{name}-1",), cores=4, cost=0.001), part
    )
