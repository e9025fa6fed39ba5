"""The listener for tasks that hold slots, with real sockets: who is admitted, and what passes between a task and xdist's process."""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
import ssl
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.brokers.certificates import Authority, KeyPair
from pytest_loadtest.errors import UsageError
from pytest_loadtest.fleet import slot_service
from pytest_loadtest.fleet.host_process import join_command
from pytest_loadtest.fleet.slot_service import SlotService, read_certificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HERE = "127.0.0.1"


@pytest.fixture
def service() -> Iterator[SlotService]:
    made = SlotService(HERE)
    yield made
    made.close()


def connect(service: SlotService, start: bytes) -> socket.socket:
    """Connect as a task and send these bytes."""
    task = socket.create_connection((HERE, service.port), timeout=20)
    task.sendall(start)
    return task


def hello(token: str, **facts: object) -> bytes:
    return token.encode() + json.dumps(facts).encode() + b"\n"


def running() -> bool:
    """Return that the job goes on."""
    return False


def test_a_token_admits_its_task_with_what_it_reports(service: SlotService) -> None:
    """Tasks are in the order of their tokens, not of their arrival."""
    first, second = service.issue(2)
    with connect(service, hello(second, node="b")), connect(service, hello(first, node="a")):
        assert [slot.hello["node"] for slot in service.wait(2, 20, running)] == ["a", "b"]


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"short",
        b"0" * slot_service.TOKEN_BYTES + b"{}\n",
        b"\xff" * 100,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"x" * 100,
    ],
)
def test_a_connection_without_a_token_is_closed_without_an_answer(
    service: SlotService, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks that have joined are not disturbed: their bytes still pass."""
    (token,) = service.issue(1)
    with connect(service, hello(token)) as task:
        (slot,) = service.wait(1, 20, running)
        monkeypatch.setattr(slot_service, "HELLO_SECONDS", 0.2)
        with connect(service, start) as stranger:
            assert received(stranger) == b""
        with socket.socket(socket.AF_UNIX) as xdist:
            xdist.connect(str(slot.socket))
            xdist.sendall(b"ping")
            assert task.recv(4) == b"ping"


def received(connection: socket.socket) -> bytes:
    """Read to the end; a connection that is closed with unread bytes ends with a reset."""
    found = b""
    try:
        while data := connection.recv(1000):
            found += data
    except ConnectionResetError:
        pass
    return found


def test_a_token_admits_one_task(service: SlotService) -> None:
    """A task that Spark starts a second time has the same token."""
    (token,) = service.issue(1)
    with connect(service, hello(token)):
        assert len(service.wait(1, 20, running)) == 1
        with connect(service, hello(token)) as again:
            assert received(again) == b""


@pytest.mark.parametrize("line", [b"no json\n", b"[1]\n", b"x" * 200_000])
def test_a_token_with_a_wrong_report_admits_nothing(service: SlotService, line: bytes) -> None:
    """The report is read up to 64 KiB only."""
    (token,) = service.issue(1)
    task = connect(service, token.encode())
    with contextlib.suppress(OSError):  # it may be closed before all is sent
        task.sendall(line)
    with task:
        assert received(task) == b""
    assert service.wait(1, 0.0, running) == []


def test_tokens_of_an_earlier_job_are_void(service: SlotService) -> None:
    (old,) = service.issue(1)
    service.issue(1)
    with connect(service, hello(old)) as task:
        assert received(task) == b""


def test_nobody_waits_for_a_job_that_has_ended(service: SlotService) -> None:
    service.issue(1)
    assert service.wait(1, 60, lambda: True) == []


def test_only_the_user_may_join_a_connection(service: SlotService) -> None:
    """The socket and its folder have no permissions for others."""
    with connect(service, hello(*service.issue(1))):
        (slot,) = service.wait(1, 20, running)
        assert stat.S_IMODE(slot.socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(slot.socket.parent.stat().st_mode) == 0o700


def test_xdists_process_passes_all_bytes_until_the_task_ends(service: SlotService) -> None:
    """Two megabytes in each direction at the same time; a second process cannot join."""
    blob = bytes(range(256)) * 8192
    with connect(service, hello(*service.issue(1))) as task:
        (slot,) = service.wait(1, 20, running)
        command = shlex.split(join_command(slot.socket))
        assert "//" not in join_command(slot.socket)  # execnet would split its specification there
        with subprocess.Popen(
            [*command, "-u", "-c", "ignored"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdin is not None
            process.stdin.write(blob)
            process.stdin.flush()
            got = bytearray()
            while len(got) < len(blob):
                got += task.recv(1 << 16)
            assert got == blob
            second = subprocess.run(
                command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
            )
            assert second.stdout == ""
            task.sendall(blob)
            task.close()
            assert process.stdout is not None
            assert process.stdout.read() == blob
            assert process.wait(20) == 0


@pytest.mark.parametrize("end", ["release", "close"])
def test_the_end_of_the_service_ends_both_sides(service: SlotService, end: str) -> None:
    """A process that joins later says what happened."""
    with connect(service, hello(*service.issue(1))) as task, socket.socket(socket.AF_UNIX) as xdist:
        (slot,) = service.wait(1, 20, running)
        xdist.settimeout(20)
        xdist.connect(str(slot.socket))
        xdist.sendall(b"x")
        assert task.recv(1) == b"x"
        getattr(service, end)()
        assert received(task) == received(xdist) == b""
    late = subprocess.run(
        shlex.split(join_command(slot.socket)),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (late.returncode, late.stderr) == (1, "the worker that Spark started has ended\n")


def test_an_address_of_another_host_is_a_usage_error() -> None:
    with pytest.raises(
        UsageError, match=r"cannot listen at 192\.0\.2\.1: .*: set spark\.driver\.bindAddress"
    ):
        SlotService("192.0.2.1")


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    """A file with a certificate and its key."""
    files = Authority("test").server(
        KeyPair.below(tmp_path, "controller"), "controller", ["controller"], [HERE]
    )
    both = tmp_path / "both.pem"
    both.write_text(files.key.read_text() + files.certificate.read_text())
    return both


def test_with_a_certificate_only_tls_is_admitted(
    pem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key does not travel with the certificate."""
    context, certificate = read_certificate(pem)
    assert "PRIVATE KEY" not in certificate
    monkeypatch.setattr(slot_service, "HELLO_SECONDS", 2)
    service = SlotService(HERE, context)
    try:
        (token,) = service.issue(1)
        with connect(service, hello(token)) as plain:
            assert token.encode() not in received(plain)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        client.load_verify_locations(cadata=certificate)
        with client.wrap_socket(
            socket.create_connection((HERE, service.port), timeout=20), server_hostname=HERE
        ) as task:
            task.sendall(hello(token))
            assert len(service.wait(1, 20, running)) == 1
    finally:
        service.close()


@pytest.mark.parametrize("content", [None, "nothing", "certificate", "key"])
def test_a_file_without_certificate_and_key_is_a_usage_error(
    pem: Path, content: str | None
) -> None:
    path = pem.parent / "wrong.pem"
    parts = {
        "nothing": "",
        "certificate": pem.with_name("controller.pem").read_text(),
        "key": pem.with_name("controller-key.pem").read_text(),
    }
    if content is not None:
        path.write_text(parts[content])
    with pytest.raises(
        UsageError,
        match=r"load_fleet_tls .*wrong\.pem: .*: name a PEM file with a certificate and its key",
    ):
        read_certificate(path)
