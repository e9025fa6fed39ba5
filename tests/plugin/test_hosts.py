"""Load from several hosts: processes in time namespaces, each with a monotonic clock of its own, reached by a command.

``unshare --time`` gives a process another monotonic clock on the same machine, so the true offset is known to the nanosecond. It needs root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import slow_channel

from .projects import Finished, Project, fresh

UNSHARE = "unshare --time --monotonic {offset} --boottime {offset} --fork --kill-child --"
OWN_PROCESSES = UNSHARE.replace("--fork", "--pid --mount-proc --fork")
"""With process ids of its own, which other hosts have too."""
DISTURBED = """\
import hashlib
import pathlib
import threading
import time

monotonic = time.monotonic_ns

def pytest_configure(config):
    if getattr(config, "workerinput", {}).get("workerid") == "h1-1":
        threading.Thread(target=compute, daemon=True).start()
        threading.Thread(target=wait_to_be_set, daemon=True).start()

def wait_for(file):
    while not pathlib.Path(file).exists():
        time.sleep(0.01)

def compute():
    wait_for("begun")
    block = bytes(1 << 24)
    while not pathlib.Path("computed").exists():
        hashlib.sha256(block)  # without the interpreter lock

def wait_to_be_set():
    for turn in (1, 2):
        wait_for(f"set-{turn}")
        time.monotonic_ns = lambda ahead=turn * 200_000_000: monotonic() + ahead
"""
"""A host that computes from when one file appears until another does, and whose clock is set by
200 ms each time a further file appears: the clock of a time namespace cannot be set any more."""


def has_time_namespaces() -> bool:
    """Whether this process may make hosts."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return can_be_made(UNSHARE)


def can_be_made(host: str) -> bool:
    """Return whether the command of a host works here."""
    command = [*host.format(offset=1).split(), "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(
    not has_time_namespaces(), reason="hosts with clocks of their own need root and time namespaces"
)

PLAIN = """\
import pytest

@pytest.mark.load(profile="plain")
def test_plain(load):
    load.assert_slo()

def test_ordinary(): ...
"""
MORE = """
@pytest.mark.load(profile="faults")
def test_faults(load):
    # 500 messages of each of four streams: 2 are lost, and of the 5 that are doubled the same 2
    assert (load.loss, load.duplicates) == (8, 12)
    assert load.out_of_order > 0

@pytest.mark.load(profile="delay")
def test_delay(load):
    measured = load.measurements
    assert measured.latencies["end_to_end"].minimum >= 25_000_000 - measured.clock_error

@pytest.mark.load(profile="stall")
def test_stall(load):
    load.assert_slo()
"""
SERVICE = """\
import os, time
open("starts", "a").write(f"{os.getpid()} {time.monotonic()}\\n")
print("ready")
time.sleep(1000)
"""
SERVED = """
import sys

@pytest.fixture
def service(load_service, worker_id):
    started = load_service([sys.executable, "service.py"], ready="ready")
    open(f"handle.{worker_id}", "w").write(str(started.pid))

@pytest.mark.load("served")
def test_served(load, service): ...
"""
BUSY_THEN_SET = """\
import pathlib
import pytest

@pytest.fixture
def begun():
    pathlib.Path("begun").touch()

@pytest.mark.load("busy")
def test_busy(begun, load):
    pathlib.Path("computed").touch()
    load.assert_slo()

@pytest.mark.load("apart", live=True)
def test_apart(load):
    load.begin()
    load.wait("1s")
    pathlib.Path("set-1").touch()
    load.finish()

@pytest.mark.load("paired", live=True)
def test_paired(load):
    load.begin()
    load.wait("1s")
    pathlib.Path("set-2").touch()
    load.finish()
"""
ASYMMETRIC = """\
import pytest
import pytest_loadtest

@pytest.mark.load("plain")
def test_plain(load):
    load.assert_slo()

@pytest.mark.load("apart")
def test_apart(load):
    assert pytest_loadtest.ms(25) <= load.end_to_end.min

@pytest.mark.load("paired")
def test_paired(load):
    assert pytest_loadtest.ms(25) <= load.end_to_end.min
"""


class Session(NamedTuple):
    """A project whose only session has ended."""

    project: Project
    run: Finished


