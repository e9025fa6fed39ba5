"""Python processes that begin with the modules of a load test: they are forked from one that has them.

Importing pytest, its plugins and this project's modules takes most of the CPU time of a short session, and once more in each of its workers.
The first ``start`` of a test process makes a server, which ends with that process. xdist starts its workers in the same way.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import pytest

SERVER = "WARM_PYTHON_SERVER"
"""The variable with the path of the server's socket, in each process that it forks."""
MARK = "LOADTEST_MARK"
"""The variable by which tests know their processes. The environment of a forked process is not to be seen from outside: its name is the mark."""
NOT_LOADED = "cacheprovider randomly rerunfailures cov hypothesispytest anyio allure_pytest html html_fixtures metadata pytest_jsonreport asyncio"
"""Plugins of pytest that sessions of tests do without."""


class Asked(NamedTuple):
    """A process as it is asked for."""

    arguments: Sequence[str]
    """``-m MODULE ARGUMENTS…`` or ``-c CODE``."""
    folder: str
    environment: Mapping[str, str]
    group: int
    """Its process group; 0: one of its own."""


class WarmProcess:
    """A process of the server, with what tests use of ``subprocess.Popen``."""

    def __init__(self, asked: Asked, stdin: int, stdout: int, stderr: int) -> None:
        """Start it.

        :param stdin: descriptors that it inherits.
        """
        self.args = asked.arguments
        self.returncode: int | None = None
        self.stdin: IO[Any] | None = None
        self.stdout: IO[Any] | None = None
        self._read: list[str] = []
        self._reader: threading.Thread | None = None
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(server())
        text = json.dumps(asked).encode()
        socket.send_fds(self._server, [len(text).to_bytes(4, "big")], [stdin, stdout, stderr])
        self._server.sendall(text)
        self.pid = int.from_bytes(_exactly(self._server, 4), "big")

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        :raises subprocess.TimeoutExpired: it goes on.
        """
        if self.returncode is None:
            ended, _, _ = select.select([self._server], [], [], timeout)
            if not ended:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
            self.returncode = int.from_bytes(_exactly(self._server, 4), "big", signed=True)
            self._server.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return its exit status, None while it goes on."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Return all of its output when it has ended.

        :raises subprocess.TimeoutExpired: it goes on; it may be called again.
        """
        stdout = self.stdout
        if stdout is not None:
            if self._reader is None:
                self._reader = threading.Thread(
                    target=lambda: self._read.append(stdout.read()), daemon=True
                )
                self._reader.start()
            self._reader.join(timeout)
            if self._reader.is_alive():
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
            stdout.close()
        self.wait(timeout)
        return "".join(self._read), None

    def send_signal(self, number: int) -> None:
        """Send a signal to it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def start(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdout: int | None = None
) -> WarmProcess:
    """Start Python with ``-m MODULE ARGUMENTS…``, in a process group of its own and without input.

    :param stdout: the descriptor of its output and errors; without it they are read as text.
    """
    nothing = os.open(os.devnull, os.O_RDONLY)
    reading, writing = os.pipe() if stdout is None else (None, stdout)
    environment = {**env, SERVER: server()}
    process = WarmProcess(
        Asked(arguments, str(cwd), environment, group=0), nothing, writing, writing
    )
    os.close(nothing)
    if reading is not None:
        os.close(writing)
        process.stdout = os.fdopen(reading, encoding="utf-8", errors="replace")
    return process


@functools.cache
def server() -> str:
    """Return the path of the socket of this process's server."""
    if path := os.environ.get(SERVER):
        return path
    folder = tempfile.mkdtemp(prefix="warm-")
    path = f"{folder}/socket"
    environment = {name: text for name, text in os.environ.items() if name != MARK}
    process = subprocess.Popen(
        [sys.executable, __file__, path],
        cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n", "the server of warm processes has not started"
    process.stdout.close()
    atexit.register(_end, process, Path(folder))
    return path


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    (folder / "socket").unlink()
    folder.rmdir()


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("the other side of a warm process has ended")
        received += part
    return received


# -- in the server


def _import_modules() -> None:
    """Import what a session imports: pytest's part as pytest does it, with its assertions rewritten, then all modules of this project."""
    without = [f"-pno:{name}" for name in NOT_LOADED.split()]
    with tempfile.TemporaryDirectory() as empty, contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*without, "--collect-only", "--rootdir", empty, empty])
    package = importlib.import_module("pytest_loadtest")
    for module in pkgutil.walk_packages(package.__path__, "pytest_loadtest."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("pyarrow.parquet", "jinja2", "xdist.dsession"):
        importlib.import_module(name)
    # What each process makes of them at its first use, and keeps.
    kept: Any = importlib.import_module("pytest_loadtest.report.html.page")
    kept._page_template()
    kept = importlib.import_module("pytest_loadtest.report.document")
    kept._adapter()


def _serve(path: str) -> Callable[[], None]:
    """Fork processes until the test process ends.

    :returns: in each of them, what it is to do; in the server nothing.
    """
    _import_modules()
    gc.collect()
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(16)
    print("ready", flush=True)
    waiting = selectors.DefaultSelector()
    waiting.register(listening, selectors.EVENT_READ)
    waiting.register(0, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is listening:
                connection, _ = listening.accept()
                size, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
                try:
                    text = _exactly(connection, int.from_bytes(size, "big"))
                except ConnectionError:  # who asked has ended
                    connection.close()
                    for descriptor in descriptors:
                        os.close(descriptor)
                    continue
                asked = Asked(*json.loads(text))
                pid = os.fork()
                if pid == 0:
                    waiting.close()
                    listening.close()
                    connection.close()
                    return _become(asked, descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                connection.sendall(pid.to_bytes(4, "big"))
                waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
            elif key.fd == 0:
                return lambda: None
            else:
                pid, connection = key.data
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                waiting.unregister(key.fd)
                os.close(key.fd)
                _answer(connection, status)


def _answer(connection: socket.socket, status: int) -> None:
    with connection:
        try:
            connection.sendall(status.to_bytes(4, "big", signed=True))
        except OSError:
            return  # nobody waits for it any more


def _become(asked: Asked, descriptors: Sequence[int]) -> Callable[[], None]:
    """Turn this process into the one that was asked for, as if Python had just started.

    :returns: what it is to do.
    """
    os.setpgid(0, asked.group)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(asked.folder)
    os.environ.clear()
    os.environ.update(asked.environment)
    name = asked.environment.get(MARK)
    if name:
        Path("/proc/self/comm").write_text(process_name(name), encoding="ascii")
    paths = asked.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[0:1] = [asked.folder, *filter(None, paths)]
    # The end of a load would unfreeze the objects of the server too, and each later collection would walk them.
    # What the load does not freeze either is freed as in a process that started cold.
    gc.freeze = gc.unfreeze = lambda: None  # type: ignore[assignment]
    _start_workers_warm()
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", 1, "utf-8", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, "utf-8", closefd=False)
    option, code, *arguments = asked.arguments
    if option == "-c":
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        sys.argv = ["-c", *arguments]
        return lambda: exec(code, main.__dict__)
    sys.argv = [code, *arguments]

    def run_module() -> None:
        runpy.run_module(code, run_name="__main__", alter_sys=True)

    return run_module


def process_name(mark: str) -> str:
    """Return the name of warm processes with a mark: a process's name has 15 characters."""
    return mark[:15]


# -- in each of its processes


def _start_workers_warm() -> None:
    """Let xdist start its workers in the same way, with the paths of their session."""
    workers: Any = importlib.import_module("xdist.workermanage")
    workers._sys_path[:] = sys.path  # what it has copied when it was imported
    gateways: Any = importlib.import_module("execnet.gateway_io")

    class WarmGateway(gateways.Popen2IOMaster):  # type: ignore[misc]
        def __init__(self, args: Sequence[str], execmodel: Any) -> None:
            if args[:2] != [sys.executable, "-u"]:  # a command that starts Python on a host
                super().__init__(args, execmodel)
                return
            self.popen = _start_worker(args[args.index("-c") :])
            gateways.Popen2IO.__init__(
                self, self.popen.stdin, self.popen.stdout, execmodel=execmodel
            )

    gateways.Popen2IOMaster = WarmGateway


def _start_worker(arguments: Sequence[str]) -> WarmProcess:
    taking, giving = os.pipe()
    reading, writing = os.pipe()
    asked = Asked(arguments, str(Path.cwd()), dict(os.environ), os.getpgid(0))
    worker = WarmProcess(asked, taking, writing, stderr=2)
    os.close(taking)
    os.close(writing)
    worker.stdin = os.fdopen(giving, "wb")
    worker.stdout = os.fdopen(reading, "rb")
    return worker


def _run(function: Callable[[], None]) -> NoReturn:
    """Run what this process is to do, and end it as Python does, but leave its memory as it is: freeing it takes a third of the time."""
    status = 1
    try:
        function()
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        else:
            status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _run(_serve(sys.argv[1]))
