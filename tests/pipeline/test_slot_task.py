"""Tasks that hold slots, without Spark: each in a process of its own that calls it as Spark's Python worker does."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting_for import gone, wait_until

from pytest_loadtest.brokers.certificates import Authority, KeyPair
from pytest_loadtest.fleet.host_process import MODULE, encode, host_facts
from pytest_loadtest.fleet.slot_service import JoinedSlot, SlotService, read_certificate
from pytest_loadtest.fleet.spark_fleet import package_archive
from pytest_loadtest.pipeline.slot_task import CountedSlot, WorkerSlot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = "127.0.0.1"
RUN = """\
import pickle, sys, pyarrow as pa
from pytest_loadtest.pipeline import slot_task
slot_task.END_SECONDS = 1
print(list(pickle.load(sys.stdin.buffer)(iter([pa.record_batch([pa.array([0])], ["id"])]))))
"""
WORKER = (
    "import sys; print('started', flush=True); print(sys.stdin.read().upper(), end='', flush=True)"
)
"""A worker that answers when its input has ended."""


@pytest.fixture
def service() -> Iterator[SlotService]:
    made = SlotService(HERE)
    yield made
    made.close()


def start(task: CountedSlot, command: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start the first task. :param command: prefix of its command."""
    process = subprocess.Popen(
        [*command, sys.executable, "-c", RUN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(pickle.dumps(task))
    process.stdin.close()
    process.stdin = None
    return process


def worker_slot(
    service: SlotService,
    serve: Sequence[str],
    probe: Sequence[str] = ("-c", "print('{}')"),
    **more: Any,
) -> WorkerSlot:
    arguments = {"certificate": None, "tokens": service.issue(1), "archive": b"", **more}
    return WorkerSlot((HERE, service.port), probe=probe, serve=serve, **arguments)


def joined(service: SlotService) -> JoinedSlot:
    (slot,) = service.wait(1, 30, lambda: False)
    return slot


def join(slot: JoinedSlot) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(str(slot.socket))
    return connection


def test_a_counted_slot_is_held_until_it_is_released(service: SlotService) -> None:
    """The task returns no rows."""
    with start(CountedSlot((HERE, service.port), None, service.issue(1))) as process:
        joined(service)
        assert process.poll() is None
        service.release()
        assert process.communicate(timeout=30)[0] == b"[]\n"


def test_a_task_without_a_token_gives_its_slot_up(service: SlotService) -> None:
    """It is the slot for the aggregation."""
    with start(CountedSlot((HERE, service.port), None, [])) as process:
        assert process.communicate(timeout=30)[0] == b"[]\n"


def test_a_controller_that_cannot_be_reached_is_named_with_the_node() -> None:
    with socket.create_server((HERE, 0)) as listener:
        port = listener.getsockname()[1]
    with start(CountedSlot((HERE, port), None, ["0" * 32])) as process:
        assert (
            f"ConnectionError: {os.uname().nodename} cannot connect to the controller at {HERE}:{port}: ".encode()
            in process.communicate()[1]
        )


def test_the_worker_imports_the_controllers_package(service: SlotService, tmp_path: Path) -> None:
    """From memory, also if its Python has this package; it is a plugin of pytest there."""
    directory = encode({"directory": str(tmp_path), "sources": []})
    show = "import pytest_loadtest.fleet.member as m, importlib.metadata as i; print(m.__file__, *i.entry_points(group='pytest11').names)"
    slot = worker_slot(
        service, ["-P", "-c", show], ["-m", MODULE, "probe", directory], archive=package_archive()
    )
    with start(slot) as process:
        found = joined(service)
        assert found.hello == json.loads(json.dumps(host_facts()))
        with join(found) as xdist:
            line = xdist.makefile().readline()
        assert line.startswith("/proc/self/fd/")
        assert "pytest_loadtest/fleet/member.py" in line
        assert "loadtest" in line.split()
        process.communicate(timeout=30)


@pytest.mark.parametrize(
    ("probe", "problem"),
    [
        (["-c", "import no_such_module"], "ModuleNotFoundError: No module named 'no_such_module'"),
        (["-c", "raise SystemExit(3)"], "its Python ended with status 3"),
        (
            ["-m", MODULE, "probe", encode({"directory": "/no/such", "sources": []})],
            "FileNotFoundError: [Errno 2] No such file or directory: '/no/such'",
        ),
    ],
)
def test_a_probe_that_fails_is_reported(
    service: SlotService, probe: Sequence[str], problem: str
) -> None:
    with start(worker_slot(service, ["-c", WORKER], probe, archive=package_archive())) as process:
        assert joined(service).hello == {"node": os.uname().nodename, "problem": problem}
        service.release()
        process.communicate(timeout=30)


def test_the_worker_ends_with_its_connection_and_all_its_bytes_arrive_before(
    service: SlotService,
) -> None:
    """The end of the connection is the end of its standard input."""
    code = "import sys; sys.stdout.write('x' * 3_000_000); sys.stdout.flush()"
    with start(worker_slot(service, ["-c", code])) as process, join(joined(service)) as xdist:
        got = 0
        while data := xdist.recv(1 << 16):
            got += len(data)
        assert got == 3_000_000
        assert process.communicate(timeout=30)[0] == b"[]\n"


@pytest.mark.parametrize("victim", ["task", "parent", "connection"])
def test_no_worker_survives(service: SlotService, victim: str, tmp_path: Path) -> None:
    """Neither its task, nor the executor that started the task, nor the controller: its standard input ends, and it may clean up."""
    mark = tmp_path / "ended"
    code = f"import os, sys; print(os.getpid(), os.getppid(), flush=True); sys.stdin.read(); open({str(mark)!r}, 'w').close()"
    # the shell is the parent, as Spark's executor or its daemon is
    with (
        start(worker_slot(service, ["-c", code]), ["sh", "-c", '"$@"; exit 0', "sh"]) as parent,
        join(joined(service)) as xdist,
    ):
        worker, task = map(int, xdist.makefile().readline().split())
        assert not gone(worker)
        if victim == "connection":
            service.release()
        else:
            os.kill(task if victim == "task" else parent.pid, signal.SIGKILL)
        wait_until(mark.exists, "the worker's end", 30)
        wait_until(lambda: gone(worker) and gone(task), "the end of both", 30)


def test_a_worker_that_does_not_end_is_killed(service: SlotService) -> None:
    """Its input has ended, and it waits for something else."""
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(300)"
    with start(worker_slot(service, ["-c", code])) as process, join(joined(service)) as xdist:
        worker = int(xdist.makefile().readline())
        service.release()
        process.communicate(timeout=30)
        assert gone(worker)


@pytest.mark.parametrize("name", ["controller", "stranger"])
def test_a_task_talks_to_the_holder_of_the_key_only(name: str, tmp_path: Path) -> None:
    """The certificate is trusted without the authority that signed it, and without its names."""
    files = {}
    for who in ("controller", "stranger"):
        pair = Authority(who).server(KeyPair.below(tmp_path, who), who, ["some.where"], [])
        files[who] = tmp_path / f"{who}-both.pem"
        files[who].write_text(pair.certificate.read_text() + pair.key.read_text())
    context, _ = read_certificate(files["controller"])
    _, trusted = read_certificate(files[name])
    service = SlotService(HERE, context)
    try:
        with start(CountedSlot((HERE, service.port), trusted, service.issue(1))) as process:
            if name == "controller":
                joined(service)
                service.release()
                assert process.communicate(timeout=30)[0] == b"[]\n"
            else:
                assert b"certificate verify failed" in process.communicate(timeout=30)[1]
                assert service.wait(1, 0.0, lambda: False) == []
    finally:
        service.close()