def hosts(project: Project, **offsets: int) -> None:
    """Write ``hosts.yaml``: a worker on each of these hosts, whose clocks are ahead by so many seconds."""
    entries = [
        f"- {{name: {name}, command: {UNSHARE.format(offset=offset)}, python: {sys.executable}, directory: {project.path}}}"
        for name, offset in offsets.items()
    ]
    project.write("hosts.yaml", "\n".join(entries))


def write_far_apart(project: Project) -> None:
    """Write two hosts whose clocks are 100 010 s apart, and the profile ``plain``."""
    hosts(project, h1=100_000, h2=-10)
    project.profile("plain", duration="2s")


@pytest.fixture
def far_apart(project: Project) -> Project:
    """Return a project with two hosts whose clocks are 100 010 s apart."""
    write_far_apart(project)
    project.write("test_them.py", PLAIN)
    return project


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Return a session with a worker on each of three hosts, one of which is the controller's."""
    with fresh(tmp_path_factory.mktemp("far")) as project:
        write_far_apart(project)
        project.profile(
            "faults",
            rate=2000,
            slo="{throughput: 1%, sent: 1%, loss: 100%}",
            driver="{name: loopback, loseEvery: 200, duplicateEvery: 100, swapEvery: 50}",
        )
        project.profile("delay", driver="{name: loopback, delay: 25ms}")
        project.profile(
            "stall",
            rate=200,
            duration="5s",
            more="drainTimeout: 20s",
            driver="{name: loopback, stall: {at: 1s, duration: 3s}}",
        )
        project.profile("served", rate=200)
        project.write("service.py", SERVICE)
        project.write("test_them.py", PLAIN + MORE + SERVED)
        run = project.run("--load-hosts", "hosts.yaml", "-n1")
    return Session(project, run)


def own_processes_are_possible() -> bool:
    """Return whether a host may have process ids of its own.

    A root folder that is no mount point, as in chroot, keeps unshare from mounting another /proc.
    """
    return can_be_made(OWN_PROCESSES)


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Return a session of two hosts; that of ``h1`` is first busy, and its clock is set later."""
    with fresh(tmp_path_factory.mktemp("disturbed")) as project:
        write_far_apart(project)
        if own_processes_are_possible():
            entries = (project.path / "hosts.yaml").read_text()
            for offset in (100_000, -10):
                shared = UNSHARE.format(offset=offset)
                entries = entries.replace(shared, OWN_PROCESSES.format(offset=offset))
            project.write("hosts.yaml", entries)
        project.profile("busy", duration="2s")
        for name, pairs in (("apart", ""), ("paired", "pairConsumers: host")):
            project.profile(
                name,
                rate=400,
                duration="3s",
                slo="{throughput: 1%, sent: 1%, endToEndLatency: {p50: 10s}}",
                more=pairs,
            )
        project.write("conftest.py", DISTURBED)
        project.write("test_them.py", BUSY_THEN_SET)
        run = project.run("--load-hosts", "hosts.yaml")
    return Session(project, run)


@pytest.fixture(scope="module")
def asymmetric(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Return a session of two hosts; answers of ``h2`` come 20 ms late."""
    with fresh(tmp_path_factory.mktemp("asymmetric")) as project:
        write_far_apart(project)
        entries = (project.path / "hosts.yaml").read_text()
        quick = UNSHARE.format(offset=-10)
        slow = f"{sys.executable} {slow_channel.__file__} 20 {quick}"
        project.write("hosts.yaml", entries.replace(quick, slow))
        project.profile("plain", rate=1000, duration="2s")
        for name, pairs in (("apart", ""), ("paired", "pairConsumers: host")):
            driver = "{name: loopback, delay: 25ms}"
            project.profile(name, rate=1000, more=pairs, driver=driver)
            path = project.path / f"profiles/{name}.yaml"
            path.write_text(path.read_text().replace("topics: 2", "topics: 3"))
        project.write("test_them.py", ASYMMETRIC)
        run = project.run("--load-hosts", "hosts.yaml")
    return Session(project, run)


