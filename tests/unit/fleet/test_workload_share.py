"""What a worker measures of one workload besides its samples."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.fleet.workload_share import WorkloadShare

if TYPE_CHECKING:
    from collections.abc import Callable


def test_cpu_time_of_connecting_excludes_making_the_clients() -> None:
    """Clients are made before the first connection is due."""

    class Paced:
        def pace(self, _: object, idle: Callable[[], None]) -> None:
            self.idle = idle

        def opening_times(self) -> dict[str, Any]:
            return {"up": np.zeros(3, np.int64), "connect": np.zeros(3, np.int64)}

    driver = Paced()
    connected: dict[str, Any] = {}
    made = 100_000_000  # ns of CPU
    assigned = SimpleNamespace(profile=SimpleNamespace(connect_rate=1000.0), workload="")
    share: Any = SimpleNamespace(
        assigned=assigned, driver=driver, _connected=connected, _clock=time.monotonic_ns
    )
    before = time.process_time_ns()
    with WorkloadShare._connecting(
        share, "producers", np.arange(3), 3, lambda *_: time.monotonic_ns(), lambda: None
    ):
        while time.process_time_ns() < before + made:
            pass
        driver.idle()
        driver.idle()
    _, _, cpu, _ = connected["producers"]
    assert 0 <= cpu < made
