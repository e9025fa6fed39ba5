"""The same brokers as containers, where a Docker engine answers: Apache Pulsar's and Eclipse mosquitto's own images.

What goes into a container is computed by pure functions (:func:`pulsar_plan`, :func:`mosquitto_plan`). A broker has to advertise the port
that clients see, so host and container use the same one. The configuration travels in a variable: a folder of ours may not exist where the engine is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_loadtest.brokers import mosquitto, pulsar, pulsar_admin, pulsar_jars
from pytest_loadtest.brokers._base import BrokerFacts, BrokerRequest
from pytest_loadtest.brokers._ports import listens
from pytest_loadtest.brokers._starting import Progress, StartedBroker, on_free_ports, wait_ready
from pytest_loadtest.brokers._unavailable import Unavailable

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

ENGINE_SECONDS = 2  # for the engine's answer to a ping
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
    """mosquitto on one port, with the same configuration as the process."""
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

    :raises Unavailable: no Docker engine answers, testcontainers is not installed, or the image is not to be had.
    :raises TargetError: the container did not become a broker; with the last lines of its log.
    """
    require_engine()
    if request.kind == "pulsar":
        return on_free_ports(2, lambda ports: _launch(pulsar_plan, request.version or pulsar_jars.DEFAULT_VERSION, ports, request, progress))
    return on_free_ports(1, lambda ports: _launch(mosquitto_plan, request.version or MOSQUITTO_TAG, ports, request, progress))


def require_engine() -> str:
    """The version of the Docker engine; asked before testcontainers, whose import alone waits a minute for an engine that hangs.

    :raises Unavailable: none answers within two seconds, or the Python packages are not there.
    """
    if util.find_spec("docker") is None or util.find_spec("testcontainers") is None:
        raise Unavailable("testcontainers is not installed", PACKAGE_REMEDY)
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=ENGINE_SECONDS)
        try:
            return str(client.version()["Version"])
        finally:
            client.close()
    except (DockerException, OSError) as error:
        raise Unavailable(f"no Docker engine answers ({str(error)[:120]})", ENGINE_REMEDY) from error


class RunningContainer:
    """One container, as :class:`~pytest_loadtest.brokers._starting.Running`. The engine's own reaper (ryuk) ends it with the controller."""

    def __init__(self, container: DockerContainer, folder: Path) -> None:
        self._container = container
        self._folder = folder
        self._stopped = False

    def failure(self) -> str | None:
        if self._stopped:
            return None
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
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


Planner = Callable[..., ContainerPlan]


def _launch(planner: Planner, version: str, ports: tuple[int, ...], request: BrokerRequest, progress: Progress) -> StartedBroker:
    plan, running, container = _run(planner, version, ports, request, progress)
    took = wait_ready(running, lambda: ready(plan), name=plan.name, seconds=START_SECONDS, progress=progress)
    progress(f"{plan.name} ready in {took:.0f} s")
    if plan.admin_url:
        name, told, settings = "Pulsar", pulsar_admin.version(plan.admin_url), pulsar.decisive(plan.admin_url, request.settings)
    else:
        told = mosquitto.parse_version(container.exec(["mosquitto", "-h"]).output.decode(errors="replace"))
        name, settings = "mosquitto", mosquitto.decisive(request.settings)
    url, admin = plan.url, plan.admin_url
    facts = BrokerFacts(
        name=name, version=told, mode="container", url=url, admin_url=admin, settings={"image": plan.image} | settings, local="127.0.0.1" in url
    )
    return StartedBroker(facts, running)


def _run(
    planner: Planner, version: str, ports: tuple[int, ...], request: BrokerRequest, progress: Progress
) -> tuple[ContainerPlan, RunningContainer, DockerContainer]:
    from docker.errors import DockerException
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.docker_client import DockerClient

    host = DockerClient().host().replace("localhost", "127.0.0.1")
    plan = planner(version=version, ports=ports, settings=request.settings, host=host)
    progress(f"starting {plan.name} (image {plan.image}, pulled if it is not here)")
    container = DockerContainer(plan.image, command=list(plan.command), env=dict(plan.env))
    for port in plan.ports:
        container.with_bind_ports(port, port)
    try:
        container.start()
    except (DockerException, OSError) as error:
        container.stop()
        raise Unavailable(f"{plan.image} could not be run ({str(error)[:300]})", "check the engine's network and registry") from error
    return plan, RunningContainer(container, request.folder), container
