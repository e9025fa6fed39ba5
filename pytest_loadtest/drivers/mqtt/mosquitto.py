"""mosquitto as a process or container, with its own configuration on a free port.

Source of the settings: `mosquitto.conf(5) <https://mosquitto.org/man/mosquitto-conf-5.html>`_.

With ``persistence: true`` in the profile's ``broker.settings``, mosquitto saves sessions,
subscriptions and messages when it ends normally and every ``autosave_interval`` seconds, by default
1800. After a SIGKILL it restores the last of these states.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pytest_loadtest.brokers.base import (
    BrokerFacts,
    BrokerRequest,
    UnavailableError,
    refuse_managed,
)
from pytest_loadtest.brokers.container import (
    CONF,
    ContainerPlan,
    ContainerRecipe,
    publishing_address,
    with_conf,
)
from pytest_loadtest.brokers.process import Child
from pytest_loadtest.brokers.starting import (
    Progress,
    StartedBroker,
    listens,
    on_free_ports,
    serves,
    wait_ready,
)
from pytest_loadtest.drivers.mqtt.secured import (
    TlsListener,
    mosquitto_listener,
    ports_of,
    with_listener,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.brokers.docker_engine import RunningContainer


START_SECONDS = 20.0
REMEDY = "apt-get install mosquitto, or python -m pytest_loadtest doctor --fix"
MANAGED = frozenset({"listener", "port", "bind_address", "user", "pid_file"})
TLS_MANAGED: Final = frozenset(
    {
        "cafile",
        "capath",
        "certfile",
        "keyfile",
        "require_certificate",
        "tls_version",
        "ciphers",
        "ciphers_tls1.3",
    },
)
# Settings of one listener: mosquitto.conf(5), "Listeners", and
# "Authentication" with per_listener_settings.
OF_LISTENERS: Final = frozenset(
    {
        "accept_protocol_versions",
        "acl_file",
        "allow_anonymous",
        "allow_zero_length_clientid",
        "auto_id_prefix",
        "bind_interface",
        "max_connections",
        "max_qos",
        "max_topic_alias",
        "max_topic_alias_broker",
        "mount_point",
        "password_file",
        "protocol",
        "socket_domain",
        "use_username_as_clientid",
    }
)
# Settings that affect results, with mosquitto's defaults.
DECISIVE = {
    "max_queued_messages": "1000",
    "max_inflight_messages": "20",
    "queue_qos0_messages": "false",
    "set_tcp_nodelay": "false",
    "persistence": "false",
}


def start_mosquitto(request: BrokerRequest, progress: Progress) -> StartedBroker:
    """Start mosquitto, which is ready within a second.

    :raises UnavailableError: mosquitto is not installed, or not in the requested version.
    :raises TargetError: it did not start; the error contains its log.
    """
    binary = find_mosquitto()
    if binary is None:
        raise UnavailableError("no mosquitto on the PATH or in /usr/sbin", REMEDY)
    version = installed_version(binary)
    check_version(version, request.version)
    return on_free_ports(
        ports_of(request.security), lambda ports: _launch(binary, version, ports, request, progress)
    )


def find_mosquitto() -> str | None:
    """Return the path of mosquitto, or None.

    Debian installs it in a folder that is only on root's PATH.
    """
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def installed_version(binary: str) -> str:
    """Return the version that ``mosquitto -h`` prints."""
    # The exit status depends on the version (0 or 3), so it is not checked.
    answer = subprocess.run([binary, "-h"], capture_output=True, text=True, timeout=10, check=False)
    return parse_version(answer.stdout + answer.stderr)


def parse_version(text: str) -> str:
    """Return ``2.0.11`` from ``mosquitto version 2.0.11 …``; ``unknown`` if there is no version."""
    match = re.search(r"mosquitto version (\S+)", text)
    return match[1] if match else "unknown"


def check_version(installed: str, requested: str | None) -> None:
    """Check a version; ``2`` and ``2.0`` accept 2.0.11.

    :raises UnavailableError: another version is installed.
    """
    if requested is not None and not (installed + ".").startswith(requested + "."):
        raise UnavailableError(
            f"mosquitto {installed} is installed, not {requested}",
            "use --load-broker-mode container for another version",
        )


def mosquitto_conf(
    *,
    port: int,
    settings: Mapping[str, str],
    user: str | None,
    data: str,
    address: str = "127.0.0.1",
    tls: Mapping[str, str] = MappingProxyType({}),
    tls_port: int | None = None,
) -> str:
    """Return the text of ``mosquitto.conf``.

    Our lines and the profile's, which replace ours with the same key.

    :param user: user of a mosquitto that root starts; None: its own choice.
    :param data: folder that this user can write to.
    :param tls: lines of the TLS listener.
    :param tls_port: port of the TLS listener if there is also a plain one: the profile's
        settings of a listener apply to both.
    :raises UsageError: the profile sets a key that the plugin must set.
    """
    refuse_managed("mosquitto", settings, MANAGED | (TLS_MANAGED if tls else frozenset()))
    # Started as root, mosquitto would switch to its own user,
    # which cannot write to the run's folder.
    lines = {"user": user} if user else {}
    lines |= {
        "listener": f"{port} {address}",
        "allow_anonymous": "true",
        # Without it, Nagle's algorithm delays single messages by up to 40 ms.
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
    # The lines of a listener follow its "listener" line, and each listener has its own.
    for_listeners = {key: value for key, value in lines.items() if key in OF_LISTENERS}
    return _text(lines) + _text({"listener": f"{tls_port} {address}", **for_listeners, **tls})


def _text(lines: Mapping[str, str]) -> str:
    return "".join(f"{key} {value}\n" for key, value in lines.items())


def decisive_mosquitto_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that affect results, for the report.

    They are the defaults, then ours, then the profile's.
    """
    return DECISIVE | {"set_tcp_nodelay": "true"} | dict(settings)


