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
from typing import TYPE_CHECKING, Any

import pytest
import slow_channel

if TYPE_CHECKING:
    from pathlib import Path

    from .projects import Finished, Project

UNSHARE = "unshare --time --monotonic {offset} --boottime {offset} --fork --kill-child --"
OWN_PROCESSES = UNSHARE.replace("--fork", "--pid --mount-proc --fork")
"""With process ids of its own, which other hosts have too."""
BUSY = """\
import hashlib
import threading

def pytest_configure(config):
    if getattr(config, "workerinput", {}).get("workerid") == "h1-1":
        threading.Thread(target=compute, daemon=True).start()

def compute():
    block = bytes(1 << 24)
    while True:
        hashlib.sha256(block)  # without the interpreter lock
"""


SET = """\
import pathlib
import threading
import time

monotonic = time.monotonic_ns

def pytest_configure(config):
    if getattr(config, "workerinput", {}).get("workerid") == "h1-1":
        threading.Thread(target=wait_to_be_set, daemon=True).start()

def wait_to_be_set():
    for turn in (1, 2):
        while not pathlib.Path(f"set-{turn}").exists():
            time.sleep(0.01)
        time.monotonic_ns = lambda ahead=turn * 200_000_000: monotonic() + ahead
"""
"""The clock of a host that is set by 200 ms each time a file appears: the clock of a time namespace cannot be set any more."""


def has_time_namespaces() -> bool:
    """Whether this process may make hosts."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return (
        subprocess.run(
            [*UNSHARE.format(offset=1).split(), "true"], capture_output=True, check=False
        ).returncode
        == 0
    )


pytestmark = pytest.mark.skipif(
    not has_time_namespaces(), reason="hosts with clocks of their own need root and time namespaces"
)

TESTS = """\
import pytest

@pytest.mark.load(profile="plain")
def test_plain(load):
    load.assert_slo()

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

def test_ordinary(): ...
"""


def hosts(project: Project, **offsets: int) -> None:
    """Write ``hosts.yaml``: a worker on each of these hosts, whose clocks are ahead by so many seconds."""
    entries = [
        f"- {{name: {name}, command: {UNSHARE.format(offset=offset)}, python: {sys.executable}, directory: {project.path}}}"
        for name, offset in offsets.items()
    ]
    project.write("hosts.yaml", "\n".join(entries))


@pytest.fixture
def far_apart(project: Project) -> Project:
    """A project with two hosts whose clocks are 100 010 s apart."""
    hosts(project, h1=100_000, h2=-10)
    project.profile("plain", rate=1000, duration="2s")
    faults = "{name: loopback, loseEvery: 200, duplicateEvery: 100, swapEvery: 50}"
    project.profile(
        "faults", rate=1000, duration="2s", slo="{throughput: 1%, sent: 1%, loss: 100%}"
    )
    project.profile("delay", rate=1000, duration="2s")
    project.profile("stall", rate=200, duration="6s", more="drainTimeout: 20s")
    for name, driver in (
        ("faults", faults),
        ("delay", "{name: loopback, delay: 25ms}"),
        ("stall", "{name: loopback, stall: {at: 2s, duration: 3s}}"),
    ):
        path = project.path / f"profiles/{name}.yaml"
        path.write_text(path.read_text().replace("{name: loopback}", driver))
    project.write("test_them.py", TESTS)
    return project


def clocks(run: Finished, project: Project, test: str) -> dict[str, Any]:
    """What ``run.json`` says of the clocks of a test's run."""
    (folder,) = [folder for folder in project.runs() if test in str(folder)]
    return {
        clock["worker"]: clock for clock in json.loads((folder / "run.json").read_text())["clocks"]
    }


