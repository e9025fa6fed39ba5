"""Brokers in containers, from their own images or the user's.

A pure function of the :class:`ContainerRecipe` computes the contents of a container. A broker has
to advertise the port that clients see, so host and container use the same one. An environment
variable carries the configuration, as an engine on another machine cannot mount our folders.

The broker requires no password, so an engine on this machine publishes its ports on 127.0.0.1 only.
A remote engine has to publish them on every address of its machine; terminal and report say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial

from pytest_loadtest.brokers.base import BrokerFacts, BrokerRequest
from pytest_loadtest.brokers.docker_engine import RunningContainer, require_engine
from pytest_loadtest.brokers.starting import Progress, StartedBroker, on_free_ports, wait_ready
from pytest_loadtest.errors import UsageError
from pytest_loadtest.kinds.registry import kind_of_broker, load_reference
from pytest_loadtest.values.addresses import is_loopback
from pytest_loadtest.values.records import record

START_SECONDS = 120.0
HERE = "127.0.0.1"
CONF = "LOADTEST_CONF"


@record
class ContainerPlan:
    """One container: its command and its addresses.

    :param ports: the same inside and outside.
    :param address: address on which the engine publishes them; None: every address of its machine.
    """

    name: str
    image: str
    command: tuple[str, ...]
    ports: tuple[int, ...]
    url: str
    address: str | None
    env: Mapping[str, str] = field(default_factory=dict)
    admin_url: str | None = None


@record
class ContainerRecipe:
    """The recipe for running one broker in a container.

    :param default_image: version, or None → the broker's own image.
    :param ports: number of ports that it listens on.
    :param plan: called with ``image``, ``ports``, ``settings`` and ``host``.
    :param ready: returns True when clients can work.
    :param describe: returns the running broker's version, and the settings that affect results.
    """

    default_image: Callable[[str | None], str]
    ports: int
    plan: Callable[..., ContainerPlan]
    ready: Callable[[ContainerPlan], bool]
    describe: Callable[
        [ContainerPlan, RunningContainer, Mapping[str, str]], tuple[str, Mapping[str, str]]
    ]


def publishing_address(host: str) -> str | None:
    """Return the address on which the engine publishes ports; None: all.

    :param host: the engine's machine, seen from this one.
    """
    return HERE if host == HERE else None


def with_conf(path: str, command: str) -> tuple[str, ...]:
    """Return a container's command that first writes the variable :data:`CONF` to ``path``."""
    return ("sh", "-c", f'printf %s "${CONF}" > {path} && exec {command}')


def start(request: BrokerRequest, progress: Progress) -> StartedBroker:
    """Start the broker in a container; pulls its image the first time.

    :raises UnavailableError: no Docker engine answers, testcontainers is not installed, or the
        image cannot be pulled.
    :raises TargetError: the broker in the container did not become ready; with the last lines of
        its log.
    """
    require_engine()
    from testcontainers.core.config import testcontainers_config

    recipe = recipe_of(request.kind)
    image = request.image or testcontainers_config.hub_image_name_prefix + recipe.default_image(
        request.version
    )
    plan = partial(recipe.plan, image=image, settings=request.settings, host=_host())
    return on_free_ports(
        recipe.ports, lambda ports: _launch(recipe, plan(ports=ports), request, progress)
    )


def recipe_of(name: str) -> ContainerRecipe:
    """Return the recipe of a broker.

    :raises UsageError: it has none.
    """
    kind = kind_of_broker(name)
    reference = kind.start_of(name).container
    if reference is None:
        raise UsageError(
            f"there is no container of the {name} broker: its BrokerStart.container must name a"
            " ContainerRecipe"
        )
    recipe: ContainerRecipe = load_reference(kind, reference)
    return recipe


def _host() -> str:
    from testcontainers.core.docker_client import DockerClient

    client = DockerClient()
    try:
        return HERE if is_loopback(host := client.host()) else host
    finally:
        client.client.close()


def _launch(
    recipe: ContainerRecipe, plan: ContainerPlan, request: BrokerRequest, progress: Progress
) -> StartedBroker:
    progress(f"starting {plan.name} (image {plan.image}, pulled if the engine does not have it)")
    if plan.address is None:
        progress(
            f"{plan.name} requires no password and can be reached at {plan.url} from every"
            " network of that machine"
        )
    running = RunningContainer(
        plan.image,
        plan.command,
        env=plan.env,
        ports=plan.ports,
        address=plan.address,
        folder=request.folder,
        tell=progress,
    )
    wait = partial(
        wait_ready,
        running,
        lambda: recipe.ready(plan),
        plan.name,
        START_SECONDS,
        progress,
    )
    progress(f"{plan.name} ready in {wait():.0f} s")
    return StartedBroker(_facts(recipe, plan, running, request.settings), running, wait)


def _facts(
    recipe: ContainerRecipe,
    plan: ContainerPlan,
    running: RunningContainer,
    settings: Mapping[str, str],
) -> BrokerFacts:
    version, reported = recipe.describe(plan, running, settings)
    published = (
        {"published on": "every address, without authentication"} if plan.address is None else {}
    )
    return BrokerFacts(
        name=plan.name,
        version=version,
        mode="container",
        url=plan.url,
        admin_url=plan.admin_url,
        settings={"image": plan.image, **published, **reported},
        local=plan.address is not None,
    )
