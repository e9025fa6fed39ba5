"""Brokers as containers, where a Docker engine answers: from their own images, or the user's.

What goes into a container is computed by a pure function of its :class:`ContainerRecipe`. A broker has to advertise the port that
clients see, so host and container use the same one. The configuration travels in a variable: a folder of ours may not exist where the
engine is.

The broker asks nobody for a password, so an engine of this machine publishes its ports on 127.0.0.1 alone. Those of a remote engine have to
be reached from here: they are published on every address of its machine, which terminal and report say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from pytest_loadtest.brokers.base import BrokerFacts, BrokerRequest
from pytest_loadtest.brokers.docker_engine import RunningContainer, require_engine
from pytest_loadtest.brokers.starting import Progress, StartedBroker, on_free_ports, wait_ready
from pytest_loadtest.errors import UsageError
from pytest_loadtest.kinds.registry import kind_of_broker, load
from pytest_loadtest.values.addresses import is_loopback

START_SECONDS = 120.0
HERE = "127.0.0.1"
CONF = "LOADTEST_CONF"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecipe:
    """How one broker runs in a container.

    :param default_image: wanted version, or None → the broker's own image. :param ports: how many it listens on.
    :param plan: called with ``image``, ``ports``, ``settings`` and ``host``. :param ready: clients can work.
    :param describe: the running broker's version, and the settings that decide results.
    """

    default_image: Callable[[str | None], str]
    ports: int
    plan: Callable[..., ContainerPlan]
    ready: Callable[[ContainerPlan], bool]
    describe: Callable[[ContainerPlan, RunningContainer, Mapping[str, str]], tuple[str, Mapping[str, str]]]


def publishing_address(host: str) -> str | None:
    """The address of the engine's machine on which ports are published; None: all. :param host: as this machine calls the engine's."""
    return HERE if host == HERE else None


def with_conf(path: str, command: str) -> tuple[str, ...]:
    """The command of a container that writes the variable :data:`CONF` to ``path`` first."""
    return ("sh", "-c", f'printf %s "${CONF}" > {path} && exec {command}')


def start(request: BrokerRequest, progress: Progress) -> StartedBroker:
    """Start the broker in a container; pulls its image the first time.

    :raises UnavailableError: no Docker engine answers, testcontainers is not installed, or the image is not to be had.
    :raises TargetError: the container did not become a broker; with the last lines of its log.
    """
    require_engine()
    recipe = recipe_of(request.kind)
    image = request.image or _prefix() + recipe.default_image(request.version)
    plan = partial(recipe.plan, image=image, settings=request.settings, host=_host())
    return on_free_ports(recipe.ports, lambda ports: _launch(recipe, plan(ports=ports), request, progress))


def recipe_of(name: str) -> ContainerRecipe:
    """The recipe of a broker.

    :raises UsageError: it has none.
    """
    kind = kind_of_broker(name)
    reference = kind.start_of(name).container
    if reference is None:
        raise UsageError(f"there is no container of the {name} broker: its BrokerStart.container must name a ContainerRecipe")
    recipe: ContainerRecipe = load(kind, reference)
    return recipe


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


def _launch(recipe: ContainerRecipe, plan: ContainerPlan, request: BrokerRequest, progress: Progress) -> StartedBroker:
    progress(f"starting {plan.name} (image {plan.image}, pulled if it is not here)")
    if plan.address is None:
        progress(f"{plan.name} asks for no password and can be reached at {plan.url} from every network of that machine")
    running = RunningContainer(
        plan.image, plan.command, env=plan.env, ports=plan.ports, address=plan.address, folder=request.folder, tell=progress
    )  # fmt: skip
    wait = partial(wait_ready, running, lambda: recipe.ready(plan), name=plan.name, seconds=START_SECONDS, progress=progress)
    progress(f"{plan.name} ready in {wait():.0f} s")
    return StartedBroker(_facts(recipe, plan, running, request.settings), running, wait)


def _facts(recipe: ContainerRecipe, plan: ContainerPlan, running: RunningContainer, settings: Mapping[str, str]) -> BrokerFacts:
    version, told = recipe.describe(plan, running, settings)
    return BrokerFacts(
        name=plan.name,
        version=version,
        mode="container",
        url=plan.url,
        admin_url=plan.admin_url,
        settings={
            "image": plan.image,
            **({"published on": "every address, without authentication"} if plan.address is None else {}),
            **told,
        },
        local=plan.address is not None,
    )
