"""The same brokers as containers, where a Docker engine answers: Apache Pulsar's and Eclipse mosquitto's own images.

What goes into a container is computed by pure functions (:func:`pulsar_plan`, :func:`mosquitto_plan`).
A broker has to advertise the port that clients see, so host and container use the same one. The configuration travels in a variable:
a folder of ours may not exist where the engine is.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from functools import partial
from importlib import util
from typing import TYPE_CHECKING

from pytest_loadtest.brokers import mosquitto, pulsar, pulsar_admin, pulsar_jars
from pytest_loadtest.brokers._base import BrokerFacts, BrokerRequest
from pytest_loadtest.brokers._ports import listens
from pytest_loadtest.brokers._starting import Progress, StartedBroker, on_free_ports, wait_ready
from pytest_loadtest.brokers._unavailable import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from testcontainers.core.container import DockerContainer

ENGINE_SECONDS = 2  # for the engine to say its version
DEFAULT_HOST = "unix:///var/run/docker.sock"
API = "1.44"  # only named, never used: the question has no API version
START_SECONDS = 120.0
ENGINE_REMEDY = "start Docker, or use --load-broker process"
PACKAGE_REMEDY = "pip install 'pytest-loadtest[containers]'"
CONF = "LOADTEST_CONF"
MOSQUITTO_TAG = "2"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """One container: what runs in it, and how it is reached. ``ports`` are the same inside and outside."""

    name: str
    image: str
    command: tuple[str, ...]
    ports: tuple[int, ...]
    url: str
    env: Mapping[str, str] = field(default_factory=dict)
    admin_url: str | None = None


def pulsar_plan(*, version: str, ports: tuple[int, ...], settings: Mapping[str, str], host: str) -> ContainerPlan:
    """Pulsar standalone on ``ports`` (broker, web), advertised as ``host``, with the same configuration as the process."""
    port, web_port = ports
    conf = pulsar.standalone_conf(port=port, web_port=web_port, settings=settings, bind="0.0.0.0", advertised=host)
    return ContainerPlan(
        name=f"Pulsar {version}",
        image=f"apachepulsar/pulsar:{version}",
        command=_with_conf("/tmp/standalone.conf", "bin/pulsar standalone -nfw -nss"),
        env={CONF: conf, "PULSAR_STANDALONE_CONF": "/tmp/standalone.conf", "PULSAR_MEM": " ".join(pulsar.MEMORY)},
        ports=ports,
        url=f"pulsar://{host}:{port}",
        admin_url=f"http://{host}:{web_port}",
    )


def mosquitto_plan(*, version: str, ports: tuple[int, ...], settings: Mapping[str, str], host: str) -> ContainerPlan:
    """Eclipse mosquitto on one port, with the same configuration as the process."""
    (port,) = ports
    return ContainerPlan(
        name=f"mosquitto {version}",
        image=f"eclipse-mosquitto:{version}",
        command=_with_conf("/tmp/mosquitto.conf", "mosquitto -c /tmp/mosquitto.conf"),
        env={CONF: mosquitto.config(port=port, settings=settings, user=None, address="0.0.0.0")},
        ports=ports,
        url=f"{mosquitto.scheme(settings)}://{host}:{port}",
    )


def _with_conf(path: str, command: str) -> tuple[str, ...]:
    return ("sh", "-c", f'printf %s "${CONF}" > {path} && exec {command}')


def ready(plan: ContainerPlan) -> bool:
    """Whether clients can work: Pulsar's admin says so, mosquitto accepts a connection."""
    if plan.admin_url:
        return pulsar_admin.ready(plan.admin_url)
    host, _, port = plan.url.partition("://")[2].rpartition(":")
    return listens(host, int(port))


def start(request: BrokerRequest, progress: Progress) -> StartedBroker:
    """Start the broker in a container; pulls its image the first time.

    :raises UnavailableError: no Docker engine answers, testcontainers is not installed, or the image is not to be had.
    :raises TargetError: the container did not become a broker; with the last lines of its log.
    """
    require_engine()
    if request.kind == "pulsar":
        planner, count, version = pulsar_plan, 2, pulsar_jars.DEFAULT_VERSION
    else:
        planner, count, version = mosquitto_plan, 1, MOSQUITTO_TAG
    plan = partial(planner, version=request.version or version, settings=request.settings)
    return on_free_ports(count, lambda ports: _launch(plan, ports, request, progress))


