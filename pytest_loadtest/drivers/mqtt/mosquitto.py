"""mosquitto as a process: found on this machine, with a configuration of its own on a free port.

Facts: `mosquitto.conf(5) <https://mosquitto.org/man/mosquitto-conf-5.html>`_. Started as root it would drop to its own user and lose its
folder, hence the ``user`` line. Without ``set_tcp_nodelay`` single messages show a tail of 40 ms.

With ``persistence: true`` in the profile's ``broker.settings`` it writes sessions, subscriptions and messages to its data folder when it
ends in order, and every ``autosave_interval`` seconds, by default 1800: what a restart by SIGKILL brings back is as old as that.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pytest_loadtest.brokers.base import ROLE, BrokerFacts, BrokerRequest, UnavailableError, described, refuse_managed
from pytest_loadtest.brokers.container import CONF, ContainerPlan, ContainerRecipe, publishing_address, with_conf
from pytest_loadtest.brokers.process import Child
from pytest_loadtest.brokers.starting import Progress, StartedBroker, listens, on_free_ports, wait_ready
from pytest_loadtest.drivers.mqtt.settings import Tls

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_loadtest.brokers.docker_engine import RunningContainer
    from pytest_loadtest.profile.sections import SecuritySection


START_SECONDS = 20.0
REMEDY = "apt-get install mosquitto, or python -m pytest_loadtest doctor --fix"
MANAGED = frozenset({"listener", "port", "bind_address", "user", "pid_file"})
DECISIVE = {  # what decides results, with mosquitto's own defaults
    "max_queued_messages": "1000",
    "max_inflight_messages": "20",
    "queue_qos0_messages": "false",
    "set_tcp_nodelay": "false",
    "persistence": "false",
}


def start_mosquitto(request: BrokerRequest, progress: Progress) -> StartedBroker:
    """Start mosquitto; ready in a second.

    :raises UnavailableError: no mosquitto here, or not the wanted version.
    :raises TargetError: it did not start; with its own words.
    """
    binary = find_binary()
    if binary is None:
        raise UnavailableError("no mosquitto on the PATH or in /usr/sbin", REMEDY)
    version = installed_version(binary)
    check_version(version, request.version)
    count = 2 if request.security is not None and request.security.tls == "subscribers" else 1
    return on_free_ports(count, lambda ports: _launch(binary, version, ports, request, progress))


def find_binary() -> str | None:
    """The mosquitto binary; Debian puts it where only root's PATH looks."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def installed_version(binary: str) -> str:
    """What ``mosquitto -h`` says of itself; it exits with status 3 or 0 depending on the version, so the status means nothing."""
    answer = subprocess.run([binary, "-h"], capture_output=True, text=True, timeout=10, check=False)
    return parse_version(answer.stdout + answer.stderr)


def parse_version(text: str) -> str:
    """``mosquitto version 2.0.11 …`` → ``2.0.11``; ``unknown`` when it does not say."""
    match = re.search(r"mosquitto version (\S+)", text)
    return match[1] if match else "unknown"


def check_version(installed: str, wanted: str | None) -> None:
    """``2`` and ``2.0`` are satisfied by 2.0.11.

    :raises UnavailableError: another version is installed.
    """
    if wanted is not None and not (installed + ".").startswith(wanted + "."):
        raise UnavailableError(f"mosquitto {installed} is installed, {wanted} is wanted", "use --load-broker container for another version")


def config(
    *, port: int, settings: Mapping[str, str], user: str | None, data: str, address: str = "127.0.0.1",
    tls: Mapping[str, str] = MappingProxyType({}), tls_port: int | None = None,
) -> str:  # fmt: skip
    """The text of ``conf``: ours, then the profile's lines, which win over ours of the same key.

    :param user: who mosquitto stays when root starts it; None leaves it its own choice. :param data: folder that this user may write to.
    :param tls: lines of the listener that speaks TLS. :param tls_port: of that one; None: it is the only one.
    :raises UsageError: the profile sets a key that the plugin has to set.
    """
    refuse_managed("mosquitto", settings, MANAGED | (TLS_MANAGED if tls else frozenset()))
    lines = {"user": user} if user else {}
    lines |= {
        "listener": f"{port} {address}",
        "allow_anonymous": "true",
        "set_tcp_nodelay": "true",
        "sys_interval": "1",
        "persistence": "false",
        "persistence_location": f"{data}/",
        "log_dest": "stderr",
        "log_type": "error",
    }
    lines |= settings
    if tls_port is None:
        return _text({**lines, **tls})
    return _text(lines) + _text({"listener": f"{tls_port} {address}", **tls})  # lines of a listener stand below it


def _text(lines: Mapping[str, str]) -> str:
    return "".join(f"{key} {value}\n" for key, value in lines.items())


def decisive_mosquitto_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that decide results, for the report: defaults, ours, the profile's."""
    return DECISIVE | {"set_tcp_nodelay": "true"} | dict(settings)


def scheme(settings: Mapping[str, str]) -> str:
    """``mqtts`` when the profile gives the listener a certificate."""
    return "mqtts" if "certfile" in settings else "mqtt"


