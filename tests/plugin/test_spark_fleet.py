"""Workers that Spark starts (``--load-fleet spark``), on a standalone cluster with a host whose monotonic clock is another one."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark_cluster import FROM_ARCHIVE, standalone
from waiting_for import wait_until

from pytest_loadtest.fleet.host_process import encode

from .test_hosts import UNSHARE, has_time_namespaces

if TYPE_CHECKING:
    from .projects import Project

FAULTS = "{name: loopback, loseEvery: 200, duplicateEvery: 100, swapEvery: 50}"
TESTS = """\
import os, pytest, signal
from pathlib import Path

@pytest.mark.load(profile="faults")
def test_faults(load):
    # 500 messages of each of four streams: 2 are lost, and of the 5 that are doubled the same 2
    assert (load.loss, load.duplicates) == (8, 12)
    assert load.out_of_order > 0

def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

def executor(pid):  # of the worker: above its task, and above the daemon that forked the task
    return parent(parent(parent(pid)))

def workers():  # their command lines are equal, and those of no other session
    own = Path("/proc/self/cmdline").read_bytes()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cmdline").read_bytes() == own:
                yield int(entry.name)
        except OSError:
            pass

@pytest.mark.load(profile="faults", testDuration="60s", live=True)
def test_lost(load):
    load.begin()
    load.wait("1s")
    mine = executor(os.getpid())
    other = next(pid for pid in map(executor, workers()) if pid != mine)
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{other}/cmdline").read_bytes()
    os.kill(other, signal.SIGKILL)
    load.wait("40s")
"""


@pytest.fixture
def faulty(spark_project: Project) -> Project:
    """A project with a profile whose target loses, doubles and swaps messages; without the settings of a local session."""
    spark_project.profile(
        "faults", rate=1000, duration="2s", slo="{throughput: 1%, sent: 1%, loss: 100%}"
    )
    path = spark_project.path / "profiles/faults.yaml"
    path.write_text(path.read_text().replace("{name: loopback}", FAULTS))
    ini = (spark_project.path / "pytest.ini").read_text()
    spark_project.write("pytest.ini", ini.replace("--load-spark-conf spark.master=local[1]", ""))
    spark_project.write("test_them.py", TESTS)
    return spark_project


def workers_of(project: Project) -> list[str]:
    """Return the workers that Spark has started for a project: its executors are no children of the project's processes."""
    word, found = encode({"directory": str(project.path), "sources": []}), []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if word in command:
            found.append(command)
    return found


