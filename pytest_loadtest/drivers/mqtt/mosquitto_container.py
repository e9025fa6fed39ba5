"""mosquitto as a container: Eclipse's own image, or the user's, with the configuration of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.brokers.container import CONF, ContainerPlan, ContainerRecipe, publishing_address, with_conf
from pytest_loadtest.brokers.starting import listens
from pytest_loadtest.drivers.mqtt import mosquitto

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.brokers.docker_engine import RunningContainer

TAG = "2"
DATA = "/mosquitto/data"  # of the image, and writable for its user


def mosquitto_plan(*, image: str, ports: tuple[int, ...], settings: Mapping[str, str], host: str) -> ContainerPlan:
    """Eclipse mosquitto on one port, with the same configuration as the process."""
    (port,) = ports
    return ContainerPlan(
        name="mosquitto",
        image=image,
        command=with_conf("/tmp/mosquitto.conf", "mosquitto -c /tmp/mosquitto.conf"),
        env={CONF: mosquitto.config(port=port, settings=settings, user=None, data=DATA, address="0.0.0.0")},
        ports=ports,
        url=f"{mosquitto.scheme(settings)}://{host}:{port}",
        address=publishing_address(host),
    )


def default_image(version: str | None) -> str:
    """Eclipse's image. :param version: its tag; None is the default one."""
    return f"eclipse-mosquitto:{version or TAG}"


def ready(plan: ContainerPlan) -> bool:
    """The broker accepts a connection."""
    host, _, port = plan.url.partition("://")[2].rpartition(":")
    return listens(host, int(port))


def describe(plan: ContainerPlan, running: RunningContainer, settings: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """Version as the binary in the container prints it, and the decisive settings."""
    return mosquitto.parse_version(running.run(["mosquitto", "-h"])), mosquitto.decisive(settings)


RECIPE: Final = ContainerRecipe(default_image=default_image, ports=1, plan=mosquitto_plan, ready=ready, describe=describe)
