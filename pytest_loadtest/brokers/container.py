"""The same brokers as containers, where a Docker engine answers: Apache Pulsar's and Eclipse mosquitto's own images, or the user's.

What goes into a container is computed by pure functions (:func:`pulsar_plan`, :func:`mosquitto_plan`).
A broker has to advertise the port that clients see, so host and container use the same one. The configuration travels in a variable:
a folder of ours may not exist where the engine is.

The broker asks nobody for a password, so an engine of this machine publishes its ports on 127.0.0.1 alone. Those of a remote engine have to
be reached from here: they are published on every address of its machine, which terminal and report say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pytest_loadtest.brokers import maven, mosquitto, pulsar, pulsar_admin
from pytest_loadtest.brokers.base import BrokerFacts, BrokerRequest
from pytest_loadtest.brokers.docker_engine import RunningContainer, require_engine
from pytest_loadtest.brokers.ports import listens
from pytest_loadtest.brokers.starting import Progress, StartedBroker, on_free_ports, wait_ready
from pytest_loadtest.values.addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

START_SECONDS = 120.0
HERE = "127.0.0.1"
CONF = "LOADTEST_CONF"
MOSQUITTO_TAG = "2"
MOSQUITTO_DATA = "/mosquitto/data"  # of the image, and writable for its user


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """One container: what runs in it, and how it is reached. ``ports`` are the same inside and outside.

    ``address`` is where the engine publishes them; None: on every address of its machine.
    """

    name: str
    image: str
    command: tuple[str, ...]
    ports: tuple[int, ...]
    url: str
    address: str | None
    env: Mapping[str, str] = field(default_factory=dict)
    admin_url: str | None = None


def pulsar_plan(*, image: str, ports: tuple[int, ...], settings: Mapping[str, str], host: str) -> ContainerPlan:
    """Pulsar standalone on ``ports`` (broker, web), advertised as ``host``, with the same configuration as the process."""
    port, web_port = ports
    conf = pulsar.standalone_conf(port=port, web_port=web_port, settings=settings, bind="0.0.0.0", advertised=host)
    return ContainerPlan(
        name="Pulsar",
        image=image,
        command=_with_conf("/tmp/standalone.conf", "bin/pulsar standalone -nfw -nss"),
        env={CONF: conf, "PULSAR_STANDALONE_CONF": "/tmp/standalone.conf", "PULSAR_MEM": " ".join(pulsar.MEMORY)},
        ports=ports,
        url=f"pulsar://{host}:{port}",
        address=publishing_address(host),
        admin_url=f"http://{host}:{web_port}",
    )


def mosquitto_plan(*, image: str, ports: tuple[int, ...], settings: Mapping[str, str], host: str) -> ContainerPlan:
    """Eclipse mosquitto on one port, with the same configuration as the process."""
    (port,) = ports
    return ContainerPlan(
        name="mosquitto",
        image=image,
        command=_with_conf("/tmp/mosquitto.conf", "mosquitto -c /tmp/mosquitto.conf"),
        env={CONF: mosquitto.config(port=port, settings=settings, user=None, data=MOSQUITTO_DATA, address="0.0.0.0")},
        ports=ports,
        url=f"{mosquitto.scheme(settings)}://{host}:{port}",
        address=publishing_address(host),
    )


def publishing_address(host: str) -> str | None:
    """The address of the engine's machine on which ports are published; None: all. :param host: as this machine calls the engine's."""
    return HERE if host == HERE else None


def _with_conf(path: str, command: str) -> tuple[str, ...]:
    return ("sh", "-c", f'printf %s "${CONF}" > {path} && exec {command}')


def ready(plan: ContainerPlan) -> bool:
    """Whether clients can work: Pulsar's admin says so, mosquitto accepts a connection."""
    if plan.admin_url:
        return pulsar_admin.ready(plan.admin_url)
    host, _, port = plan.url.partition("://")[2].rpartition(":")
    return listens(host, int(port))


def default_image(kind: str, version: str | None = None) -> str:
    """The broker's own image. :param kind: ``pulsar`` or ``mqtt``. :param version: its tag; None is the default one."""
    if kind == "pulsar":
        return f"apachepulsar/pulsar:{version or maven.PULSAR.version}"
    return f"eclipse-mosquitto:{version or MOSQUITTO_TAG}"


def start(request: BrokerRequest, progress: Progress) -> StartedBroker:
    """Start the broker in a container; pulls its image the first time.

    :raises UnavailableError: no Docker engine answers, testcontainers is not installed, or the image is not to be had.
    :raises TargetError: the container did not become a broker; with the last lines of its log.
    """
    require_engine()
    planner, count = (pulsar_plan, 2) if request.kind == "pulsar" else (mosquitto_plan, 1)
    image = request.image or _prefix() + default_image(request.kind, request.version)
    plan = partial(planner, image=image, settings=request.settings, host=_host())
    return on_free_ports(count, lambda ports: _launch(plan(ports=ports), request, progress))


def _prefix() -> str:
    from testcontainers.core.config import testcontainers_config

    return testcontainers_config.hub_image_name_prefix


def _host() -> str:
    """Where the engine's ports are."""
    from testcontainers.core.docker_client import DockerClient

    client = DockerClient()
    try:
        return HERE if is_loopback(host := client.host()) else host
    finally:
        client.client.close()


def _launch(plan: ContainerPlan, request: BrokerRequest, progress: Progress) -> StartedBroker:
    progress(f"starting {plan.name} (image {plan.image}, pulled if it is not here)")
    if plan.address is None:
        progress(f"{plan.name} asks for no password and can be reached at {plan.url} from every network of that machine")
    running = RunningContainer(
        plan.image, plan.command, env=plan.env, ports=plan.ports, address=plan.address, folder=request.folder, tell=progress
    )  # fmt: skip
    wait = partial(wait_ready, running, lambda: ready(plan), name=plan.name, seconds=START_SECONDS, progress=progress)
    progress(f"{plan.name} ready in {wait():.0f} s")
    return StartedBroker(_facts(plan, running, request.settings), running, wait)


def _facts(plan: ContainerPlan, running: RunningContainer, settings: Mapping[str, str]) -> BrokerFacts:
    if plan.admin_url:
        version, told = pulsar_admin.version(plan.admin_url), pulsar.decisive(plan.admin_url, settings)
    else:
        version, told = mosquitto.parse_version(running.run(["mosquitto", "-h"])), mosquitto.decisive(settings)
    return BrokerFacts(
        name=plan.name,
        version=version,
        mode="container",
        url=plan.url,
        admin_url=plan.admin_url,
        settings={"image": plan.image} | ({"published on": "every address, without authentication"} if plan.address is None else {}) | told,
        local=plan.address is not None,
    )
