"""Faults of the session's own processes: workers and the controller that die, stop, or are interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from .fault import LIMITED, MET, NO_DATA, Fault

if TYPE_CHECKING:
    from plugin.projects import Finished

    from .session import FaultySession

LONG = {"testDuration": "5min"}
BOUNDED = {"endToEndLatency": {"p99": "200ms"}}
GROUP, CONTROLLER = "group", "controller"


def in_load(number: int, who: str) -> Callable[[FaultySession], None]:
    """Return an action that sends a signal to a process of pytest while load runs."""

    def act(session: FaultySession) -> None:
        session.until_phase("load")
        os.kill(session.pid(who), number)

    return act


def pause_worker(session: FaultySession) -> None:
    """Stop a worker for two seconds."""
    in_load(signal.SIGSTOP, "gw1")(session)
    time.sleep(2)  # the fault itself
    os.kill(session.pid("gw1"), signal.SIGCONT)


def kill_command(session: FaultySession) -> None:
    """Kill the command that reaches another host."""
    session.until_phase("load")
    for pid in session.find("unshare --time"):
        os.kill(pid, signal.SIGKILL)


WORKERS = (
    Fault(
        name="worker-killed",
        happens="A worker dies under load.",
        made="SIGKILL to the second of two workers.",
        arguments=("-n2",), profile=LONG, act=in_load(signal.SIGKILL, "gw1"),
        verdict=NO_DATA, status=1, says=("because load worker gw1 went down",),
    ),
    Fault(
        name="lead-killed",
        happens="The worker that leads the run dies under load.",
        made="SIGKILL to the first of two workers.",
        arguments=("-n2",), profile=LONG, act=in_load(signal.SIGKILL, "gw0"),
        verdict=NO_DATA, status=1, says=("worker 'gw0' crashed while running 'test_it.py::test_fault'", "because load worker gw0 went down"),
    ),
    Fault(
        name="worker-paused",
        happens="A worker stands still for two seconds under load.",
        made="SIGSTOP and SIGCONT to one of two workers; default limits of the generator.",
        arguments=("-n2",), profile={"testDuration": "4s", "generator": {}}, act=pause_worker,
        verdict=LIMITED, status=1, says=("because own send delay p99 … > 100 ms (generator.sendDelayP99)",),
    ),
    Fault(
        name="consumer-paused",
        happens="A worker stands still for two seconds under load, with a client that does not know when copies came.",
        made="SIGSTOP and SIGCONT to one of two workers; MQTT with the library client, QoS 1; the bound on p99 is 200 ms.",
        arguments=("-n2",), act=pause_worker,
        profile={"testDuration": "8s", "producerRate": 200, "driver": {"name": "mqtt", "client": "library", "qos": 1}, "slo": BOUNDED},
        verdict=LIMITED, status=1, says=("endToEndLatency.p99 would be … without the generator's own part of …",), slow=True,
    ),
    Fault(
        name="worker-stopped",
        happens="A worker stands still for good.",
        made="SIGSTOP to one of two workers, and no SIGCONT.",
        arguments=("-n2",), profile=LONG, act=in_load(signal.SIGSTOP, "gw1"),
        verdict=NO_DATA, status=1, says=("because gw1 sent no message for 60 s while driving load",), slow=True,
    ),
    Fault(
        name="lead-stopped",
        happens="The worker that leads the run stands still for good.",
        made="SIGSTOP to the first of two workers, and no SIGCONT.",
        arguments=("-n2",), profile=LONG, act=in_load(signal.SIGSTOP, "gw0"),
        verdict=NO_DATA, status=1, says=("because gw0 sent no message for 60 s while driving load",), slow=True,
    ),
)  # fmt: skip

SAMPLES = ("sent/*.parquet", "received/*.parquet")
# A host is a process with its own monotonic clock.
HOSTS = "- {{name: h1, command: unshare --time --monotonic 1000 --boottime 1000 --fork --kill-child --, python: {python}, directory: {folder}}}\n"


@contextmanager
def another_host(session: FaultySession) -> Iterator[None]:
    """Add a worker on another host."""
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["unshare", "--time", "true"], capture_output=True, check=False
        ).returncode
    ):
        import pytest

        pytest.skip("hosts with clocks of their own need root and time namespaces")
    session.project.write("hosts.yaml", HOSTS.format(python=sys.executable, folder=session.folder))
    yield


HOST_WORKERS = (
    Fault(
        name="host-worker-killed",
        happens="The kernel kills the worker of another host.",
        made="SIGKILL to a worker in a time namespace.",
        arguments=("-n1", "--load-hosts", "hosts.yaml"), profile=LONG, prepare=another_host, act=in_load(signal.SIGKILL, "h1-1"),
        left={"loadtest-unsent-*": "the samples that it had not sent, in the temporary folder of its host; a later session there removes them"},
        verdict=NO_DATA, status=1, says=("because load worker h1-1 went down: its process on host h1 or the connection to it ended",), slow=True,
    ),
    Fault(
        name="host-lost",
        happens="The command that reaches another host ends.",
        made="SIGKILL to the command (`unshare --kill-child`), which kills the worker.",
        arguments=("-n1", "--load-hosts", "hosts.yaml"), profile=LONG, prepare=another_host, act=kill_command,
        left={"loadtest-unsent-*": "as above"},
        verdict=NO_DATA, status=1, says=("because load worker h1-1 went down: its process on host h1 or the connection to it ended",), slow=True,
    ),
)  # fmt: skip

PHASES = {"start": "while the target starts", "warm-up": "in the warm-up", "load": "under load", "drain": "in the drain", "aggregation": "while samples are aggregated"}  # fmt: skip
SIGNALS = (
    (
        signal.SIGINT,
        "ctrl-c",
        "SIGINT to the group, as from a terminal",
        GROUP,
        ("load", "aggregation"),
    ),
    (signal.SIGTERM, "sigterm", "SIGTERM to the controller", CONTROLLER, ("start", "drain")),
    (signal.SIGKILL, "sigkill", "SIGKILL to the controller", CONTROLLER, ("load", "aggregation")),
)
IN_PHASE = {
    "start": LONG, "warm-up": {"warmupDuration": "5min"}, "load": LONG, "aggregation": {},
    "drain": {"driver": {"name": "loopback", "delay": "2min"}, "drainTimeout": "5min"},
}  # fmt: skip


def interrupt(number: int, phase: str, whom: str) -> Callable[[FaultySession], None]:
    """Return an action that sends a signal to the session in a phase."""

    def act(session: FaultySession) -> None:
        session.until_phase(
            phase, after=1.5 if phase == "load" else 0.3
        )  # then there are complete blocks of samples
        (os.killpg if whom == GROUP else os.kill)(session.process.pid, number)

    return act


def controllers() -> list[Fault]:
    """Return the faults of the controller: each signal in each phase."""
    return [
        Fault(
            name=f"{name}-{phase}",
            happens=f"The session is {'killed' if number == signal.SIGKILL else 'interrupted'} {when}.",
            made=f"{how}; two workers.",
            arguments=("-n2",), profile=IN_PHASE[phase], act=interrupt(number, phase, whom), holds_aggregation=phase == "aggregation",
            **({"verdict": None, "status": -number} if number == signal.SIGKILL else {"verdict": NO_DATA, "status": 2, "says": ("because …interrupted",)}),
            kept=SAMPLES if phase in ("load", "aggregation") and number != signal.SIGKILL else (),
            slow=phase not in fast,
        )
        for number, name, how, whom, fast in SIGNALS for phase, when in PHASES.items()
    ]  # fmt: skip


CONTROLLERS = (
    *controllers(),
    Fault(
        name="sigterm-group",
        happens="The session and its workers get SIGTERM at the same time.",
        made="SIGTERM to the group under load; two workers.",
        arguments=("-n2",), profile=LONG, act=interrupt(signal.SIGTERM, "load", GROUP), kept=SAMPLES,
        verdict=NO_DATA, status=2, says=("because …interrupted",), slow=True,
    ),
    Fault(
        name="ctrl-c-spark",
        happens="The session is interrupted while Spark waits for samples.",
        made="SIGINT to the group under load; two workers, Spark.",
        arguments=("-n2",), profile=LONG, act=interrupt(signal.SIGINT, "load", GROUP), kept=SAMPLES, spark=True,
        verdict=NO_DATA, status=2, says=("because …interrupted",), slow=True,
    ),
    Fault(
        name="sigterm-spark",
        happens="A session of one process is terminated while Spark waits for samples.",
        made="SIGTERM under load; no workers, Spark.",
        profile=LONG, act=interrupt(signal.SIGTERM, "load", CONTROLLER), kept=SAMPLES, spark=True,
        verdict=NO_DATA, status=2, says=("because …interrupted",), slow=True,
    ),
    Fault(
        name="sigkill-spark",
        happens="The session is killed while Spark aggregates.",
        made="SIGKILL to the controller; two workers, Spark.",
        arguments=("-n2",), act=interrupt(signal.SIGKILL, "aggregation", CONTROLLER), spark=True,
        verdict=None, status=-signal.SIGKILL, left={"tmp": "an empty folder in the session's results"}, slow=True,
    ),
)  # fmt: skip


def kill_spark(session: FaultySession) -> bool:
    """Kill Spark's Java processes; return True if there were any."""
    pids = session.find("org.apache.spark.deploy.SparkSubmit")
    for pid in pids:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def kill_starting_spark(session: FaultySession) -> None:
    """Kill Spark as soon as its process exists."""
    session.until(lambda: kill_spark(session), "Spark")


