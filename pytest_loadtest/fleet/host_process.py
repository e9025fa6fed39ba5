"""A worker's process on another host, in two commands that run one after the other, and the probe
that is run before them.

``python -m pytest_loadtest.fleet.host_process connect WORD …`` is what pytest-xdist starts here in
place of a Python: it becomes the user's command (``ssh build1``), which starts
``python -m pytest_loadtest.fleet.host_process serve WORD`` on the host. That one does what
``python -c`` does for a local worker: it runs the code that execnet sends on its standard input. It
ends when its standard input does, so nothing stays on a host whose command was killed. ``join``
replaces ``connect`` for workers that Spark starts: it passes bytes to and from the local socket of
a worker's connection. ``probe`` prints what the host is as one line of JSON. ``doctor`` uses three
more: ``clock`` answers each line with the time, ``reach`` connects to each address that it reads,
``HOST:PORT`` or ``HOST:PORT SOURCE``, and answers with the error, ``bandwidth`` carries out a
:class:`~pytest_loadtest.fleet.host_bandwidth.BandwidthRequest`.

``WORD`` is JSON in URL-safe base64: text that no shell changes on its way, whether the command
splits its arguments again (ssh) or not (kubectl exec). It never holds a secret: command lines are
visible to everybody on a host.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import resource
import shlex
import socket
import sys
import threading
import time
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_loadtest.profile.hosts import HostEntry

REACH_TIMEOUT = 5  # s to connect to an address
MODULE = "pytest_loadtest.fleet.host_process"
NEEDED = ("pytest", "xdist", "numpy", "pyarrow", "pydantic", "yaml", "psutil")
"""Modules that a worker imports, besides this package, whatever it runs."""


def encode(document: Any) -> str:
    """Write a JSON value as one word."""
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def decode(word: str) -> Any:
    """Read what :func:`encode` wrote."""
    return json.loads(base64.urlsafe_b64decode(word + "=" * (-len(word) % 4)))


def connect_command(entry: HostEntry) -> str:
    """Return the command line, as a shell would read it, that starts a worker on a host."""
    return shlex.join(
        [
            sys.executable,
            "-m",
            MODULE,
            "connect",
            encode(host_command(entry, "serve")),
        ]
    )


def host_command(entry: HostEntry, role: str, sources: Sequence[str] = ()) -> list[str]:
    """Return the arguments of the process on this host that runs ``role`` on another one.

    :param sources: addresses that ``probe`` tries to use.
    """
    return [
        *shlex.split(entry.command),
        entry.python,
        "-u",
        "-m",
        MODULE,
        role,
        encode({"directory": entry.directory, "sources": list(sources)}),
    ]


def join_command(path: Path) -> str:
    """Return the command line, as a shell would read it, that joins a worker's connection.

    :param path: its local socket.
    """
    return shlex.join([sys.executable, "-m", MODULE, "join", encode({"socket": str(path)})])


def host_facts(sources: Iterable[str] = ()) -> dict[str, Any]:
    """Describe this host, for comparison with the controller's and for the plan.

    :param sources: addresses to connect from.
    """
    # On use: the process that becomes the user's command needs none of it.
    from pytest_loadtest.brokers.starting import ephemeral_range

    low, high = ephemeral_range()
    unusable = {}
    for source in sources:
        reason = _why_unusable(source)
        if reason is not None:
            unusable[source] = reason
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "package": version("pytest-loadtest"),
        "node": platform.node(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "ports": high - low + 1,
        "unusable": unusable,
        "missing": [name for name in NEEDED if find_spec(name) is None],
        # Processes with the same kernel and the same time namespace have one CLOCK_MONOTONIC.
        "clock": boot_id() + str(Path("/proc/self/ns/time").readlink()),
    }


def _why_unusable(source: str) -> str | None:
    """Return why no connection can come from an address, or None."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET) as sock:
            sock.bind((source, 0))
    except OSError as error:
        return error.strerror or str(error)
    return None


def boot_id() -> str:
    """Return the number of this machine's boot, which no other machine has.

    Containers on one machine share it.
    """
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def file_hashes(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """Return a hash of each file by its path below ``root``; '' for a file that is not there."""
    hashes = {}
    for path in sorted(paths):
        file = root / path
        hashes[path] = ""
        if file.is_file():
            hashes[path] = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    return hashes


def different_files(host: str, there: Mapping[str, str], here: Mapping[str, str]) -> str | None:
    """Describe the first file that a host has in another version than the controller, or None.

    :param there: the host's hashes, by path.
    """
    for path, hash_there in there.items():
        if here[path] != hash_there:
            version = (
                f"is {hash_there} on host {host}, and {here[path] or 'missing'} on the "
                "controller's (SHA-256)"
            )
            return (
                f"{path} {version}: copy the controller's tests and profiles to the directory of "
                "the host"
            )
    return None


def main(arguments: list[str]) -> None:
    """Run one of the commands.

    What xdist appends for a Python of its own (``-u -c …``) is left out.
    """
    role, word, *_ = arguments
    settings = decode(word)
    if role == "connect":
        os.execvp(settings[0], settings)
    if role == "join":
        _join(settings["socket"])
        return
    directory = settings["directory"]
    if directory is not None:
        os.chdir(directory)
        sys.path[0] = directory
    if role != "serve":
        _answer(role, settings["sources"])
        return
    # This package may be a file that only this process has open (--load-fleet); under this name,
    # the processes that it starts find it too.
    sys.path[:] = [entry.replace("/proc/self/", f"/proc/{os.getpid()}/") for entry in sys.path]
    # pytest rewrites the assertions of plugins when it imports them, and warns of those that are
    # imported already.
    for name in [name for name in sys.modules if name.partition(".")[0] == "pytest_loadtest"]:
        del sys.modules[name]
    # As with `python -c`: execnet's first line is an expression whose value is the code of its
    # worker, which expects to be `__main__`.
    exec(eval(sys.stdin.readline()), sys.modules["__main__"].__dict__)


def _join(path: str) -> None:
    """Pass bytes between this process's standard streams and a local socket, until either ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError:
            sys.exit("the worker that Spark started has ended")

        def send() -> None:
            with suppress(OSError):
                while data := os.read(0, 1 << 16):
                    connection.sendall(data)
                connection.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=send, daemon=True).start()
        with suppress(OSError):
            while data := connection.recv(1 << 16):
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()


def _answer(role: str, sources: Sequence[str]) -> None:
    if role == "probe":
        print(json.dumps(host_facts(sources)))
    if role == "bandwidth":
        from pytest_loadtest.fleet.host_bandwidth import bandwidth_answer

        print(json.dumps(bandwidth_answer(sys.stdin.readline())), flush=True)
    for line in sys.stdin if role in ("clock", "reach") else ():
        if role == "clock":
            print(time.monotonic_ns(), flush=True)
            continue
        endpoint, _, source = line.strip().partition(" ")
        print(_why_unreachable(endpoint, source or None), flush=True)


def _why_unreachable(endpoint: str, source: str | None) -> str:
    """Return why this host cannot connect to ``HOST:PORT``; empty if it can."""
    from pytest_loadtest.drivers.source_addresses import connect_from

    address, _, port = endpoint.rpartition(":")
    try:
        connect_from(address.strip("[]"), int(port), REACH_TIMEOUT, source).close()
    except OSError as error:
        return (error.strerror or str(error)).removeprefix(f"cannot connect from {source}: ")
    return ""


if __name__ == "__main__":
    main(sys.argv[1:])