@pytest.mark.slow
def test_workers_in_executors_are_exact_and_a_lost_executor_is_no_data(
    faulty: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two nodes with one name and, if that can be made, two clocks. Spark starts nothing again, and nothing is left."""
    faulty.write(
        "conftest.py",
        "from pytest_loadtest.fleet import spark_fleet\nspark_fleet.COUNT_SECONDS = spark_fleet.WORKER_SECONDS = 120\n",
    )
    faulty.environment["SPARK_LOCAL_IP"] = (
        "127.0.0.1"  # the name of the machine need not be known to its resolver
    )
    apart = has_time_namespaces()
    prefix = UNSHARE.format(offset=100_000).split() if apart else []
    conf = [
        "spark.pyspark.python=" + sys.executable,
        "spark.driver.host=127.0.0.1",
        "spark.executor.memory=512m",
        f"spark.executor.extraJavaOptions={FROM_ARCHIVE}",
    ]
    options = [word for pair in conf for word in ("--load-spark-conf", pair)]
    with standalone(tmp_path_factory.mktemp("cluster"), [], prefix, cores=2) as url:
        run = faulty.run("--load-fleet", "spark", "-n3", "--load-spark-master", url, *options)
        wait_until(lambda: not workers_of(faulty), "the end of the workers", 30)
    assert (run.ret, run.outcomes) == (pytest.ExitCode.TESTS_FAILED, {"passed": 1, "error": 1})
    (folder,) = [folder for folder in faulty.runs() if "test_faults" in str(folder)]
    clocks = json.loads((folder / "run.json").read_text())["clocks"]
    hosts = {clock["worker"].rpartition("-")[0] for clock in clocks}
    assert (len(clocks), len(hosts)) == (3, 2 if apart else 1)
    for clock in clocks if apart else ():
        expected = (
            0 if abs(clock["fit"]["line"]["offset"]) < 50_000_000_000_000 else 100_000_000_000_000
        )
        assert abs(clock["fit"]["line"]["offset"] - expected) <= clock["fit"]["error"]
    sampled = run.documents["test_faults"]["bottleneck"]
    assert {host["name"] for host in sampled["hosts"]} == hosts
    assert all(any(sampled["columns"][f"worker {clock['worker']}.memory"]) for clock in clocks)
    assert run.documents["test_lost"]["verdict"]["outcome"] == "no data"
    assert "its process on host" in run.out
    assert run.out.count("test_lost: planning, starting the target") == 1


@pytest.mark.slow
def test_too_few_slots_are_a_usage_error_with_both_numbers(faulty: Project) -> None:
    """One slot more than the workers need is for the aggregation. A slow machine may not have started its executor in this time."""
    faulty.write(
        "conftest.py",
        "from pytest_loadtest.fleet import spark_fleet\nspark_fleet.COUNT_SECONDS = 15\n",
    )
    conf = [
        "--load-spark-conf",
        f"spark.pyspark.python={sys.executable}",
        "--load-spark-master",
        "local-cluster[1,1,1024]",
        "--load-spark-conf",
        f"spark.executor.extraJavaOptions={FROM_ARCHIVE}",
    ]
    run = faulty.run("--load-fleet", "spark", "-n2", *conf)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert re.search(
        "--load-fleet spark: 2 workers need 3 slots of Spark, one of them to aggregate samples, and [01] are free: ",
        run.out,
    )
    assert not faulty.runs()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            ["--load-fleet", "spark"],
            "--load-fleet spark: how many workers should Spark start? Write their number: -n 4",
        ),
        (
            ["--load-fleet", "spark", "-n0"],
            "--load-fleet spark: how many workers should Spark start? Write their number: -n 4",
        ),
        (["--load-fleet", "flink", "-n2"], "--load-fleet flink: write spark, or spark:/DIRECTORY"),
        (
            ["--load-fleet", "spark:tests", "-n2"],
            "--load-fleet spark:tests: write spark, or spark:/DIRECTORY",
        ),
        (["--load-fleet", "spark", "-n2", "--load-hosts", "h1"], "--load-fleet and --load-hosts: "),
        (
            ["-o", "load_fleet=spark", "-p", "no:xdist"],
            "--load-fleet: Spark's workers are workers of pytest-xdist, which is disabled here",
        ),
        (["-o", "load_fleet=spark"], "--load-fleet spark: how many workers"),
        (["--load-fleet", "spark", "-n2", "-o", "load_fleet_tls=none.pem"], "none.pem: "),
    ],
)
def test_a_wrong_use_is_a_usage_error_before_spark_starts(
    project: Project, options: list[str], error: str
) -> None:
    """With the remedy."""
    project.write("test_it.py", "def test_it(): ...\n")
    run = project.run(*options)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert error in run.out
    assert "Traceback" not in run.out
    assert "waiting for Spark" not in run.out


def test_only_collecting_starts_no_spark(project: Project) -> None:
    """The tests are those of this host."""
    project.profile("small")
    project.write(
        "test_it.py", 'import pytest\n@pytest.mark.load("small")\ndef test_it(load): ...\n'
    )
    run = project.run("--load-fleet", "spark", "-n2", "--collect-only", "-qq")
    assert run.ret == pytest.ExitCode.OK
    assert "test_it.py::test_it" in run.out
    assert "Spark" not in run.out