def listener_scheme(settings: Mapping[str, str]) -> str:
    """Return ``mqtts`` if the profile gives the listener a certificate, else ``mqtt``."""
    return "mqtts" if "certfile" in settings else "mqtt"


def _user() -> str | None:
    # In a container the user may have no name. It is not root then, and mosquitto does not switch.
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None


def _launch(
    binary: str, version: str, ports: tuple[int, ...], request: BrokerRequest, progress: Progress
) -> StartedBroker:
    folder = request.folder.resolve()
    name = f"mosquitto {version}"
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    secured = mosquitto_listener(data / "security", request)
    path = folder / "mosquitto.conf"
    path.write_text(
        mosquitto_conf(
            port=ports[0],
            settings=request.settings,
            user=_user(),
            data=str(data),
            tls=secured.lines if secured else {},
            tls_port=ports[1] if len(ports) > 1 else None,
        )
    )
    progress(f"starting {name}")
    child = Child([binary, "-c", str(path)], folder=folder, ports=ports)
    wait = partial(wait_ready, child, partial(serves, ports), name, START_SECONDS, progress)
    wait()
    return StartedBroker(_facts(version, ports, request, secured), child, wait)


def _facts(
    version: str, ports: tuple[int, ...], request: BrokerRequest, secured: TlsListener | None
) -> BrokerFacts:
    facts = BrokerFacts(
        name="mosquitto",
        version=version,
        mode="process",
        url=f"{listener_scheme(request.settings)}://127.0.0.1:{ports[0]}",
        settings=decisive_mosquitto_settings(request.settings),
    )
    return with_listener(facts, request, secured, ports[-1:])


# mosquitto as a container: Eclipse's image or the user's, with
# the same configuration as the process.

CONTAINER_TAG = "2"
CONTAINER_DATA = "/mosquitto/data"  # a folder of the image that its user can write to


def mosquitto_plan(
    *, image: str, ports: tuple[int, ...], settings: Mapping[str, str], host: str
) -> ContainerPlan:
    """Return the plan of a container that runs mosquitto on one port."""
    (port,) = ports
    return ContainerPlan(
        name="mosquitto",
        image=image,
        command=with_conf("/tmp/mosquitto.conf", "mosquitto -c /tmp/mosquitto.conf"),
        env={
            CONF: mosquitto_conf(
                port=port, settings=settings, user=None, data=CONTAINER_DATA, address="0.0.0.0"
            )
        },
        ports=ports,
        url=f"{listener_scheme(settings)}://{host}:{port}",
        address=publishing_address(host),
    )


def mosquitto_image(version: str | None) -> str:
    """Return the name of Eclipse's image. :param version: its tag; None: the default."""
    return f"eclipse-mosquitto:{version or CONTAINER_TAG}"


def mosquitto_ready(plan: ContainerPlan) -> bool:
    """Return True if the broker accepts a connection."""
    host, _, port = plan.url.partition("://")[2].rpartition(":")
    return listens(host, int(port))


def describe_mosquitto(
    plan: ContainerPlan, running: RunningContainer, settings: Mapping[str, str]
) -> tuple[str, Mapping[str, str]]:
    """Return the version that the binary in the container prints.

    The second value are the settings that affect results.
    """
    return parse_version(running.run(["mosquitto", "-h"])), decisive_mosquitto_settings(settings)


RECIPE: Final = ContainerRecipe(
    default_image=mosquitto_image,
    ports=1,
    plan=mosquitto_plan,
    ready=mosquitto_ready,
    describe=describe_mosquitto,
)