def test_hosts_with_other_clocks_count_and_measure_exactly(far_apart: Project) -> None:
    """Loss, duplicates and order are exact, latencies those of one clock, and offsets are within their stated error.

    Where the relay stands still for 3 s, nothing is lost, and the slowest message took about that long.
    """
    run = far_apart.run("--load-hosts", "hosts.yaml", "-n1")
    assert run.ret == pytest.ExitCode.OK
    assert run.outcomes == {"passed": 5}
    stalled = run.documents["test_stall"]["measurements"]
    assert stalled["counts"]["lost"] == 0
    assert stalled["latencies"]["endToEnd"]["maximum"] >= 2_900_000_000
    plain = run.documents["test_plain"]["measurements"]
    assert plain["latencies"]["endToEnd"]["minimum"] >= 0
    assert plain["latencies"]["endToEnd"]["percentiles"]["p50"] < 1_000_000_000
    assert {worker["worker"] for worker in plain["workers"]} == {"gw0", "h1-1", "h2-1"}
    found = clocks(run, far_apart, "test_plain")
    for worker, offset in (("h1-1", 100_000), ("h2-1", -10)):
        fit = found[worker]["fit"]
        assert abs(fit["line"]["offset"] - offset * 1_000_000_000) <= fit["error"]
        assert fit["holds"]


def test_the_evidence_of_each_host_is_there_and_a_busy_worker_is_named_with_its_host(
    far_apart: Project,
) -> None:
    """Each worker has the same process id, on hosts whose clocks differ by more than a day."""
    # A root folder that is no mount point, as in chroot, keeps unshare from mounting another /proc.
    if subprocess.run(
        [*OWN_PROCESSES.format(offset=1).split(), "true"], capture_output=True, check=False
    ).returncode:
        pytest.skip("no host with processes of its own can be made here")
    path = far_apart.path / "hosts.yaml"
    apart = [
        (UNSHARE.format(offset=offset), OWN_PROCESSES.format(offset=offset))
        for offset in (100_000, -10)
    ]
    for shared, own in apart:
        path.write_text(path.read_text().replace(shared, own))
    far_apart.profile("plain", rate=500, duration="3s")
    far_apart.write(
        "test_them.py",
        "import pytest\n@pytest.mark.load('plain')\ndef test_plain(load): load.assert_slo()\n",
    )
    far_apart.write("conftest.py", BUSY)
    run = far_apart.run("--load-hosts", "hosts.yaml")
    assert run.outcomes == {"passed": 1}
    document = run.documents["test_plain"]
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
    assert "hosts      h1 " in run.out
    assert "telemetry-h1-1.json" not in {
        file.name for folder in far_apart.runs() for file in folder.iterdir()
    }


def test_an_asymmetric_path_is_covered_by_the_stated_error(far_apart: Project) -> None:
    """Answers of one host come 20 ms late: the offset is wrong by about 10 ms, and so much is said."""
    path = far_apart.path / "hosts.yaml"
    slow = f"{sys.executable} {slow_channel.__file__} 20 {UNSHARE.format(offset=-10)}"
    path.write_text(path.read_text().replace(UNSHARE.format(offset=-10), slow))
    far_apart.write("test_them.py", TESTS.partition("def test_faults")[0].rpartition("@")[0])
    run = far_apart.run("--load-hosts", "hosts.yaml")
    assert run.outcomes == {"passed": 1}
    fit = clocks(run, far_apart, "test_plain")["h2-1"]["fit"]
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


def test_a_clock_that_is_set_while_load_runs_is_no_data(far_apart: Project) -> None:
    """By 200 ms, on a host under load, where a round trip may take tens of milliseconds. Latencies have a bound that is far away, and counts are exact.

    Also where consumers are paired by host.
    """
    for name, pairs in (("apart", ""), ("paired", "pairConsumers: host")):
        far_apart.profile(
            name,
            rate=1000,
            duration="4s",
            slo="{throughput: 1%, sent: 1%, endToEndLatency: {p50: 10s}}",
            more=pairs,
        )
    far_apart.write("conftest.py", SET)
    tests = (
        f"@pytest.mark.load('{name}', live=True)\n"
        f"def test_{name}(load):\n"
        "    load.begin()\n"
        "    load.wait('2s')\n"
        f"    pathlib.Path('set-{turn}').touch()\n"
        "    load.finish()\n"
        for turn, name in ((1, "apart"), (2, "paired"))
    )
    far_apart.write("test_them.py", "\n".join(["import pathlib, pytest\n", *tests]))
    run = far_apart.run("--load-hosts", "hosts.yaml")
    for test in ("test_apart", "test_paired"):
        (finding,) = [
            finding
            for finding in run.documents[test]["verdict"]["findings"]
            if "endToEnd" in finding["name"]
        ]
        assert finding["outcome"] == "no data"
        assert "the clock of host h1 was set while load ran" in finding["text"]
        found = clocks(run, far_apart, test)
        assert (found["h1-1"]["fit"]["holds"], found["h2-1"]["fit"]["holds"]) == (False, True)
        assert run.documents[test]["measurements"]["counts"]["lost"] == 0