def _user() -> str | None:
    """Our own name; None for a user without one, as containers have: then we are not root and mosquitto does not ask."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None


def _launch(binary: str, version: str, ports: tuple[int, ...], request: BrokerRequest, progress: Progress) -> StartedBroker:
    folder, name = request.folder.resolve(), f"mosquitto {version}"
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    secured = tls_listener(data / "security", request.security, request.tls) if request.security else None
    text = config(
        port=ports[0], settings=request.settings, user=_user(), data=str(data), tls=secured.lines if secured else {},
        tls_port=ports[1] if len(ports) > 1 else None,
    )  # fmt: skip
    path = folder / "mosquitto.conf"
    path.write_text(text)
    progress(f"starting {name}")
    child = Child([binary, "-c", str(path)], folder=folder, ports=ports)
    wait = partial(wait_ready, child, partial(_listens, ports), name=name, seconds=START_SECONDS, progress=progress)
    wait()
    return StartedBroker(_facts(version, ports, request, secured), child, wait)


def _listens(ports: tuple[int, ...]) -> bool:
    return all(listens("127.0.0.1", port) for port in ports)


def _facts(version: str, ports: tuple[int, ...], request: BrokerRequest, secured: TlsListener | None) -> BrokerFacts:
    only_tls = secured is not None and len(ports) == 1
    facts = BrokerFacts(
        name="mosquitto",
        version=version,
        mode="process",
        url=f"{'mqtts' if only_tls else scheme(request.settings)}://127.0.0.1:{ports[0]}",
        settings=decisive_mosquitto_settings(request.settings),
    )
    if secured is None or request.security is None:
        return facts
    settings = {**facts.settings, "security": described(request.security), **secured.told}
    beside = None if only_tls else f"mqtts://127.0.0.1:{ports[1]}"
    return replace(facts, subscriber_url=beside, settings=settings, client={"tls": secured.client})


# mosquitto as a container: Eclipse's own image, or the user's, with the configuration of the process.

CONTAINER_TAG = "2"
CONTAINER_DATA = "/mosquitto/data"  # of the image, and writable for its user


def mosquitto_plan(*, image: str, ports: tuple[int, ...], settings: Mapping[str, str], host: str) -> ContainerPlan:
    """Eclipse mosquitto on one port, with the same configuration as the process."""
    (port,) = ports
    return ContainerPlan(
        name="mosquitto",
        image=image,
        command=with_conf("/tmp/mosquitto.conf", "mosquitto -c /tmp/mosquitto.conf"),
        env={CONF: config(port=port, settings=settings, user=None, data=CONTAINER_DATA, address="0.0.0.0")},
        ports=ports,
        url=f"{scheme(settings)}://{host}:{port}",
        address=publishing_address(host),
    )


def mosquitto_image(version: str | None) -> str:
    """Eclipse's image. :param version: its tag; None is the default one."""
    return f"eclipse-mosquitto:{version or CONTAINER_TAG}"


def container_ready(plan: ContainerPlan) -> bool:
    """The broker accepts a connection."""
    host, _, port = plan.url.partition("://")[2].rpartition(":")
    return listens(host, int(port))


def describe_container(plan: ContainerPlan, running: RunningContainer, settings: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """Version as the binary in the container prints it, and the decisive settings."""
    return parse_version(running.run(["mosquitto", "-h"])), decisive_mosquitto_settings(settings)


RECIPE: Final = ContainerRecipe(
    default_image=mosquitto_image, ports=1, plan=mosquitto_plan, ready=container_ready, describe=describe_container
)


# A mosquitto that speaks TLS, to everybody or to subscribers alone: keys made for one run, and what broker and clients hear of them.
#
# Everything lies in one folder that goes with the broker's data, and that a restart keeps. Lines of a listener: `mosquitto.conf(5)
# <https://mosquitto.org/man/mosquitto-conf-5.html>`_, "Certificate based SSL/TLS Support".

TLS_MANAGED: Final = frozenset(
    {"cafile", "capath", "certfile", "keyfile", "require_certificate", "tls_version", "ciphers", "ciphers_tls1.3"},
)
_LEAST: Final = {"TLSv1.2": "tlsv1.2", "TLSv1.3": "tlsv1.3"}  # as mosquitto spells it; newer ones are taken too


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsListener:
    """What a listener and its clients are told.

    :param lines: that stand below ``listener``. :param client: for ``driver.tls``. :param told: what of the lines decides results.
    """

    lines: Mapping[str, str] = field(default_factory=dict)
    client: Tls
    told: Mapping[str, str] = field(default_factory=dict)


def tls_listener(folder: Path, asked: SecuritySection, wanted: Tls | None) -> TlsListener:
    """Make the keys.

    :param folder: does not exist yet. :param wanted: has version and ciphers; None: what the broker takes by itself.
    """
    from pytest_loadtest.brokers.certificates import keys_of_run

    folder.mkdir(mode=0o700)
    keys = keys_of_run(folder, client=ROLE if asked.auth else None)
    told = _limits(wanted or Tls())
    lines = {"certfile": str(keys.server.certificate), "keyfile": str(keys.server.key), **told}
    client = Tls(ca_file=str(keys.authority))
    if keys.client is not None:
        lines |= {"cafile": str(keys.authority), "require_certificate": "true"}
        client = Tls(ca_file=client.ca_file, cert_file=str(keys.client.certificate), key_file=str(keys.client.key))
    return TlsListener(lines=lines, client=client, told=told)


def _limits(wanted: Tls) -> dict[str, str]:
    ciphers = {"ciphers": ":".join(wanted.of_tls12), "ciphers_tls1.3": ":".join(wanted.of_tls13)}
    return {"tls_version": _LEAST[wanted.versions[0]]} | {key: names for key, names in ciphers.items() if names}
