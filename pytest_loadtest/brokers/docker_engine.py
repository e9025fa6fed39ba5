"""The Docker engine, and a container in it that is removed however the controller ends."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import subprocess
import sys
import threading
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.brokers.base import UnavailableError
from pytest_loadtest.errors import TargetError
from pytest_loadtest.values.addresses import masked, masked_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from testcontainers.core.docker_client import DockerClient

ENGINE_SECONDS = 10  # for the engine to report its version, on a busy machine
REMOVE_SECONDS = 5.0  # for the engine to remove a container; after that only the guard waits
DEFAULT_HOST = "unix:///var/run/docker.sock"
API = (
    "1.44"  # any value works: docker-py's constructor requires one, but our requests do not use it
)
ENGINE_REMEDY = (
    "start Docker (or podman's service, with DOCKER_HOST), or use --load-broker-mode process"
)
PACKAGE_REMEDY = "pip install 'pytest-loadtest[containers]'"
IMAGE_REMEDY = (
    "name one that the engine has or can pull: --load-image IMAGE, or target: {image:"
    " IMAGE} in the profile"
)
LABEL = "pytest-loadtest"


def require_engine() -> str:
    """Return the version of the Docker engine.

    Called before testcontainers is imported: that import alone waits a minute for an engine that
    hangs.

    :raises UnavailableError: none answers within ten seconds, or the Python packages are not
        installed.
    """
    if util.find_spec("docker") is None or util.find_spec("testcontainers") is None:
        raise UnavailableError("testcontainers is not installed", PACKAGE_REMEDY)
    import docker
    from docker.errors import DockerException

    try:
        _probe(_host())
        # Without a version the constructor asks the engine for one, and leaves its socket open if
        # that fails.
        client = docker.from_env(timeout=ENGINE_SECONDS, version=API)
        try:
            return str(client.api.version(api_version=False)["Version"])
        finally:
            client.close()
    except (DockerException, OSError) as error:
        reason = getattr(error, "strerror", None) or masked_text(str(error), _host())[:120]
        raise UnavailableError(
            f"no Docker engine answers at {masked(_host())} ({reason})", ENGINE_REMEDY
        ) from error


def images_here(names: Sequence[str]) -> tuple[str, ...]:
    """Return those of the images that the engine has already.

    :raises UnavailableError: no engine answers.
    """
    require_engine()
    import docker
    from docker.errors import DockerException, ImageNotFound

    client = docker.from_env()
    present = []
    try:
        for name in names:
            with contextlib.suppress(ImageNotFound):
                client.images.get(name)
                present.append(name)
    except (DockerException, OSError) as error:
        raise UnavailableError(
            f"the Docker engine does not list its images ({_reason(error)})", ENGINE_REMEDY
        ) from error
    finally:
        client.close()
    return tuple(present)


def _host() -> str:
    return os.environ.get("DOCKER_HOST") or DEFAULT_HOST


def _probe(host: str) -> None:
    """Connect to the engine's socket ourselves.

    docker-py leaves its own open if nothing answers.
    """
    scheme, _, path = host.partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(ENGINE_SECONDS)
            probe.connect(path)


def _reason(error: Exception) -> str:
    return masked_text(str(getattr(error, "explanation", None) or error), _host())[:300]


class RunningContainer:
    """One container, as :class:`~pytest_loadtest.brokers.starting.Running`.

    Its guard process removes it, however the controller ends.

    :param image: pulled if the engine does not have it. :param ports: the same inside and outside.
    :param address: address of the engine's machine on which the ports are published; None: every
        one.
    :param folder: folder for the log of a failed broker.
    :param tell: takes a line if the container cannot be removed.
    :raises UnavailableError: the image cannot be pulled, or the engine cannot run it.
    """

    def __init__(
        self,
        image: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        ports: Sequence[int],
        address: str | None,
        folder: Path,
        tell: Callable[[str], None],
    ) -> None:
        from testcontainers.core.docker_client import DockerClient

        self._client = DockerClient()
        self._folder = folder
        self._tell = tell
        self._stopped = False
        self.pid = None  # the engine may be on another machine
        self._label = f"{LABEL}={secrets.token_hex(8)}"
        self._guard = _start_guard(self._label)
        try:
            published: dict[str, int | tuple[str, int]]
            if address is None:
                published = {str(port): port for port in ports}
            else:
                published = {str(port): (address, port) for port in ports}
            self._container = _create(
                self._client,
                image,
                self._label,
                published,
                command=list(command),
                environment=dict(env),
            )
        except BaseException:
            self._remove()
            raise

    def run(self, command: Sequence[str]) -> str:
        """Run a command in the container and return its output."""
        output: bytes = self._container.exec_run(list(command)).output
        return output.decode(errors="replace")

    def restart(self, grace: float) -> None:
        """Restart the same container: its ports and its files stay."""
        from docker.errors import DockerException

        try:
            self._container.restart(timeout=round(grace))
        except (DockerException, OSError) as error:
            raise TargetError(f"the container could not be restarted: {_reason(error)}") from error

    def failure(self) -> str | None:
        if self._stopped:
            return None
        from docker.errors import DockerException

        container = self._container
        try:
            _probe(_host())
            container.reload()
        except (DockerException, OSError) as error:
            return (
                f"container {container.short_id} has an unknown state,"
                f" the engine at {masked(_host())} does not answer: {_reason(error)}"
            )
        if container.status in ("created", "running"):
            return None
        return (
            f"container {container.short_id} is {container.status},"
            f" exit status {container.attrs['State']['ExitCode']}"
        )

    def tail(self) -> str:
        return "\n".join(self._log().decode(errors="replace").splitlines()[-20:])

    def abandon(self) -> None:
        self._save_log()
        self._remove()

    def stop(self) -> None:
        if not self._stopped and self.failure() is not None:
            self._save_log()
        self._remove()

    def _log(self) -> bytes:
        """Return the container's log; empty if the engine does not answer."""
        from docker.errors import DockerException

        with contextlib.suppress(DockerException, OSError):
            _probe(_host())
            log: bytes = self._container.logs()
            return log
        return b""

    def _save_log(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "broker.log").write_bytes(self._log())

    def _remove(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._client.client.close()
        trouble = _end_guard(self._guard)
        if trouble:
            remedy = f"once the engine answers: docker rm -f $(docker ps -aqf label={self._label})"
            self._tell(f"the container is still at {masked(_host())} ({trouble}); {remedy}")


def _start_guard(label: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", str(Path(__file__).with_name("container_guard.py")), label]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet, start_new_session=True
    )


def _end_guard(guard: subprocess.Popen[bytes]) -> str:
    """Make the guard remove its containers.

    :returns: empty, or the reason why they are still there while it retries.
    """
    assert guard.stdin is not None and guard.stdout is not None
    with (
        guard.stdin,
        guard.stdout,
        contextlib.suppress(BrokenPipeError),
    ):  # a killed guard: reading its output gives an end of file
        guard.stdin.write(b"remove")
        guard.stdin.close()
        readable, _, _ = select.select([guard.stdout], [], [], REMOVE_SECONDS)
        reason = (
            os.read(guard.stdout.fileno(), 4096)
            if readable
            else f"not removed within {REMOVE_SECONDS:.0f} s".encode()
        )
        if reason:
            threading.Thread(
                target=guard.wait, daemon=True
            ).start()  # no zombie remains when the guard ends
            return reason.decode(errors="replace").strip()
    return "" if guard.wait() == 0 else "the process that removes it was killed"


def _create(
    client: DockerClient,
    image: str,
    label: str,
    ports: Mapping[str, int | tuple[str, int]],
    **options: Any,
) -> Any:
    """Create and start a container.

    :param ports: port inside → port, or address and port, on the engine's machine.
    """
    from docker.errors import DockerException, ImageNotFound

    try:
        container = client.create(image, ports=ports, labels=dict([label.split("=")]), **options)
        container.start()
    except ImageNotFound as error:
        raise UnavailableError(
            f"the engine has no image {image} and cannot pull it ({_reason(error)})", IMAGE_REMEDY
        ) from error
    except (DockerException, OSError) as error:
        remedy = f"check the engine's network and registry, or {IMAGE_REMEDY}"
        raise UnavailableError(
            f"the image {image} could not be run ({_reason(error)})", remedy
        ) from error
    return container