def test_files_that_differ_are_an_error_before_any_load(
    far_apart: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The host's copy of a test is older than the controller's."""
    copy = tmp_path_factory.mktemp("host")
    shutil.copytree(far_apart.path, copy, dirs_exist_ok=True)
    path = far_apart.path / "hosts.yaml"
    path.write_text(path.read_text().replace(f"directory: {far_apart.path}", f"directory: {copy}"))
    far_apart.write("test_them.py", TESTS + "\n# newer\n")
    run = far_apart.run("--load-hosts", "hosts.yaml")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert "test_them.py is " in run.out
    assert "copy the controller's tests and profiles to the directory of the host" in run.out


def test_the_ini_key_names_a_file_in_the_root_folder(far_apart: Project) -> None:
    """Pytest may be started in another folder, as for the other ini keys; the plan names the hosts."""
    far_apart.write("pytest.ini", "[pytest]\nload_hosts = hosts.yaml\n")
    (far_apart.path / "below").mkdir()
    command = [sys.executable, "-m", "pytest", "../test_them.py", "--load-plan", "-k", "plain"]
    plan = subprocess.run(
        command, cwd=far_apart.path / "below", capture_output=True, text=True, check=False
    ).stdout
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


def test_all_hosts_share_one_service_on_the_machine_of_the_controller(project: Project) -> None:
    """Its process has the controller's clock; it is gone at the end, like everything of the project."""
    hosts(project, h1=100_000)
    project.profile("plain", rate=200)
    project.write(
        "service.py",
        "import os, time\n"
        "open('starts', 'a').write(f'{os.getpid()} {time.monotonic()}\\n')\n"
        "print('ready')\n"
        "time.sleep(1000)\n",
    )
    project.write(
        "test_them.py",
        "import sys, pytest\n"
        "@pytest.fixture\n"
        "def service(load_service, worker_id):\n"
        "    started = load_service([sys.executable, 'service.py'], ready='ready')\n"
        "    open(f'handle.{worker_id}', 'w').write(str(started.pid))\n"
        "@pytest.mark.load('plain')\n"
        "def test_it(load, service): ...\n",
    )
    run = project.run("--load-hosts", "hosts.yaml", "-n1")
    assert run.outcomes == {"passed": 1}, run.out
    (start,) = (project.path / "starts").read_text().splitlines()
    pid, now = start.split()
    assert float(now) < time.monotonic()  # that of h1 is a day ahead
    handles = {path.name: path.read_text() for path in project.path.glob("handle.*")}
    assert handles == {"handle.gw0": pid, "handle.h1-1": pid}


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


def test_a_delivery_within_one_host_has_no_error_of_clocks(far_apart: Project) -> None:
    """Answers of one host come 20 ms late. The relay's delay of 25 ms is known to 10 ms only, but exactly if consumers are paired."""
    path = far_apart.path / "hosts.yaml"
    slow = f"{sys.executable} {slow_channel.__file__} 20 {UNSHARE.format(offset=-10)}"
    path.write_text(path.read_text().replace(UNSHARE.format(offset=-10), slow))
    delayed = (
        (far_apart.path / "profiles/delay.yaml")
        .read_text()
        .replace("topics: 2", "topics: 3")
        .replace("2s", "1s")
    )
    far_apart.write("profiles/apart.yaml", delayed)
    far_apart.write("profiles/paired.yaml", delayed + "pairConsumers: host\n")
    body = "    assert pytest_loadtest.ms(25) <= load.end_to_end.min\n"
    tests = [
        f"@pytest.mark.load('{name}')\ndef test_{name}(load):\n{body}"
        for name in ("apart", "paired")
    ]
    far_apart.write("test_them.py", "\n\n".join(["import pytest, pytest_loadtest", *tests]))
    run = far_apart.run("--load-hosts", "hosts.yaml")
    assert run.outcomes == {"passed": 1, "error": 1}
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
    (folder,) = [folder for folder in far_apart.runs() if "test_paired" in str(folder)]
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
