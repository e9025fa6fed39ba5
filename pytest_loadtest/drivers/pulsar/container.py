"""Pulsar as a container: Apache's own image, or the user's, with the configuration of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.brokers.container import CONF, ContainerPlan, ContainerRecipe, publishing_address, with_conf
from pytest_loadtest.drivers.pulsar import broker as pulsar
from pytest_loadtest.drivers.pulsar import broker_admin as pulsar_admin
from pytest_loadtest.drivers.pulsar import jars as pulsar_jars

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.brokers.docker_engine import RunningContainer


def pulsar_plan(*, image: str, ports: tuple[int, ...], settings: Mapping[str, str], host: str) -> ContainerPlan:
    """Pulsar standalone on ``ports`` (broker, web), advertised as ``host``, with the same configuration as the process."""
    port, web_port = ports
    conf = pulsar.standalone_conf(port=port, web_port=web_port, settings=settings, bind="0.0.0.0", advertised=host)
    return ContainerPlan(
        name="Pulsar",
        image=image,
        command=with_conf("/tmp/standalone.conf", "bin/pulsar standalone -nfw -nss"),
        env={CONF: conf, "PULSAR_STANDALONE_CONF": "/tmp/standalone.conf", "PULSAR_MEM": " ".join(pulsar.MEMORY)},
        ports=ports,
        url=f"pulsar://{host}:{port}",
        address=publishing_address(host),
        admin_url=f"http://{host}:{web_port}",
    )


def default_image(version: str | None) -> str:
    """Apache's image. :param version: its tag; None is the default one."""
    return f"apachepulsar/pulsar:{version or pulsar_jars.PULSAR.version}"


def ready(plan: ContainerPlan) -> bool:
    """The admin REST says that clients can work."""
    return pulsar_admin.ready(plan.admin_url or "")


def describe(plan: ContainerPlan, running: RunningContainer, settings: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """Version and decisive settings, as the admin REST reports them."""
    admin = plan.admin_url or ""
    return pulsar_admin.version(admin), pulsar.decisive(admin, settings)


RECIPE: Final = ContainerRecipe(default_image=default_image, ports=2, plan=pulsar_plan, ready=ready, describe=describe)
