"""A worker that is stopped, or that shares its core with others: its receive lag is seen, and the target is not blamed for it.

One worker sends. Each message goes to two subscriptions, one on each worker, and the broker writes both copies one after the other: the
stamp of the copy at the other worker is the truth.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from numpy_aggregation import samples

from pytest_loadtest.drivers.arrival_clock import stamps_work
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.engine.run import PAUSE
from pytest_loadtest.values.quantities import MICROSECOND, MILLISECOND

from .projects import fresh

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from .projects import Finished

pytestmark = [
    pytest.mark.skipif(
        mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
    ),
    pytest.mark.skipif(not stamps_work(), reason="this kernel does not stamp packets"),
]

CONFTEST = """
import os, pathlib

def pytest_configure(config):
    if hasattr(config, "workerinput"):
        pathlib.Path(config.workerinput["workerid"] + ".pid").write_text(str(os.getpid()))
"""

TESTS = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
import pytest

HOG = "import os, sys, time; os.sched_setaffinity(0, {int(sys.argv[1])}); end = time.monotonic() + 20\\nwhile time.monotonic() < end: pass"

def other():
    return int(Path("gw1.pid").read_text())

def note(name, begin):
    Path(name).write_text(json.dumps([begin, time.monotonic_ns()]))

@pytest.mark.load("stopped", live=True, broker_mode="process")
def test_stopped(load):
    stop(load, "stopped")

@pytest.mark.load("library", live=True, broker_mode="process")
def test_library(load):
    stop(load, "library")

def stop(load, name):
    load.begin()
    load.wait("1s")
    begin = time.monotonic_ns()
    os.kill(other(), signal.SIGSTOP)
    try:
        time.sleep(0.5)
    finally:
        os.kill(other(), signal.SIGCONT)
    note(name + ".json", begin)
    load.finish()

@pytest.mark.load("crowded", live=True, broker_mode="process")
def test_crowded(load):
    load.begin()
    load.wait("2s")
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(other(), {core})
    os.setpriority(os.PRIO_PROCESS, other(), 19)  # a scheduler prefers a process that mostly sleeps
    hogs = [subprocess.Popen([sys.executable, "-S", "-c", HOG, str(core)]) for _ in range(4)]
    begin = time.monotonic_ns()
    try:
        load.wait("2s")
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    note("crowded.json", begin)
    load.finish()
"""

PROFILE = """
name: {name}
topics: 1
producersPerTopic: 1
subscriptionsPerTopic: 2
consumerPerSubscription: 1
messageSize: 1000
producerRate: {rate}
testDuration: {duration}
driver: {{name: mqtt, qos: 0, client: {client}}}
slo: {slo}
generator: {{sendDelayP99: 1min, stalled: 1, cpu: 5}}
"""


class Copies(NamedTuple):
    """The copies that came to the worker in question, from the begin to the end of its trouble, and before it.

    :param truth: when the other worker's copies arrived. :param stamp: when these did. :param lag: the time until the worker took them.
    :param before: lag of the copies before the trouble.
    """

    truth: NDArray[np.int64]
    stamp: NDArray[np.int64]
    lag: NDArray[np.int64]
    before: NDArray[np.int64]
    begin: int
    end: int


