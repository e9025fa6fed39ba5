"""The cost of planning, and of a run's documents, for very many clients.

Run ``python benchmarks/bench_plan.py``.

Each row is a separate process, so that its peak memory is its own. *Plan*: compile the profile and
print the plan, as ``--load-plan`` does. *Document*: the controller's work after a phase: compare
the workers' messages with the plan, write ``run.json`` and ``streams.npz``. Time is wall clock;
memory is the highest resident size so far, with the interpreter and its libraries.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROFILE = """\
name: plan
messageSize: 100
producerRate: 1000
warmupDuration: 1s
testDuration: 10s
driver: {name: mqtt}
"""
ROWS = {
    "one topic, one subscriber": "",
    "1 M subscribers on one topic": "subscriptionsPerTopic: 1000000",
    "1 M subscribers that share a subscription": "consumerPerSubscription: 1000000",
    "10 M topics": "topics: 10000000\nsubscriptionsPerTopic: 0",
    "10 M topics, each with a subscriber": "topics: 10000000",
    "20 M topics, the most": "topics: 20000000",
}
WORKERS = 16


def peak() -> float:
    """Return the peak memory in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(lines: str) -> str:
    """Measure one row in this process."""
    from pytest_loadtest import profile as profiles
    from pytest_loadtest.drivers import planned_facts
    from pytest_loadtest.kinds.registry import shipped_costs
    from pytest_loadtest.plan.plan import make_plan, profile_pool
    from pytest_loadtest.plan.scaling import Machine, profile_cost_key
    from pytest_loadtest.report.plan import plan_table as shown

    machine = Machine(cores=16, memory=64 << 30)
    began = time.perf_counter()
    profile = profiles.loads(PROFILE + lines, "plan.yaml")
    cost = shipped_costs()[profile_cost_key(profile)]
    plan = make_plan(
        profile,
        profile_pool(profile),
        workers=WORKERS,
        cost=cost,
        machine=machine,
        broker_here=False,
    )
    shown(plan, planned_facts(profile), machine)
    planned = f"{time.perf_counter() - began:7.2f} s {peak():6.0f} MiB"
    with tempfile.TemporaryDirectory() as folder:
        took, size = document(plan, Path(folder))
    return f"{planned} {took:7.2f} s {peak():6.0f} MiB {size / 1024:8.0f} KiB"


def document(plan, root: Path) -> tuple[float, int]:  # type: ignore[no-untyped-def]
    """Return the seconds that the end of a phase takes, and the bytes that it writes."""
    from pytest_loadtest.fleet.messages import Part, PhaseFinished
    from pytest_loadtest.fleet.workload_run import WorkloadRun

    workload = WorkloadRun(
        name="",
        part=Part(profile=plan.profile),
        plan=plan,
        root=root,
        nonce=0,
        test="",
        source="",
        run="r",
        workers=[f"gw{i}" for i in range(WORKERS)],
    )
    workload.document()  # imports what it needs
    for phase in plan.phases:
        workload.begin(phase, "measure" if phase.recorded else None, 0)
        assert workload.phase is not None
        said = [
            PhaseFinished(ends=workload.phase.ends.of(a.streams), marks=(), disconnected=None)
            for a in plan.assignments
        ]
        began = time.perf_counter()
        workload.end_phase(said)
    return time.perf_counter() - began, sum(
        path.stat().st_size for path in (root / "measure").iterdir()
    )


def main() -> None:
    if len(sys.argv) == 2:
        print(measure(ROWS[sys.argv[1]]))
        return
    width = max(map(len, ROWS))
    print(f"{'':<{width}} {'plan':>9} {'peak':>10} {'document':>9} {'peak':>10} {'on disk':>12}")
    for name in ROWS:
        row = subprocess.run(
            [sys.executable, __file__, name], check=True, capture_output=True, text=True
        )
        print(f"{name:<{width}} {row.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
