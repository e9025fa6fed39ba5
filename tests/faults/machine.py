"""Faults of the machine and of what is stored: samples, disks, memory, descriptors, ports, names, the wall clock."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .brokers import BOUNDS, DURABLE, mosquitto_at
from .fault import LIMITED, MET, NO_DATA, Fault
from .processes import LONG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .session import FaultySession

DAMAGE = '''
import json, os, shutil
from pathlib import Path
from pytest_loadtest.engine.recorder import Recorder

close = Recorder.close

def close_and_damage(self, facts):
    """Close the samples, and damage them as a disk could."""
    close(self, facts)
    path = self._folder / (self._worker + ".manifest.json")
    manifest = json.loads(path.read_text())
    if "test_fault" in str(self._folder) and manifest["received"]["files"]:
        damage(self._folder / "received" / manifest["received"]["files"][0]["name"], path, manifest)

Recorder.close = close_and_damage
'''
TRUNCATED = (
    DAMAGE + "def damage(file, path, manifest): os.truncate(file, file.stat().st_size // 2)\n"
)
MISCOUNTED = (
    DAMAGE
    + """
def damage(file, path, manifest):
    manifest["received"]["rows"] += 1
    manifest["received"]["files"][0]["rows"] += 1
    path.write_text(json.dumps(manifest))
"""
)
OF_ANOTHER_RUN = DAMAGE + "def damage(file, path, manifest): shutil.copy('earlier.parquet', file)\n"


@contextmanager
def earlier_run(session: FaultySession) -> Iterator[None]:
    """Drive the same load in an earlier session, and keep its received samples."""
    session.write()
    session.project.write("conftest.py", "")
    session.project.run("-n0", "-k", "test_fault")
    (file,) = session.folder.glob(".loadtest/*/*test_fault*/1/*/measure/received/*.parquet")
    file.rename(session.folder / "earlier.parquet")
    for folder in (".loadtest", "instruments"):
        shutil.rmtree(session.folder / folder)
    yield


def need_root() -> None:
    """Skip the fault if this user may not mount anything."""
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["unshare", "--mount", "true"], capture_output=True, check=False
        ).returncode
    ):
        import pytest

        pytest.skip("needs root and namespaces")


@contextmanager
def small_disk(session: FaultySession) -> Iterator[None]:
    """Put results on a disk of 24 MiB."""
    need_root()
    results = session.folder / ".loadtest"
    results.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(results)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(results)], check=True)


FILL = '''
import pytest
from pathlib import Path

FILLER = Path(".loadtest/filler")

def fill():
    """Use all space of the disk."""
    with FILLER.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass

@pytest.fixture(autouse=True)
def enough_space_again(request):
    if request.node.name == "test_after":
        FILLER.unlink()
'''
FULL_AT_SAMPLES = (
    FILL
    + """
from pytest_loadtest.engine.recorder import Recorder
close = Recorder.close
Recorder.close = lambda self, facts: ("test_fault" in str(self._folder) and fill(), close(self, facts))[1]
"""
)
FULL_AT_RESULTS = (
    FILL
    + """