class Session(NamedTuple):
    finished: Finished
    copies: Mapping[str, Copies]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Run both tests in one session of two workers."""
    with fresh(tmp_path_factory.mktemp("lagging")) as project:
        project.write("conftest.py", CONFTEST)
        project.write("test_it.py", TESTS)
        slow = (
            "{endToEndLatency: {max: 200ms}, deliveryGap: {max: 350ms}, sent: 1%, throughput: 1%}"
        )
        any_latency = "{throughput: 1%, sent: 1%}"
        for name, client in (("stopped", "native"), ("library", "library")):
            project.write(
                f"profiles/{name}.yaml",
                PROFILE.format(name=name, rate=20, duration="3s", slo=slow, client=client),
            )
        crowded = PROFILE.format(
            name="crowded", rate=200, duration="5s", slo=any_latency, client="native"
        )
        project.write("profiles/crowded.yaml", crowded)
        finished = project.run("-n", "2", "test_it.py")
        folders = {folder.parent.name: folder for folder in project.runs()}
        with_truth = ("stopped", "crowded")
        return Session(
            finished, {name: _copies(project.path, name, folders[name]) for name in with_truth}
        )


def _copies(project: Path, name: str, folder: Path) -> Copies:
    begin, end = json.loads((project / f"{name}.json").read_text())
    rows = samples(folder, "received", workers=("gw0", "gw1"))
    rows = {
        column: values[np.argsort(rows["seq"], kind="stable")] for column, values in rows.items()
    }
    prompt, late = (
        {column: values[rows["worker"] == worker] for column, values in rows.items()}
        for worker in (0, 1)
    )
    assert (prompt["seq"] == late["seq"]).all() and len(late["seq"])
    truth = prompt["received"]
    there, before = (truth > begin) & (truth <= end), truth <= begin
    lag = late["lag"] * MICROSECOND
    return Copies(truth[there], late["received"][there], lag[there], lag[before], begin, end)


def worker(session: Session, test: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the document of a run, and the receive lag of the worker in question."""
    document = session.finished.documents[test]
    (entry,) = (entry for entry in document["measurements"]["workers"] if entry["worker"] == "gw1")
    return document, entry["latencies"]["receiveLag"]


def test_a_stopped_worker_does_not_let_the_target_miss_a_latency(session: Session) -> None:
    """The kernel merged the packets that waited, and gave all the time of the last one: their latency is up to half a second too long."""
    document, lag = worker(session, "test_stopped")
    copies = session.copies["stopped"]
    assert document["verdict"]["outcome"] == "generator-limited"
    # On a busy machine the worker that sends may be late too, and the first cause is the one that is named.
    reasons = document["verdict"]["reasons"]
    assert any("receive lag" in reason or "own send delay" in reason for reason in reasons), reasons
    assert lag["maximum"] > 0.9 * (copies.end - copies.begin)
    assert document["driver"]["late_stamps"] > 0
    assert document["driver"]["stamps"] == "kernel"


@pytest.mark.parametrize(
    ("test", "outcomes"),
    [("test_stopped", {"met", "generator-limited"}), ("test_library", {"generator-limited"})],
)
def test_a_stopped_worker_does_not_let_the_target_miss_a_gap(
    session: Session, test: str, outcomes: set[str]
) -> None:
    """A library's copies have no receive lag: the stall of the process is the evidence.

    The kernel stamps the first packets of a stop one by one, so the gap of the native client may be shorter than the stop.
    """
    verdict = session.finished.documents[test]["verdict"]
    assert verdict["outcome"] == "generator-limited"
    (gap,) = (finding for finding in verdict["findings"] if finding["name"] == "deliveryGap.max")
    assert gap["outcome"] in outcomes, (gap["text"], verdict["reasons"])


def test_copies_that_waited_for_a_stopped_worker_came_between_their_longest_lag_and_their_stamp(
    session: Session,
) -> None:
    """Within a millisecond, in which the broker wrote both copies; it may have been interrupted in between."""
    copies = session.copies["stopped"]
    assert len(copies.truth) > 5
    assert np.mean(copies.stamp > copies.truth - MILLISECOND) > 0.8
    # All were taken after the worker went on. Their longest lag counts from when the worker should have looked.
    waited = copies.end - np.maximum(copies.truth, copies.begin + 2 * PAUSE)
    assert np.mean(copies.lag > waited - MILLISECOND) > 0.8


def test_a_worker_on_a_crowded_core_has_lag_that_is_not_in_latencies(session: Session) -> None:
    """The tenth of copies with the largest lag arrived when the other worker's copies did, or hardly later."""
    _, lag = worker(session, "test_crowded")
    copies = session.copies["crowded"]
    assert np.percentile(copies.lag, 90) > 3 * np.percentile(copies.before, 90)
    worst = np.argsort(copies.lag)[-len(copies.lag) // 10 :]
    assert np.median(np.abs(copies.stamp - copies.truth)[worst]) < np.median(copies.lag[worst]) / 2
    assert lag["maximum"] >= copies.lag.max()


def test_neither_worker_breaks_the_run(session: Session) -> None:
    assert session.finished.outcomes == {"passed": 1, "error": 2}