def kill_spark_in(phase: str) -> Callable[[FaultySession], None]:
    """Return an action that kills Spark once in a phase."""

    def act(session: FaultySession) -> None:
        session.until_phase(phase)
        session.until(lambda: kill_spark(session), "Spark")

    return act


def kill_every_spark(session: FaultySession) -> None:
    """Kill each Java process of Spark, until the run has results."""
    session.until_phase("load")
    session.until(
        lambda: (
            kill_spark(session),
            list(session.folder.glob(".loadtest/*/*test_fault-*/1/*/measure/results.json")),
        )[1],
        "results",
    )


def aggregate_again(session: FaultySession, run: Finished) -> None:
    """Run the command that the report names."""
    named = re.search(
        r"python -m pytest_loadtest (aggregate \S+)",
        run.documents["test_fault"]["verdict"]["reasons"][1],
    )
    assert named, "the report names no command"
    done = session.project.command(*named[1].split())
    assert done.returncode == 0, (
        f"the command that the report names ended with status {done.returncode}: {done.stderr}"
    )


DIED = "note Spark's Java process died (killed by signal 9"
SPARK = (
    Fault(
        name="spark-killed-starting",
        happens="Spark dies while it starts.",
        made="SIGKILL to its Java process as soon as it exists. The test is an error before any load; the next one starts Spark again.",
        act=kill_starting_spark, spark=True,
        verdict=None, status=1, says=("Spark could not start its Java process: …signal 9",), slow=True,
    ),
    Fault(
        name="spark-killed-load",
        happens="Spark dies while load runs.",
        made="SIGKILL to its Java process; it is started again.",
        arguments=("-n1",), profile={"testDuration": "2s"}, act=kill_spark_in("load"), spark=True,
        verdict=MET, status=0, says=(DIED,), slow=True,
    ),
    Fault(
        name="spark-killed-aggregation",
        happens="Spark dies while it aggregates.",
        made="SIGKILL to its Java process; it is started again.",
        act=kill_spark_in("aggregation"), spark=True,
        verdict=MET, status=0, says=(DIED,), slow=True,
    ),
    Fault(
        name="spark-killed-twice",
        happens="Spark dies, and again after it was started again.",
        made="SIGKILL to each of its Java processes until the run has ended. The command that the report names gives the verdict.",
        profile={"testDuration": "2s"}, act=kill_every_spark, spark=True, afterwards=aggregate_again,
        verdict=NO_DATA, status=1, says=("because Spark's Java process died, was restarted, and died again", "python -m pytest_loadtest aggregate"), slow=True,
    ),
)  # fmt: skip