def clocks(project: Project, test: str) -> dict[str, Any]:
    """What ``run.json`` says of the clocks of a test's run."""
    (folder,) = [folder for folder in project.runs() if test in str(folder)]
    return {
        clock["worker"]: clock for clock in json.loads((folder / "run.json").read_text())["clocks"]
    }


def test_hosts_with_other_clocks_count_and_measure_exactly(far: Session) -> None:
    """Loss, duplicates and order are exact, latencies those of one clock, and offsets are within their stated error.

    Where the relay stands still for 3 s, nothing is lost, and the slowest message took about that long.
    """
    project, run = far
    assert run.ret == pytest.ExitCode.OK
    assert run.outcomes == {"passed": 6}
    stalled = run.documents["test_stall"]["measurements"]
    assert stalled["counts"]["lost"] == 0
    assert stalled["latencies"]["endToEnd"]["maximum"] >= 2_900_000_000
    plain = run.documents["test_plain"]["measurements"]
    assert plain["latencies"]["endToEnd"]["minimum"] >= 0
    assert plain["latencies"]["endToEnd"]["percentiles"]["p50"] < 1_000_000_000
    assert {worker["worker"] for worker in plain["workers"]} == {"gw0", "h1-1", "h2-1"}
    found = clocks(project, "test_plain")
    for worker, offset in (("h1-1", 100_000), ("h2-1", -10)):
        fit = found[worker]["fit"]
        assert abs(fit["line"]["offset"] - offset * 1_000_000_000) <= fit["error"]
        assert fit["holds"]


@pytest.mark.slow
def test_the_evidence_of_each_host_is_there_and_a_busy_worker_is_named_with_its_host(
    disturbed: Session,
) -> None:
    """Each worker has the same process id, on hosts whose clocks differ by more than a day."""
    if not own_processes_are_possible():
        pytest.skip("no host with processes of its own can be made here")
    project, run = disturbed
    assert run.ending("test_busy") == "passed"
    document = run.documents["test_busy"]
    section = document["bottleneck"]
    assert [host["name"] for host in section["hosts"]] == ["h1", "h2"]
    assert all(host["cores"] == len(os.sched_getaffinity(0)) for host in section["hosts"])
    assert 0 < section["time"][0] <= section["time"][-1] < 20_000_000_000, (
        "all in the controller's clock"
    )
    cpu = {
        worker: [value for value in section["columns"][f"worker {worker}.cpu"] if value is not None]
        for worker in ("h1-1", "h2-1")
    }
    assert all(cpu.values())
    assert max(cpu["h1-1"]) > max(cpu["h2-1"]), "only that of h1 computes"
    evidence = [section["evidence"], *(side["evidence"] for side in section["also"])]
    assert any(
        text.startswith("the busiest thread of worker h1-1 on host h1 used ") for text in evidence
    )
    summary = run.out.partition("::test_busy · ")[2].partition("::test_apart · ")[0]
    assert "hosts      h1 " in summary
    assert "telemetry-h1-1.json" not in {
        file.name for folder in project.runs() for file in folder.iterdir()
    }


@pytest.mark.slow
def test_an_asymmetric_path_is_covered_by_the_stated_error(asymmetric: Session) -> None:
    """Answers of one host come 20 ms late: the offset is wrong by about 10 ms, and so much is said."""
    project, run = asymmetric
    assert run.ending("test_plain") == "passed"
    fit = clocks(project, "test_plain")["h2-1"]["fit"]
    assert fit["error"] >= 10_000_000
    assert abs(fit["line"]["offset"] + 10_000_000_000) <= fit["error"]
    counts = run.documents["test_plain"]["measurements"]["counts"]
    assert (counts["received"], counts["lost"], counts["duplicates"], counts["outOfOrder"]) == (
        2000,
        0,
        0,
        0,
    )
    (note,) = [note for note in run.documents["test_plain"]["notes"] if "clocks" in note]
    assert "h1 ±" in note and "h2 ±1" in note


