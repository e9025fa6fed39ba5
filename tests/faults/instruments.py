"""The plugin ``-p faults.instruments`` of a faulty session: notes process ids, phases and what each process still has open at its end.

With ``FAULT_HOLDS_AGGREGATION`` aggregation waits until the session ends, so that a fault can hit it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

FOLDER = Path("instruments")
THREAD_SECONDS = 15
"""Time for a thread to notice the end of the session."""


def pytest_configure(config: pytest.Config) -> None:
    """Note the process, and on the controller the phases."""
    FOLDER.mkdir(exist_ok=True)
    _write(f"{_name(config)}.pid", str(os.getpid()))
    if not hasattr(config, "workerinput"):
        _note_phases()
        if os.environ.get("FAULT_HOLDS_AGGREGATION"):
            _hold_aggregation()


@pytest.hookimpl(wrapper=True)
def pytest_unconfigure(config: pytest.Config) -> Generator[None, None, None]:
    """Note what is open when all plugins have closed what they had. pyspark keeps a socket to a Java process that died."""
    yield
    targets = [_target(entry) for entry in Path("/proc/self/fd").iterdir()]
    here = str(Path.cwd())
    kept = [
        target
        for target in targets
        if target.startswith(f"{here}/.loadtest")
        or (target.startswith("socket:") and "pyspark" not in sys.modules)
    ]
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("loadtest")]
    for thread in ours:
        thread.join(THREAD_SECONDS)
    threads = [thread.name for thread in ours if thread.is_alive()]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    _write(f"{_name(config)}.end", json.dumps({"open": kept + threads, "memory": memory}))


def _name(config: pytest.Config) -> str:
    return str(getattr(config, "workerinput", {}).get("workerid", "controller"))


def _target(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except OSError:  # of the folder that is being listed
        return ""


def _write(name: str, text: str) -> None:
    """Write a file of which nobody sees a part."""
    aside = FOLDER / f".{name}"
    aside.write_text(text, encoding="utf-8")
    aside.replace(FOLDER / name)


def _note_phases() -> None:
    from pytest_loadtest.fleet.planned_run import PlannedRun
    from pytest_loadtest.fleet.run_controller import RunController

    run: Any = PlannedRun
    controller: Any = RunController
    begin = run._start_phase
    judge = controller._judge

    def begin_and_note(self: Any, workload: Any, following: Any, start: int) -> Any:
        order = begin(self, workload, following, start)
        name = f"{workload.part.profile.name}.{order.phase.name}.phase"
        _write(name, json.dumps([start, start + order.phase.duration]))
        return order

    def judge_and_note(self: Any, run: Any) -> Any:
        _write("aggregation.phase", "[0, 0]")
        return judge(self, run)

    run._start_phase = begin_and_note
    controller._judge = judge_and_note


def _hold_aggregation() -> None:
    from numpy_aggregation import NumpyAggregation

    from pytest_loadtest.errors import NoData

    made, ended = cast("Any", NumpyAggregation), threading.Event()

    def measure(_self: object, _folder: Path) -> NoReturn:
        ended.wait()
        raise NoData("aggregation was interrupted")

    made.measure = measure
    made.interrupt = made.begin_stop = made.stop = lambda _self: ended.set()