from pytest_loadtest.fleet.run_controller import RunController
judge = RunController._judge
RunController._judge = lambda self, run: ("test_fault" in self._planned[run.key].request.nodeid and fill(), judge(self, run))[1]
"""
)

SAMPLES = (
    Fault(
        name="truncated-sample",
        happens="A sample file is cut off after its worker closed it.",
        made="The files of received messages lose their second half.",
        arguments=("-n2",), conftest=TRUNCATED,
        verdict=NO_DATA, status=1, says=("because …/received/gw0-000001.parquet (worker gw0) is cut off or damaged",),
    ),
    Fault(
        name="miscounted-sample",
        happens="A manifest and its file disagree.",
        made="Each manifest names one received row more than its file has.",
        arguments=("-n2",), conftest=MISCOUNTED,
        verdict=NO_DATA, status=1, says=("because …/received/gw0-000001.parquet (worker gw0) has … rows, its manifest says …",), slow=True,
    ),
    Fault(
        name="sample-of-another-run",
        happens="A sample file is that of an earlier run of the same test.",
        made="A file of received messages is replaced by that of an earlier session; it has the same number of rows.",
        prepare=earlier_run, conftest=OF_ANOTHER_RUN, profile={"slo": BOUNDS},
        verdict=NO_DATA, status=1, says=("because …/received/main-000001.parquet (worker main) belongs to another run",),
    ),
    Fault(
        name="disk-full-samples",
        happens="The disk is full when samples are written.",
        made="Results on a tmpfs of 24 MiB, filled before the samples are closed.",
        prepare=small_disk, conftest=FULL_AT_SAMPLES,
        verdict=NO_DATA, status=1, says=("because worker main could not write samples below … the disk is full … make room, or set load_results in pytest.ini to another disk", "WARNING: the results in … cannot be written: No space left on device"),
    ),
    Fault(
        name="disk-full-results",
        happens="The disk is full when results are written.",
        made="Results on a tmpfs of 24 MiB, filled before the run is judged.",
        prepare=small_disk, conftest=FULL_AT_RESULTS,
        verdict=NO_DATA, status=1, says=("because the controller could not write results below … the disk is full … make room",),
    ),
)  # fmt: skip


def out_of_memory(session: FaultySession) -> None:
    """Let the kernel end a worker for want of memory."""
    group = Path(f"/sys/fs/cgroup/memory/loadtest-{os.getpid()}")
    session.until_phase("load", after=1)
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text("65536")
        (group / "cgroup.procs").write_text(str(session.pid("gw1")))
        session.until(lambda: not (group / "cgroup.procs").read_text(), "the end of the worker")
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            (group.parent / "cgroup.procs").write_text(pid)
        with suppress(OSError):
            group.rmdir()


@contextmanager
def memory_groups(session: FaultySession) -> Iterator[None]:
    """Skip the fault if this machine has no groups of memory."""
    if not os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK):
        import pytest

        pytest.skip("needs version 1 of cgroups, and root")
    yield


def behind(*prefix: str, connections: int) -> Callable[[FaultySession], object]:
    """Prepare a mosquitto, clients for it, and a command that limits pytest."""

    @contextmanager
    def prepare(session: FaultySession) -> Iterator[None]:
        session.project.prefix = list(prefix)
        session.profile |= {
            "topics": connections // 2,
            "producersPerTopic": 1,
            "driver": {"name": "mqtt", "qos": 1},
        }
        with mosquitto_at(session) as broker:
            session.profile["target"] = {"url": broker.facts.url}
            yield

    return prepare


FEW_PORTS = 'ip link set lo up && echo 30000 30040 >/proc/sys/net/ipv4/ip_local_port_range && exec "$0" "$@"'


@contextmanager
def few_ports(session: FaultySession) -> Iterator[None]:
    """Run pytest in a network that has few ports, with its own mosquitto."""
    from .brokers import need_mosquitto

    need_root()
    need_mosquitto()
    session.project.prefix = ["unshare", "--net", "sh", "-c", FEW_PORTS]
    session.profile |= {"topics": 50, "producersPerTopic": 1, "driver": {"name": "mqtt", "qos": 1}}
    yield


NO_DESCRIPTORS = """
import os, resource
from pytest_loadtest.engine.recorder import Recorder

close = Recorder.close
def close_without_descriptors(self, facts):
    if "test_fault" in str(self._folder) and self._worker == "gw1":
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    close(self, facts)
Recorder.close = close_without_descriptors

import pytest
@pytest.fixture(autouse=True)
def enough_again(request):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
"""
STEP = '''
import time
from pytest_loadtest.drivers import arrival_clock

AT, STEP, real = {at}, {step}, time.time_ns

def stepped(now):
    """Return what a clock shows that was set in the middle of the run."""
    return now + (STEP if now >= AT() else 0)

class Set:
    """The instant at which the clock is set: 500 ms after the measured phase began."""
    instant = 1 << 62

from pytest_loadtest.engine.run import Engine
begin = Engine.begin
def begin_and_set(self, phase, start, *rest):
    if Set.instant == 1 << 62 and phase.name == "measure":
        Set.instant = real() + (start - time.monotonic_ns()) + 500_000_000
    return begin(self, phase, start, *rest)
Engine.begin = begin_and_set

time.time_ns = lambda: stepped(real())
convert = arrival_clock.ArrivalClock.convert
arrival_clock.ArrivalClock.convert = lambda self, stamp, now: convert(self, stepped(stamp), now)
arrival_clock.ArrivalClock.__init__.__defaults__ = (time.time_ns, None)
'''


def clock_step(seconds: int) -> str:
    """Return a conftest that sets the wall clock, and the kernel's stamps with it."""
    return STEP.format(at="lambda: Set.instant", step=seconds * 1_000_000_000)


def second_session(session: FaultySession) -> None:
    """Run another session in the same folder at the same time."""
    session.until_phase("load")
    second = session.project.start("-n0", "-o", "junit_family=xunit2")
    out, _ = second.communicate(timeout=200)
    assert second.returncode == 0, out


@contextmanager
def named_host(session: FaultySession) -> Iterator[None]:
    """Give mosquitto a name that only the session knows, in a file of hosts."""
    from .proxy import Proxy

    need_root()
    hosts = session.folder / "hosts"
    hosts.write_text(
        Path("/etc/hosts").read_text(encoding="utf-8") + "127.0.0.1 broker.invalid\n",
        encoding="utf-8",
    )
    session.project.prefix = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        f'mount --bind {hosts} /etc/hosts && exec "$0" "$@"',
    ]
    with mosquitto_at(session) as broker, Proxy(broker.facts.url) as proxy:
        session.profile["target"] = {"url": proxy.url.replace("127.0.0.1", "broker.invalid")}
        session.tools["proxy"] = proxy
        yield