def test_a_clock_that_is_set_while_load_runs_is_no_data(disturbed: Session) -> None:
    """By 200 ms, on a host under load, where a round trip may take tens of milliseconds. Latencies have a bound that is far away, and counts are exact.

    Also where consumers are paired by host.
    """
    project, run = disturbed
    for test in ("test_apart", "test_paired"):
        (finding,) = [
            finding
            for finding in run.documents[test]["verdict"]["findings"]
            if "endToEnd" in finding["name"]
        ]
        assert finding["outcome"] == "no data"
        assert "the clock of host h1 was set while load ran" in finding["text"]
        found = clocks(project, test)
        assert (found["h1-1"]["fit"]["holds"], found["h2-1"]["fit"]["holds"]) == (False, True)
        assert run.documents[test]["measurements"]["counts"]["lost"] == 0


def test_files_that_differ_are_an_error_before_any_load(
    far_apart: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The host's copy of a test is older than the controller's."""
    hosts(far_apart, h1=100_000)
    copy = tmp_path_factory.mktemp("host")
    shutil.copytree(far_apart.path, copy, dirs_exist_ok=True)
    path = far_apart.path / "hosts.yaml"
    path.write_text(path.read_text().replace(f"directory: {far_apart.path}", f"directory: {copy}"))
    far_apart.write("test_them.py", PLAIN + "\n# newer\n")
    run = far_apart.run("--load-hosts", "hosts.yaml")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "test_them.py is " in run.out
    assert "copy the controller's tests and profiles to the directory of the host" in run.out


def test_the_ini_key_names_a_file_in_the_root_folder(far_apart: Project) -> None:
    """Pytest may be started in another folder, as for the other ini keys; the plan names the hosts."""
    ini = (far_apart.path / "pytest.ini").read_text()
    far_apart.write("pytest.ini", f"{ini}load_hosts = hosts.yaml\n")
    below = far_apart.path / "below"
    below.mkdir()
    started_below = Project(below, far_apart.environment)
    plan = started_below.run("../test_them.py", "--load-plan", "-k", "plain").out
    assert "h1: 1 of 2 workers" in plan
    assert "it needs 1 host like h1, by calibrated cost" in plan


def test_a_host_that_is_lost_is_named_and_leaves_nothing(
    far_apart: Project, tmp_path: Path
) -> None:
    """The run is no data, the other host's worker ends, and no process and no samples stay."""
    far_apart.write(
        "test_them.py",
        "import os, signal, pytest, subprocess\n"
        "@pytest.mark.load(profile='plain', testDuration='30s', live=True)\n"
        "def test_lost(load):\n"
        "    load.begin()\n"
        "    load.wait('1s')\n"
        "    subprocess.run(['pkill', '-KILL', '-f', 'monotonic -1[0] '], check=True)\n"
        "    load.wait('20s')\n",
    )
    hosts(far_apart, h2=-10)
    run = far_apart.run("--load-hosts", "hosts.yaml", "-n1")
    assert " 1 error " in run.out
    assert (
        "load worker h2-1 went down: its process on host h2 or the connection to it ended"
        in run.out
    )
    assert far_apart.survivors() == []


def test_a_host_that_does_not_answer_ends_the_session(far_apart: Project) -> None:
    """Its connection stays open, as when a network is cut: the run is no data, and pytest does not wait for the worker."""
    path = far_apart.path / "hosts.yaml"
    channel = shutil.copy(slow_channel.__file__, far_apart.path / "held.py")
    held = f"{sys.executable} {channel} 0 {UNSHARE.format(offset=-10)}"
    path.write_text(path.read_text().replace(UNSHARE.format(offset=-10), held))
    far_apart.profile("plain", rate=50)
    far_apart.write(
        "test_them.py",
        "import pytest, subprocess\n"
        "@pytest.mark.load(profile='plain', testDuration='60s', live=True)\n"
        "def test_held(load):\n"
        "    load.begin()\n"
        "    load.wait('1s')\n"
        f"    subprocess.run(['pkill', '-STOP', '-f', '{far_apart.path}/[h]eld.py'], check=True)\n"
        "    load.wait('40s')\n",
    )
    run = far_apart.run("--load-hosts", "hosts.yaml", "-n1", timeout=120)
    assert (
        " 1 error " in run.out
    )  # not in the last line where the worker that was cut off still complains after it
    assert "host h2 (worker h2-1) did not answer within 10 s" in run.out
    assert far_apart.survivors() == []


def test_all_hosts_share_one_service_on_the_machine_of_the_controller(far: Session) -> None:
    """Its process has the controller's clock; it is gone at the end, like everything of the project."""
    project, run = far
    assert run.ending("test_served") == "passed", run.out
    (start,) = (project.path / "starts").read_text().splitlines()
    pid, now = start.split()
    assert float(now) < time.monotonic()  # that of h1 is a day ahead
    handles = {path.name: path.read_text() for path in project.path.glob("handle.*")}
    assert handles == {"handle.gw0": pid, "handle.h1-1": pid, "handle.h2-1": pid}


def test_the_workers_of_a_host_connect_from_its_source_addresses(project: Project) -> None:
    """Each from another one. The target's own sockets show it, as a broker on another machine would see it."""
    entry = f"- {{name: h1, command: env, workers: 2, python: {sys.executable}, directory: {project.path}, sourceAddresses: [127.9.8.5, OTHER]}}"
    project.write("hosts.yaml", entry.replace("OTHER", "127.9.8.6"))
    project.profile("plain", rate=200, duration="30s")
    project.write(
        "test_them.py",
        "import psutil, pytest\n"
        "@pytest.mark.load('plain', live=True)\n"
        "def test_seen(load):\n"
        "    load.begin()\n"
        "    load.wait('1s')\n"
        "    peers = [c.raddr.ip for c in psutil.net_connections('tcp') if c.raddr and c.raddr.ip.startswith('127.9.8.')]\n"
        "    load.stop()\n"
        "    assert sorted(peers) == ['127.9.8.5', '127.9.8.6']\n",
    )
    run = project.run("--load-hosts", "hosts.yaml")
    assert run.outcomes == {"passed": 1}, run.out
    project.write("hosts.yaml", entry.replace("OTHER", "192.0.2.1"))
    run = project.run("--load-hosts", "hosts.yaml")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert (
        "--load-hosts: host h1: it cannot connect from 192.0.2.1 (Cannot assign requested address): correct sourceAddresses"
        in run.out
    )


@pytest.mark.slow
def test_a_delivery_within_one_host_has_no_error_of_clocks(asymmetric: Session) -> None:
    """Answers of one host come 20 ms late. The relay's delay of 25 ms is known to 10 ms only, but exactly if consumers are paired."""
    project, run = asymmetric
    assert run.outcomes == {"passed": 2, "error": 1}
    assert (run.ending("test_apart"), run.ending("test_paired")) == ("error", "passed")
    assert "differ by less than the error of the clocks between hosts" in run.out
    apart, paired = (run.documents[f"test_{name}"] for name in ("apart", "paired"))
    assert paired["measurements"]["withinHosts"] == {
        "deliveries": 1000,
        "share": 1.0,
        "complete": True,
    }
    assert (
        paired["measurements"]["counts"]["received"]
        == apart["measurements"]["counts"]["received"]
        == 1000
    )
    assert apart["plan"]["withinHosts"] == 0.5
    assert not apart["measurements"]["withinHosts"]["complete"]
    assert "1 000 of 1 000 deliveries (100 %) are within one host" in run.out
    # The worker of each host has all streams of its topics, which are not evenly spaced.
    (folder,) = [folder for folder in project.runs() if "test_paired" in str(folder)]
    streams = {
        name: json.loads((folder / f"{name}.manifest.json").read_text())["sent"]["streams"]
        for name in ("h1-1", "h2-1")
    }
    assert sorted(own["numbers"] for own in streams.values()) == [[0, 2, 3, 5], [1, 4]]


def test_pytest_rerunfailures_cannot_be_used_on_other_machines(project: Project) -> None:
    """Its workers would end with an internal error: each connects to its controller at 127.0.0.1."""
    elsewhere = project.path / "python"
    elsewhere.write_text(
        f'#!/bin/sh\n{sys.executable} "$@" | sed \'s/"node": "[^"]*"/"node": "elsewhere"/\'\n'
    )
    elsewhere.chmod(0o755)
    project.write("hosts.yaml", f"- {{name: h1, command: env, python: {elsewhere}}}")
    project.write("test_them.py", "def test_ordinary(): ...\n")
    run = project.run("--load-hosts", "hosts.yaml", "-o", "addopts=")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "where they do not find it on host h1: add -p no:rerunfailures" in run.out
