"""The tests' own container engine: podman with Docker's API, and an image of brokers made from this machine's files.

No image registry is used. The image holds a handful of files; a hook of podman mounts the broker's own files, the machine's ``/usr`` and
Pulsar's jars, into each container.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from waiting_for import wait_until

from pytest_loadtest.brokers import java
from pytest_loadtest.drivers.pulsar import broker as pulsar
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars

IMAGE = "localhost/loadtest-brokers:1"
BOOKIE_PORT = 3181
CONF = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=8192:8192"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
[network]
network_backend = "netavark"
"""
HOOK = """\
#!{python}
import json, sys
config = json.load(sys.stdin)
config["mounts"] += json.loads({mounts!r})
json.dump(config, sys.stdout)
"""


class NoEngineError(Exception):
    """Containers cannot run on this machine; the text is the reason."""


class Podman:
    """An engine with only the image :data:`IMAGE`; :meth:`close` removes all traces of it.

    :raises NoEngineError: it does not answer, or cannot run a container.
    """

    def __init__(self) -> None:
        if os.geteuid() != 0 or not (shutil.which("podman") and shutil.which("runc")):
            raise NoEngineError(
                "needs root, podman and runc: apt-get install podman runc netavark aardvark-dns iptables"
            )
        self._folder = Path(
            tempfile.mkdtemp(prefix="loadtest-podman-")
        )  # short: the path of a socket has 107 characters at most
        self.host = f"unix://{self._folder}/socket"
        self._write_files()
        self._service: subprocess.Popen[bytes] | None = None
        try:
            self._podman(
                "import", "--change", "WORKDIR /pulsar", str(self._folder / "root.tar"), IMAGE
            )
            self._podman("run", "--rm", IMAGE, "sh", "-c", "true")
            self.start()
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired, TimeoutError) as error:
            self.close()
            said = getattr(error, "stderr", None) or b""
            raise NoEngineError(
                f"podman runs no container here: {said.decode(errors='replace').strip()[-300:] or error}"
            ) from error

    def start(self) -> None:
        """Serve, also again after :meth:`kill`, with the same containers."""
        command = self._command("system", "service", "--time=0", self.host)
        self._service = subprocess.Popen(
            command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self._answers, "the engine's answer", seconds=20)

    @property
    def pid(self) -> int:
        """The engine's process id."""
        assert self._service is not None
        return self._service.pid

    def kill(self) -> None:
        """End it with SIGKILL; its containers continue."""
        if self._service is not None:
            self._service.kill()
            self._service.wait()
            self._service = None

    def containers(self) -> list[str]:
        """Return the ids of all containers, running or not."""
        return self._podman("ps", "--all", "--quiet").split()

    def kill_container(self, name: str) -> None:
        """Send SIGKILL to a container's process."""
        self._podman("kill", name)

    def close(self) -> None:
        """End it, and remove all containers."""
        self.kill()
        for words in (("rm", "--all", "--force", "--time", "0"), ("rmi", "--all", "--force")):
            subprocess.run(
                self._command(*words),
                env=self._environment,
                capture_output=True,
                timeout=60,
                check=False,
            )
        for pid in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _left(self) -> list[int]:
        """Return processes of ours: podman's monitor of a command in a container stays for five minutes."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if str(self._folder).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return found

    @property
    def _environment(self) -> dict[str, str]:
        return os.environ | {"CONTAINERS_CONF": str(self._folder / "containers.conf")}

    def _command(self, *words: str) -> list[str]:
        folders = [
            "--root",
            f"{self._folder}/store",
            "--runroot",
            f"{self._folder}/run",
            "--storage-driver",
            "vfs",
        ]
        return ["podman", *folders, "--hooks-dir", f"{self._folder}/hooks", *words]

    def _podman(self, *words: str) -> str:
        done = subprocess.run(
            self._command(*words),
            env=self._environment,
            capture_output=True,
            timeout=60,
            check=True,
        )
        return done.stdout.decode()

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.host.removeprefix("unix://")) == 0

    def _write_files(self) -> None:
        folder = self._folder
        (folder / "containers.conf").write_text(CONF)
        (folder / "hooks").mkdir()
        hook = {"path": str(folder / "hook")}
        (folder / "hooks" / "mounts.json").write_text(
            json.dumps(
                {
                    "version": "1.0.0",
                    "hook": hook,
                    "when": {"always": True},
                    "stages": ["precreate"],
                }
            )
        )
        (folder / "hook").write_text(
            HOOK.format(
                python=sys.executable, mounts=json.dumps([mount(*pair) for pair in mounts()])
            )
        )
        (folder / "hook").chmod(0o755)
        root = folder / "root"
        for name in ("etc", "tmp", "usr", "mosquitto/data", "pulsar/bin", "pulsar/lib"):
            (root / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64", "sbin"):
            (root / name).symlink_to(f"usr/{name}")
        (root / "etc" / "passwd").write_text(
            "root:x:0:0::/:/bin/sh\nmosquitto:x:100:100::/:/bin/sh\n"
        )
        (root / "pulsar" / "bin" / "pulsar").write_text(standalone())
        (root / "pulsar" / "bin" / "pulsar").chmod(0o755)
        with tarfile.open(folder / "root.tar", "w") as tar:
            tar.add(root, arcname=".")


def mount(source: str, destination: str) -> dict[str, object]:
    return {
        "type": "bind",
        "source": source,
        "destination": destination,
        "options": ["rbind", "ro"],
    }


def mounts() -> list[tuple[str, str]]:
    """Return the mounts of this machine's files in containers."""
    found = [("/usr", "/usr"), (str(pulsar.LOG4J), "/pulsar/log4j2.xml")]
    found += [(str(path), str(path)) for path in Path("/etc").glob("java-*")]
    jars = java.cache_root() / f"pulsar-{pulsar_jars.PULSAR.version}"
    return [*found, (str(jars), "/pulsar/lib")] if jars.is_dir() else found


def standalone() -> str:
    """Return the script ``bin/pulsar`` of the image, which runs the same command for all arguments."""
    runtime = java.find()
    if runtime is None:
        return "#!/bin/sh\nexit 1\n"
    inside = java.Java(str(Path(runtime.path).resolve()), runtime.version)
    version = pulsar_jars.PULSAR.version
    command = pulsar.command(inside, Path("/pulsar/lib"), version, Path("/tmp"), BOOKIE_PORT)
    line = shlex.join(command)
    return f"#!/bin/sh\nmkdir -p /tmp/data/tmp\nexec {line.replace(str(pulsar.LOG4J), '/pulsar/log4j2.xml')}\n"