def forget_name(session: FaultySession) -> None:
    """Remove the name, and cut all connections."""
    session.until_phase("load", after=1)
    hosts = session.folder / "hosts"
    hosts.write_text(
        hosts.read_text(encoding="utf-8").replace("127.0.0.1 broker.invalid\n", ""),
        encoding="utf-8",
    )
    session.tools["proxy"].cut()


MACHINE = (
    Fault(
        name="worker-out-of-memory",
        happens="The kernel ends a worker because its memory is used up.",
        made="One of two workers gets a memory limit of 64 kB under load (cgroup).",
        arguments=("-n2",), profile=LONG | {"producerRate": 20_000}, prepare=memory_groups, act=out_of_memory,
        verdict=NO_DATA, status=1, says=("because load worker gw1 went down",),
    ),
    Fault(
        name="few-descriptors",
        happens="There are fewer descriptors than clients.",
        made="RLIMIT_NOFILE 150 and 100 MQTT clients.",
        prepare=behind("prlimit", "--nofile=150:150", connections=100),
        verdict=LIMITED, status=1, says=("because … generator-limited before any load", "a worker would have 200 files open, a process may have 150 (the hard limit, ulimit -Hn)"), slow=True,
    ),
    Fault(
        name="no-descriptors",
        happens="A worker has no free descriptor when it writes samples.",
        made="RLIMIT_NOFILE of one of two workers is lowered before the samples are closed.",
        arguments=("-n2",),
        conftest=NO_DESCRIPTORS,
        verdict=NO_DATA, status=1, says=("because worker gw1 could not write samples below …: … Too many open files",),
    ),
    Fault(
        name="few-ports",
        happens="There are fewer ports than clients.",
        made="A network namespace with 41 ports (`ip_local_port_range`), and 100 MQTT clients.",
        prepare=few_ports,
        verdict=LIMITED, status=1,
        says=("because … generator-limited before any load", "100 connections from each source address need as many ports, this machine has 41 for each"),
    ),
    Fault(
        name="clock-set-forward",
        happens="The wall clock is set forward by an hour under load; all is measured by a monotonic clock.",
        made="A shim of `time.time_ns` and of the kernel's stamps.",
        conftest=clock_step(3600), profile={"slo": BOUNDS | {"endToEndLatency": {"max": "30s"}}},
        verdict=MET, status=0, counts={"offered": 1000, "received": 1000, "lost": 0},
    ),
    Fault(
        name="clock-set-back",
        happens="The wall clock is set back by an hour under load.",
        made="A shim of `time.time_ns` and of the kernel's stamps.",
        conftest=clock_step(-3600), profile={"slo": BOUNDS | {"endToEndLatency": {"max": "30s"}}},
        verdict=MET, status=0, counts={"offered": 1000, "received": 1000, "lost": 0}, slow=True,
    ),
    Fault(
        name="clock-set-delayed",
        happens="The wall clock is set forward while delayed messages are under way.",
        made="A shim of `time.time_ns` and of the kernel's stamps; messages are delayed by 200 ms.",
        conftest=clock_step(3600), profile={"deliverAfter": "200ms"},
        verdict=NO_DATA, status=1, says=("because the wall clock was set forward by 60.0 min while delayed messages were under way",), slow=True,
    ),
    Fault(
        name="two-sessions",
        happens="A second session runs in the same folder at the same time.",
        made="Both drive the same two tests; both must pass.",
        profile={"testDuration": "8s"}, act=second_session,
        verdict=MET, status=0, counts={"offered": 8000, "received": 8000, "lost": 0}, slow=True,
    ),
    Fault(
        name="name-forgotten",
        happens="The broker's name is no longer known under load, and connections are closed after that. Clients keep the address.",
        made="A mount namespace with its own `/etc/hosts`; a proxy closes all connections; QoS 1.",
        profile={"driver": DURABLE, "testDuration": "3s", "drainTimeout": "30s", "producerRate": 200, "slo": BOUNDS}, prepare=named_host, act=forget_name,
        verdict=MET, status=0, counts={"offered": 600, "acked": 600, "received": 600, "lost": 0}, says=("incidents 6 × connection lost",), slow=True,
    ),
    Fault(
        name="beyond-the-machine",
        happens="The profile needs more than this machine has.",
        made="100 million msg/s.",
        profile={"producerRate": 100_000_000},
        verdict=LIMITED, status=1, says=("because … generator-limited before any load: this machine cannot carry the plan", "cores", "use --load-scale auto", "--load-force"),
    ),
    Fault(
        name="no-objectives",
        happens="The profile has no objectives.",
        made="An empty `slo` section. Only the implicit ones are judged, and `assert_slo()` is an error.",
        profile={"slo": {}},
        verdict=MET, status=1, says=("profile fault has no objectives",), slow=True,
    ),
)  # fmt: skip