def require_engine() -> str:
    """The version of the Docker engine; asked before testcontainers, whose import alone waits a minute for an engine that hangs.

    :raises UnavailableError: none answers within two seconds, or the Python packages are not there.
    """
    if util.find_spec("docker") is None or util.find_spec("testcontainers") is None:
        raise UnavailableError("testcontainers is not installed", PACKAGE_REMEDY)
    import docker
    from docker.errors import DockerException

    host = os.environ.get("DOCKER_HOST") or DEFAULT_HOST
    try:
        _knock(host)
        # A named API version keeps the constructor from asking the engine, where a failure would leave its socket open.
        client = docker.from_env(timeout=ENGINE_SECONDS, version=API)
        try:
            return str(client.api.version(api_version=False)["Version"])
        finally:
            client.close()
    except (DockerException, OSError) as error:
        why = getattr(error, "strerror", None) or str(error)[:120]
        raise UnavailableError(f"no Docker engine answers at {host} ({why})", ENGINE_REMEDY) from error


def _knock(host: str) -> None:
    """Connect to the engine's socket ourselves: docker-py leaves its own open where nobody answers."""
    scheme, _, path = host.partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(ENGINE_SECONDS)
            probe.connect(path)


class RunningContainer:
    """One container, as :class:`~pytest_loadtest.brokers._starting.Running`. The engine's own reaper (ryuk) ends it with the controller."""

    def __init__(self, container: DockerContainer, folder: Path) -> None:
        self._container = container
        self._folder = folder
        self._stopped = False

    def failure(self) -> str | None:
        if self._stopped:
            return None
        from docker.errors import DockerException

        wrapped = self._container.get_wrapped_container()
        try:
            wrapped.reload()
        except (DockerException, OSError) as error:
            return f"container {wrapped.short_id} cannot be seen any more: {str(error)[:200]}"
        if wrapped.status in ("created", "running"):
            return None
        return f"container {wrapped.short_id} is {wrapped.status}, exit status {wrapped.attrs['State']['ExitCode']}"

    def tail(self) -> str:
        output, errors = self._container.get_logs()
        return "\n".join((output + errors).decode(errors="replace").splitlines()[-20:])

    def abandon(self) -> None:
        self._save_log()
        self._remove()

    def stop(self) -> None:
        if not self._stopped and self.failure() is not None:
            self._save_log()
        self._remove()

    def _save_log(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        output, errors = self._container.get_logs()
        (self._folder / "broker.log").write_bytes(output + errors)

    def _remove(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._container.stop()


def _launch(planner: Callable[..., ContainerPlan], ports: tuple[int, ...], request: BrokerRequest, progress: Progress) -> StartedBroker:
    from testcontainers.core.docker_client import DockerClient

    plan = planner(ports=ports, host=DockerClient().host().replace("localhost", "127.0.0.1"))
    progress(f"starting {plan.name} (image {plan.image}, pulled if it is not here)")
    container = _run(plan)
    running = RunningContainer(container, request.folder)
    took = wait_ready(running, lambda: ready(plan), name=plan.name, seconds=START_SECONDS, progress=progress)
    progress(f"{plan.name} ready in {took:.0f} s")
    return StartedBroker(_facts(plan, container, request.settings), running)


def _run(plan: ContainerPlan) -> DockerContainer:
    from docker.errors import DockerException
    from testcontainers.core.container import DockerContainer

    container = DockerContainer(plan.image, env=dict(plan.env)).with_command(list(plan.command))
    for port in plan.ports:
        container.with_bind_ports(port, port)
    try:
        return container.start()
    except (DockerException, OSError) as error:
        container.stop()
        raise UnavailableError(f"{plan.image} could not be run ({str(error)[:300]})", "check the engine's network and registry") from error


def _facts(plan: ContainerPlan, container: DockerContainer, settings: Mapping[str, str]) -> BrokerFacts:
    if plan.admin_url:
        name, version, told = "Pulsar", pulsar_admin.version(plan.admin_url), pulsar.decisive(plan.admin_url, settings)
    else:
        banner = container.exec(["mosquitto", "-h"]).output.decode(errors="replace")
        name, version, told = "mosquitto", mosquitto.parse_version(banner), mosquitto.decisive(settings)
    return BrokerFacts(
        name=name,
        version=version,
        mode="container",
        url=plan.url,
        admin_url=plan.admin_url,
        settings={"image": plan.image} | told,
        local="127.0.0.1" in plan.url,
    )
